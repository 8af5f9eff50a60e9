"""The same request headers at the listeners for clients, operators and reviewers. They are parsed alike; each listener
has its own rules of trust."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest

from samplegate.config.identities import CallerSettings, Token
from samplegate.request_headers import MAX_TOKEN
from samplegate.reviews.web.context import Person
from tests.fakes.admin_app import app_of
from tests.fakes.guarded import GuardedApp
from tests.fakes.reviewers_listener import ReviewersListener

pytestmark = pytest.mark.anyio

Headers = Sequence[tuple[bytes, bytes]]
HOST = (b"host", b"localhost")


async def status(app: Any, headers: Headers, path: str, method: str) -> int:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    addresses = {"client": ("192.0.2.7", 5), "server": ("127.0.0.1", 80)}
    await app(
        {"type": "http", "method": method, "path": path, "query_string": b"", "headers": list(headers), **addresses},
        receive,
        send,
    )
    return int(sent[0]["status"])


async def all_three(headers: Headers) -> tuple[int, int, int]:
    """The statuses of a request that needs no token at the listeners for clients, operators and reviewers."""
    return (
        (await GuardedApp(allowed_hosts=("localhost", "Gate.example.com:*", "[::1]:80")).ask(headers)).status,
        await status(app_of(hosts=["gate.example.com"]), headers, "/version", "GET"),
        await status(
            ReviewersListener(hosts=("gate.example.com:*",), url="https://reviews.example.com").app(),
            headers,
            "/v1/openapi.json",
            "GET",
        ),
    )


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (None, (421, 200, 200)),
        (b"", (421, 403, 403)),
        (b" ", (421, 403, 403)),
        (b"localhost", (200, 200, 200)),
        (b"LocalHost.", (421, 200, 200)),
        (b"localhost:80", (421, 200, 200)),
        (b"localhost:", (421, 200, 200)),
        (b"localhost:x", (421, 403, 403)),
        (b"localhost:99999999", (421, 403, 403)),
        (b"gate.example.com", (421, 200, 200)),
        (b"GATE.example.com:1", (200, 200, 200)),
        (b"gate.example.com.:1", (421, 200, 200)),
        (b"gate.example.com..", (421, 403, 403)),
        (b"127.0.0.1", (421, 200, 200)),
        (b"127.0.0.1:80", (421, 200, 200)),
        (b"127.1", (421, 403, 403)),
        (b"[::1]", (421, 200, 200)),
        (b"[::1]:80", (200, 200, 200)),
        (b"[::1]:", (421, 200, 200)),
        (b"[::1]80", (421, 403, 403)),
        (b"[::1", (421, 403, 403)),
        (b"::1", (421, 403, 403)),
        (b"[::FFFF:127.0.0.1]", (421, 200, 200)),
        (b"[fe80::1%eth0]", (421, 200, 200)),
        (b"[evil]", (421, 403, 403)),
        (b"10.0.0.7", (421, 200, 200)),
        (b"evil.example", (421, 403, 403)),
        (b"localhost.evil.example", (421, 403, 403)),
        (b"localhost@evil.example", (421, 403, 403)),
        (b"127.0.0.1:80@evil.example", (421, 403, 403)),
        (b"gate.example.com:80@evil.example", (421, 403, 403)),
        (b"[::1]:80@evil.example", (421, 403, 403)),
        (b"localhost, evil.example", (421, 403, 403)),
        (b"localhost evil", (421, 403, 403)),
        (b"localhost/", (421, 403, 403)),
        (b"\xe4", (421, 403, 403)),
        (b"reviews.example.com:8443", (421, 403, 200)),
        (b"*", (421, 403, 403)),
        (b"any", (421, 403, 403)),
        (b"[::1].evil.example", (421, 403, 403)),
    ],
)
async def test_a_host_is_read_alike(host: bytes | None, expected: tuple[int, int, int]) -> None:
    assert expected == await all_three([] if host is None else [(b"host", host)])


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (b"", (403, 200, 403)),
        (b"null", (403, 200, 403)),
        (b"NULL", (403, 200, 403)),
        (b"http://localhost", (200, 200, 200)),
        (b"http://localhost:80", (200, 200, 200)),
        (b"http://localhost:8080", (200, 200, 403)),
        (b"HTTP://LOCALHOST", (200, 200, 200)),
        (b"http://localhost/", (403, 200, 200)),
        (b"http://localhost.", (403, 200, 403)),
        (b"https://localhost", (200, 200, 200)),
        (b"https://localhost:443", (200, 200, 200)),
        (b"http://127.0.0.1:3000", (200, 200, 403)),
        (b"http://[::1]:3000", (200, 200, 403)),
        (b"http://[::1", (403, 200, 403)),
        (b"http://localhost:x", (403, 200, 403)),
        (b"http://localhost:99999", (200, 200, 403)),
        (b"http://u@localhost", (403, 200, 200)),
        (b"http://localhost:1@evil.example", (403, 200, 403)),
        (b"http://localhost http://evil.example", (403, 200, 403)),
        (b"http://evil.example", (403, 200, 403)),
        (b"https://reviews.example.com", (403, 200, 200)),
        (b"https://reviews.example.com:443", (403, 200, 200)),
        (b"http://reviews.example.com", (403, 200, 403)),
        (b"file://", (403, 200, 403)),
        (b"localhost", (403, 200, 403)),
        (b"http://", (403, 200, 403)),
        (b" http://localhost ", (200, 200, 200)),
        (b"http://\xe4", (403, 200, 403)),
    ],
)
async def test_an_origin_is_read_alike(origin: bytes, expected: tuple[int, int, int]) -> None:
    """The operators' listener ignores it: a page cannot read its responses, and a reload needs a token."""
    assert expected == await all_three([HOST, (b"origin", origin)])


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([(b"host", b"localhost"), (b"host", b"localhost")], (400, 403, 403)),
        ([(b"host", b"localhost"), (b"host", b"evil.example")], (400, 403, 403)),
        ([(b"host", b"evil.example"), (b"host", b"localhost")], (400, 403, 403)),
        (
            [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"origin", b"http://localhost")],
            (400, 200, 403),
        ),
        (
            [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"origin", b"http://evil.example")],
            (400, 200, 403),
        ),
        ([(b"host", b"localhost"), (b"authorization", b"Bearer a"), (b"authorization", b"Bearer a")], (400, 200, 200)),
        ([(b"host", b"localhost"), (b"accept", b"a"), (b"accept", b"b")], (200, 200, 200)),
    ],
)
async def test_headers_that_stand_twice_are_refused(headers: Headers, expected: tuple[int, int, int]) -> None:
    assert expected == await all_three(headers)


