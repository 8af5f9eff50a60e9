"""`start_timeout`, `call_timeout` and the end of a client's input through a relay, in virtual time: which requests are
awaited, and what client and server receive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import pytest

from samplegate.policy.capabilities import SessionRules
from samplegate.policy.prompt import SampleRequest, SampleResult
from samplegate.protocol.bridge.negotiation import EraNegotiator
from samplegate.protocol.frames import Protocol
from samplegate.protocol.rounds import Conclusion, Note, Round
from samplegate.protocol.session_state import SessionState
from samplegate.runtime.relay import Relay, enforce_timeouts
from tests.fakes.dialogue import ALLOW, FORWARD, SEAL_KEYS, Dialogue, form, modern, request, result, sample
from tests.fakes.gate_ports import SAMPLED
from tests.fakes.relay import FakeLink, RelayPorts
from tests.fakes.virtual_time import VIRTUAL

pytestmark = pytest.mark.anyio
START: Final = 30.0
CALL: Final = 4.0
LONG: Final = 1_000.0  # seconds after which a conversation is over
PAIRS: Final = [(client, server) for client in ("legacy", "modern") for server in ("legacy", "modern")]
META: Final = "io.modelcontextprotocol/"
QUESTIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "sample": ("sampling/createMessage", sample()),
    "form": ("elicitation/create", form()),
    "roots": ("roots/list", {}),
    "ping": ("ping", {}),
}
FOUND: Final = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "private",
}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL


class Server(FakeLink):
    """A server of one protocol version, or one that never responds. The arguments of a call select its behavior."""

    def __init__(self, era: str) -> None:
        super().__init__(lambda: None)
        self.era = era
        self.relay: Relay
        self._asked: dict[str, dict[str, Any]] = {}

    def send(self, line: bytes) -> None:
        super().send(line)
        self.take()
        if self.era != "silent":
            self._got(json.loads(line))

    def says(self, frame: Mapping[str, Any], after: float = 0.0) -> None:
        asyncio.get_running_loop().call_later(after, self.relay.server.received, json.dumps(frame).encode())

    def _got(self, frame: dict[str, Any]) -> None:
        match self.era, frame.get("method"):
            case "legacy", "initialize":
                version = frame["params"]["protocolVersion"]
                self.says(result(frame["id"], protocolVersion=version, capabilities={"tools": {}}, serverInfo={}))
            case "modern", "server/discover":
                self.says(result(frame["id"], **FOUND))
            case _, "tools/call":
                self._work(frame)
            case _, None if frame["id"] in self._asked:
                call = self._asked.pop(frame["id"])
                self._end(call, call["params"]["arguments"]["then"], [frame.get("result", frame.get("error"))])
            case _, "subscriptions/listen":
                pass
            case _ if "id" in frame and "method" in frame:
                self.says({"jsonrpc": "2.0", "id": frame["id"], "error": {"code": -32601, "message": "unknown"}})

    def _work(self, call: dict[str, Any]) -> None:
        arguments = call["params"]["arguments"]
        what = arguments.get("ask", "sample")
        for step in range(arguments.get("progress", 0)):
            token = call["params"]["_meta"]["progressToken"]
            progress = {"progressToken": token, "progress": step + 1}
            self.says({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}, CALL / 2 * (step + 1))
        if "then" in arguments and self.era == "legacy":
            self._asked[what] = call
            self.says(request(what, QUESTIONS[what][0], **QUESTIONS[what][1]), arguments.get("seconds", 0.0))
        elif "then" in arguments and "inputResponses" in call["params"]:
            self._end(call, arguments["then"], list(call["params"]["inputResponses"].values()))
        elif "then" in arguments:
            asked = {"k": dict(zip(("method", "params"), QUESTIONS[what], strict=True))}
            self.says(
                result(call["id"], resultType="input_required", inputRequests=asked), arguments.get("seconds", 0.0)
            )
        elif not arguments.get("never"):
            self._end(call, arguments.get("seconds", 0.0) + CALL / 2 * arguments.get("progress", 0))

    def _end(self, call: dict[str, Any], after: float, got: list[Any] | None = None) -> None:
        more = {"resultType": "complete"} if self.era == "modern" else {}
        self.says(result(call["id"], content=[], structuredContent={"got": got}, **more), after)


class Conversation:
    """A client that waits for each response, the relay, and a server."""

    def __init__(self, client: str, server: str, *, protocol: Protocol = "auto", name: str = "default") -> None:
        self.era, self.notes, self.silent = client, list[Note](), list[float]()
        self.ports = RelayPorts(self._model)
        self.dialogue = Dialogue(ALLOW, FORWARD, servers={"patient": {"extends_on_progress": True}})
        session = EraNegotiator(
            SessionState(SessionRules(self.dialogue.compiled), name, "t", SEAL_KEYS), None, protocol=protocol
        )
        self.relay = Relay(session, self._round, clock=anyio.current_time, note=self.notes.append)
        self._heard = anyio.Event()
        self.client = FakeLink(lambda: self._heard.set())
        self.server = Server(server)
        self.server.relay = self.ports.relay = self.relay
        self.relay.connect(self.client, self.server)

    async def _round(self, round: Round) -> Conclusion:
        return await self.ports.gate(self.dialogue).run(round)

    async def _model(self, _: SampleRequest) -> SampleResult:
        await anyio.sleep(3 * CALL)  # it takes its time
        return SAMPLED

    def run(self, act: Callable[[], Awaitable[None]], *, call: float = 0.0) -> Awaitable[None]:
        """Run ``act`` with the timeouts in force."""

        async def until() -> None:
            self.relay.start(enforce_timeouts, START, call, self._silent, self.relay)
            with anyio.fail_after(LONG):
                await act()

        return self.relay.run(until)

    def _silent(self) -> None:
        self.silent.append(anyio.current_time())

    def writes(self, id: Any, method: str, **params: Any) -> None:
        frame = (modern if self.era == "modern" else request)(id, method, **params)
        if "token" in params.get("arguments", {}):
            frame["params"].setdefault("_meta", {})["progressToken"] = "p"
        self.relay.client.received(json.dumps(frame).encode())

    def calls(self, id: Any, **arguments: Any) -> None:
        self.writes(id, "tools/call", name="work", arguments=arguments)

    async def answer(self, id: Any) -> dict[str, Any]:
        while True:
            for frame in self.client.frames:
                if frame.get("id") == id and "method" not in frame:
                    return frame  # type: ignore[no-any-return]
            self._heard = anyio.Event()
            await self._heard.wait()

    async def opens(self) -> None:
        if self.era == "modern":
            self.writes(0, "server/discover")
        else:
            able: dict[str, Any] = {"elicitation": {}, "roots": {}}
            self.writes(0, "initialize", protocolVersion="2025-11-25", capabilities=able, clientInfo={})
        assert "result" in await self.answer(0)

    def got(self, method: str) -> list[Any]:
        """The requests of one method that the server got."""
        return [frame for frame in self.server.frames if frame.get("method") == method]


class TestStart:
    """The first request."""

    @pytest.mark.parametrize("protocol", ["auto", "legacy", "modern"])
    @pytest.mark.parametrize(
        ("client", "first"),
        [
            ("legacy", "initialize"),
            ("legacy", "tools/call"),
            ("modern", "server/discover"),
            ("modern", "tools/call"),
            ("modern", "subscriptions/listen"),
        ],
    )
    async def test_a_server_that_answers_nothing_is_given_up_and_whoever_waits_is_told(
        self, client: str, first: str, protocol: Protocol
    ) -> None:
        conversation = Conversation(client, "silent", protocol=protocol)
        answered_by_us = protocol == "legacy" and first == "server/discover"

        async def act() -> None:
            await anyio.sleep(2 * START)  # a server may take its time while its client says nothing
            began = anyio.current_time()
            conversation.writes("f", first, **({"name": "work", "arguments": {}} if first == "tools/call" else {}))
            answer = await conversation.answer("f")
            if answered_by_us:
                assert -32601 == answer["error"]["code"]
                return
            assert "setting start_timeout" in json.dumps(answer["error"])
            await conversation.relay.server_gone.wait()
            assert [pytest.approx(began + START, abs=START)] == conversation.silent
            assert began + START <= conversation.silent[0]

        await conversation.run(act)
        assert answered_by_us is (not conversation.relay.server_gone.is_set())

    @pytest.mark.parametrize("protocol", ["auto", "modern"])
    @pytest.mark.parametrize("client", ["legacy", "modern"])
    async def test_a_first_call_may_take_longer_where_the_server_lives(self, client: str, protocol: Protocol) -> None:
        conversation = Conversation(client, "modern", protocol=protocol)

        async def act() -> None:
            conversation.calls(1, seconds=3 * START)
            conversation.calls(2)
            assert ["result", "result"] == [
                *((await conversation.answer(2)).keys() & {"result", "error"}),
                *((await conversation.answer(1)).keys() & {"result", "error"}),
            ]

        await conversation.run(act)
        assert (2, []) == (len(conversation.got("tools/call")), conversation.silent)


class TestCalls:
    """Later requests."""

    @pytest.mark.parametrize(("client", "server"), PAIRS)
    async def test_a_call_that_is_not_answered_ends_with_an_error_and_a_cancellation(
        self, client: str, server: str
    ) -> None:
        conversation = Conversation(client, server)

        async def act() -> None:
            await conversation.opens()
            began = anyio.current_time()
            conversation.calls(1, never=True)
            assert {"code": -32603, "message": "the server did not answer within 4s (setting call_timeout)"} == (
                await conversation.answer(1)
            )["error"]
            assert CALL <= anyio.current_time() - began <= 2 * CALL
            conversation.calls(2)
            assert "result" in await conversation.answer(2)

        await conversation.run(act, call=CALL)
        (call, _), (cancelled,) = conversation.got("tools/call"), conversation.got("notifications/cancelled")
        assert call["id"] == cancelled["params"]["requestId"]
        (note,) = [note for note in conversation.notes if note.event == "call.timed_out"]
        assert ("default", "tools/call", "work", CALL) == tuple(
            note.fields[name] for name in ("server", "method", "tool", "seconds")
        )

    @pytest.mark.parametrize(("name", "is_answered"), [("patient", True), ("default", False)])
    @pytest.mark.parametrize(("client", "server"), PAIRS)
    async def test_progress_begins_the_wait_anew_where_the_policy_says_so(
        self, client: str, server: str, name: str, is_answered: bool
    ) -> None:
        conversation = Conversation(client, server, name=name)

        async def act() -> None:
            await conversation.opens()
            conversation.calls(1, token=True, progress=8)
            assert is_answered is ("result" in await conversation.answer(1))

        await conversation.run(act, call=CALL)

    @pytest.mark.parametrize("client", ["legacy", "modern"])
    async def test_the_time_in_which_the_server_waits_for_an_answer_does_not_count(self, client: str) -> None:
        conversation = Conversation(client, "legacy")

        async def act() -> None:
            await conversation.opens()
            conversation.calls(1, then=CALL / 4)
            assert "result" in await conversation.answer(1)
            assert 3 * CALL < anyio.current_time()

        await conversation.run(act, call=CALL)

    async def test_a_listen_has_no_timeout(self) -> None:
        conversation = Conversation("modern", "modern")

        async def act() -> None:
            await conversation.opens()
            conversation.writes("l", "subscriptions/listen", notifications={})
            await anyio.sleep(5 * CALL)

        await conversation.run(act, call=CALL)
        assert ([], []) == (conversation.got("notifications/cancelled"), conversation.relay.session.open_calls())
        assert [0] == [frame["id"] for frame in conversation.client.frames if "id" in frame]


class TestEndOfInput:
    """A client that closes its input and still reads."""

    @pytest.mark.parametrize(("client", "server"), PAIRS)
    async def test_calls_in_flight_are_waited_for_and_answered(self, client: str, server: str) -> None:
        conversation = Conversation(client, server)

        async def act() -> None:
            await conversation.opens()
            conversation.calls(1, seconds=2 * CALL)
            conversation.calls(2)
            began = anyio.current_time()
            conversation.relay.client_silent()
            await conversation.relay.all_answered()
            assert 2 * CALL == pytest.approx(anyio.current_time() - began)

        await conversation.run(act)
        assert [True, True] == ["result" in await conversation.answer(id) for id in (1, 2)]

    @pytest.mark.parametrize(
        ("ask", "server", "got"),
        [
            ("sample", "legacy", '"text": "hi"'),
            ("sample", "modern", '"text": "hi"'),
            ("form", "legacy", '"action": "cancel"'),
            ("form", "modern", '"action": "cancel"'),
            ("roots", "legacy", "the client closed its input and cannot be asked"),
            ("ping", "legacy", "[{}]"),
        ],
    )
    async def test_what_the_server_asks_after_it_is_answered_without_the_client(
        self, ask: str, server: str, got: str
    ) -> None:
        conversation = Conversation("legacy", server)

        async def act() -> None:
            await conversation.opens()
            conversation.calls(1, ask=ask, seconds=CALL, then=0.0)
            conversation.relay.client_silent()
            await conversation.relay.all_answered()

        await conversation.run(act)
        answer = await conversation.answer(1)
        assert got in json.dumps(answer), answer
        assert not [frame for frame in conversation.client.frames if "method" in frame and ask != "ping"]

    @pytest.mark.parametrize(("ask", "method"), [("form", "elicitation/create"), ("roots", "roots/list")])
    async def test_what_the_client_was_asked_before_it_is_answered(self, ask: str, method: str) -> None:
        conversation = Conversation("legacy", "legacy")

        async def act() -> None:
            await conversation.opens()
            conversation.calls(1, ask=ask, then=0.0)
            await anyio.sleep(CALL)
            assert method in [frame.get("method") for frame in conversation.client.frames]
            conversation.relay.client_silent()
            await conversation.relay.all_answered()

        await conversation.run(act)
        assert (await conversation.answer(1))["result"]["structuredContent"]["got"][0]["code"] < 0
