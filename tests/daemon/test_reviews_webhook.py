"""Webhooks and commands of a real daemon: a receiver that checks signatures as any would answers at once, later,
wrongly, slowly, or not at all."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from standardwebhooks.webhooks import Webhook

from tests.daemon.gate import ASK_FORM, ASK_SAMPLE, Client, Gate, admin, asking, client, serving
from tests.daemon.reviewing import People, people, settings
from tests.review.endpoint import Endpoint, Seen, answer, endpoint, ok

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]
KEY: Final = "whsec_" + base64.b64encode(bytes(range(32))).decode()
BOUND: Final = 60.0
CONTENT: Final = {"confirm": True}
ACCEPT: Final[dict[str, Any]] = {"verdict": "answer", "action": "accept", "content": CONTENT}
POLICY: Final = """
version: 1
models: [{name: m, model: scripted, cases: answers.yaml}]
reviewers: {ops: REVIEWER}
rules:
  - {name: people, effect: escalate, reviewer: ops, show: full, match: {not: {mode: url}}}
client: {peer_timeout: PATIENCE}
servers: {default: {peer_timeout: PATIENCE}}
"""


def policy(**reviewer: Any) -> str:
    return POLICY.replace("REVIEWER", json.dumps({"timeout": "15m", **reviewer}))


@asynccontextmanager
async def daemon(folder: Path, hook: Endpoint | None = None, **reviewer: Any) -> AsyncIterator[Gate]:
    """A daemon whose reviewer has this webhook."""
    (folder / "hook.key").write_text(KEY)
    if hook is not None:
        reviewer["webhook"] = {"url": hook.url, "secret_file": "hook.key"}
    arguments = settings(folder, policy=policy(**reviewer))
    told = json.loads((folder / "settings.yaml").read_text())
    (folder / "settings.yaml").write_text(json.dumps({**told, "webhook_networks": ["127.0.0.0/8"]}))
    async with serving(folder, *arguments, "--", *asking("legacy+modern")) as gate:
        await gate.said("reviews on")
        yield gate


def verified(seen: Seen) -> dict[str, Any]:
    """A message whose signature the reference library has checked."""
    found: dict[str, Any] = Webhook(KEY).verify(seen.body, seen.headers)
    return found


async def heard(hook: Endpoint, number: int) -> Sequence[dict[str, Any]]:
    """So many messages, each signed as it should be."""
    async with asyncio.timeout(BOUND):
        while len(hook.seen) < number:
            hook.came.clear()
            await hook.came.wait()
    return [verified(seen) for seen in hook.seen]


async def said(call: asyncio.Future[dict[str, Any]]) -> Any:
    """What the server was answered."""
    return (await asyncio.wait_for(call, BOUND))["result"]["structuredContent"]["result"]


def ask(c: Client, arguments: Mapping[str, Any] = ASK_FORM) -> asyncio.Future[dict[str, Any]]:
    return asyncio.ensure_future(c.call("modern", 1, **arguments))


async def test_a_receiver_is_told_all_that_it_needs_and_its_answer_is_the_verdict(tmp_path: Path) -> None:
    answered = ok(json.dumps({**ACCEPT, "by": "robot"}).encode())
    async with endpoint(answered) as hook, daemon(tmp_path, hook) as gate, client(gate) as c, people(gate) as person:
        assert {"action": "accept", "content": CONTENT} == await said(ask(c))
        told, *_ = await heard(hook, 1)
        data = told["data"]
        assert ["ops", "people", "default", "elicitation"] == [
            data[name] for name in ("reviewer", "rule", "server", "kind")
        ]
        assert ("review.opened", True) == (told["type"], "sure?" in json.dumps(data))
        kept = await person.get(f"/reviews/{data['id']}")
        assert ("answered", data["digest"]) == (kept["state"], kept["digest"])
        assert [("webhook", "robot")] == await ended(person, data["id"])


async def ended(person: People, id: str) -> list[tuple[str, str]]:
    """By what door and by whom a review was answered."""
    history = (await person.get(f"/reviews/{id}/history"))["events"]
    return [(event["door"], event["who"]) for event in history if event["what"] == "answered"]


async def callback(
    told: Mapping[str, Any], *, token: str | None = None, to: Mapping[str, Any] | None = None, **verdict: Any
) -> tuple[int, Any]:
    """Give a verdict later, as the message says it. ``to``: on the review of another message."""
    where = (to or told)["data"]["callback"]
    headers = {"authorization": f"Bearer {token or told['data']['callback']['token']}"}
    body = {"digest": (to or told)["data"]["digest"], **verdict}
    async with aiohttp.ClientSession() as http, http.post(where["url"], json=body, headers=headers) as response:
        return response.status, await response.json()


async def test_a_receiver_that_takes_its_time_gives_the_verdict_by_its_callback_and_once_only(tmp_path: Path) -> None:
    async with (
        endpoint(answer("202 Accepted")) as hook,
        daemon(tmp_path, hook) as gate,
        client(gate) as c,
        people(gate) as person,
    ):
        call = ask(c)
        (told,) = await heard(hook, 1)
        status, problem = await callback(told, verdict="answer", action="accept", content={"confirm": 7})
        assert (422, False) == (status, call.done()), problem
        status, decided = await callback(told, **ACCEPT)
        assert (200, "answered") == (status, decided["state"])
        assert {"action": "accept", "content": CONTENT} == await said(call)
        status, problem = await callback(told, verdict="reject")
        assert (409, "answered") == (status, problem["review"]["state"])
        assert [("callback", "callback")] == await ended(person, told["data"]["id"])


async def test_a_callback_opens_no_review_but_its_own(tmp_path: Path) -> None:
    async with (
        endpoint(answer("202 Accepted")) as hook,
        daemon(tmp_path, hook) as gate,
        client(gate) as c,
        people(gate) as person,
    ):
        calls = [ask(c), ask(c, ASK_SAMPLE)]
        one, other = await heard(hook, 2)
        token = one["data"]["callback"]["token"]
        assert 401 == (await callback(one, to=other, verdict="reject"))[0]
        assert 401 == (await callback(one, token=f"{token[:-2]}AA", verdict="reject"))[0]
        assert 401 == (await callback(one, token=token + "x", verdict="reject"))[0]
        for path in ("/reviews", f"/reviews/{one['data']['id']}", "/reviews/events"):  # it decides, and reads nothing
            async with (
                aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"}) as http,
                http.get(f"{gate.reviews}/v1{path}") as response,
            ):
                assert 401 == response.status
        assert 2 == len((await person.get("/reviews?state=pending"))["reviews"])
        assert not any(call.done() for call in calls)
        for told in (one, other):
            assert 200 == (await callback(told, verdict="reject"))[0]
        await asyncio.gather(*calls)


async def test_a_get_of_the_callback_decides_nothing(tmp_path: Path) -> None:
    async with (
        endpoint(answer("202 Accepted")) as hook,
        daemon(tmp_path, hook) as gate,
        client(gate) as c,
        people(gate) as person,
    ):
        call = ask(c)
        (told,) = await heard(hook, 1)
        where = told["data"]["callback"]
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {where['token']}"}) as http:
            for query in ("", "?verdict=approve&digest=x"):
                async with http.get(where["url"] + query) as response:
                    assert 405 == response.status
        assert (await person.get(f"/reviews/{told['data']['id']}"))["state"] == "pending"
        call.cancel()


async def test_what_could_not_be_told_is_told_with_the_same_id_after_the_daemon_was_killed_and_the_receiver_is_up_again(
    tmp_path: Path,
) -> None:
    async with endpoint(answer("503 Service Unavailable")) as hook:
        async with daemon(tmp_path, hook) as gate, client(gate) as c:
            call = ask(c)
            await gate.said("review.delivery_failed")
            await gate.end(signal.SIGKILL)
            await asyncio.gather(call, return_exceptions=True)
        lapse(tmp_path)
        hook.says = answer("202 Accepted")
        before = len(hook.seen)
        async with daemon(tmp_path, hook) as gate, people(gate) as person:
            told = (await heard(hook, before + 1))[-1]
            assert 1 == len({seen.headers["webhook-id"] for seen in hook.seen})
            assert (200, "answered") == ((found := await callback(told, **ACCEPT))[0], found[1]["state"])
            assert "answered" == (await person.get(f"/reviews/{told['data']['id']}"))["state"]


async def test_a_message_that_was_under_way_when_the_daemon_was_killed_is_told_again(tmp_path: Path) -> None:
    """It was taken for a minute: the next daemon sends it when that is over, which is not waited for here."""
    async with endpoint() as hook:

        async def silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await reader.read()

        hook.behave = silence
        async with daemon(tmp_path, hook) as gate, client(gate) as c:
            call = ask(c)
            (told,) = await heard(hook, 1)
            await gate.end(signal.SIGKILL)
            await asyncio.gather(call, return_exceptions=True)
        lapse(tmp_path)
        hook.behave, hook.says = None, ok(json.dumps(ACCEPT).encode())
        async with daemon(tmp_path, hook) as gate, people(gate) as person:
            await heard(hook, 2)
            assert 1 == len({seen.headers["webhook-id"] for seen in hook.seen[:2]})
            assert "answered" == (await person.over(told["data"]["id"]))["state"]


def lapse(folder: Path) -> None:
    """As if what a dead process had taken were free again."""
    with closing(sqlite3.connect(folder / "state" / "reviews.db", timeout=10)) as db, db:
        db.execute("UPDATE review_deliveries SET held_until = 0")
        db.execute("UPDATE reviews SET held_until = 0")


async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says nothing for as long as it likes."""
    await asyncio.Event().wait()
    del writer


