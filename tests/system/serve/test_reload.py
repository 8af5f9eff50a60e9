"""A reload: checked against the addresses that are really bound, all or nothing, with the current environment and
keys."""

from __future__ import annotations

import hmac
import json
import signal
import sys
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from samplegate.audit.decision_log import NoDecisionLog
from samplegate.config.values import Address
from samplegate.errors import Unavailable
from samplegate.key_file import MAX_KEY_BYTES, MIN_KEY_BYTES, seal_keys
from samplegate.protocol.request_state import FOREIGN
from samplegate.runtime.process import ProcessContext
from samplegate.server.prepare import ServeConfig, read_all
from samplegate.server.reload import Changes, ReloadPlan, Reloads
from samplegate.telemetry.log import EventLog
from tests.fakes.daemon import ASK_FORM, asking, client, serving

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
HERE = Address("127.0.0.1", 8080)
EVERYWHERE = Address("0.0.0.0", 8080)
CALLERS = {"tokens": [{"name": "ada", "sha256": "ab" * 32}]}
POLICY: dict[str, Any] = {
    "version": 1,
    "rules": [{"name": "forms", "match": {"kind": "elicitation", "mode": "form"}, "effect": "deny"}],
}
MODEL = {"models": [{"name": "m", "model": "openai/gpt-4o", "api_key_env": "GATE_TEST_KEY"}]}
FORWARD = {**POLICY, "rules": [{**POLICY["rules"][0], "effect": "forward"}]}
SHOWS = """
import json, os, sys
for line in sys.stdin:
    frame = json.loads(line)
    if frame.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
    else:
        result = {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]}
    if "id" in frame:
        print(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}), flush=True)
"""  # noqa: E501


def write(folder: Path, policy: dict[str, Any] | None = None, **settings: Any) -> Path:
    (folder / "policy.yaml").write_text(json.dumps(policy or POLICY))
    at = folder / "samplegate.yaml"
    at.write_text(
        json.dumps(
            {"policy": "policy.yaml", "servers": {"one": {"command": "true"}}, "decision_log": "none", **settings}
        )
    )
    return at


def line(folder: Path) -> Namespace:
    none = dict.fromkeys(("policy", "listen", "admin_listen", "decision_log", "env_file", "url", "server"))
    return Namespace(
        settings=folder / "samplegate.yaml",
        state=folder / "state",
        command=[],
        header_from=[],
        header_env=[],
        protocol=None,
        **none,
    )


class FakeTargets:
    """Targets of a reload, which keep the changes in order."""

    held = 0

    def __init__(self, folder: Path, at: Address) -> None:
        self.wanted = read_all(line(folder))
        self.context = ProcessContext(
            self.wanted.rules, state=folder / "state", decisions=NoDecisionLog(), log=EventLog("error", "json")
        )
        self.reloads = Reloads(line(folder), self.wanted, self.context, self.prepare, at)
        self.done: list[str] = []
        self.fault: Exception | None = None
        self.fault_at_end: Exception | None = None
        self.context.enter(self)

    def prepare(self, wanted: ServeConfig) -> ReloadPlan:
        self.done.append("prepared")
        if self.fault is not None:
            raise self.fault
        return ReloadPlan(Changes(), lambda: self.done.append("others in force"), self.end)

    def swap(self) -> None:
        """Replace the rules, as a conversation does."""
        self.done.append("rules in force")

    async def end(self) -> None:
        self.done.append(f"ended under {self.context.rules.hash}")
        if self.fault_at_end is not None:
            raise self.fault_at_end


@asynccontextmanager
async def targets(folder: Path, at: Address = HERE) -> AsyncIterator[FakeTargets]:
    made = FakeTargets(folder, at)
    yield made
    await made.context.aclose()


