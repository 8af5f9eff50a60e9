"""The receiver of a login's redirect: which requests count, and which are ignored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from samplegate.oauth import loopback
from samplegate.oauth.endpoints import OAuthFault
from samplegate.oauth.loopback import LoopbackReceiver

pytestmark = pytest.mark.anyio


@pytest.fixture
async def receiver() -> AsyncIterator[LoopbackReceiver]:
    opened = await LoopbackReceiver.open()
    opened.expect("https://login.example.com/authorize?x=1&state=s-1&y=2")
    try:
        yield opened
    finally:
        await opened.aclose()


async def sent(receiver: LoopbackReceiver, text: str, *, ends: bool = True) -> str:
    """The response to a raw request; the receiver closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(receiver.redirect_uri).port)
    writer.write(text.encode("latin-1"))
    if ends:
        await writer.drain()
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()


async def got(receiver: LoopbackReceiver, target: str, method: str = "GET", host: str | None = None) -> str:
    host = urlsplit(receiver.redirect_uri).netloc if host is None else host
    return await sent(receiver, f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")


async def test_the_redirect_of_the_login_is_the_result(receiver: LoopbackReceiver) -> None:
    page = await got(receiver, "/callback?code=c%201&state=s-1&iss=https%3A%2F%2Flogin.example.com")
    assert page.startswith("HTTP/1.1 200 ")
    assert "default-src 'none'" in page
    assert "c 1" not in page
    assert ("c 1", "s-1", "https://login.example.com") == await receiver.result()


@pytest.mark.parametrize(
    ("target", "method", "host", "status"),
    [
        ("/callback?code=c&state=other", "GET", None, 400),
        ("/callback?code=c", "GET", None, 400),
        ("/callback?code=c&state=s-1&state=s-1", "GET", None, 400),
        ("/callback?code=c&code=d&state=s-1", "GET", None, 400),
        ("/callback?code=%ff&state=s-1", "GET", None, 400),
        ("/callback?" + "&".join(f"x{n}=1" for n in range(60)) + "&code=c&state=s-1", "GET", None, 400),
        ("/?code=c&state=s-1", "GET", None, 404),
        ("/callback/x?code=c&state=s-1", "GET", None, 404),
        ("/callback?code=c&state=s-1", "POST", None, 405),
        ("/callback?code=c&state=s-1", "GET", "evil.example.com", 421),
        ("/callback?code=c&state=s-1", "GET", "localhost", 421),
    ],
)
async def test_other_requests_are_ignored(
    receiver: LoopbackReceiver, target: str, method: str, host: str | None, status: int
) -> None:
    assert (await got(receiver, target, method, host)).startswith(f"HTTP/1.1 {status} ")
    await got(receiver, "/callback?code=good&state=s-1")
    assert "good" == (await receiver.result())[0]


async def test_answers_of_other_logins_are_counted(receiver: LoopbackReceiver) -> None:
    for _ in range(3):
        await got(receiver, "/callback?code=c&state=other")
    assert 3 == receiver.ignored


async def test_a_refusal_is_told_with_its_text_escaped(receiver: LoopbackReceiver) -> None:
    await got(receiver, "/callback?error=access_denied&error_description=no%1b%5b2J&state=s-1")
    with pytest.raises(OAuthFault, match=r"refused the login: access_denied \(no\\x1b\[2J\)"):
        await receiver.result()


async def test_an_answer_without_a_code_ends_the_login(receiver: LoopbackReceiver) -> None:
    await got(receiver, "/callback?state=s-1")
    with pytest.raises(OAuthFault, match="without a code"):
        await receiver.result()


async def test_a_large_head_is_cut_off(receiver: LoopbackReceiver) -> None:
    assert "" == await sent(receiver, f"GET /callback?code={'c' * 20_000} HTTP/1.1\r\n\r\n")
    await got(receiver, "/callback?code=good&state=s-1")
    assert "good" == (await receiver.result())[0]


async def test_a_slow_request_is_cut_off(receiver: LoopbackReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "REQUEST_TIME", 0.05)
    assert "" == await sent(receiver, "GET /callback?code=c")


async def test_the_address_is_this_machine_only(receiver: LoopbackReceiver) -> None:
    parts = urlsplit(receiver.redirect_uri)
    assert ("http", "127.0.0.1", "/callback") == (parts.scheme, parts.hostname, parts.path)