HTML = b"<!doctype html><title>Sign in</title><p>{&quot;verdict&quot;: &quot;approve&quot;}"
BAD: dict[str, bytes] = {
    "html": answer("200 OK", HTML, Content_Type="text/html"),
    "a redirect": answer("302 Found", Location="http://169.254.169.254/latest/meta-data"),
    "a redirect to a verdict": answer("307 Temporary Redirect", Location="ELSEWHERE"),
    "a verdict that does not fit": ok(b'{"verdict": "answer", "action": "accept", "content": {"confirm": "yes"}}'),
    "a verdict for another": ok(b'{"verdict": "approve", "digest": "sha256:00"}'),
    "a verdict twice": ok(
        b'{"verdict": "reject", "verdict": "answer", "action": "accept", "content": {"confirm": true}}'
    ),
    "an error with a verdict": answer("500 Internal Server Error", json.dumps(ACCEPT).encode()),
    "no http": b"SSH-2.0-OpenSSH_9.6\r\n",
}


@pytest.mark.parametrize("what", [*BAD, "nothing"])
async def test_a_receiver_that_says_anything_else_has_decided_nothing_and_people_still_can(
    tmp_path: Path, what: str
) -> None:
    async with endpoint(ok(json.dumps(ACCEPT).encode())) as elsewhere, endpoint() as hook:
        if what == "nothing":
            hook.behave = silent
        else:
            hook.says = BAD[what].replace(b"ELSEWHERE", elsewhere.url.encode())
        async with daemon(tmp_path, hook) as gate, client(gate) as c, people(gate) as person:
            call = ask(c)
            told, *_ = await heard(hook, 1)
            if what != "nothing":
                await delivered(gate)
            review = await person.pending(id=told["data"]["id"])
            assert "x" == (await asyncio.wait_for(c.call("modern", 2), BOUND))["result"]["content"][0]["text"]
            assert not call.done()
            assert (200, 0) == ((await person.say(review, verdict="answer", action="decline"))[0], len(elsewhere.seen))
            assert "decline" == (await said(call))["action"]


