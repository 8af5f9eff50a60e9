"""A person looks at a model's answer for longer than the client waits: the call is put off and comes back, and no model
is asked twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.daemon.gate import ASK_SAMPLE, META, VERSION, Client, Gate, admin, asking, client, serving
from tests.daemon.reviewing import People, daemon, people, settings

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]
PATIENCE: Final = "3s"
POLICY: Final = """
version: 1
models: [{name: m, model: scripted, cases: answers.yaml}]
limits: {few: {requests: 1, per: 1h}}
reviewers: {ops: {timeout: TIMEOUT, late_verdict: 0s}}
rules:
  - {name: looked at, match: {kind: sampling}, effect: allow, review_answer: ops, limits: [few]}
client: {peer_timeout: PATIENCE}
servers: {default: {peer_timeout: none}}
"""
BOTH: Final = POLICY.replace("effect: allow,", "effect: escalate, reviewer: ops,")
FROM_MODEL: Final = "from a model"
SIBLING: Final = {"messages": [{"role": "user", "content": {"type": "text", "text": "edited"}}], "maxTokens": 10}
LENIENT: Final = POLICY.replace("late_verdict: 0s", "late_verdict: 1h").replace(", limits: [few]", "")
TWO: Final = POLICY.replace("kind: sampling}", "kind: sampling, text: hello}").replace(
    "limits: [few]}", "limits: [few]}\n  - {name: rest, match: {kind: sampling}, effect: allow}"
)


@asynccontextmanager
async def room(
    folder: Path, policy: str = POLICY, eras: str = "modern", **wanted: Any
) -> AsyncIterator[tuple[Gate, Client, People]]:
    """A daemon before a server (of 2026-07-28 if nothing else is said), a client that comes back only when it is told
    to, and a person."""
    async with (
        daemon(folder, eras, policy=policy, **{"patience": PATIENCE, **wanted}) as gate,
        client(gate) as c,
        people(gate) as person,
    ):
        await warm(c, person)
        yield gate, c, person


async def warm(c: Client, person: People) -> None:
    """The server runs and the store is open: neither is part of the client's patience from here on."""
    assert "result" in await c.call("modern", 0)
    for _ in range(600):  # a busy machine may take longer to open the store than a request waits for it
        if (await person.status("/reviews")) != 503:
            break
        await asyncio.sleep(0.1)


async def retry(c: Client, id: int, state: str, arguments: Any = ASK_SAMPLE) -> dict[str, Any]:
    """The client's next try."""
    own = {f"{META}protocolVersion": VERSION, f"{META}clientCapabilities": {}}
    headers = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "do"}
    params = {"name": "do", "arguments": arguments, "requestState": state, "_meta": own}
    return (await c.post({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}, headers))[1]


async def put_off(c: Client, id: int = 1, state: str | None = None, arguments: Any = ASK_SAMPLE) -> str:
    """One try that is put off; the state to come back with."""
    answer = await (c.call("modern", id, **arguments) if state is None else retry(c, id, state, arguments))
    assert "input_required" == answer.get("result", {}).get("resultType"), answer
    assert "inputRequests" not in answer["result"]
    given: str = answer["result"]["requestState"]
    return given


async def models_asked(gate: Gate) -> int:
    """How many calls of models the daemon has counted."""
    metrics = (await admin(gate, "/metrics"))[1]
    return sum(
        int(float(line.split()[-1]))
        for line in metrics.splitlines()
        if line.startswith("samplegate_model_calls_total{")
    )


def text_of(answer: dict[str, Any]) -> str:
    """The text that the server was sent."""
    assert "result" in answer, answer
    assert not answer["result"].get("isError"), answer
    text: str = (
        answer["result"]["structuredContent"]["result"]["content"]["text"]
        if "structuredContent" in answer["result"]
        else str(answer)
    )
    return text


async def only(person: People) -> dict[str, Any]:
    """The one review that there is."""
    (review,) = (await person.get("/reviews"))["reviews"]
    return review  # type: ignore[no-any-return]


def logfile(folder: Path) -> Path:
    (found,) = (folder / "state").rglob("*.jsonl")
    return found


def log(folder: Path) -> list[dict[str, Any]]:
    """The decision log."""
    return [json.loads(line) for line in logfile(folder).read_text().splitlines()]


async def test_an_answer_approved_after_the_clients_patience_reaches_the_server_and_the_model_is_asked_once(
    tmp_path: Path,
) -> None:
    async with room(tmp_path) as (gate, c, person):
        state = await put_off(c)
        state = await put_off(c, 2, state)
        answers = await asyncio.gather(retry(c, 3, state), person.decide(verdict="approve"))
        assert FROM_MODEL == text_of(answers[0])
        assert ("approved", 1) == ((await only(person))["state"], await models_asked(gate))