@pytest.mark.parametrize(
    ("authorization", "token", "expected"),
    [
        ([], b"abc", (401, 401, 401)),
        ([b"Bearer abc"], b"abc", (200, 200, 200)),
        ([b"bearer   abc "], b"abc", (200, 200, 200)),
        ([b"BEARER a.b-c_d~e+f/g=="], b"a.b-c_d~e+f/g==", (200, 200, 200)),
        ([b"Basic abc"], b"abc", (401, 401, 401)),
        ([b"Bearer"], b"abc", (401, 401, 401)),
        ([b"Bearerabc"], b"abc", (401, 401, 401)),
        ([b"Bearer\tabc"], b"abc", (401, 401, 401)),
        ([b"Bearer \tabc"], b"abc", (401, 401, 401)),
        ([b"Bearer \tabc"], b"\tabc", (401, 200, 200)),
        ([b" Bearer abc"], b"abc", (200, 200, 200)),
        ([b"Bearer a b"], b"a b", (401, 200, 200)),
        ([b"Bearer a,b"], b"a,b", (401, 200, 200)),
        ([b'Bearer "abc"'], b"abc", (401, 401, 401)),
        ([b"Bearer a=b"], b"a=b", (401, 200, 200)),
        ([b"Bearer \xe4"], b"\xe4", (401, 200, 200)),
        ([b"Bearer abc\xa0"], b"abc", (401, 401, 401)),
        ([b"Bearer abc\n"], b"abc", (401, 401, 401)),
        ([b"Bearer abc", b"Bearer abc"], b"abc", (400, 401, 401)),
        ([b"Bearer abc", b"Basic abc"], b"abc", (400, 401, 401)),
        ([b"Bearer "], b"abc", (401, 401, 401)),
        ([b"Bearer " + b"a" * MAX_TOKEN], b"a" * MAX_TOKEN, (200, 200, 200)),
        ([b"Bearer a" + b"a" * MAX_TOKEN], b"a" * (MAX_TOKEN + 1), (401, 401, 401)),
    ],
)
async def test_a_bearer_token_is_read_alike(
    authorization: Sequence[bytes], token: bytes, expected: tuple[int, int, int]
) -> None:
    """The statuses if ``token`` is the valid one."""
    headers = [HOST, *((b"authorization", value) for value in authorization)]
    guarded = GuardedApp(CallerSettings(tokens=(Token("ci", hashlib.sha256(token).hexdigest()),)))
    listener = ReviewersListener()
    listener.people[token.decode("latin-1")] = Person("ann", "admin")
    assert expected == (
        (await guarded.ask(headers)).status,
        await status(app_of(token=token), headers, "/reload", "POST"),
        await status(listener.app(), headers, "/v1/reviews", "GET"),
    )
