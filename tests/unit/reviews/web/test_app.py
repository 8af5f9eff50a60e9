"""Rules for every request to the reviewers' listener: its origin, its size, and the headers of every response."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from samplegate.reviews.web import security
from tests.fakes.reviewers_listener import ID, OPS, ReviewersListener, client

pytestmark = pytest.mark.anyio
EVIL = "https://evil.example.net"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("reviews.example.com", 200),
        ("REVIEWS.example.com.:8443", 200),
        ("localhost:8090", 200),
        ("127.0.0.1:8090", 200),
        ("[::1]:8090", 200),
        ("10.1.2.3", 200),
        ("inside.example.com", 200),
        ("evil.example.net", 403),
        ("reviews.example.com.evil.example.net", 403),
        ("", 403),
        ("[::1", 403),
        ("[evil]", 403),
    ],
)
async def test_it_answers_to_its_own_names_only(host: str, status: int) -> None:
    app = ReviewersListener(hosts=("inside.example.com:*",)).app()
    assert status == (await client(app).get("/v1/openapi.json", headers={"host": host})).status_code


async def test_two_hosts_are_none() -> None:
    found = await client(ReviewersListener().app()).get(
        "/v1/openapi.json", headers=[("host", "reviews.example.com"), ("host", "localhost")]
    )
    assert 403 == found.status_code


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("https://reviews.example.com", "reviews.example.com", 200),
        ("https://reviews.example.com:443", "localhost", 200),
        ("http://reviews.example.com", "reviews.example.com", 403),
        ("https://reviews.example.com:8443", "reviews.example.com", 403),
        ("http://localhost:8090", "localhost:8090", 200),
        ("https://inside", "inside", 200),
        ("http://localhost:8091", "localhost:8090", 403),
        (EVIL, "reviews.example.com", 403),
        ("null", "reviews.example.com", 403),
        ("file://", "reviews.example.com", 403),
        ("http://[", "reviews.example.com", 403),
    ],
)
async def test_pages_of_other_origins_are_refused_and_told_nothing(origin: str, host: str, status: int) -> None:
    app = ReviewersListener(url="https://reviews.example.com", hosts=("inside",)).app()
    found = await client(app, OPS).get("/v1/reviews", headers={"origin": origin, "host": host})
    assert status == found.status_code
    assert [] == [name for name in found.headers if name.startswith("access-control-")]


async def test_a_page_of_another_origin_may_not_even_ask_whether_it_may() -> None:
    found = await client(ReviewersListener().app()).options(
        "/v1/reviews", headers={"origin": EVIL, "access-control-request-method": "GET"}
    )
    assert 403 == found.status_code
    assert "access-control-allow-origin" not in found.headers


@pytest.mark.parametrize(
    "path", ["/v1/openapi.json", "/v1/reviews", "/v1/nothing", "/reviews", "/reviews/sign-in", "/nothing", "/"]
)
async def test_every_answer_says_how_it_may_be_used(path: str) -> None:
    found = await client(ReviewersListener().app()).get(path)
    assert ("nosniff", "DENY", "no-store") == tuple(
        found.headers[name] for name in ("x-content-type-options", "x-frame-options", "cache-control")
    )
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "same-origin" == found.headers["referrer-policy"]


async def test_the_way_in_is_the_page() -> None:
    found = await client(ReviewersListener().app()).get("/")
    assert (303, "/reviews") == (found.status_code, found.headers["location"])


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/reviews/", "/v1/REVIEWS", "/v1/reviews/../reviews"])
async def test_what_is_not_there_is_said_in_the_words_of_who_asks(path: str) -> None:
    found = await client(ReviewersListener().app(), OPS).get(path)
    if found.status_code == 200:  # the client resolved the dots itself
        return
    assert (404, "application/problem+json") == (found.status_code, found.headers["content-type"])
    assert found.json()["detail"].startswith("not found")
    plain = await client(ReviewersListener().app()).get("/else")
    assert (404, "text/plain; charset=utf-8") == (plain.status_code, plain.headers["content-type"])


async def test_head_is_get_without_the_body() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    ask = client(listener.app(), OPS)
    for path in ("/v1/openapi.json", "/v1/reviews", f"/v1/reviews/{ID}"):
        get, head = await ask.get(path), await ask.head(path)
        assert (200, b"") == (head.status_code, head.content)
        assert (len(get.content), get.headers["content-type"]) == (
            int(head.headers["content-length"]),
            head.headers["content-type"],
        )


@pytest.mark.parametrize(
    ("length", "status"), [("70000", 413), ("x", 400), ("-1", 400), ("9" * 30, 400), ("\xb2", 400)]
)
async def test_a_length_that_cannot_be_is_refused_at_once(length: str, status: int) -> None:
    headers = [(b"host", b"localhost"), (b"content-length", length.encode("latin-1"))]
    assert status == (await raw(ReviewersListener().app(), "/reviews/sign-in", headers))[0]["status"]


async def test_a_body_that_does_not_come_to_its_end_is_not_waited_for() -> None:
    headers = [
        (b"host", b"localhost"),
        (b"origin", b"http://localhost"),
        (b"content-type", b"application/x-www-form-urlencoded"),
    ]
    never = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await never.wait()
        return {}

    (start, *_) = await raw(ReviewersListener().app(body_time=0.0), "/reviews/sign-in", headers, receive)
    assert 408 == start["status"]
    assert (b"connection", b"close") in start["headers"]


async def test_a_client_that_leaves_within_its_body_is_no_fault_of_ours() -> None:
    listener = ReviewersListener()
    headers = [
        (b"host", b"localhost"),
        (b"origin", b"http://localhost"),
        (b"content-type", b"application/x-www-form-urlencoded"),
    ]

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    assert 400 == (await raw(listener.app(), "/reviews/sign-in", headers, receive))[0]["status"]
    assert [] == listener.log.events


async def test_a_verdict_may_be_larger_than_other_bodies() -> None:
    assert 1024 * 1024 == security.bound_of(f"/v1/reviews/{ID}/verdict")
    assert (
        security.bound_of("/reviews/sign-in")
        < security.bound_of(f"/v1/reviews/{ID}/verdict")
        < security.bound_of(f"/reviews/{ID}/verdict")
    )


async def test_a_websocket_is_closed() -> None:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    await ReviewersListener().app()({"type": "websocket", "path": "/reviews"}, nothing, send)
    assert [{"type": "websocket.close", "code": 1008}] == said


async def nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def raw(app: Any, path: str, headers: list[tuple[bytes, bytes]], receive: Any = nothing) -> list[Any]:
    """A POST as an ASGI server passes it on."""
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": headers,
        "client": ("10.0.0.9", 1),
    }
    await asyncio.wait_for(app(scope, receive, send), 10)
    return said