async def test_a_verdict_that_comes_while_no_call_waits_is_released_at_the_clients_next_try_whatever_late_verdict_says(
    tmp_path: Path,
) -> None:
    async with room(tmp_path) as (gate, c, person):
        state = await put_off(c)
        await person.decide(verdict="approve")
        assert FROM_MODEL == text_of(await retry(c, 2, state))
        assert 1 == await models_asked(gate)
        again = await retry(c, 3, state)  # the verdict is spent
        assert "not answered" in str(again)
        assert (1, 1) == (await models_asked(gate), len((await person.get("/reviews"))["reviews"]))


async def test_a_review_whose_own_time_ends_between_two_tries_leaves_the_request_unanswered(tmp_path: Path) -> None:
    async with room(tmp_path, timeout="4s") as (gate, c, person):
        state = await put_off(c)
        review = await only(person)
        await person.over(review["id"])
        assert "not answered in time" in str(await retry(c, 2, state))
        assert ("expired", 1) == ((await only(person))["state"], await models_asked(gate))


async def test_a_client_that_never_comes_back_leaves_the_answer_to_the_next_same_request(tmp_path: Path) -> None:
    async with room(tmp_path, LENIENT) as (gate, c, person):
        await put_off(c)
        review = await person.pending()
        assert 200 == (await person.say(review, verdict="approve"))[0]
        assert FROM_MODEL == text_of(await c.call("modern", 2, **ASK_SAMPLE))
        assert 1 == await models_asked(gate)


async def test_an_escalated_request_whose_answer_is_looked_at_too_is_put_off_for_both(tmp_path: Path) -> None:
    async with room(tmp_path, BOTH) as (gate, c, person):
        state = await put_off(c)
        await person.decide(verdict="approve")
        state = await put_off(c, 2, state)
        assert 1 == await models_asked(gate)
        await person.decide(verdict="approve")
        assert FROM_MODEL == text_of(await retry(c, 3, state))
        assert 1 == await models_asked(gate)
        assert ["approved", "approved"] == [review["state"] for review in (await person.get("/reviews"))["reviews"]]


async def test_of_several_requests_those_without_a_review_wait_for_the_answer_that_has_one(tmp_path: Path) -> None:
    """All of them are released together, so nothing is spent on one before the other is approved."""
    arguments = {"asks": {"a": {**ASK_SAMPLE["ask"]}, "b": {"method": "sampling/createMessage", "params": SIBLING}}}
    async with room(tmp_path, TWO) as (gate, c, person):
        state = await put_off(c, arguments=arguments)
        assert 1 == await models_asked(gate)
        await person.decide(verdict="approve")
        released = (await retry(c, 2, state, arguments))["result"]["structuredContent"]
        assert (FROM_MODEL, "to the edited") == (released["a"]["content"]["text"], released["b"]["content"]["text"])
        assert 2 == await models_asked(gate)


async def test_another_daemon_releases_the_answer_that_a_killed_one_had_paid_for(tmp_path: Path) -> None:
    async with daemon(tmp_path, "modern", policy=POLICY, patience=PATIENCE) as gate:
        async with client(gate) as c, people(gate) as person:
            await warm(c, person)
            state = await put_off(c)
        await gate.end(signal.SIGKILL)
    async with room(tmp_path, patience="20s") as (gate, c, person):
        answers = await asyncio.gather(retry(c, 2, state), person.decide(verdict="approve"))
        assert FROM_MODEL == text_of(answers[0])
        assert (0, 1) == (await models_asked(gate), len((await person.get("/reviews"))["reviews"]))


async def test_a_state_opens_nothing_for_anybody_else_or_for_anything_else(tmp_path: Path) -> None:
    async with room(tmp_path) as (gate, c, person):
        state = await put_off(c)
        forged = state[:40] + ("A" if state[40] != "A" else "B") + state[41:]
        other = {"ask": {**ASK_SAMPLE["ask"], "params": SIBLING}}
        for id, (shown, arguments) in enumerate([(forged, ASK_SAMPLE), (state, other), ("sg1.", ASK_SAMPLE)], 2):
            assert -32602 == (await retry(c, id, shown, arguments))["error"]["code"]
        review = await only(person)
        assert ("pending", 1) == (review["state"], await models_asked(gate))
        await person.decide(verdict="approve")
        answers = await asyncio.gather(*(retry(c, id, state) for id in (10, 11, 12)))
        released = [answer for answer in answers if FROM_MODEL in str(answer)]
        assert (1, 1, 1) == (len(released), await models_asked(gate), len((await person.get("/reviews"))["reviews"]))


