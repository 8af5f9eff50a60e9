"""Whole answers in one write: the same bytes and the same connection afterwards as by uvicorn's own two sends, whatever was asked and how.

This knows uvicorn's insides: it is what fails when another version of it has others.
"""

from __future__ import annotations

import asyncio
import itertools
from types import MethodType
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from samplegate.links.front import atonce
from samplegate.links.front.connection import Connection
from samplegate.links.front.replies import JSON, Message, Receive, Reply, Scope, Send, deliver
from samplegate.links.front.visit import CONNECTION
from tests.links.front.wires import Wire

pytestmark = pytest.mark.anyio

PLAIN = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
REQUESTS = {
    "plain": [PLAIN],
    "in pieces": [PLAIN[:9], PLAIN[9:50], PLAIN[50:]],
    "close": [b"POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"],
    "1.0": [b"POST /mcp HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"],
    "1.0 keep-alive": [b"POST /mcp HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}"],
    "head": [b"HEAD /mcp HTTP/1.1\r\nHost: x\r\n\r\n"],
    "get": [b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n"],
    "expect": [b"POST /mcp HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", b"{}"],
    "chunked": [b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"],
    "pipelined": [PLAIN * 3],
    "pipelined and close": [PLAIN + b"POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"],
    "body to come": [b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{}"],
}
REPLIES = {
    "result": Reply(200, (JSON,), b'{"result":{}}'),
    "headers": Reply(200, (JSON, (b"mcp-session-id", b"abc"), (b"retry-after", b"5")), b"{}"),
    "large": Reply(200, (JSON,), b"x" * (atonce.LARGE + 1)),
    "empty": Reply(202),
    "none": Reply(204),
    "not modified": Reply(304),
    "refusal": Reply(405, (JSON, (b"allow", b"POST")), b"{}"),
    "closing": Reply(413, (JSON, (b"connection", b"close")), b"{}"),
    "no such status": Reply(599, (JSON,), b"{}"),
}
UNSEEN = {"scope", "transport", "flow", "logger", "access_logger", "default_headers", "message_event", "on_response"}
"""What is an object of each connection."""


class Answering:
    """An application that gives one answer, at once or by two sends."""

    def __init__(self, reply: Reply, *, at_once: bool, reads: bool = True, ends: bool = False) -> None:
        self.reply, self.at_once, self.reads, self.ends = reply, at_once, reads, ends
        self.was_given: list[bool] = []
        self.cycles: list[Any] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.cycles.append(send.__self__)  # type: ignore[attr-defined]
        if self.reads:
            await receive()
        if self.ends:
            scope[CONNECTION].shutdown()
        self.was_given.append(self.at_once and bool(scope[CONNECTION].answer(send, self.reply)))
        if not self.was_given[-1]:
            await deliver(send, self.reply)


async def asked(app: Answering, pieces: list[bytes]) -> Wire:
    wire = Wire(app)
    wire.state.default_headers = [(b"x-default", b"1")]
    wire.come(*pieces)
    await wire.settled()
    return wire


def left(wire: Wire, app: Answering) -> dict[str, Any]:
    """All that a request leaves behind."""
    wire_state = {
        "out": wire.transport.out, "closed": wire.transport.closed, "total": wire.state.total_requests, "tasks": len(wire.state.tasks),
        "timers": len(wire.clock.running), "paused": wire.connection.flow.read_paused,
    }  # fmt: skip
    cycles = [{name: value for name, value in vars(cycle).items() if name not in UNSEEN} for cycle in app.cycles]
    return wire_state | {"cycles": cycles, "events": [cycle.message_event.is_set() for cycle in app.cycles]}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
@pytest.mark.parametrize("pieces", REQUESTS.values(), ids=REQUESTS)
async def test_one_write_leaves_what_two_sends_leave(pieces: list[bytes], reply: Reply) -> None:
    """Whether the body was read or not, and whether the server is about to end or not."""
    for reads, ends in itertools.product([True, False], repeat=2):
        two, one = (Answering(reply, at_once=at_once, reads=reads, ends=ends) for at_once in (False, True))
        wires = await asked(two, pieces), await asked(one, pieces)
        assert left(wires[0], two) == left(wires[1], one)
        for wire in wires:
            if not wire.transport.closed:
                wire.come(*REQUESTS["close"])
                await wire.settled()
        assert left(wires[0], two) == left(wires[1], one), "and so for the next request"


@pytest.mark.parametrize("name", ["plain", "in pieces", "close", "1.0", "expect", "chunked", "pipelined"])
async def test_an_ordinary_answer_is_one_write(name: str) -> None:
    app = Answering(REPLIES["result"], at_once=True)
    wire = await asked(app, REQUESTS[name])
    assert {True} == set(app.was_given)
    answers = [written for written in wire.transport.writes if not written.startswith(b"HTTP/1.1 100 ")]
    assert len(app.was_given) == len(answers)
    assert all(written.endswith(b'\r\n\r\n{"result":{}}') for written in answers)


@pytest.mark.parametrize(
    "header",
    [
        (b"x-name", b"a\r\nx-other: b"),
        (b"x-name", b"a\nb"),
        (b"x-name", b"a\x00"),
        (b"x-name\r\nx-other", b"a"),
        (b"x name", b"a"),
        (b"x-name:", b"a"),
    ],
)
async def test_no_header_is_smuggled_into_an_answer(header: tuple[bytes, bytes]) -> None:
    """uvicorn then ends the connection, and says why in its log."""
    app = Answering(Reply(200, (JSON, header), b"{}"), at_once=True)
    wire = await asked(app, [PLAIN])
    assert ([False], b"", True) == (app.was_given, wire.transport.out, wire.transport.closed)


@pytest.mark.parametrize(
    "header", [(b"Content-Length", b"1"), (b"content-length", b"2"), (b"Transfer-Encoding", b"chunked"), (b"Connection", b"close")]
)
async def test_an_answer_that_says_itself_where_it_ends_is_left_to_uvicorn(header: tuple[bytes, bytes]) -> None:
    sent: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        sent.append(scope[CONNECTION].answer(send, Reply(200, (JSON, header), b"{}")))
        await deliver(send, Reply(200, (JSON,), b"{}"))

    wire = Wire(app)
    wire.come(PLAIN)
    await wire.settled()
    assert ([False], 1) == (sent, wire.transport.out.count(b"HTTP/1.1 200 "))


class Wrapped:
    """Stands before a send, as whoever adds headers does."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.seen: list[str] = []

    async def __call__(self, message: Message) -> None:
        self.seen.append(message["type"])
        await self._send(message)

    async def method(self, message: Message) -> None:
        await self(message)


@pytest.mark.parametrize("bound", [False, True])
async def test_a_send_that_somebody_has_wrapped_gets_the_answer_in_pieces(bound: bool) -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        wrapped = Wrapped(send)
        its = wrapped.method if bound else wrapped
        if not scope[CONNECTION].answer(its, REPLIES["result"]):
            await deliver(its, REPLIES["result"])
        seen.extend(wrapped.seen)

    wire = Wire(app)
    wire.come(PLAIN)
    await wire.settled()
    assert ["http.response.start", "http.response.body"] == seen
    assert wire.transport.out.endswith(b'{"result":{}}')


@pytest.mark.parametrize("what", ["begun", "paused", "gone", "logged"])
async def test_what_has_to_wait_or_has_begun_is_left_to_uvicorn(what: str) -> None:
    sent: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        cycle: Any = send.__self__  # type: ignore[attr-defined]
        if what == "begun":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        elif what == "paused":
            scope[CONNECTION].pause_writing()
        elif what == "gone":
            cycle.disconnected = True
        else:
            cycle.access_log = True
        before = list(wire.transport.writes)
        sent.append(scope[CONNECTION].answer(send, REPLIES["result"]))
        assert before == wire.transport.writes
        scope[CONNECTION].resume_writing()
        if what != "begun":
            await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    wire = Wire(app)
    wire.come(PLAIN)
    await wire.settled()
    assert [False] == sent


def test_uvicorn_is_the_version_whose_insides_are_known() -> None:
    """With another: read its HttpToolsProtocol and RequestResponseCycle again, and what ``connection`` and ``atonce`` say of them."""
    assert uvicorn.__version__.startswith("0.54.")


@pytest.mark.parametrize("name", [name for name, value in vars(Connection).items() if callable(value) and hasattr(asyncio.Protocol, name) is False])
def test_what_is_overridden_is_there(name: str) -> None:
    public = {"answer", "unsent", "complete", "cut", "gone"}
    own = public | {"_await_head", "_await_request", "_give_up", "_refuse", "_stop", "_parse", "_answerable", "_turn_away", "_cut_off"}
    assert (name in own) != hasattr(HttpToolsProtocol, name)


async def test_uvicorns_request_has_no_other_state_than_is_known() -> None:
    app = Answering(REPLIES["result"], at_once=True)
    await asked(app, [PLAIN])
    [cycle] = app.cycles
    assert type(cycle) is RequestResponseCycle
    assert {
        "scope", "transport", "flow", "logger", "access_logger", "access_log", "default_headers", "message_event", "on_response", "disconnected",
        "keep_alive", "waiting_for_100_continue", "body", "more_body", "response_started", "response_complete", "chunked_encoding",
        "expected_content_length",
    } == set(vars(cycle)), "complete the answer by hand as this version does"  # fmt: skip
    assert isinstance(cycle.send, MethodType)
