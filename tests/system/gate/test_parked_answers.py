"""Reviews of a model's answer that outlast the client's timeout, in a real daemon: the call is put off and comes back,
and no model is called twice. tests/unit/gate/test_reviews_put_off.py has each case."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.cli import main
from samplegate.protocol.request_state import FOREIGN
from tests.fakes.daemon import ASK_SAMPLE, META, VERSION, Client, Gate, admin, asking, client, serving
from tests.fakes.daemon_reviews import People, people, settings
from tests.paths import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]
PATIENCE: Final = "2s"
RULE: Final = "  - {name: looked at, match: {kind: sampling}, effect: allow, review_answer: ops, limits: [few]}"
POLICY: Final = f"""
version: 1
models: [{{name: m, model: scripted, cases: answers.yaml}}]
limits: {{few: {{requests: 1, per: 1h, by: [caller]}}}}
reviewers: {{ops: {{timeout: TIMEOUT, late_verdict: 0s}}}}
rules:
{RULE}
client: {{peer_timeout: PATIENCE}}
servers: {{default: {{peer_timeout: none}}}}
"""
FROM_MODEL: Final = "from a model"
OTHER: Final = {"messages": [{"role": "user", "content": {"type": "text", "text": "edited"}}], "maxTokens": 10}
CALLERS: Final = ("ann", "bob", "cat", "dan")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the module, because it shares one daemon."""
    return "asyncio"


class ReviewDaemon:
    """One daemon with a server of 2026-07-28, and a reviewer. Each test is another caller."""

    def __init__(self, folder: Path, gate: Gate, person: People) -> None:
        self.folder, self.gate, self.person = folder, gate, person

    def caller(self, name: str) -> AbstractAsyncContextManager[Client]:
        return client(self.gate, token=token(name))

    async def pending(self, caller: str) -> dict[str, Any]:
        return await self.person.pending(caller=caller)

    async def reviews(self, caller: str) -> list[dict[str, Any]]:
        return [one for one in (await self.person.get("/reviews"))["reviews"] if one["caller"] == caller]

    async def decide(self, caller: str, **verdict: Any) -> None:
        assert 200 == (await self.person.say(await self.pending(caller), **verdict))[0]

    def log(self, caller: str) -> list[dict[str, Any]]:
        (found,) = (self.folder / "state").rglob("*.jsonl")
        return [one for line in found.read_text().splitlines() if (one := json.loads(line))["caller"] == caller]

    async def reload(self, policy: str) -> None:
        (self.folder / "policy.yaml").write_text(policy)
        before = len(self.gate.lines)
        self.gate.process.send_signal(signal.SIGHUP)
        await self.gate.said("reload.taken", before)


def token(name: str) -> str:
    return f"sg_a-token-of-{name}"


@pytest.fixture(scope="module")
async def daemon(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ReviewDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    arguments = settings(folder, policy=POLICY, patience=PATIENCE)
    told = json.loads((folder / "settings.yaml").read_text())
    callers = [{"name": name, "sha256": hashlib.sha256(token(name).encode()).hexdigest()} for name in CALLERS]
    (folder / "settings.yaml").write_text(json.dumps({**told, "watch": False, "callers": {"tokens": callers}}))
    async with serving(folder, *arguments, "--", *asking("modern"), forked=True) as gate:
        await gate.said("reviews on")
        async with client(gate, token=token("ann")) as c, people(gate) as person:
            await warm(c, person)
            yield ReviewDaemon(folder, gate, person)


async def warm(c: Client, person: People) -> None:
    """Start the server and open the store, so that neither counts for the client's timeout."""
    assert "result" in await c.call("modern", 0)
    for _ in range(600):  # a busy machine may take longer to open the store than a request waits for it
        if (await person.status("/reviews")) != 503:
            break
        await asyncio.sleep(0.1)


async def retry(c: Client, id: int, state: str, arguments: Any = ASK_SAMPLE) -> dict[str, Any]:
    """The client's next retry."""
    own = {f"{META}protocolVersion": VERSION, f"{META}clientCapabilities": {}}
    headers = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "do"}
    params = {"name": "do", "arguments": arguments, "requestState": state, "_meta": own}
    return (await c.post({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}, headers))[1]


async def put_off(c: Client, id: int = 1, state: str | None = None, arguments: Any = ASK_SAMPLE) -> str:
    """One try that is put off. Returns the state for the retry."""
    answer = await (c.call("modern", id, **arguments) if state is None else retry(c, id, state, arguments))
    assert "input_required" == answer.get("result", {}).get("resultType"), answer
    assert "inputRequests" not in answer["result"]
    given: str = answer["result"]["requestState"]
    return given


async def released(c: Client, state: str) -> str:
    """The answer that the server finally received. The client retries as often as it is put off."""
    ids = count(100)
    while (answer := await retry(c, next(ids), state)).get("result", {}).get("resultType") == "input_required":
        state = answer["result"]["requestState"]
    assert not answer["result"].get("isError"), answer
    text: str = answer["result"]["structuredContent"]["result"]["content"]["text"]
    return text


async def models_asked(gate: Gate) -> int:
    """The daemon's count of model calls."""
    metrics = (await admin(gate, "/metrics"))[1]
    return sum(
        int(float(line.split()[-1]))
        for line in metrics.splitlines()
        if line.startswith("samplegate_model_calls_total{")
    )