async def test_callers_stay_while_other_machines_reach_the_listener_whatever_the_file_says_of_it(
    tmp_path: Path,
) -> None:
    write(tmp_path, listen="0.0.0.0:8080", callers=CALLERS)
    async with targets(tmp_path, EVERYWHERE) as w:
        write(tmp_path, listen="127.0.0.1:8080")
        report = await w.reloads.reload()
        assert "refused" == report.result
        assert report.problems[0].startswith(
            "listen: the gate listens on 0.0.0.0:8080, which is reachable from other machines without a token;"
        )
        assert "configure `callers:`" in report.problems[0]
        assert [] == w.done
        write(tmp_path, listen="127.0.0.1:8080", callers=CALLERS)
        assert ("unchanged", ("listen",)) == ((report := await w.reloads.reload()).result, report.restart)


async def test_what_only_this_machine_reaches_needs_no_callers_after_a_reload_either(tmp_path: Path) -> None:
    write(tmp_path, callers=CALLERS)
    async with targets(tmp_path) as w:
        write(tmp_path)
        assert ("changed", ("callers",)) == ((report := await w.reloads.reload()).result, report.settings)


async def test_rules_and_all_else_are_in_force_before_anything_that_is_gone_is_ended(tmp_path: Path) -> None:
    write(tmp_path)
    async with targets(tmp_path) as w:
        write(tmp_path, FORWARD)
        report = await w.reloads.reload()
        assert report.policy != report.policy_before
        assert ["prepared", "rules in force", "others in force", f"ended under {report.policy}"] == w.done


async def test_what_cannot_be_built_leaves_all_as_it_was(tmp_path: Path) -> None:
    write(tmp_path)
    async with targets(tmp_path) as w:
        before, w.fault = w.context.rules, ValueError("a secret")
        write(tmp_path, FORWARD)
        report = await w.reloads.reload()
        assert ("refused", ["prepared"]) == (report.result, w.done)
        assert (before, w.wanted) == (w.context.rules, w.reloads.wanted)


async def test_a_fault_while_something_gone_ends_leaves_in_force_what_is(tmp_path: Path) -> None:
    write(tmp_path)
    async with targets(tmp_path) as w:
        w.fault_at_end = ValueError("a secret")
        write(tmp_path, FORWARD)
        report = await w.reloads.reload()
        assert ("changed", report.policy) == (report.result, w.context.rules.hash)
        assert w.wanted is not w.reloads.wanted


async def test_a_conversation_that_fails_keeps_the_others_of_no_rules(tmp_path: Path) -> None:
    class Fails:
        held = 0

        def swap(self) -> None:
            raise ValueError

    write(tmp_path)
    async with targets(tmp_path) as w:
        for _ in range(5):
            w.context.enter(Fails())
        write(tmp_path, FORWARD)
        assert "changed" == (await w.reloads.reload()).result
        assert ["prepared", "rules in force", "others in force"] == w.done[:3]


@pytest.mark.parametrize(("policy", "anew"), [(POLICY | MODEL, True), (POLICY, False)], ids=["models", "none"])
async def test_a_key_that_was_rotated_in_the_env_file_is_the_models_from_the_reload_on(
    tmp_path: Path, policy: dict[str, Any], anew: bool
) -> None:
    (tmp_path / "keys.env").write_text("GATE_TEST_KEY=sk-old\n")
    write(tmp_path, policy, env_file="keys.env")
    async with targets(tmp_path) as w:
        before = w.context.rules
        assert "unchanged" == (await w.reloads.reload()).result
        assert before is w.context.rules
        (tmp_path / "keys.env").write_text("GATE_TEST_KEY=sk-new\n")
        report = await w.reloads.reload()
        assert anew == (before is not w.context.rules)
        assert (("changed", ("env_file",)) if anew else ("unchanged", ())) == (report.result, report.settings)
        assert "sk-" not in repr(report)


async def test_models_that_are_new_are_no_change_of_the_env_file(tmp_path: Path) -> None:
    write(tmp_path)
    async with targets(tmp_path) as w:
        write(tmp_path, POLICY | MODEL)
        assert ("changed", ()) == ((report := await w.reloads.reload()).result, report.settings)
        write(tmp_path, POLICY)
        assert ("changed", ()) == ((report := await w.reloads.reload()).result, report.settings)


