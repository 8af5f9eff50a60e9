"""A real daemon behind an identity-aware proxy: people decide by the proxy's signed assertion, with the keys of a local
issuer."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.fakes.daemon import Gate, client
from tests.fakes.daemon_reviews import ACCEPTED, POLICY, People, daemon, form, said, timed
from tests.fakes.issuer import Endpoint, key_set, mint, public
from tests.fakes.raw_http import exchanged

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
HEADER: Final = "x-pomerium-jwt-assertion"
HOST: Final = "reviews.example.com"
TWO: Final = POLICY.replace("{timeout: TIMEOUT}", "{timeout: TIMEOUT, approvals: 2}")
KEYS: Final = "/jwks.json"


LATER: Final = int(time.time()) + 86_400  # some of these are made long before they are used


def assertion(email: str, name: str = "k", algorithm: str = "ES256", **claims: Any) -> str:
    said = {"iss": HOST, "aud": [HOST], "sub": f"id-{email}", "email": email, "exp": LATER, **claims}
    return mint(name, algorithm, **said)


def settings(issuer: Endpoint, **more: Any) -> dict[str, Any]:
    return {
        "assertion": {
            "header": HEADER,
            "issuer": HOST,
            "audience": [HOST],
            "jwks_url": issuer.url + KEYS,
            "groups": "groups",
            "roles": {"sre": {"role": "reviewer", "reviewers": ["ops"]}},
            "people": {"ann@example.com": {"role": "reviewer"}},
            **more,
        }
    }


@asynccontextmanager
async def proxied(folder: Path, **wanted: Any) -> AsyncIterator[tuple[Gate, Endpoint]]:
    async with Endpoint().serving() as issuer:
        issuer.answers[KEYS] = 200, key_set(public("k", "ES256"), public("r", "RS256"))
        async with daemon(folder, people=settings(issuer), **wanted) as gate:
            yield gate, issuer


@asynccontextmanager
async def person(gate: Gate, text: str) -> AsyncIterator[People]:
    """A person behind the proxy."""
    async with aiohttp.ClientSession(headers={HEADER: text}, timeout=aiohttp.ClientTimeout(total=60)) as http:
        yield People(gate, http)


async def raw(gate: Gate, *headers: str) -> tuple[list[int], bytes]:
    lines = ["GET /v1/reviews HTTP/1.1", "Host: 127.0.0.1", *headers, "Connection: close", "", ""]
    return await exchanged(int(gate.reviews.rpartition(":")[2]), ["\r\n".join(lines).encode()])


async def test_two_people_approve_by_assertion_and_their_groups_are_read_at_each_verdict(tmp_path: Path) -> None:
    async with proxied(tmp_path, policy=TWO) as (gate, _), client(gate) as c:
        call = asyncio.ensure_future(c.call("modern", 1, **form("by assertion?")))
        async with person(gate, assertion("ann@example.com")) as ann:
            review = await ann.pending()
            status, first = await ann.say(review, verdict="answer", **ACCEPTED)
            assert (200, "pending", 1) == (status, first["state"], first["approvals_given"])
        ben = {name: assertion("ben@example.com", "r", "RS256", groups=[name]) for name in ("sre", "sales")}
        async with person(gate, ben["sre"]) as before, person(gate, ben["sales"]) as after:
            seen = await before.get(f"/reviews/{review['id']}")
            assert 403 == (await after.say(seen, verdict="approve"))[0], "ben has left the group meanwhile"
            assert not call.done()
            status, done = await before.say(seen, verdict="approve")
        assert (200, "answered", "ann@example.com, ben@example.com") == (status, done["state"], done["who"])
        assert ACCEPTED.items() <= said(await timed(call)).items()
        assert 0 == await gate.end()
    (record,) = [
        json.loads(line)
        for file in (tmp_path / "state" / "decisions").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert [("ann@example.com", True), ("ben@example.com", True)] == [
        (vote["by"], vote["proven"]) for vote in record["votes"]
    ]


async def test_a_person_approves_on_the_page_without_a_session(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (gate, _), client(gate) as c:
        call = asyncio.ensure_future(c.call("modern", 1, **form("on the page?")))
        async with person(gate, assertion("ann@example.com")) as ann:
            review = await ann.pending()
            page = await ann.page(f"/reviews/{review['id']}")
            assert "ann@example.com" in page
            token = page.partition('name="form_token" value="')[2][:64]
            fields = {"form_token": token, "digest": review["digest"], "do": "decline"}
            url = f"{gate.reviews}/reviews/{review['id']}/verdict"
            for origin, status in (("https://evil.example.net", 403), (gate.reviews, 303)):
                headers = {
                    HEADER: assertion("ann@example.com"),
                    "origin": origin,
                }  # as the proxy sends it, a new one with each request
                async with aiohttp.request(
                    "POST", url, data=fields, headers=headers, allow_redirects=False
                ) as response:
                    assert status == response.status, await response.text()
        assert "decline" == said(await timed(call))["action"]


BOTH: Final = f"{HEADER}: {assertion('ann@example.com')}"
RAW: Final[list[tuple[int, tuple[str, ...], bytes]]] = [
    (200, (BOTH,), b'"reviews"'),
    (400, (BOTH, BOTH), b"more than once"),
    (400, (BOTH, BOTH.upper()), b"more than once"),
    (400, (BOTH, "X_Pomerium_Jwt_Assertion: x"), b"_ in place of -"),
    (400, ("x-pomerium_jwt-assertion: x",), b"_ in place of -"),
    (400, (BOTH, "Authorization: Bearer sg_x"), b"an Authorization header"),
    (400, (BOTH, "Cookie: a=b; samplegate=x"), b"a session of the page"),
    (403, (f"{HEADER}: x",), b"malformed"),
    (401, ("X-Forwarded-User: ann@example.com", "Remote-User: ann@example.com"), b"missing or unknown token"),
]


async def test_headers_that_are_not_clear_are_refused_over_a_real_socket(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (gate, _):
        for status, headers, text in RAW:
            found, out = await raw(gate, *headers)
            assert ([status], True) == (found, text in out), (headers, out)


async def test_a_reload_changes_the_people_and_a_rotated_key_is_fetched(tmp_path: Path) -> None:
    async with proxied(tmp_path, watch=False) as (gate, issuer):
        ben, rotated = assertion("ben@example.com"), assertion("ann@example.com", "new")
        issuer.answers[KEYS] = 200, key_set(public("k", "ES256"), public("new", "ES256"))
        assert [200] == (await raw(gate, f"{HEADER}: {rotated}"))[0]
        assert ([403], True) == ((found := await raw(gate, f"{HEADER}: {ben}"))[0], b"no role" in found[1])
        file = tmp_path / "settings.yaml"
        wanted = json.loads(file.read_text())
        wanted["people"] = settings(issuer, people={"ben@example.com": {"role": "viewer"}}, header="x-jwt")
        file.write_text(json.dumps(wanted))
        before = len(gate.lines)
        gate.process.send_signal(signal.SIGHUP)
        assert "reload.taken" in await gate.said('"reload.', before)
        assert [200, 403, 401] == [
            (await raw(gate, line))[0][0]
            for line in (f"x-jwt: {ben}", f"x-jwt: {assertion('ann@example.com')}", f"{HEADER}: {ben}")
        ]


async def test_an_issuer_that_is_down_from_the_start_is_503_and_recovers(tmp_path: Path) -> None:
    async with Endpoint().serving() as issuer:
        issuer.answers[KEYS] = 500, b""
        async with daemon(tmp_path, people=settings(issuer)) as gate:
            found, out = await raw(gate, f"{HEADER}: {assertion('ann@example.com')}")
            assert ([503], True) == (found, b"issuer's keys are not available" in out)
            await gate.said("issuer_keys.failed")
