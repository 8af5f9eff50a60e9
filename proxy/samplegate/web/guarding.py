"""What holds for every request before and after its handler: its host and origin, the size and time of its body, headers of the answer, faults.

Plain ASGI around the application: the body is counted as it comes, whatever it announced, and a stream passes through unbuffered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Final

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samplegate.ports import Unavailable
from samplegate.web.asked import is_foreign, is_misled, length
from samplegate.web.context import Web
from samplegate.web.problems import problem

MAX_VERDICT: Final = 1024 * 1024  # bytes: edited messages are text, and long ones make some 100 KiB
MAX_FORM: Final = 4 * MAX_VERDICT  # the same by the page: a form spends three bytes on one, and nine on a letter of some alphabets
MAX_BODY: Final = 64 * 1024  # bytes of any other body: a token and a few fields
BODY_TIME: Final = 30.0  # seconds from the head to the end of the body

PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""For pages: nothing but our own files, nothing inline, nowhere else to post to."""
API_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # not no-referrer: browsers would then send `Origin: null` with our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=()",
    "cache-control": "no-store",
}
_CLOSE: Final = {"connection": "close"}  # what is left of the body would be read as the next request
_DETAILS: Final = {404: "nothing is here; /reviews is the page and /v1/openapi.json describes the API", 405: "this path does not take this method"}


class TooLarge(Exception):
    """A body came to more bytes than are taken."""


class TooSlow(Exception):
    """A body did not come to its end in time."""


class Guard:
    """Stands around an application."""

    def __init__(self, app: ASGIApp, web: Web, *, body_time: float = BODY_TIME) -> None:
        self._app = app
        self._web = web
        self._body_time = body_time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        sent = _Sent(scope, send)
        refused = self._refused(scope)
        if refused is not None:
            await refused(scope, receive, sent)
            return
        try:
            await self._app(scope, _bounded(receive, bound_of(scope["path"]), self._body_time), sent)
        except Exception as problem:
            answer = self._answer_to(problem, scope)
            if not sent.began:
                await answer(scope, receive, sent)

    def _answer_to(self, problem: Exception, scope: Scope) -> Response:
        """What cannot be done is told; what should not have happened is logged whole and told in a fixed sentence."""
        match problem:
            case HTTPException():
                return said(scope, problem.status_code, _DETAILS.get(problem.status_code, problem.detail), dict(problem.headers or {}))
            case TooLarge():
                return too_large(scope)
            case TooSlow():
                return said(scope, 408, "body: did not come to its end in time; send it at once", _CLOSE)
            case ClientDisconnect():
                return said(scope, 400, "body: ended before its end; send all of it", _CLOSE)
            case Unavailable():
                self._web.log.error("web.unavailable", path=shown(scope["path"]), why=str(problem))
                return said(scope, 503, "the store of reviews cannot be reached; try again", {"retry-after": "5"})
        self._web.log.error("web.failed", method=scope["method"][:16], path=shown(scope["path"]), exc_info=problem)
        return said(scope, 500, "a fault in the gate; the log has it")

    def _refused(self, scope: Scope) -> Response | None:
        if is_misled(scope, self._web):
            return said(scope, 403, "host: this name is not one of the listener's; use an address, localhost or the host of reviews_url")
        if is_foreign(scope, self._web):
            return said(scope, 403, "origin: a page of another site sent this; open the page of the reviews itself")
        announced, most = length(scope), bound_of(scope["path"])
        if announced is None:
            return said(scope, 400, "content-length: is no number of bytes; send one")
        return too_large(scope) if announced > most else None


class _Sent:
    """What is sent, with the headers that every answer has, and without a body where HEAD asked."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._head = scope["method"] == "HEAD"
        self._policy = API_POLICY if is_api(scope) else PAGE_POLICY
        self._send = send
        self.began = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.began = True
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            for name, value in {**_HEADERS, "content-security-policy": self._policy}.items():
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
        elif self._head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)


def is_api(scope: MutableMapping[str, Any]) -> bool:
    """Whether a program asks, which wants JSON."""
    return str(scope["path"]).startswith("/v1/") or scope["path"] == "/v1"


def said(scope: MutableMapping[str, Any], status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that no handler made: problem details for programs, a line of text for people."""
    if is_api(scope):
        return problem(status, detail, headers=headers)
    return PlainTextResponse(f"{HTTPStatus(status).phrase}: {detail}\n", status, headers)


def too_large(scope: MutableMapping[str, Any]) -> Response:
    """413; the rest of the body is not waited for."""
    return said(scope, 413, f"body: is larger than {bound_of(scope['path'])} bytes; send less", _CLOSE)


def bound_of(path: str) -> int:
    """The most bytes of a body."""
    if not path.endswith("/verdict"):
        return MAX_BODY
    return MAX_FORM if path.startswith("/reviews/") else MAX_VERDICT


def shown(path: str) -> str:
    """A path for the log: it is the client's, so it is short and plain."""
    return path[:100].encode("ascii", "backslashreplace").decode()


def _bounded(receive: Receive, most: int, seconds: float) -> Receive:
    """The body's parts, counted and timed. What comes after its end (that the client is gone) is waited for as long as it takes."""
    until: float | None = asyncio.get_running_loop().time() + seconds
    taken = 0

    async def receiving() -> Message:
        nonlocal taken, until
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise TooSlow from None
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > most:
                raise TooLarge
            if not message.get("more_body", False):
                until = None
        return message

    return receiving
