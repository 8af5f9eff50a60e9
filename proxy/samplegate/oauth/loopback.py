"""The receiver of a login's redirect: an HTTP listener on 127.0.0.1 for one request of the user's browser (RFC 8252).

It has one path, answers only requests for its own address, and ignores a request without the login's state. Sizes,
times and connections are bounded. Its page contains no text of a request.
"""

from __future__ import annotations

import asyncio
import hmac
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qs, urlsplit

from samplegate.oauth.endpoints import OAuthFault
from samplegate.printable import printable

PATH: Final = "/callback"
MAX_HEAD: Final = 16 * 1024  # bytes
REQUEST_TIME: Final = 5.0  # seconds for a request's head
MAX_CONNECTIONS: Final = 16
_PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>samplegate</title>'
    '<meta name="viewport" content="width=device-width"><body style="font-family:sans-serif;margin:3em">'
    "<h1>{title}</h1><p>{text}</p></body></html>"
)
_RECEIVED: Final = ("Return to the terminal", "samplegate has received the answer. You can close this window.")
_REFUSED: Final = ("Unexpected request", "This request does not belong to the current login.")


class LoopbackReceiver:
    """Receives the redirect of one login."""

    def __init__(self, server: asyncio.Server, port: int) -> None:
        self._server = server
        self._port = port
        self._state: bytes | None = None
        self._connections = 0
        self.ignored = 0
        """Number of answers without the state of the login."""
        self._answer: asyncio.Future[tuple[str, str | None, str | None]] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, port: int = 0) -> LoopbackReceiver:
        """Listen on 127.0.0.1. Port 0: any free port. Raises OSError."""
        receiver: LoopbackReceiver | None = None

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if receiver is not None:
                await receiver.serve(reader, writer)

        server = await asyncio.start_server(connected, "127.0.0.1", port, limit=MAX_HEAD)
        receiver = cls(server, server.sockets[0].getsockname()[1])
        return receiver

    @property
    def redirect_uri(self) -> str:
        """Where the authorization server sends the browser."""
        return f"http://127.0.0.1:{self._port}{PATH}"

    def expect(self, url: str) -> None:
        """Wait for the answer to this authorization request, by its state: the last one, because the endpoint's own
        query comes first."""
        state = parse_qs(urlsplit(url).query).get("state", [""])[-1]
        self._state = state.encode()

    async def result(self) -> tuple[str, str | None, str | None]:
        """The ``code``, ``state`` and ``iss`` of the redirect. Raises OAuthFault."""
        return await self._answer

    async def aclose(self) -> None:
        """Stop listening."""
        self._server.close()
        self._answer.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._server.wait_closed()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        self._connections += 1
        try:
            if self._connections > MAX_CONNECTIONS:
                return
            async with asyncio.timeout(REQUEST_TIME):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            self._connections -= 1
            writer.close()

    def _response(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        target = rest.partition(" ")[0]
        hosts = [line.partition(":")[2].strip() for line in lines[1:] if line.partition(":")[0].lower() == "host"]
        if hosts != [f"127.0.0.1:{self._port}"]:  # a page that resolves its own name to 127.0.0.1
            return _http(421, _REFUSED)
        path, _, query = target.partition("?")
        if path != PATH:
            return _http(404, _REFUSED)
        if method != "GET":
            return _http(405, _REFUSED)
        try:
            found = parse_qs(query, keep_blank_values=True, max_num_fields=50, errors="strict")
        except ValueError:
            return _http(400, _REFUSED)
        if self._state is None or any(len(values) != 1 for values in found.values()):
            return _http(400, _REFUSED)
        values = {name: value for name, [value] in found.items()}
        state = values.get("state", "")
        if not hmac.compare_digest(state.encode(), self._state):
            self.ignored += 1
            return _http(400, _REFUSED)
        self._take(values)
        return _http(200, _RECEIVED)

    def _take(self, values: dict[str, str]) -> None:
        if self._answer.done():
            return
        if "error" in values:
            shown = printable(values["error"][:64])
            if values.get("error_description"):
                shown += f" ({printable(values['error_description'][:300])})"
            fault = OAuthFault(f"the authorization server refused the login: {shown}", remedy="log in again")
            self._answer.set_exception(fault)
        elif not values.get("code"):
            self._answer.set_exception(OAuthFault("the authorization server sent the browser back without a code"))
        else:
            self._answer.set_result((values["code"], values["state"], values.get("iss")))


def _http(status: int, text: tuple[str, str]) -> bytes:
    body = _PAGE.format(title=text[0], text=text[1]).encode()
    head = (
        f"HTTP/1.1 {status} \r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