async def test_a_state_of_one_caller_opens_nothing_for_another(tmp_path: Path) -> None:
    tokens = {"ann": "sg_a-token-of-ann", "bob": "sg_a-token-of-bob"}
    arguments = settings(tmp_path, policy=POLICY, patience=PATIENCE)
    told = json.loads((tmp_path / "settings.yaml").read_text())
    callers = [{"name": name, "sha256": hashlib.sha256(token.encode()).hexdigest()} for name, token in tokens.items()]
    (tmp_path / "settings.yaml").write_text(json.dumps({**told, "callers": {"tokens": callers}}))
    async with serving(tmp_path, *arguments, "--", *asking("modern")) as gate:
        await gate.said("reviews on")
        async with (
            client(gate, token=tokens["ann"]) as ann,
            client(gate, token=tokens["bob"]) as bob,
            people(gate) as person,
        ):
            await warm(ann, person)
            state = await put_off(ann)
            assert -32602 == (await retry(bob, 2, state))["error"]["code"]
            await person.decide(verdict="approve")
            assert -32602 == (await retry(bob, 3, state))["error"]["code"]
            assert FROM_MODEL == text_of(await retry(ann, 4, state))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("{name: looked at, match: {kind: sampling}, effect: deny}", "denied"),
        (
            "{name: looked at, match: {kind: sampling}, effect: allow, review_answer: ops, with: {max_tokens: 3}}",
            "not answered in time",
        ),
    ],
    ids=["denied", "asked otherwise"],
)
async def test_a_reload_between_two_tries_counts_and_pays_no_model_again(tmp_path: Path, rule: str, said: str) -> None:
    async with room(tmp_path) as (gate, c, _):
        state = await put_off(c)
        lines = POLICY.splitlines()
        changed = "\n".join(
            f"  - {rule}" if line.startswith("  - {name: looked at") else line
            for line in lines
            if not line.startswith("limits")
        )
        (tmp_path / "policy.yaml").write_text(changed.replace("TIMEOUT", "15m").replace("PATIENCE", PATIENCE))
        gate.process.send_signal(signal.SIGHUP)
        await gate.said("reload.taken")
        assert said in str(await retry(c, 2, state))
        assert 1 == await models_asked(gate)


async def test_the_log_has_what_was_spent_at_once_and_what_came_of_it_later_as_one_request(tmp_path: Path) -> None:
    async with room(tmp_path) as (_, c, person):
        state = await put_off(c)
        (first,) = log(tmp_path)
        state = await put_off(c, 2, state)
        await person.decide(verdict="approve")
        await retry(c, 3, state)
        first, last = log(tmp_path)
    assert ("put_off", "m", ["few"]) == (first["outcome"], first["attempts"][0]["model"], first["limits"])
    assert ("answered", "human", "ana") == (last["outcome"], last["decided_by"], last["reviewed_by"])
    assert "attempts" not in last
    assert (first["decision_id"], first["review"]) == (last["decision_id"], last["review"])
    line = [sys.executable, "-m", "samplegate", "report", "--json", "--log", str(logfile(tmp_path))]
    done = await asyncio.to_thread(
        subprocess.run, line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    (server,) = json.loads(done.stdout)["servers"].values()
    assert {"requests": 1, "outcomes": {"answered": 1}}.items() <= server["kinds"]["sampling"].items()


@pytest.mark.parametrize(("front", "back"), [("legacy", "modern"), ("modern", "legacy"), ("legacy", "legacy")])
async def test_between_other_pairs_a_call_waits_once_and_a_later_verdict_answers_the_next(
    tmp_path: Path, front: str, back: str
) -> None:
    """Where client and server do not both speak 2026-07-28 nothing is put off."""
    async with room(tmp_path, LENIENT, back) as (gate, c, person):
        if front == "legacy":
            await c.begin()
        assert "not answered in time" in str(await c.call(front, 1, **ASK_SAMPLE))
        await person.decide(verdict="approve")
        assert FROM_MODEL in str(await c.call(front, 2, **ASK_SAMPLE))
        assert 1 == await models_asked(gate)


def test_check_says_how_long_the_reviewer_of_an_answer_has_in_each_pair(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY.replace("TIMEOUT", "1h").replace("PATIENCE", "4s"))
    (tmp_path / "answers.yaml").write_text("cases: [{answer: x}]")
    line = [sys.executable, "-m", "samplegate", "check", "policy.yaml"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    words = (
        "reviewer ops has 3s to check the answer, less the time the model took, or 30s where client and server both"
        " speak 2026-07-28"
    )
    assert words in done.stdout