def test_servers_do_not_see_what_only_one_of_them_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("A", "B", "C", "D", "E"):
        monkeypatch.setenv(f"GATE_TEST_{name}", "s3cret")
    servers = {
        "one": {
            "command": "true",
            "args": ["${GATE_TEST_D}"],
            "env": {"MINE": "${GATE_TEST_A}", "HERE": "${HOME}/x", "WAY": "/opt:${PATH}"},
        },
        "two": {"url": "https://x/mcp?k=${GATE_TEST_B}", "headers": {"authorization": "Bearer ${GATE_TEST_C}"}},
        "off": {"command": "true", "env": {"MINE": "${GATE_TEST_E} $${GATE_TEST_D}"}, "disabled": True},
    }
    write(tmp_path, servers=servers)
    wanted = read_all(line(tmp_path))
    assert {"GATE_TEST_D"} == {name for name in wanted.environment if name.startswith("GATE_TEST_")}
    assert {"HOME", "PATH"} <= wanted.environment.keys()
    assert {"MINE": "s3cret"}.items() <= wanted.settings.servers["one"].env.items()


async def test_processes_that_start_after_a_reload_do_not_have_what_it_withholds(tmp_path: Path) -> None:
    (tmp_path / "shows.py").write_text(SHOWS)
    servers = {"one": {"command": sys.executable, "args": ["shows.py"], "env": {"OWN": "${GATE_TEST_OWN}"}, "cwd": "."}}
    settings = write(tmp_path, servers=servers, watch=False)
    env = {"GATE_TEST_KEY": "sk-1", "GATE_TEST_OWN": "o"}
    found = []
    async with serving(tmp_path, "--settings", str(settings), env=env, forked=True) as gate:
        for policy in (POLICY, POLICY | MODEL):
            write(tmp_path, policy, servers=servers, watch=False)
            before = len(gate.lines)
            gate.process.send_signal(signal.SIGHUP)
            await gate.said("reload.taken", before)
            async with client(gate) as c:
                await c.begin()
                has = json.loads((await c.call("legacy"))["result"]["content"][0]["text"])
                found.append({name: has[name] for name in ("GATE_TEST_KEY", "GATE_TEST_OWN", "OWN") if name in has})
    assert [{"GATE_TEST_KEY": "sk-1", "OWN": "o"}, {"OWN": "o"}] == found


async def test_a_round_that_a_client_took_along_goes_on_at_another_gate_of_the_same_key(tmp_path: Path) -> None:
    """That is so for a server at a URL. The state of a stdio server belongs to its own gate, and the error says so."""
    command, *arguments = asking("modern")
    process = {"command": command, "args": arguments}
    able: dict[str, Any] = {"elicitation": {"form": {}}}
    folders = [tmp_path / name for name in ("behind", "one", "two")]
    for folder in folders:
        folder.mkdir()
        (folder / "seal").write_text("k" * 64 + "\n")
    behind = write(folders[0], FORWARD, servers={"one": process})
    async with serving(folders[0], "--settings", str(behind), admin=False, forked=True) as inner:
        servers = {"remote": {"url": f"{inner.url}/mcp"}, "local": process}
        asked: dict[str, Any] = {}
        answers: dict[str, Any] = {}
        for folder in folders[1:]:
            settings = write(folder, FORWARD, servers=servers, seal_key_file="seal")
            async with serving(folder, "--settings", str(settings), admin=False, forked=True) as gate:
                for name in servers:
                    async with client(gate, f"/servers/{name}/mcp", capabilities=able) as c:
                        if name not in asked:
                            asked[name] = (await c.call("modern", 1, **ASK_FORM))["result"]
                            continue
                        (key,) = asked[name]["inputRequests"]
                        given = {key: {"action": "accept", "content": {"confirm": True}}}
                        state = asked[name]["requestState"]
                        params = {"name": "do", "arguments": ASK_FORM, "requestState": state, "inputResponses": given}
                        answers[name] = await c.modern("tools/call", 2, **params)
    assert {"confirm": True} == answers["remote"]["result"]["structuredContent"]["result"]["content"]
    assert (-32602, FOREIGN) == (answers["local"]["error"]["code"], answers["local"]["error"]["message"])


