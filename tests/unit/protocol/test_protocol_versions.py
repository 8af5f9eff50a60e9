"""The protocol version that the gate uses with a server, in process: configured for each server, or learned from a call
that failed because the server pushed a request. tests/system/gate/test_protocol_version.py tests the same with running
gates."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final, cast

import anyio
import pytest

from samplegate.policy.capabilities import SessionRules
from samplegate.protocol.bridge.negotiation import EraNegotiator
from samplegate.protocol.frames import Protocol
from samplegate.protocol.rounds import Conclusion, Note, Round
from samplegate.protocol.session_state import SessionState
from samplegate.runtime import evidence_files
from samplegate.runtime.evidence_files import EvidenceStore, key_of
from samplegate.runtime.process import compile_loaded, load_policy
from samplegate.runtime.relay import Relay
from tests.fakes.dialogue import SEAL_KEYS, Dialogue
from tests.fakes.gate_ports import Silent
from tests.fakes.programs.pushing import Pushing
from tests.fakes.relay import FakeLink, RelayPorts
from tests.fakes.version_runs import (
    ANSWERS,
    CAPABLE,
    DISCOVER,
    FORWARDS,
    FROM_CLIENT,
    INITIALIZE,
    META,
    WARNING,
    call,
    legacy,
    modern,
    text,
)
from tests.fakes.virtual_time import VirtualLoop

BOUND: Final = 1_000.0


class End(FakeLink):
    """A peer that reads each line at once and responds in the next turn of the loop."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.relay: Relay
        self.came = anyio.Event()

    def send(self, line: bytes) -> None:
        super().send(line)
        self.take()
        self.got(json.loads(line))

    def got(self, frame: dict[str, Any]) -> None:
        raise NotImplementedError


class Server(End):
    """The server of ``programs/pushing.py``."""

    def __init__(self, sign: str) -> None:
        super().__init__()
        self._server = Pushing(sign, self._write)

    def got(self, frame: dict[str, Any]) -> None:
        self._server.took(frame)

    def _write(self, frame: dict[str, Any]) -> None:
        asyncio.get_running_loop().call_soon(self.relay.server.received, json.dumps(frame).encode())


