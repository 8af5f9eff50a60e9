"""The server's own UI for a form, from a real server to the store of reviews: read, bound to a verdict, and changed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.reviews.review import Verdict
from tests.fakes.daemon import BOUND, FORM, Client, client
from tests.fakes.daemon_reviews import ACCEPTED, POLICY, People, daemon, people, said, store

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
SHOWS: Final = POLICY.replace("effect: escalate,", "effect: escalate, ui: show,")
HTML: Final = "<!doctype html><title>Picker</title><p>Pick a color"
SHA256: Final = hashlib.sha256(HTML.encode()).hexdigest()
POLICES: Final = SHOWS.replace("servers: {default: {", "servers: {default: {ui_results: police, ")
URI: Final = "ui://asking/picker"
SEP_3118: Final = {"_meta": {"ui": {"resourceUri": URI}}}
RICH: Final = {"ui": {"uri": URI, "mode": "modal", "context": {"theme": "light"}}}


def form(text: str, named: Any = SEP_3118) -> dict[str, Any]:
    """The arguments of a call that asks for a form with a UI of the server."""
    return {"ask": {"method": "elicitation/create", "params": {**FORM, "message": text, **named}}}


async def calling(c: Client, speaks: str, arguments: dict[str, Any]) -> asyncio.Task[dict[str, Any]]:
    if speaks == "legacy" and not c.session:
        await c.begin()
    return asyncio.create_task(c.call(speaks, **arguments))


async def shown(ana: People, state: str = "ready", besides: str = "") -> dict[str, Any]:
    """The pending review, once its UI has this state. ``besides``: another one that may still be pending."""
    async with asyncio.timeout(BOUND):
        while True:
            for one in (await ana.get("/reviews?state=pending"))["reviews"]:
                review: dict[str, Any] = await ana.get(f"/reviews/{one['id']}")
                if review["id"] != besides and review["ui"]["state"] == state:
                    return review
            await asyncio.sleep(0.05)


def decide(folder: Path, id: str, sha256: str) -> None:
    """Accept as the page does if it showed this UI."""
    with store(folder) as opened:
        verdict = Verdict(word="answer", result=ACCEPTED, ui=sha256)
        assert opened.decide(id, verdict, who="ana", door="page") is not None


def reads(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "reads.jsonl").read_text().splitlines()]


def records(folder: Path) -> list[dict[str, Any]]:
    files = (folder / "state" / "decisions").glob("*.jsonl")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [line for line in lines if "outcome" in line]


@pytest.mark.parametrize(
    ("speaks", "eras", "named"),
    [
        ("legacy", "legacy", SEP_3118),
        ("modern", "modern", RICH),
        ("legacy", "modern", SEP_3118),
        ("modern", "legacy", SEP_3118),
    ],
    ids=["legacy", "modern", "legacy to modern", "modern to legacy"],
)
async def test_the_ui_is_read_from_the_server_that_asks(tmp_path: Path, speaks: str, eras: str, named: Any) -> None:
    (tmp_path / "ui.html").write_text(HTML)
    async with daemon(tmp_path, eras, policy=SHOWS) as gate, people(gate) as ana, client(gate) as c:
        call = await calling(c, speaks, form("with a UI", named))
        review = await shown(ana)
        assert {"uri": URI, "size": len(HTML), "sha256": SHA256}.items() <= review["ui"].items()
        decide(tmp_path, review["id"], SHA256)
        assert ACCEPTED.items() <= said(await call).items()
    (read,) = reads(tmp_path)
    assert URI == read["uri"]
    if eras == "modern":
        assert {} == read["_meta"]["io.modelcontextprotocol/clientCapabilities"], "the server cannot ask back"
    assert [SHA256] == [record["review_ui"] for record in records(tmp_path)]


@pytest.mark.parametrize(
    ("speaks", "eras"), [("legacy", "legacy"), ("modern", "modern"), ("legacy", "modern"), ("modern", "legacy")]
)
async def test_a_question_in_a_tools_result_is_answered_by_a_reviewer(tmp_path: Path, speaks: str, eras: str) -> None:
    (tmp_path / "ui.html").write_text(HTML)
    question = {name: FORM[name] for name in ("message", "requestedSchema")} | RICH
    async with daemon(tmp_path, eras, policy=POLICES) as gate, people(gate) as ana, client(gate) as c:
        call = await calling(c, speaks, {"metadata": {"kept": 1, "elicitation": question}})
        review = await shown(ana)
        assert {"uri": URI, "size": len(HTML), "sha256": SHA256}.items() <= review["ui"].items()
        decide(tmp_path, review["id"], SHA256)
        assert {"kept": 1, "elicitationResult": ACCEPTED} == (await call)["result"]["metadata"]
        seen = (await c.call(speaks, id=2, methods=True))["result"]["structuredContent"]["methods"]
    assert ["tools/call", "resources/read", "tools/call"] == seen[-3:], "the server gets no answer"
    (record,) = records(tmp_path)
    assert ("tool_result", "answered", "ana", SHA256) == tuple(
        record[name] for name in ("door", "outcome", "reviewed_by", "review_ui")
    )


async def test_a_ui_that_is_a_url_is_shown_from_an_origin_that_the_rule_names(tmp_path: Path) -> None:
    url = "https://ui.example.com/picker?a=1"
    (tmp_path / "ui.url").write_text(f"# the picker\r\n{url}\r\n")
    named = SHOWS.replace("ui: show,", "ui: show, ui_origins: ['https://ui.example.com'],")
    async with daemon(tmp_path, "legacy", policy=named) as gate, people(gate) as ana, client(gate) as c:
        call = await calling(c, "legacy", form("a URL", RICH))
        review = await shown(ana)
        sha256 = hashlib.sha256(url.encode()).hexdigest()
        assert {"uri": URI, "url": url, "size": len(url), "sha256": sha256}.items() <= review["ui"].items()
        decide(tmp_path, review["id"], sha256)
        assert ACCEPTED.items() <= said(await call).items()
        call = await calling(c, "legacy", form("a URL of a UI whose MIME type is negotiated", SEP_3118))
        await shown(ana, "failed")
        await ana.decide(verdict="answer", **ACCEPTED)
        await call
    assert [sha256, None] == [record.get("review_ui") for record in records(tmp_path)]


async def test_a_ui_that_cannot_be_read_leaves_the_form(tmp_path: Path) -> None:
    async with daemon(tmp_path, "legacy", policy=SHOWS) as gate, people(gate) as ana, client(gate) as c:
        call = await calling(c, "legacy", form("without a file"))
        review = await shown(ana, "failed")
        status, _ = await ana.say(review, verdict="answer", **ACCEPTED)
        assert 200 == status
        assert ACCEPTED.items() <= said(await call).items()
    assert ["review_ui" in record for record in records(tmp_path)] == [False]


async def test_a_late_verdict_answers_the_next_request_with_the_same_ui_only(tmp_path: Path) -> None:
    (tmp_path / "ui.html").write_text(HTML)
    impatient = daemon(tmp_path, "legacy", policy=SHOWS, patience="8s")
    async with impatient as gate, people(gate) as ana, client(gate) as c:
        await (await calling(c, "legacy", form("late")))  # ends without a decision
        first = await shown(ana)
        decide(tmp_path, first["id"], SHA256)

        (tmp_path / "ui.html").write_text(HTML + " again")
        call = await calling(c, "legacy", form("late"))
        other = await shown(ana)
        assert other["id"] != first["id"], "another UI is another review"
        assert other["ui"]["sha256"] != SHA256
        assert 200 == (await ana.say(other, verdict="reject"))[0]
        await call

        (tmp_path / "ui.html").write_text(HTML)
        again = await (await calling(c, "legacy", form("late")))
        assert ACCEPTED.items() <= said(again).items()
    assert [first["id"]] == [record["review"] for record in records(tmp_path) if record["outcome"] == "answered"]


async def test_a_kill_between_submission_and_verdict_decides_nothing(tmp_path: Path) -> None:
    (tmp_path / "ui.html").write_text(HTML)
    async with daemon(tmp_path, "legacy", policy=SHOWS) as gate, people(gate) as ana, client(gate) as c:
        call = await calling(c, "legacy", form("killed"))
        first = await shown(ana)
        await ana.sign_in()
        proposed = await ana.propose(first, **ACCEPTED)
        assert [] == proposed["problems"]
        gate.process.kill()
        await gate.process.wait()
        gate.ending = True
        call.cancel()
    with store(tmp_path) as opened:
        kept = opened.get(first["id"])
    assert kept is not None
    assert ("pending", None) == (kept.state, kept.verdict)
    async with daemon(tmp_path, "legacy", policy=SHOWS) as gate, client(gate) as c:
        call = await calling(c, "legacy", form("killed"))
        await gate.said('"review.opened"')
        decide(tmp_path, first["id"], SHA256)
        assert ACCEPTED.items() <= said(await call).items()
    assert [(first["id"], SHA256)] == [(record["review"], record["review_ui"]) for record in records(tmp_path)]


async def test_a_rule_that_hides_uis_reads_none(tmp_path: Path) -> None:
    (tmp_path / "ui.html").write_text(HTML)
    async with daemon(tmp_path, "legacy") as gate, people(gate) as ana, client(gate) as c:
        call = await calling(c, "legacy", form("hidden"))
        review = await ana.pending()
        assert review["ui"] is None
        await ana.decide(verdict="answer", **ACCEPTED)
        await call
    assert not (tmp_path / "reads.jsonl").exists()
