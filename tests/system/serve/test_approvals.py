"""A real daemon whose reviewer needs two people: one of them is not enough, however many tokens they have."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon import Gate, client
from tests.fakes.daemon_reviews import ACCEPTED, POLICY, TOKEN, People, daemon, form, people, said, timed
from tests.fakes.webhook_endpoint import endpoint, ok

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
TOKENS: Final = {"ana": ("sg_ana", "sg_ana_2"), "ben": ("sg_ben",), "lea": ("sg_lea",)}
TWO: Final = POLICY.replace("{timeout: TIMEOUT}", "{timeout: TIMEOUT, approvals: 2}")


def persons() -> dict[str, Any]:
    tokens = [
        {"name": name, "role": "reviewer", "sha256": hashlib.sha256(token.encode()).hexdigest(), "reviewers": [acts]}
        for name, of_name in TOKENS.items()
        for token in of_name
        for acts in ("lead" if name == "lea" else "ops",)
    ]
    watcher = {"name": "watcher", "role": "viewer", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}
    return {"tokens": [*tokens, watcher]}


@asynccontextmanager
async def staffed(folder: Path, **wanted: Any) -> AsyncIterator[tuple[Gate, dict[str, People]]]:
    """A daemon, and a reviewer for each token."""
    async with AsyncExitStack() as stack:
        gate = await stack.enter_async_context(daemon(folder, people=persons(), **wanted))
        tokens = [token for of_name in TOKENS.values() for token in of_name]
        found = {token: await stack.enter_async_context(people(gate, token)) for token in tokens}
        yield gate, found


async def test_two_people_must_approve_and_two_tokens_of_one_are_not_enough(tmp_path: Path) -> None:
    async with staffed(tmp_path, policy=TWO) as (gate, by), client(gate) as c:
        call = asyncio.ensure_future(c.call("modern", 1, **form("both?")))
        review = await by["sg_ana"].pending()
        status, first = await by["sg_ana"].say(review, verdict="answer", **ACCEPTED)
        assert (200, "pending", 1, 2) == (status, first["state"], first["approvals_given"], first["approvals"])
        status, stale = await by["sg_ben"].say(review, verdict="answer", **ACCEPTED)
        assert (422, "somebody edited it meanwhile") == (status, stale["problems"][0]["what"].partition(";")[0])
        status, again = await by["sg_ana_2"].say(first, verdict="approve")
        assert (409, "ana has approved it already, so another person must approve it") == (status, again["detail"])
        assert not call.done()
        shown = await by["sg_ben"].get(f"/reviews/{review['id']}")
        assert {"verdict": "answer", **ACCEPTED} == shown["proposal"]
        status, done = await by["sg_ben"].say(shown, verdict="approve")
        assert (200, "answered", "ana, ben") == (status, done["state"], done["who"])
        assert ACCEPTED.items() <= said(await timed(call)).items()
        events = (await by["sg_ben"].get(f"/reviews/{review['id']}/history"))["events"]
        assert ["opened", "voted", "answered", "used"] == [event["what"] for event in events]
        assert 0 == await gate.end()
    (record,) = [
        json.loads(line)
        for file in (tmp_path / "state" / "decisions").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert [("ana", "api", True), ("ben", "api", True)] == [
        (vote["by"], vote["how"], vote["proven"]) for vote in record["votes"]
    ]
    assert ("human", "ana, ben") == (record["decided_by"], record["reviewed_by"])


async def test_an_approval_outlives_a_daemon_that_is_killed_before_the_second(tmp_path: Path) -> None:
    async with staffed(tmp_path, policy=TWO, watch=False) as (gate, by), client(gate) as c:
        call = asyncio.ensure_future(c.call("modern", 1, **form("killed between?")))
        status, _ = await by["sg_ana"].say(await by["sg_ana"].pending(), verdict="answer", **ACCEPTED)
        assert 200 == status
        gate.process.send_signal(signal.SIGKILL)
        gate.ending = True
        await asyncio.gather(call, return_exceptions=True)
    async with staffed(tmp_path, policy=TWO) as (gate, by), client(gate) as c:
        async with by["sg_ben"].told("joined", 1):
            call = asyncio.ensure_future(c.call("modern", 1, **form("killed between?")))
        review = await by["sg_ben"].pending()
        assert ["ana"] == [vote["by"] for vote in review["votes"]]
        assert 409 == (await by["sg_ana"].say(review, verdict="approve"))[0]
        assert 200 == (await by["sg_ben"].say(review, verdict="approve"))[0]
        assert ACCEPTED.items() <= said(await timed(call)).items()


async def test_a_webhook_and_a_person_are_two_and_others_are_asked_after_a_time(tmp_path: Path) -> None:
    yes = json.dumps({"verdict": "answer", "by": "bot", **ACCEPTED}).encode()
    async with endpoint(ok(yes)) as hook, endpoint() as lead:
        ops, leads = (f'webhook: {{url: "{to.url}", secret_file: hook.key}}' for to in (hook, lead))
        reviewers = f"{{ops: {{timeout: TIMEOUT, approvals: 2, after: 1s, also: [lead], {ops}}}, lead: {{{leads}}}}}"
        policy = POLICY.replace("{ops: {timeout: TIMEOUT}}", reviewers)
        (tmp_path / "hook.key").write_text("whsec_" + base64.b64encode(bytes(32)).decode())
        more = {"webhook_networks": ["127.0.0.0/8"], "policy": policy}
        async with staffed(tmp_path, **more) as (gate, by), client(gate) as c:
            call = asyncio.ensure_future(c.call("modern", 1, **form("a bot and lea?")))
            async with asyncio.timeout(60):
                await lead.requests(1)
            review = await by["sg_lea"].pending()
            assert [("bot", False)] == [(vote["by"], vote["proven"]) for vote in review["votes"]]
            assert 200 == (await by["sg_lea"].say(review, verdict="approve"))[0]
            assert ACCEPTED.items() <= said(await timed(call)).items()
            assert 1 == sum(json.loads(seen.body)["type"] == "review.opened" for seen in lead.seen)
