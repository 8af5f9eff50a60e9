"""A process is killed while a review is pending: the same request in another process joins that review at once, and
there is only one."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.fakes.daemon import ASK_FORM, BOUND, asking, client, serving
from tests.fakes.daemon_reviews import people, settings

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]


async def test_the_same_request_joins_the_review_of_a_process_that_was_killed(tmp_path: Path) -> None:
    wanted = (*settings(tmp_path), "--", *asking("legacy+modern"))
    async with (
        serving(tmp_path, *wanted, forked=True) as killed,
        serving(tmp_path, *wanted, forked=True) as other,
        client(killed) as c,
        client(other) as d,
    ):
        await killed.said("reviews on")
        await other.said("reviews on")
        async with people(other) as person:
            await c.begin()
            await d.begin()
            lost = asyncio.ensure_future(c.call("legacy", 1, **ASK_FORM))
            review = await person.pending()
            killed.process.send_signal(signal.SIGKILL)
            killed.ending = True
            await asyncio.gather(lost, return_exceptions=True)
            await killed.process.wait()
            again = asyncio.ensure_future(d.call("legacy", 1, **ASK_FORM))
            async with asyncio.timeout(BOUND):
                while (  # noqa: ASYNC110 - another process acts
                    len((await person.get(f"/reviews/{review['id']}/history"))["events"]) < 2
                    and len(await pending(person)) < 2
                ):
                    await asyncio.sleep(0.05)
            assert [review["id"]] == await pending(person)
            assert 200 == (await person.say(review, verdict="answer", action="accept", content={"confirm": True}))[0]
            answered = await asyncio.wait_for(again, BOUND)
            assert "accept" == answered["result"]["structuredContent"]["result"]["action"]


async def pending(person: object) -> list[str]:
    return [each["id"] for each in (await person.get("/reviews?state=pending"))["reviews"]]  # type: ignore[attr-defined]