async def test_an_answer_approved_after_the_clients_patience_reaches_the_server_and_is_one_request_in_the_log(
    daemon: ReviewDaemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = await models_asked(daemon.gate)
    async with daemon.caller("ann") as c:
        state = await put_off(c)
        (first,) = daemon.log("ann")
        state = await put_off(c, 2, state)
        text, _ = await asyncio.gather(released(c, state), daemon.decide("ann", verdict="approve"))
    assert (FROM_MODEL, before + 1) == (text, await models_asked(daemon.gate))
    first, last = daemon.log("ann")
    assert ("put_off", "m", ["few"]) == (first["outcome"], first["attempts"][0]["model"], first["limits"])
    assert ("answered", "human", "ana") == (last["outcome"], last["decided_by"], last["reviewed_by"])
    assert "attempts" not in last
    assert (first["decision_id"], first["review"]) == (last["decision_id"], last["review"])
    (tmp_path / "log.jsonl").write_text(json.dumps(first) + "\n" + json.dumps(last) + "\n")
    assert 0 == main.main(["report", "--json", "--log", str(tmp_path / "log.jsonl")])
    (server,) = json.loads(capsys.readouterr().out)["servers"].values()
    assert {"requests": 1, "outcomes": {"answered": 1}}.items() <= server["kinds"]["sampling"].items()


async def test_a_state_opens_nothing_for_anybody_else_or_anything_else_and_its_answer_is_released_once(
    daemon: ReviewDaemon,
) -> None:
    before = await models_asked(daemon.gate)
    async with daemon.caller("bob") as c, daemon.caller("cat") as other:
        state = await put_off(c)
        forged = state[:40] + ("A" if state[40] != "A" else "B") + state[41:]
        another = {"ask": {**ASK_SAMPLE["ask"], "params": OTHER}}
        for id, (shown, arguments) in enumerate([(forged, ASK_SAMPLE), (state, another), ("sg2.", ASK_SAMPLE)], 2):
            assert -32602 == (await retry(c, id, shown, arguments))["error"]["code"]
        assert -32602 == (await retry(other, 2, state))["error"]["code"]
        assert ["pending"] == [review["state"] for review in await daemon.reviews("bob")]
        await daemon.decide("bob", verdict="approve")  # while no call waits
        assert -32602 == (await retry(other, 3, state))["error"]["code"]
        answers = await asyncio.gather(*(retry(c, id, state) for id in (10, 11, 12)))
    assert 1 == len([answer for answer in answers if FROM_MODEL in str(answer)])
    assert (before + 1, 1, []) == (
        await models_asked(daemon.gate),
        len(await daemon.reviews("bob")),
        await daemon.reviews("cat"),
    )


async def test_a_reload_between_two_tries_decides_anew_and_asks_no_model_again(daemon: ReviewDaemon) -> None:
    before = await models_asked(daemon.gate)
    as_it_was = (daemon.folder / "policy.yaml").read_text()
    denied = "  - {name: looked at, match: {kind: sampling}, effect: deny}"
    async with daemon.caller("dan") as c:
        state = await put_off(c)
        try:
            await daemon.reload(
                as_it_was.replace(RULE, denied).replace("limits: {", "limits: {spare: {concurrent: 9}, ")
            )
            assert "denied" in str(await retry(c, 2, state))
        finally:
            await daemon.reload(as_it_was)
    assert before + 1 == await models_asked(daemon.gate)


def short_leases(folder: Path) -> dict[str, str]:
    """An environment in which a process counts as dead after two seconds of silence."""
    (folder / "short").mkdir()
    (folder / "short" / "sitecustomize.py").write_text("from samplegate.reviews import service\nservice.LEASE = 2.0\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder / "short"), str(ROOT / "proxy")])}


async def test_another_daemon_releases_the_answer_that_a_killed_one_had_paid_for(tmp_path: Path) -> None:
    """The call must begin anew, because its state is of the killed daemon's server. The review and the model's answer
    are still there."""
    policy = POLICY.replace("requests: 1", "requests: 2").replace(", by: [caller]", "")
    line = [*settings(tmp_path, policy=policy, patience=PATIENCE)]
    line += ["--", *asking("modern")]
    env = short_leases(tmp_path)
    async with serving(tmp_path, *line, env=env, forked=True) as gate:
        await gate.said("reviews on")
        async with client(gate) as c, people(gate) as person:
            await warm(c, person)
            state = await put_off(c)
        await gate.end(signal.SIGKILL)
    async with serving(tmp_path, *line, env=env, forked=True) as gate, client(gate) as c:
        await gate.said("reviews on")
        async with people(gate) as person:
            assert FOREIGN == (await retry(c, 2, state))["error"]["message"]
            state = await put_off(c, 3)
            text, _ = await asyncio.gather(released(c, state), person.decide(verdict="approve"))
            assert (FROM_MODEL, 0) == (text, await models_asked(gate))
            assert 1 == len((await person.get("/reviews"))["reviews"])


def test_check_says_how_long_the_reviewer_of_an_answer_has_in_each_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY.replace("TIMEOUT", "1h").replace("PATIENCE", "4s"))
    (tmp_path / "answers.yaml").write_text("cases: [{answer: x}]")
    assert 0 == main.main(["check", str(tmp_path / "policy.yaml")])
    words = (
        "reviewer ops has 3s to check the answer, minus the model's response time, or 30s if client and server"
        " both speak 2026-07-28"
    )
    assert words in capsys.readouterr().out
