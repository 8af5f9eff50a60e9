"""Unusual requests over real sockets to one listener: the responses, and the requests that the application got."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from samplegate.transport.http_server.http import HttpBounds, Receive, Scope, Send
from tests.fakes.raw_http import (
    CHUNKED,
    CUT,
    END,
    HEAD,
    HIDDEN,
    INNER,
    LAST,
    OFFER,
    ONE,
    App,
    exchanged,
    listening,
    post,
    sliced,
)

pytestmark = pytest.mark.anyio
Row = tuple[list[bytes], list[int], list[str]]
ROWS: dict[str, Row] = {
    "plain": ([post(), END], [202, 202], [ONE, LAST]),
    "one byte at a time": ([*sliced(post(), 1), END], [202, 202], [ONE, LAST]),
    "pipelined": ([post() * 3 + END], [202, 202, 202, 202], [ONE, ONE, ONE, LAST]),
    "pipelined, cut anywhere": ([*sliced(post() * 3, 70), END], [202, 202, 202, 202], [ONE, ONE, ONE, LAST]),
    "line ends before a request": ([b"\r\n\r\n" + post(), b"\r\n" + END], [202, 202], [ONE, LAST]),
    "1.0": ([post(version=b"1.0"), END], [202], [ONE]),
    "1.0 keep-alive": ([post(b"Connection: keep-alive", version=b"1.0"), END], [202], [ONE]),
    "close": ([post(b"Connection: close") + post(), END], [202], [ONE]),
    "expect": (
        [post(b"Expect: 100-continue", b"Content-Length: 2", body=b"", length=False), b"{}" + END],
        [100, 202, 202],
        [ONE, LAST],
    ),
    "expect, unread": (
        [post(b"Expect: 100-continue", body=b"", target=b"/unread") + END],
        [202, 202],
        ["POST /unread", LAST],
    ),
    "unread body": ([post(target=b"/unread"), END], [202, 202], ["POST /unread", LAST]),
    "no host": ([b"GET /mcp HTTP/1.1\r\n\r\n", END], [202, 202], ["GET /mcp", LAST]),
    "lower-case method": ([b"post /mcp HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "unknown method": ([b"BREW /mcp HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "nonsense": ([b"nonsense\r\n\r\n", END], [400], []),
    "nonsense behind an answer": ([post(), b"nonsense\r\n\r\n", END], [202, 400], [ONE]),
    "0.9": ([b"GET /mcp\r\n\r\n", END], [202], ["GET /mcp"]),
    "2.0": ([b"GET /mcp HTTP/2.0\r\nHost: x\r\n\r\n", END], [202], ["GET /mcp"]),
    "h2 with prior knowledge": ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), END], [400], []),
    "tls": ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), END], [400], []),
    "tunnel": ([b"CONNECT localhost:80 HTTP/1.1\r\nHost: x\r\n\r\n" + post(), END], [400], []),
    "target in absolute form": ([b"GET http://x/mcp HTTP/1.1\r\nHost: x\r\n\r\n", END], [202, 202], ["GET /mcp", LAST]),
    "target of another host": ([b"GET http://y/mcp HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "target with an escape": ([b"GET /m%63p HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "target with an escape in its query": (
        [b"GET /mcp?x=%63 HTTP/1.1\r\nHost: x\r\n\r\n", END],
        [202, 202],
        ["GET /mcp", LAST],
    ),
    "target with a fragment": ([b"GET /mcp#x HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "target that is a star": ([b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "target with a space": ([b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "target that is not ASCII": ([b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "length and chunked": ([post(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n") + INNER, END], [400], []),
    "two lengths": ([post(b"Content-Length: 3") + END], [400], []),
    "the same length twice": ([post(b"Content-Length: 2") + END], [400], []),
    "length below zero": ([post(b"Content-Length: -1", length=False) + END], [400], []),
    "length with a plus": ([post(b"Content-Length: +2", length=False) + END], [400], []),
    "length too long": ([post(b"Content-Length: " + b"9" * 30, length=False) + END], [400], []),
    "chunked, chunked": (
        [post(b"Transfer-Encoding: chunked, chunked", length=False, body=b"0\r\n\r\n") + END],
        [400],
        [],
    ),
    "chunked, identity": (
        [post(b"Transfer-Encoding: chunked, identity", length=False, body=b"0\r\n\r\n") + END],
        [400],
        [],
    ),
    "gzip": ([post(b"Transfer-Encoding: gzip", length=False) + END], [400], []),
    "chunked by 1.0": ([CHUNKED.replace(b"1.1", b"1.0") + b"2\r\n{}\r\n0\r\n\r\n", END], [202], [ONE]),
    "chunks": ([CHUNKED + b"1\r\n{\r\n", b"1\r\n}\r\n0\r\n\r\n" + END], [202, 202], [ONE, LAST]),
    "chunk with an extension": ([CHUNKED + b"2;x=y\r\n{}\r\n0\r\n\r\n" + END], [202, 202], [ONE, LAST]),
    "chunk of no size": ([CHUNKED + b"x\r\n{}\r\n0\r\n\r\n" + END], [400], []),
    "chunk of no size, late": ([CHUNKED + b"1\r\n{\r\n", b"x\r\n}\r\n0\r\n\r\n" + END], [400], ["POST /mcp gone"]),
    "chunk that is longer than it says": ([CHUNKED + b"1\r\n{}\r\n0\r\n\r\n" + END], [400], []),
    "chunk size over 64 bits": ([CHUNKED + b"f" * 17 + b"\r\n{}\r\n0\r\n\r\n" + END], [400], []),
    "large body in many chunks": (
        [CHUNKED, *[b"64\r\n" + b"y" * 100 + b"\r\n"] * 100, b"0\r\n\r\n" + END],
        [202, 202],
        ["POST /mcp " + "Y" * 100, LAST],
    ),
    "trailers": ([CHUNKED + b"2\r\n{}\r\n0\r\nMcp-Method: tools/call\r\n\r\n" + END], [202, 202], [ONE, LAST]),
    "trailers, late": (
        [CHUNKED + b"2\r\n{}\r\n", b"0\r\nMcp-Method: tools/call\r\n\r\n" + END],
        [202, 202],
        [ONE, LAST],
    ),
    "trailers without end": (
        [CHUNKED + b"2\r\n{}\r\n0\r\n", *[b"x: y\r\n" * 700] * 10, END],
        [431],
        ["POST /mcp gone"],
    ),
    "a trailer without end": ([CHUNKED + b"2\r\n{}\r\n0\r\nx: ", *[b"y" * 3000] * 10, END], [431], ["POST /mcp gone"]),
    "chunk extension without end": ([CHUNKED + b"2;x=", *[b"y" * 3000] * 10, END], [431], ["POST /mcp gone"]),
    "folded header": ([post(b"X: a\r\n b") + END], [400], []),
    "space before the colon": ([post(b"X : a") + END], [400], []),
    "space before the name": ([b"GET /mcp HTTP/1.1\r\n Host: x\r\n\r\n" + END], [400], []),
    "no colon": ([post(b"X") + END], [400], []),
    "line feeds only": ([post().replace(b"\r\n", b"\n") + END], [400], []),
    "a carriage return in a header": ([post(b"X: a\rb") + END], [400], []),
    "a zero in a header": ([post(b"X: a\0b") + END], [400], []),
    "a header that is not ASCII": ([post(b"X: \xff") + END], [202, 202], [ONE, LAST]),
    "upgrade to h2c": ([post(*OFFER, b"Upgrade: h2c", body=INNER), END], [202, 202], [HIDDEN, LAST]),
    "upgrade to h2c, the body apart": (
        [post(*OFFER, b"Upgrade: h2c", body=INNER)[: -len(INNER)], INNER + END],
        [202, 202],
        [HIDDEN, LAST],
    ),
    "upgrade to h2c, one byte at a time": ([*sliced(post(*OFFER, b"Upgrade: h2c"), 1), END], [202, 202], [ONE, LAST]),
    "upgrade to a websocket": (
        [b"GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + END],
        [202, 202],
        ["GET /mcp", LAST],
    ),
    "upgrade with chunks": (
        [
            post(*OFFER, b"Upgrade: h2c", b"Transfer-Encoding: chunked", length=False, body=b"2\r\n{}\r\n0\r\n\r\n")
            + END
        ],
        [202, 202],
        [ONE, LAST],
    ),
    "upgrade and close": ([post(b"Connection: close, upgrade", b"Upgrade: h2c") + post(), END], [202], [ONE]),
    "upgrade behind an answer": (
        [post(), post(*OFFER, b"UPGRADE:h2c", body=INNER), END],
        [202, 202, 202],
        [ONE, HIDDEN, LAST],
    ),
    "upgrade behind a request": ([post() + post(*OFFER, b"Upgrade: h2c", body=INNER) + END], [], []),
    "upgrade behind a request, cut in its head": ([post() + CUT[:60], CUT[60:] + END], [202, 400], [ONE]),
    "upgrade of a bad head": ([post(b"X : y", *OFFER, b"Upgrade: h2c") + END], [400], []),
    "large head at once": ([post(b"X: " + b"y" * HEAD) + END], [431], []),
    "large head in pieces": ([b"POST /mcp HTTP/1.1\r\nX: ", *[b"y" * 1000] * 6, END], [431], []),
    "many headers": ([post(*[b"X-%d: y" % n for n in range(500)]) + END], [202, 202], [ONE, LAST]),
    "large target": ([post(target=b"/" + b"x" * HEAD) + END], [431], []),
    "large head of an upgrade": ([post(*OFFER, b"Upgrade: h2c", b"X: " + b"y" * HEAD) + END], [431], []),
    "large head behind an answer": ([post(), post(b"X: " + b"y" * HEAD) + END], [202, 431], [ONE]),
    "large body": ([post(body=b"y" * 3 * HEAD) + END], [202, 202], ["POST /mcp " + "Y" * 120, LAST]),
    "nonsense behind a request in hand": (
        [post(target=b"/begun"), b"nonsense\r\n\r\n", END],
        [200],
        ["POST /begun gone"],
    ),
    "large head behind a request in hand": (
        [post(target=b"/begun"), b"GET / HTTP/1.1\r\nX: " + b"y" * 2 * HEAD, END],
        [200],
        ["POST /begun gone"],
    ),
}


class SharedListener:
    """One listener for all rows; each row has its own application."""

    def __init__(self) -> None:
        self.app = App()
        self.port = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def place(anyio_backend: str) -> AsyncIterator[SharedListener]:
    place = SharedListener()
    async with listening(place, HttpBounds(head=HEAD)) as place.port:
        yield place


@pytest.mark.parametrize("name", ROWS)
async def test_odd_requests_are_answered_as_listed(name: str, place: SharedListener) -> None:
    pieces, statuses, seen = ROWS[name]
    place.app = app = App()
    found, _ = await exchanged(place.port, pieces, pause=0.002)
    await app.until(lambda: all(one.endswith("gone") for one in app.seen if "begun" in one))
    assert (statuses, seen) == (found, [one.replace("y" * 100, "Y") for one in app.seen])
    assert not any(b"mcp-method" in names for names in app.headers), "a trailer is no header"