def keys_in(folder: Path, content: bytes) -> tuple[bytes, ...]:
    (folder / "seal").write_bytes(content)
    return seal_keys(folder / "seal")


def test_a_seal_key_is_the_same_wherever_its_file_is_read_and_another_of_another(tmp_path: Path) -> None:
    keys: list[bytes] = []
    for text in (
        b"a" * MIN_KEY_BYTES,
        b"a" * MIN_KEY_BYTES + b"\n",
        b"a" * MIN_KEY_BYTES + b"\r\n",
        b"b" * MIN_KEY_BYTES,
        b"\n" * MIN_KEY_BYTES,
        b"c" * MAX_KEY_BYTES,
    ):
        keys += keys_in(tmp_path, text)
    assert keys[0] == keys[1] == keys[2]
    assert 4 == len(set(keys))
    assert {32} == {len(key) for key in keys}
    assert b"a" * 32 != keys[0]
    assert () == seal_keys(None)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    "old",
    [b"0" * 64, b"A" * 32, b"b" * 63 + b"/", bytes(range(256)), b"c\n" * 40, b"d" * 64 + b" comment"],
    ids=["hex", "short hex", "base64", "random bytes", "many lines", "text"],
)
def test_a_new_key_in_hex_above_the_old_one_makes_two(old: bytes, end: bytes, tmp_path: Path) -> None:
    (before,) = keys_in(tmp_path, old + end)
    (alone,) = keys_in(tmp_path, b"0aF9" * 16 + end)
    assert (alone, before) == keys_in(tmp_path, b"0aF9" * 16 + end + old + end)


@pytest.mark.parametrize(
    "content",
    [
        b"a" * 63 + b"\n" + b"b" * 64 + b"\n",
        b"a" * 65 + b"\n" + b"b" * 64 + b"\n",
        b"/" + b"a" * 63 + b"\n" + b"b" * 24 + b"\n",  # `openssl rand -base64 66`
        b" " + b"a" * 64 + b"\n" + b"b" * 64 + b"\n",
        bytes(range(256)) + b"\n" + b"a" * 64 + b"\n" + b"b" * 64,
        b"\n" + b"a" * 64 + b"\n" + b"b" * 64,
        b"a" * 64 + b"\n\n",
    ],
    ids=["short", "long", "base64", "indented", "random bytes", "empty line", "empty line below"],
)
def test_any_other_file_of_several_lines_is_one_key_as_before(content: bytes, tmp_path: Path) -> None:
    line = content.removesuffix(b"\n")
    assert (hmac.digest(b"samplegate seal 1", line, "sha256"),) == keys_in(tmp_path, content)


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        (b"1" * 64 + b"\n" + b"2" * 64, "has more than two keys; keep the new one and the one before it"),
        (b"short\n", "has 5 bytes as its second key, but a key needs at least 32; create a key with"),
    ],
    ids=["three", "short"],
)
def test_a_second_key_that_cannot_be_one_is_told(rest: bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=told):
        keys_in(tmp_path, b"0" * 64 + b"\n" + rest)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: no such file or directory"),
        (b"", "has 0 bytes, but a key needs at least 32; create a key with `openssl rand -hex 32`"),
        (
            b"s3cret" * 5 + b"\n",
            "has 30 bytes, but a key needs at least 32; create a key with `openssl rand -hex 32`",
        ),
        (
            b"a" * (MAX_KEY_BYTES + 1),
            f"is larger than {MAX_KEY_BYTES} bytes, so it is not a key; create a key with `openssl rand -hex 32`",
        ),
    ],
    ids=["none", "empty", "short", "long"],
)
def test_a_seal_key_that_cannot_be_one_is_told_and_not_shown(content: bytes | None, told: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "seal").write_bytes(content)
    with pytest.raises(Unavailable) as refused:
        seal_keys(tmp_path / "seal")
    assert f"seal_key_file: {tmp_path / 'seal'} {told}" == str(refused.value)
