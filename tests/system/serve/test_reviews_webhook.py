"""Webhooks and commands of a real daemon: a receiver that verifies signatures answers at once, later, wrongly, slowly,
or not at all."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import aiohttp
import pytest
from standardwebhooks.webhooks import Webhook

from tests.fakes.daemon import ASK_SAMPLE, Client, Gate, admin, client
from tests.fakes.daemon_reviews import People, daemon, form, people, reload
from tests.fakes.webhook_endpoint import Endpoint, Seen, answer, endpoint, ok

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]
KEY: Final = "whsec_" + base64.b64encode(bytes(range(32))).decode()
BOUND: Final = 60.0
CONTENT: Final = {"confirm": True}
ACCEPT: Final[dict[str, Any]] = {"verdict": "answer", "action": "accept", "content": CONTENT}
ALLOWED: Final[dict[str, Any]] = {"webhook_networks": ["127.0.0.1/32"]}
ELSEWHERE: Final = "127.0.0.2"
"""An address of this machine that is not allowed."""


def policy(**reviewers: Mapping[str, Any]) -> str:
    """Each reviewer gets the forms that name it, and the last one gets everything."""
    names = list(reviewers)
    told = {"effect": "escalate", "show": "full"}
    rules = [
        {"name": f"people of {name}", "reviewer": name, "match": {"kind": "elicitation", "mode": "form", "text": name}}
        for name in names
    ] + [{"name": "the rest", "reviewer": names[-1], "match": {"not": {"mode": "url"}}}]
    return json.dumps(
        {
            "version": 1,
            "models": [{"name": "m", "model": "scripted", "cases": "answers.yaml"}],
            "reviewers": {name: {"timeout": "15m", **reviewer} for name, reviewer in reviewers.items()},
            "rules": [{**rule, **told} for rule in rules],
        }
    )


def told_at(hook: Endpoint, **more: Any) -> dict[str, Any]:
    """A reviewer with this webhook."""
    return {"webhook": {"url": hook.url, "secret_file": "hook.key"}, **more}


class Office:
    """The daemon, and reviewers. Each test has its own reviewer, which gets no deliveries for reviews of other
    tests."""

    def __init__(self, gate: Gate, folder: Path, person: People) -> None:
        self.gate, self.folder, self.person = gate, folder, person
        self.reviewer = ""
        self._number = 0

    async def open(self, reviewer: Mapping[str, Any]) -> None:
        """Put a new reviewer in force in place of the one before."""
        self._number += 1
        self.reviewer = f"ops{self._number}"
        await reload(self.gate, self.folder, policy(**{self.reviewer: reviewer}))

    def ask(self, c: Client) -> asyncio.Future[dict[str, Any]]:
        return ask(c, self.reviewer)

    async def delivered(self) -> None:
        """Wait for the result of an attempt to notify the reviewer."""
        mine = f'reviewer="{self.reviewer}"'
        async with asyncio.timeout(BOUND):
            while not [
                line
                for line in (await admin(self.gate, "/metrics"))[1].splitlines()
                if line.startswith("samplegate_review_deliveries_total{") and mine in line
            ]:
                pass

    async def decide(self, **verdict: Any) -> None:
        """Decide the reviewer's next review."""
        status, problem = await self.person.say(await self.person.pending(reviewer=self.reviewer), **verdict)
        assert 200 == status, problem


def ask(c: Client, reviewer: str) -> asyncio.Future[dict[str, Any]]:
    """Make a call that needs this reviewer."""
    return asyncio.ensure_future(c.call("modern", 1, **form(f"sure, {reviewer}?")))


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the module, whose daemon outlives each test."""
    return "asyncio"


@pytest.fixture(scope="module")
async def office(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    """The daemon."""
    folder = tmp_path_factory.mktemp("webhooks")
    (folder / "hook.key").write_text(KEY)
    async with daemon(folder, watch=False, **ALLOWED) as gate, people(gate) as person:
        yield Office(gate, folder, person)


@asynccontextmanager
async def called(office: Office, reviewer: Mapping[str, Any]) -> AsyncIterator[tuple[Client, asyncio.Future[Any]]]:
    """A call that needs this reviewer."""
    await office.open(reviewer)
    async with client(office.gate) as c:
        yield c, office.ask(c)


def verified(seen: Seen) -> dict[str, Any]:
    """A message whose signature the reference library has verified."""
    found: dict[str, Any] = Webhook(KEY).verify(seen.body, seen.headers)
    return found


async def heard(hook: Endpoint, number: int) -> Sequence[dict[str, Any]]:
    """Wait for this many messages, and verify the signature of each."""
    async with asyncio.timeout(BOUND):
        while len(hook.seen) < number:
            hook.came.clear()
            await hook.came.wait()
    return [verified(seen) for seen in hook.seen]


async def said(call: asyncio.Future[dict[str, Any]]) -> Any:
    """The server's answer."""
    return (await asyncio.wait_for(call, BOUND))["result"]["structuredContent"]["result"]


