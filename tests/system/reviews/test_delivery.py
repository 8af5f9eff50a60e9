"""One delivery to a webhook: its response, and the verdict in it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from samplegate.policy.schema import Reviewer, Webhook
from samplegate.reviews.notify import formats
from samplegate.reviews.review import Verdict
from tests.fakes.outbox import Outside, running
from tests.fakes.reviews import NOW, form
from tests.fakes.webhook_endpoint import Behave, answer, endpoint, ok

pytestmark = pytest.mark.anyio

APPROVE: Final = b'{"verdict":"approve"}'


@pytest.fixture
async def out(tmp_path: Path) -> Outside:
    return Outside(tmp_path)


async def test_the_hook_s_own_answer_decides(out: Outside) -> None:
    async with endpoint(ok(b'{"verdict":"approve","edits":{"maxTokens":50},"reason":"fine"}')) as hook:
        out.tell(hook)
        asked = await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.state == "done")
    decided = out.store.reviews[asked.id]
    assert ("approved", "ops", "webhook", "fine") == (
        decided.state,
        decided.who,
        decided.door,
        decided.verdict and decided.verdict.reason,
    )
    assert ("200, approve", [("ops", "answered")]) == (out.store.one.said, out.counted[:1])


@pytest.mark.parametrize(
    ("by", "who"),
    [
        ("ann", "ann"),
        ("", "ops"),
        ("  ", "ops"),
        ("a\u202e\nb\x07", "ab"),
        ("x" * 10_000, "x" * 100),
        ("\x00" * 500, "ops"),
    ],
)
async def test_who_answered_may_be_said_and_is_cut_to_a_name(out: Outside, by: str, who: str) -> None:
    async with endpoint(ok(json.dumps({"verdict": "reject", "by": by}).encode())) as hook:
        out.tell(hook)
        asked = await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.reviews[asked.id].state == "rejected")
    assert who == out.store.reviews[asked.id].who


BAD: Final = {
    "another word": b'{"verdict":"yes"}',
    "twin members": b'{"verdict":"reject","verdict":"approve"}',
    "another's digest": b'{"verdict":"approve","digest":"sha256:00"}',
    "over the limit": b'{"verdict":"approve","edits":{"maxTokens":100000}}',
    "unknown members": b'{"verdict":"approve","force":true}',
    "cut off": b'{"verdict":"approve"',
    "odd name": b'{"verdict":"approve","by":["ann"]}',
    "too deep": b'{"verdict":"approve","edits":' + b"[" * 100 + b"]" * 100 + b"}",
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD)
async def test_a_verdict_that_does_not_read_changes_nothing_and_is_asked_for_again(out: Outside, raw: bytes) -> None:
    async with endpoint(ok(raw)) as hook:
        out.tell(hook)
        asked = await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.tries == 1)
            assert "pending" == out.store.reviews[asked.id].state
            assert ["review.verdict_unread", "review.delivery_failed"] == out.log.events()
            said = out.log.lines[0][2]
            assert said["problems"]
            assert said["places"]
            assert "force" not in str(said)
            hook.says = ok(APPROVE)
            out.clock.move(2)
            await out.store.until(lambda: out.store.reviews[asked.id].state == "approved")
    assert 1 == len({seen.headers["webhook-id"] for seen in hook.seen})


async def test_an_answer_to_a_form_that_breaks_its_schema_is_none(out: Outside) -> None:
    asked = replace(form(port={"type": "integer", "minimum": 1}), expires=NOW + 900)
    out.store.open(asked, announce=True, most=9)
    async with endpoint(ok(b'{"verdict":"answer","action":"accept","content":{"port":"hunter2"}}')) as hook:
        out.tell(hook)
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.tries == 1)
    assert "pending" == out.store.reviews[asked.id].state
    assert "'places': ['content']" in str(out.log.lines)
    assert not {"hunter2", "port"} & set(str(out.log.lines).replace("'", " ").split())


async def test_a_verdict_that_comes_too_late_is_no_fault_of_the_hook(out: Outside) -> None:
    async with endpoint() as hook:
        asked = await out.ask()

        async def first(_reader: Any, writer: Any) -> None:
            out.store.decide(asked.id, Verdict(word="reject"), who="ann", door="page")
            writer.write(ok(APPROVE))

        hook.behave = first
        out.tell(hook)
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.state == "done")
    assert ("rejected", "ann") == (out.store.reviews[asked.id].state, out.store.reviews[asked.id].who)
    assert "200, approve, too late: rejected" == out.store.one.said


async def test_a_202_leaves_it_to_the_callback_whose_token_holds(out: Outside) -> None:
    async with endpoint(answer("202 Accepted")) as hook:
        out.tell(hook)
        asked = await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.state == "done")
    callback = json.loads(hook.seen[0].body)["data"]["callback"]
    assert formats.callback_fault(out.store.key(), callback["token"], asked.id, asked.digest, NOW) is None
    assert "pending" == out.store.reviews[asked.id].state


async def test_the_answer_to_news_decides_nothing(out: Outside) -> None:
    async with endpoint() as hook:
        out.tell(hook)
        asked = await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.state == "done")
            hook.says = ok(APPROVE)
            out.store.withdraw(asked.id, waiter="w", why="")
            await out.store.until(lambda: all(one.state == "done" for one in out.store.deliveries.values()))
    assert "withdrawn" == out.store.reviews[asked.id].state
    assert [] == out.log.lines


async def test_slack_is_told_in_its_own_form_unsigned_and_answers_nothing(out: Outside) -> None:
    async with endpoint(ok(APPROVE)) as hook:
        (out.folder / "url").write_text(hook.url + "\n")
        out.reviewers = {"ops": Reviewer(webhook=Webhook(url_file="url", format="slack"))}
        asked = await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.state == "done")
    assert {"text", "blocks"} <= json.loads(hook.seen[0].body).keys()
    assert "webhook-signature" not in hook.seen[0].headers
    assert "pending" == out.store.reviews[asked.id].state


@pytest.mark.parametrize("show", ["none", "redacted", "full"])
async def test_content_is_told_as_the_rule_says(out: Outside, show: str) -> None:
    out.clean = lambda text: text.replace("T-1", "[secret]")
    async with endpoint() as hook:
        out.tell(hook)
        await out.ask(show=show)
        async with running(out.outbox()):
            await hook.requests(1)
    body = hook.seen[0].body
    assert {"none": (False, False), "redacted": (True, False), "full": (True, True)}[show] == (
        b"Classify" in body,
        b"T-1" in body,
    )


async def _silence(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize(
    ("says", "behave", "why"),
    [
        (answer("302 Found", Location="http://169.254.169.254/"), None, "302, redirect not followed"),
        (answer("404 Not Found"), None, "404"),
        (b"\x00\x00\r\n\r\n", None, "connection failed: "),
        (b"", _silence, "timed out"),
    ],
)
async def test_whatever_is_wrong_with_the_hook_is_told_once_and_the_review_waits_on(
    out: Outside, says: bytes, behave: Behave | None, why: str
) -> None:
    async with endpoint(says) as hook:
        hook.behave = behave
        out.tell(hook)
        asked = await out.ask()
        network = out.context().network
        async with running(out.outbox(network=replace(network, bounds=replace(network.bounds, total=0.3)))):
            for tries in (1, 2):
                await out.store.until(lambda tries=tries: out.store.one.tries == tries)  # type: ignore[misc]
                out.clock.move(10)
    told = [fields["why"] for _, event, fields in out.log.lines if event == "review.delivery_failed"]
    assert 1 == len(told)
    assert str(told[0]).startswith(why)
    assert "pending" == out.store.reviews[asked.id].state


async def test_an_answer_that_may_come_from_no_receiver_is_a_delivery_and_is_told_once_per_fault(out: Outside) -> None:
    page = ok(b"<html>hunter2, sign in", Content_Type="text/html")
    async with endpoint(page) as hook:
        out.tell(hook)
        async with running(out.outbox()):
            for number, says in enumerate((page, page, ok(b"sign in", Content_Type="text/plain"), answer(), page), 1):
                hook.says = says
                await out.ask(number)
                await out.store.until(
                    lambda number=number: sum(one.state == "done" for one in out.store.deliveries.values()) == number  # type: ignore[misc]
                )
    told = [("warning", "review.delivery_odd", {"reviewer": "ops", "review": f"rv_{n}", "content_type": kind}) for n, kind in  # noqa: E501
            ((1, "text/html"), (3, "text/plain"), (5, "text/html"))]  # fmt: skip
    assert told == out.log.lines
    assert [("ops", "delivered")] * 5 == out.counted


async def test_a_hook_inside_is_not_told_unless_its_network_is_listed(out: Outside) -> None:
    async with endpoint() as hook:
        out.tell(hook)
        await out.ask()
        async with running(out.outbox(network=replace(out.context().network, networks=()))):
            await out.store.until(lambda: out.store.one.tries == 1)
        assert 0 == hook.connections
    assert "127.0.0.1 is neither a public address nor in webhook_networks" == out.log.lines[0][2]["why"]