async def delivered(gate: Gate) -> None:
    """Until something came of a try to tell the receiver."""
    async with asyncio.timeout(BOUND):
        while not [
            line
            for line in (await admin(gate, "/metrics"))[1].splitlines()
            if line.startswith("samplegate_review_deliveries_total{")
        ]:
            pass


async def test_a_receiver_that_is_not_there_leaves_the_review_to_people(tmp_path: Path) -> None:
    async with endpoint() as hook:
        pass
    async with daemon(tmp_path, hook) as gate, client(gate) as c, people(gate) as person:
        call = ask(c)
        await gate.said("review.delivery_failed")
        await person.decide(verdict="answer", action="accept", content=CONTENT)
        assert "accept" == (await said(call))["action"]


async def test_an_address_that_is_not_allowed_is_never_connected_to(tmp_path: Path) -> None:
    async with endpoint(ok(json.dumps(ACCEPT).encode())) as hook:
        (tmp_path / "hook.key").write_text(KEY)
        arguments = settings(tmp_path, policy=policy(webhook={"url": hook.url, "secret_file": "hook.key"}))
        async with serving(tmp_path, *arguments, "--", *asking("modern")) as gate, client(gate) as c:
            await gate.said("reviews on")
            call = ask(c)
            assert "webhook_networks" in await gate.said("review.delivery_failed")
            assert (0, False) == (hook.connections, call.done())
            call.cancel()


DECIDES = """
import json, sys
review = json.load(sys.stdin)
assert review["reviewer"] == "ops" and review["digest"].startswith("sha256:"), review
print(json.dumps({"verdict": "answer", "digest": review["digest"], "action": "accept", "content": {"confirm": True}, "by": "program"}))
"""  # noqa: E501
FAILS = 'print(\'{"verdict": "answer", "action": "accept", "content": {"confirm": true}}\'); raise SystemExit(3)'


async def test_a_program_that_prints_a_verdict_has_decided(tmp_path: Path) -> None:
    (tmp_path / "decide.py").write_text(DECIDES)
    async with (
        daemon(tmp_path, command=[sys.executable, "decide.py"]) as gate,
        client(gate) as c,
        people(gate) as person,
    ):
        assert {"action": "accept", "content": CONTENT} == await said(ask(c))
        (review,) = (await person.get("/reviews"))["reviews"]
        assert [("command", "program")] == await ended(person, review["id"])


@pytest.mark.parametrize("program", [FAILS, "print('yes')", "import sys; sys.stdout.write('x' * 2_000_000)"])
async def test_a_program_that_fails_or_says_anything_else_has_decided_nothing(tmp_path: Path, program: str) -> None:
    (tmp_path / "decide.py").write_text(program)
    async with (
        daemon(tmp_path, command=[sys.executable, "decide.py"]) as gate,
        client(gate) as c,
        people(gate) as person,
    ):
        call = ask(c)
        await delivered(gate)
        await person.decide(verdict="answer", action="decline")
        assert "decline" == (await said(call))["action"]