async def test_a_receiver_is_told_all_that_it_needs_and_its_answer_is_the_verdict(office: Office) -> None:
    async with (
        endpoint(ok(json.dumps({**ACCEPT, "by": "robot"}).encode())) as hook,
        called(office, told_at(hook)) as (_, call),
    ):
        assert {"action": "accept", "content": CONTENT} == await said(call)
        told, *_ = await heard(hook, 1)
        data = told["data"]
        assert [office.reviewer, f"people of {office.reviewer}", "default", "elicitation"] == [
            data[name] for name in ("reviewer", "rule", "server", "kind")
        ]
        assert ("review.opened", True) == (told["type"], "sure, " in json.dumps(data))
        kept = await office.person.get(f"/reviews/{data['id']}")
        assert ("answered", data["digest"]) == (kept["state"], kept["digest"])
        assert [("webhook", "robot")] == await ended(office.person, data["id"])


async def ended(person: People, id: str) -> list[tuple[str, str]]:
    """The door and the person of the decision."""
    history = (await person.get(f"/reviews/{id}/history"))["events"]
    return [(event["door"], event["who"]) for event in history if event["what"] == "answered"]


async def callback(
    told: Mapping[str, Any], *, token: str | None = None, to: Mapping[str, Any] | None = None, **verdict: Any
) -> tuple[int, Any]:
    """Decide later, with the URL of the message. ``to``: on the review of another message."""
    where = (to or told)["data"]["callback"]
    headers = {"authorization": f"Bearer {token or told['data']['callback']['token']}"}
    body = {"digest": (to or told)["data"]["digest"], **verdict}
    async with aiohttp.ClientSession() as http, http.post(where["url"], json=body, headers=headers) as response:
        return response.status, await response.json()


async def test_a_receiver_that_takes_its_time_gives_the_verdict_by_its_callback_and_once_only(office: Office) -> None:
    async with endpoint(answer("202 Accepted")) as hook, called(office, told_at(hook)) as (_, call):
        (told,) = await heard(hook, 1)
        status, problem = await callback(told, verdict="answer", action="accept", content={"confirm": 7})
        assert (422, False) == (status, call.done()), problem
        status, decided = await callback(told, **ACCEPT)
        assert (200, "answered") == (status, decided["state"])
        assert {"action": "accept", "content": CONTENT} == await said(call)
        status, problem = await callback(told, verdict="reject")
        assert (409, "answered") == (status, problem["review"]["state"])
        assert [("callback", "callback")] == await ended(office.person, told["data"]["id"])


async def test_a_callback_opens_no_review_but_its_own(office: Office) -> None:
    async with endpoint(answer("202 Accepted")) as hook, called(office, told_at(hook)) as (c, call):
        calls = [call, asyncio.ensure_future(c.call("modern", 2, **ASK_SAMPLE))]
        one, other = await heard(hook, 2)
        token = one["data"]["callback"]["token"]
        assert 401 == (await callback(one, to=other, verdict="reject"))[0]
        assert 401 == (await callback(one, token=f"{token[:-2]}AA", verdict="reject"))[0]
        assert 401 == (await callback(one, token=token + "x", verdict="reject"))[0]
        # the token of a message permits its decision, and no reads
        for path in ("/reviews", f"/reviews/{one['data']['id']}", "/reviews/events"):
            async with (
                aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"}) as http,
                http.get(f"{office.gate.reviews}/v1{path}") as response,
            ):
                assert 401 == response.status
        pending = (await office.person.get("/reviews?state=pending"))["reviews"]
        assert 2 == sum(review["reviewer"] == office.reviewer for review in pending)
        assert not any(call.done() for call in calls)
        for told in (one, other):
            assert 200 == (await callback(told, verdict="reject"))[0]
        await asyncio.gather(*calls)