class Client(End):
    """A client that waits for each response and answers the server's requests as a user would."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: dict[Any, dict[str, Any]] = {}

    def got(self, frame: dict[str, Any]) -> None:
        if "method" not in frame:
            self._answers[frame["id"]] = frame
            self.came.set()
        elif frame["method"] == "sampling/createMessage":
            self._write({"jsonrpc": "2.0", "id": frame["id"], "result": FROM_CLIENT})

    def _write(self, frame: dict[str, Any]) -> None:
        asyncio.get_running_loop().call_soon(self.relay.client.received, json.dumps(frame).encode())

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._write(request)
        while request["id"] not in self._answers:
            self.came = anyio.Event()
            await self.came.wait()
        return self._answers.pop(request["id"])


class Run:
    """Consecutive conversations with one server. Each knows what earlier ones kept in the state folder; ``logged`` is
    the log of the last one."""

    def __init__(
        self, folder: Path, sign: str, policy: str = ANSWERS, options: tuple[str, ...] = (), state: bool = True
    ) -> None:
        self.logged = ""
        self._sign, self._state = sign, folder / "state" if state else Path()
        self._protocol = cast(Protocol, options[1] if options else "auto")
        self._seen: list[dict[str, Any]] = []
        self._dialogue = Dialogue()
        self._dialogue.compiled = compile_loaded(load_policy(policy, file="policy.yaml", environment={}), folder)

    def __call__(self, *requests: dict[str, Any], sign: str | None = None) -> list[dict[str, Any]]:
        """The responses to a client that waits for each before its next request."""
        log = Silent()
        key = key_of("default", ["server", sign or self._sign], None)
        witnessed = EvidenceStore("default", key, state=self._state, setting="--protocol legacy", log=log)
        server = Server(sign or self._sign)

        async def converse() -> list[dict[str, Any]]:
            ports, client = RelayPorts(), Client()

            async def run_round(round: Round) -> Conclusion:
                return await ports.gate(self._dialogue).run(round)

            def note(said: Note) -> None:
                if self._protocol == "auto":
                    witnessed.take(said)

            state = SessionState(SessionRules(self._dialogue.compiled), "default", "t", SEAL_KEYS)
            prefers = witnessed.evidence.prefers_legacy
            session = EraNegotiator(state, None, protocol=self._protocol, prefers_legacy=prefers)
            relay = Relay(session, run_round, clock=anyio.current_time, note=note)
            ports.relay = client.relay = server.relay = relay
            relay.connect(client, server)
            answers: list[dict[str, Any]] = []

            async def act() -> None:
                with anyio.fail_after(BOUND):
                    answers.extend([await client.ask(request) for request in requests])

            await relay.run(act)
            return answers

        answers: list[dict[str, Any]] = anyio.run(converse, backend_options={"loop_factory": VirtualLoop})
        self._seen += server.frames
        self.logged = "\n".join(json.dumps([event, fields]) for event, fields in log.events)
        return answers

    def at_server(self) -> list[str]:
        """The requests that the server got since the last call, oldest first; ``+`` marks a request of 2026-07-28."""
        asked = [frame for frame in self._seen if "method" in frame and "id" in frame]
        self._seen = []
        return [
            frame["method"] + "+" * (f"{META}protocolVersion" in frame["params"].get("_meta", {})) for frame in asked
        ]


# -- the setting
# ----------------------------------------------------------------------------------------------------------------------


def test_with_legacy_a_client_that_can_fall_back_does_so_and_nothing_is_bridged(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", FORWARDS, ("--protocol", "legacy"))
    asked, begun, pushed = run(DISCOVER, INITIALIZE, legacy(1, "tools/call", name="push", arguments={}))
    assert -32601 == asked["error"]["code"]
    assert "2025-11-25" == begun["result"]["protocolVersion"]
    assert "from the client" == text(pushed)
    assert ["initialize", "tools/call"] == run.at_server()


def test_with_legacy_discovery_is_refused_also_where_a_bridge_would_lose_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", ANSWERS, ("--protocol", "legacy"))
    (asked,) = run(modern(80, "server/discover", {}))
    assert -32601 == asked["error"]["code"]
    assert [] == run.at_server()


def test_with_legacy_a_client_pinned_to_the_modern_version_gets_the_bridge(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", ANSWERS, ("--protocol", "legacy"))
    (pushed,) = run(call(1, "push", {}))
    assert ("complete", "from the policy") == (pushed["result"]["resultType"], text(pushed))
    assert ["initialize", "tools/call"] == run.at_server()


def test_with_legacy_a_server_that_refuses_the_handshake_is_never_spoken_to_otherwise(tmp_path: Path) -> None:
    run = Run(tmp_path, "new", ANSWERS, ("--protocol", "legacy"))
    assert "error" in run(call(1, "plain"))[0]
    assert -32022 == run(INITIALIZE)[0]["error"]["code"]
    assert ["initialize", "initialize"] == run.at_server()


def test_with_modern_the_gate_never_falls_back(tmp_path: Path) -> None:
    run = Run(tmp_path, "old", ANSWERS, ("--protocol", "modern"))
    asked, begun = run(DISCOVER, INITIALIZE)
    assert -32601 == asked["error"]["code"]
    assert "error" in begun
    (early,) = run(legacy(1, "tools/list"))
    assert "error" in early
    assert {"server/discover+", "tools/list+"} == set(run.at_server())


def test_with_modern_a_legacy_client_has_a_server_of_2026_07_28_behind_the_bridge(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", FORWARDS, ("--protocol", "modern"))
    begun, asked, pushed = run(
        INITIALIZE, *(legacy(n, "tools/call", name=tool, arguments={}) for n, tool in enumerate(("round", "push")))
    )
    assert "2025-11-25" == begun["result"]["protocolVersion"]
    assert "from the client after a round" == text(asked)
    assert -32600 == pushed["error"]["code"]
    assert ["server/discover+", "tools/call+", "tools/call+", "tools/call+"] == run.at_server()
    assert WARNING not in run.logged


# -- what auto learns
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["error", "result"])
def test_a_call_that_failed_because_the_server_pushed_is_learned_from(tmp_path: Path, sign: str) -> None:
    run = Run(tmp_path, sign, FORWARDS)
    found, failed, again = run(DISCOVER, call(1, "push"), call(2, "push"))
    assert ["2026-07-28"] == found["result"]["supportedVersions"]
    assert "sampling/createMessage" in str(failed)
    assert "sampling/createMessage" in str(again)  # this connection keeps its protocol version
    assert 1 == run.logged.count(WARNING)
    assert "--protocol legacy" in next(line for line in run.logged.splitlines() if WARNING in line)
    assert ["server/discover+", "tools/call+", "tools/call+"] == run.at_server()  # no call is repeated
    asked, _, pushed = run(DISCOVER, INITIALIZE, legacy(1, "tools/call", name="push", arguments={}))
    assert -32601 == asked["error"]["code"]
    assert "from the client" == text(pushed)
    assert WARNING not in run.logged
    assert ["initialize", "tools/call"] == run.at_server()


def test_a_client_that_needs_no_fallback_gets_the_bridge_once_it_is_learned(tmp_path: Path) -> None:
    run = Run(tmp_path, "error")
    run(call(1, "push", {}))
    asked, pushed = run(modern(80, "server/discover", {}), call(1, "push", {}))
    assert ["2026-07-28"] == asked["result"]["supportedVersions"]
    assert "from the policy" == text(pushed)


def test_what_was_not_declared_to_the_server_teaches_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", FORWARDS)
    run(call(1, "push", {}))
    assert WARNING not in run.logged
    assert not (tmp_path / "state" / "servers").exists()


@pytest.mark.parametrize("extension", ["tasks", "ui"])
def test_a_client_that_declared_the_tasks_or_the_ui_extension_is_never_downgraded(
    tmp_path: Path, extension: str
) -> None:
    run = Run(tmp_path, "error")
    run(call(1, "push"))
    run.at_server()
    able = {**CAPABLE, "extensions": {f"{META}{extension}": {}}}
    asked, plain = run(modern(80, "server/discover", able), call(1, "plain", able))
    assert ["2026-07-28"] == asked["result"]["supportedVersions"]
    assert "plain" == text(plain)
    assert "plain" == text(run(call(1, "plain", able))[0])
    assert "initialize" not in run.at_server()


@pytest.mark.parametrize("tool", ["round", "task"])
@pytest.mark.parametrize("order", ["asked first", "pushed first", "asked in another connection"])
def test_a_server_that_ever_returned_a_round_or_a_task_is_never_downgraded(
    tmp_path: Path, tool: str, order: str
) -> None:
    run = Run(tmp_path, "error")
    calls = [call(1, tool), call(2, "push")]
    for connection in (
        [calls] if order == "asked first" else [calls[::-1]] if order == "pushed first" else [[one] for one in calls]
    ):
        run(*connection)
    run.at_server()
    run(call(1, "plain"))
    assert ["server/discover+", "tools/call+"] == run.at_server()


def test_a_server_that_made_a_task_in_the_legacy_versions_is_never_downgraded(tmp_path: Path) -> None:
    run = Run(tmp_path, "error")
    run(INITIALIZE, legacy(1, "tools/call", name="task", arguments={}, task={}))
    run(call(1, "push"))
    assert WARNING not in run.logged
    run.at_server()
    run(call(1, "plain"))
    assert ["server/discover+", "tools/call+"] == run.at_server()


def test_a_server_that_refuses_the_handshake_is_spoken_to_as_before(tmp_path: Path) -> None:
    run = Run(tmp_path, "new")
    run(call(1, "push"))
    run.at_server()
    assert "plain" == text(run(call(1, "plain"))[0])
    assert ["initialize", "tools/call+"] == run.at_server()
    assert "plain" == text(run(call(1, "plain"))[0])
    assert ["server/discover+", "tools/call+"] == run.at_server()


def test_a_server_that_speaks_nothing_older_is_not_learned_from(tmp_path: Path) -> None:
    run = Run(tmp_path, "new")
    assert -32600 == run(INITIALIZE, legacy(1, "tools/call", name="push", arguments={}))[1]["error"]["code"]
    assert WARNING not in run.logged


def test_another_command_of_the_same_name_is_another_server(tmp_path: Path) -> None:
    run = Run(tmp_path, "error")
    run(call(1, "push"))
    run.at_server()
    run(call(1, "plain"), sign="result")
    assert ["server/discover+", "tools/call+"] == run.at_server()


def test_without_a_state_folder_nothing_is_remembered_and_nothing_fails(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", state=False)
    for _ in range(2):
        assert -32600 == run(call(1, "push"))[0]["error"]["code"]
        assert WARNING in run.logged


@pytest.mark.parametrize("broken", ["a file", "full of other things"])
def test_a_state_folder_in_disorder_keeps_nothing_from_running(
    tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_files, "MAX_MARKERS", 300)
    run = Run(tmp_path, "error")
    (tmp_path / "state").mkdir()
    if broken == "a file":
        (tmp_path / "state" / "servers").write_text("not a folder")
    else:
        (tmp_path / "state" / "servers").mkdir()
        for number in range(310):
            (tmp_path / "state" / "servers" / f"{number}.pushed").touch()
    assert -32600 == run(call(1, "push"))[0]["error"]["code"]
    assert WARNING in run.logged
    if broken != "a file":
        assert 301 > len(list((tmp_path / "state" / "servers").iterdir()))
        assert "from the policy" == text(run(call(1, "push"))[0])


ASKS = legacy(1, "tools/call", name="round", arguments={})
MAKES = legacy(1, "tools/call", name="task", arguments={}, task={})
LOST = "refused: the server turned the call into a task, but tasks were not offered"


@pytest.mark.parametrize(
    ("sign", "requests", "answer", "at_server"),
    [
        (
            "error",
            [DISCOVER, call(1, "round")],
            "from the policy after a round",
            ["server/discover+", "tools/call+", "tools/call+"],
        ),
        (
            "error",
            [call(1, "round", {})],
            "from the policy after a round",
            ["server/discover+", "tools/call+", "tools/call+"],
        ),
        ("error", [INITIALIZE, ASKS], "from the policy", ["initialize", "tools/call"]),
        ("error", [call(1, "task")], LOST, ["server/discover+", "tools/call+"]),
        ("error", [INITIALIZE, MAKES], "t1", ["initialize", "tools/call"]),
        ("old", [call(1, "round", {})], "from the policy", ["server/discover+", "initialize", "tools/call"]),
        ("old", [INITIALIZE, ASKS], "from the policy", ["initialize", "tools/call"]),
        ("old", [INITIALIZE, MAKES], "t1", ["initialize", "tools/call"]),
        (
            "new",
            [call(1, "round")],
            "from the policy after a round",
            ["server/discover+", "tools/call+", "tools/call+"],
        ),
        ("new", [call(1, "task")], LOST, ["server/discover+", "tools/call+"]),
        (
            "new",
            [INITIALIZE, ASKS],
            "from the policy after a round",
            ["initialize", "server/discover+", "tools/call+", "tools/call+"],
        ),
    ],
)
def test_servers_that_use_rounds_or_tasks_are_spoken_to_as_in_0_1_0(
    tmp_path: Path, sign: str, requests: list[dict[str, Any]], answer: str, at_server: list[str]
) -> None:
    """Twice, since the second connection uses the evidence of the first. These rows also hold for 0.1.0."""
    run = Run(tmp_path, sign)
    for _ in range(2):
        assert answer in json.dumps(run(*requests)[-1])
        assert at_server == run.at_server()
        assert WARNING not in run.logged
