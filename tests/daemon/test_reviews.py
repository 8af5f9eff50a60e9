"""Reviews through a real daemon: what a person decides reaches the server, in both eras, with a process and with a URL
behind."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.gate import ASK_FORM, ASK_SAMPLE, META, VERSION, Client, Gate, asking, client, serving
from tests.daemon.reviewing import People, daemon, people
from tests.daemon.test_pairs import PAIRS, PASS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]
ACCEPTED = {"action": "accept", "content": {"confirm": True}}


@asynccontextmanager
async def between(
    folder: Path, front: str, back: str, behind: str, **wanted: Any
) -> AsyncIterator[tuple[Client, People]]:
    """A client that can be asked nothing, and a person; the daemon between them and a server of an era."""
    async with before(folder, back, behind, **wanted) as gate, client(gate) as c, people(gate) as person:
        if front == "legacy":
            await c.begin()
        yield c, person


@asynccontextmanager
async def before(folder: Path, back: str, behind: str, **wanted: Any) -> AsyncIterator[Gate]:
    if behind == "stdio":
        async with daemon(folder, back, **wanted) as gate:
            yield gate
        return
    (folder / "pass.yaml").write_text(PASS)
    async with (
        serving(folder, "--policy", "pass.yaml", "--", *asking(back)) as inner,
        daemon(folder, url=f"{inner.url}/mcp", **wanted) as gate,
    ):
        yield gate


@pytest.mark.parametrize(("front", "back", "behind"), PAIRS)
async def test_what_a_person_decides_reaches_the_server_in_every_pair_of_eras(
    tmp_path: Path, front: str, back: str, behind: str
) -> None:
    async with between(tmp_path, front, back, behind) as (c, person):
        answers = await asyncio.gather(c.call(front, 1, **ASK_FORM), person.decide(verdict="answer", **ACCEPTED))
        assert ACCEPTED.items() <= answers[0]["result"]["structuredContent"]["result"].items()
        answers = await asyncio.gather(c.call(front, 2, **ASK_SAMPLE), person.decide(verdict="approve"))
        assert "from a model" == answers[0]["result"]["structuredContent"]["result"]["content"]["text"]
        edited = {"messages": [{"role": "user", "content": {"type": "text", "text": "edited"}}]}
        answers = await asyncio.gather(c.call(front, 3, **ASK_SAMPLE), person.decide(verdict="approve", edits=edited))
        assert "to the edited" == answers[0]["result"]["structuredContent"]["result"]["content"]["text"]


@pytest.mark.parametrize(("front", "back", "behind"), PAIRS)
async def test_a_persons_no_is_a_decline_of_a_form_and_an_error_of_a_sample(
    tmp_path: Path, front: str, back: str, behind: str
) -> None:
    async with between(tmp_path, front, back, behind) as (c, person):
        answers = await asyncio.gather(c.call(front, 1, **ASK_FORM), person.decide(verdict="reject"))
        assert "decline" == answers[0]["result"]["structuredContent"]["result"]["action"]
        answers = await asyncio.gather(
            c.call(front, 2, **ASK_SAMPLE), person.decide(verdict="reject", reason="not this", tell_server=True)
        )
        said = str(answers[0])
        # the gate behind has its own words for an error of its client
        if (front, back, behind) == ("legacy", "modern", "http"):
            assert "not answered by the client" in said
        else:
            assert "refused by a reviewer" in said
            assert "not this" in said


@pytest.mark.parametrize(("front", "back", "behind"), PAIRS)
async def test_a_reviewer_who_says_nothing_leaves_the_request_unanswered(
    tmp_path: Path, front: str, back: str, behind: str
) -> None:
    async with between(tmp_path, front, back, behind, timeout="1s") as (c, _):
        form = (await c.call(front, 1, **ASK_FORM))["result"]["structuredContent"]["result"]
        assert "cancel" == form["action"]
        said = (
            "not answered by the client"
            if (front, back, behind) == ("legacy", "modern", "http")
            else "not answered in time"
        )
        assert said in str(await c.call(front, 2, **ASK_SAMPLE))


async def test_a_call_whose_client_hangs_up_takes_its_review_back(tmp_path: Path) -> None:
    async with between(tmp_path, "modern", "modern", "stdio") as (c, person):
        call = asyncio.ensure_future(c.call("modern", 1, **ASK_FORM))
        review = await person.pending()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await person.over(review["id"])
        status, said = await person.say(review, verdict="reject")
        assert (409, "withdrawn") == (status, (await person.get(f"/reviews/{review['id']}"))["state"]), said


async def test_a_modern_call_is_put_off_again_and_again_and_needs_no_open_connection(tmp_path: Path) -> None:
    async with between(tmp_path, "modern", "modern", "stdio", patience="1s") as (c, person):
        first = (await c.call("modern", 1, **ASK_FORM))["result"]
        assert ("input_required", False) == (first["resultType"], "inputRequests" in first)
        second = (await retry(c, 2, first["requestState"]))["result"]
        assert "input_required" == second["resultType"]
        await person.decide(verdict="answer", **ACCEPTED)
        last = (await retry(c, 3, second["requestState"]))["result"]
        assert ACCEPTED == last["structuredContent"]["result"]
        (review,) = (await person.get("/reviews"))["reviews"]
        assert "answered" == review["state"]


async def test_a_call_that_was_put_off_ends_before_the_client_gives_up(tmp_path: Path) -> None:
    async with between(tmp_path, "modern", "modern", "stdio", patience="100ms") as (c, _):
        answer, rounds = (await c.call("modern", 1, **ASK_FORM))["result"], 0
        while answer["resultType"] == "input_required":
            rounds += 1
            answer = (await retry(c, 1 + rounds, answer["requestState"]))["result"]
        assert "cancel" == answer["structuredContent"]["result"]["action"]
        assert 9 == rounds  # clients stop at the tenth


async def test_another_daemon_finishes_what_a_killed_one_had_put_off(tmp_path: Path) -> None:
    async with daemon(tmp_path, "modern", patience="1s") as gate:
        async with client(gate) as c:
            parked = (await c.call("modern", 1, **ASK_FORM))["result"]["requestState"]
        await gate.end(signal.SIGKILL)
    async with daemon(tmp_path, "modern", patience="20s") as gate, client(gate) as c, people(gate) as person:
        answers = await asyncio.gather(retry(c, 2, parked), person.decide(verdict="answer", **ACCEPTED))
        assert ACCEPTED == answers[0]["result"]["structuredContent"]["result"]


async def test_a_verdict_whose_daemon_is_killed_before_the_release_answers_the_next_same_request_once(
    tmp_path: Path,
) -> None:
    async with daemon(tmp_path, "legacy") as gate, client(gate) as c:
        await c.begin()
        call = asyncio.ensure_future(c.call("legacy", 1, **ASK_FORM))
        async with people(gate) as person:
            review = await person.pending()
        await decided_while_stopped(gate, tmp_path, review["id"])
        gate.process.send_signal(signal.SIGKILL)
        gate.ending = True
        await asyncio.gather(call, return_exceptions=True)
    async with daemon(tmp_path, "legacy") as gate, client(gate) as c, people(gate) as person:
        await c.begin()
        answer = await c.call("legacy", 1, **ASK_FORM)  # what the dead process held is free after its lease
        assert ACCEPTED.items() <= answer["result"]["structuredContent"]["result"].items()
        kept = await person.get(f"/reviews/{review['id']}")
        assert kept["used"] is not None
        again = asyncio.ensure_future(c.call("legacy", 2, **ASK_FORM))
        assert review["id"] != (await person.pending())["id"]
        await person.decide(verdict="reject")
        assert "decline" == (await again)["result"]["structuredContent"]["result"]["action"]


async def decided_while_stopped(gate: Gate, folder: Path, id: str) -> None:
    """A verdict by another door while the daemon cannot act on it. A daemon stopped within a transaction goes on until
    it has ended that."""
    from samplegate.ports import Unavailable

    for _ in range(20):
        gate.process.send_signal(signal.SIGSTOP)
        with contextlib.suppress(Unavailable):
            return await asyncio.to_thread(decide, folder, id)
        gate.process.send_signal(signal.SIGCONT)
    pytest.fail("the daemon was within a transaction each time")


def decide(folder: Path, id: str) -> None:
    import time

    from samplegate.core.review.review import Verdict
    from samplegate.store.reviews import Reviews

    store = Reviews(f"sqlite:{folder / 'state' / 'reviews.db'}")
    store.decide(id, Verdict(word="answer", result=ACCEPTED), who="ana", door="cli", now=time.time())
    store.close()


async def retry(c: Client, id: int, state: str) -> dict[str, Any]:
    """The client's next try, as modern clients make it by themselves."""
    own = {f"{META}protocolVersion": VERSION, f"{META}clientCapabilities": {}}
    headers = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "do"}
    params = {"name": "do", "arguments": ASK_FORM, "requestState": state, "_meta": own}
    return (await c.post({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}, headers))[1]