async def test_a_get_of_the_callback_decides_nothing(office: Office) -> None:
    async with endpoint(answer("202 Accepted")) as hook, called(office, told_at(hook)) as (_, call):
        (told,) = await heard(hook, 1)
        where = told["data"]["callback"]
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {where['token']}"}) as http:
            for query in ("", "?verdict=approve&digest=x"):
                async with http.get(where["url"] + query) as response:
                    assert 405 == response.status
        assert (await office.person.get(f"/reviews/{told['data']['id']}"))["state"] == "pending"
        call.cancel()


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Sends nothing for as long as the other side waits."""
    await reader.read()


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
    office: Office, what: str
) -> None:
    async with endpoint(ok(json.dumps(ACCEPT).encode())) as elsewhere, endpoint() as hook:
        if what == "nothing":
            hook.behave = silent
        else:
            hook.says = BAD[what].replace(b"ELSEWHERE", elsewhere.url.encode())
        async with called(office, told_at(hook)) as (c, call):
            told, *_ = await heard(hook, 1)
            if what != "nothing":
                await office.delivered()
            assert "x" == (await asyncio.wait_for(c.call("modern", 2), BOUND))["result"]["content"][0]["text"]
            assert (told["data"]["id"], False) == (
                (await office.person.pending(reviewer=office.reviewer))["id"],
                call.done(),
            )
            await office.decide(verdict="answer", action="decline")
            assert "decline" == (await said(call))["action"]
        assert 0 == len(elsewhere.seen)


async def test_a_receiver_that_is_not_there_leaves_the_review_to_people(office: Office) -> None:
    async with endpoint() as hook:
        pass
    before = len(office.gate.lines)
    async with called(office, told_at(hook)) as (_, call):
        await office.gate.said("review.delivery_failed", before)
        await office.decide(verdict="answer", action="accept", content=CONTENT)
        assert "accept" == (await said(call))["action"]


async def test_an_address_that_is_not_allowed_is_never_connected_to(office: Office) -> None:
    before = len(office.gate.lines)
    async with endpoint(ok(json.dumps(ACCEPT).encode()), host=ELSEWHERE) as hook:
        webhook = {"url": hook.url.replace("127.0.0.1", ELSEWHERE), "secret_file": "hook.key"}
        async with called(office, {"webhook": webhook}) as (_, call):
            assert "webhook_networks" in await office.gate.said("review.delivery_failed", before)
            assert (0, False) == (hook.connections, call.done())
            call.cancel()


DECIDES = """
import json, sys
review = json.load(sys.stdin)
assert review["reviewer"].startswith("ops") and review["digest"].startswith("sha256:"), review
print(json.dumps({"verdict": "answer", "digest": review["digest"], "action": "accept", "content": {"confirm": True}, "by": "program"}))
"""  # noqa: E501
FAILS = 'print(\'{"verdict": "answer", "action": "accept", "content": {"confirm": true}}\'); raise SystemExit(3)'


async def test_a_program_that_prints_a_verdict_has_decided(office: Office) -> None:
    (office.folder / "decide.py").write_text(DECIDES)
    async with called(office, {"command": [sys.executable, "decide.py"]}) as (_, call):
        assert {"action": "accept", "content": CONTENT} == await said(call)
        reviews = (await office.person.get("/reviews"))["reviews"]
        (review,) = [review for review in reviews if review["reviewer"] == office.reviewer]
        assert [("command", "program")] == await ended(office.person, review["id"])


@pytest.mark.parametrize("program", [FAILS, "print('yes')", "import sys; sys.stdout.write('x' * 2_000_000)"])
async def test_a_program_that_fails_or_says_anything_else_has_decided_nothing(office: Office, program: str) -> None:
    (office.folder / "decide.py").write_text(program)
    async with called(office, {"command": [sys.executable, "decide.py"]}) as (_, call):
        await office.delivered()
        await office.decide(verdict="answer", action="decline")
        assert "decline" == (await said(call))["action"]


# -- after a kill
# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def second(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[People, Endpoint, Endpoint]]:
    """The daemon after one that was killed, and a reviewer; a receiver that was down until then, and one that had not
    answered."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "hook.key").write_text(KEY)
    async with endpoint(answer("503 Service Unavailable")) as down, endpoint() as slow:
        slow.behave = silent
        wanted: dict[str, Any] = {"policy": policy(down=told_at(down), slow=told_at(slow)), **ALLOWED}
        async with daemon(folder, **wanted) as gate, client(gate) as c:
            calls = [ask(c, "down"), ask(c, "slow")]
            await gate.said("review.delivery_failed")
            await heard(slow, 1)
            await gate.end(SIGKILL)
            await asyncio.gather(*calls, return_exceptions=True)
        lapse(folder)
        down.says, down.seen[1:] = answer("202 Accepted"), []
        slow.behave, slow.says = None, ok(json.dumps(ACCEPT).encode())
        async with daemon(folder, **wanted) as gate, people(gate) as person:
            yield person, down, slow


def lapse(folder: Path) -> None:
    """Release what a dead process had claimed."""
    with closing(sqlite3.connect(folder / "state" / "reviews.db", timeout=10)) as db, db:
        db.execute("UPDATE review_deliveries SET held_until = 0")
        db.execute("UPDATE reviews SET held_until = 0")


async def test_what_could_not_be_told_is_told_with_the_same_id_after_the_daemon_was_killed_and_the_receiver_is_up_again(
    second: tuple[People, Endpoint, Endpoint],
) -> None:
    person, down, _ = second
    told = (await heard(down, 2))[1]
    assert 1 == len({seen.headers["webhook-id"] for seen in down.seen[:2]})
    status, found = await callback(told, **ACCEPT)
    assert (200, "answered") == (status, found["state"])
    assert "answered" == (await person.get(f"/reviews/{told['data']['id']}"))["state"]


async def test_a_message_that_was_under_way_when_the_daemon_was_killed_is_told_again(
    second: tuple[People, Endpoint, Endpoint],
) -> None:
    """The message was claimed for a minute. The next daemon sends it after that, which this test does not wait for."""
    person, _, slow = second
    told = (await heard(slow, 2))[0]
    assert 1 == len({seen.headers["webhook-id"] for seen in slow.seen[:2]})
    assert "answered" == (await person.over(told["data"]["id"]))["state"]
