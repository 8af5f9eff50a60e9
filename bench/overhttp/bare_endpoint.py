"""The bare endpoint: Starlette on uvicorn, which parses a body and answers with a constant: ``bare_endpoint.py PORT
[URL]``.

`/bare` is the floor, without any protocol. With a URL, it forwards each request there and returns the answer. `/mcp` is
a server for both eras, the other end of every lap with an HTTP server, so its own time must be small. It is not a model
of a server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import Any, Final

import aiohttp
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TEXT: Final = b'{"content":[{"type":"text","text":"xxxxx"}]}'
TOOLS: Final = b'{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}'
MODERN: Final = "2026-07-28"
INFO: Final = b'"serverInfo":{"name":"bare","version":"1"}'
DISCOVER: Final = (
    b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
    + INFO
    + b',"resultType":"complete","ttlMs":0,"cacheScope":"private"}'
)
SESSION: Final = "mcp-session-id"
FORWARDED: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
_read: Final = msgspec.json.Decoder()
_numbers: Final = itertools.count(1)


async def bare(request: Request) -> Response:
    """A constant result with the request's id."""
    return _answer(_read.decode(await request.body()), TEXT)


class Forwarding:
    """An endpoint that forwards each request to another URL."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url, self._http = url, http

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        _read.decode(body)
        async with self._http.post(self._url, data=body, headers=FORWARDED) as response:
            return Response(await response.read(), media_type="application/json")


async def mcp(request: Request) -> Response:
    """A server for both eras, with sessions in the legacy one."""
    if request.method == "DELETE":
        return Response(status_code=204)
    if request.method != "POST":
        return Response(status_code=405)
    frame = _read.decode(await request.body())
    if "id" not in frame or "method" not in frame:
        return Response(status_code=202)
    if frame["method"] == "initialize":
        version = json.dumps(frame["params"]["protocolVersion"]).encode()
        result = b'{"protocolVersion":' + version + b',"capabilities":{"tools":{}},' + INFO + b"}"
        return _answer(frame, result, {SESSION: f"session-{next(_numbers)}"})
    modern = request.headers.get("mcp-protocol-version") == MODERN
    if not modern and SESSION not in request.headers:
        return Response(status_code=400)
    return _answer(frame, _result(frame["method"], modern))


def _result(method: str, modern: bool) -> bytes:
    if method == "server/discover":
        return DISCOVER
    found = TOOLS if method == "tools/list" else TEXT if method == "tools/call" else b"{}"
    return (
        found
        if not modern
        else b'{"resultType":"complete",' + found[1:]
        if found != b"{}"
        else b'{"resultType":"complete"}'
    )


def _answer(frame: dict[str, Any], result: bytes, headers: dict[str, str] | None = None) -> Response:
    body = b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(frame["id"]).encode(), result)
    return Response(body, media_type="application/json", headers=headers)


async def serve(port: int, url: str | None) -> None:
    """Serve until a signal."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
        endpoint = bare if url is None else Forwarding(url, http).__call__
        app = Starlette(
            routes=[Route("/bare", endpoint, methods=["POST"]), Route("/mcp", mcp, methods=["GET", "POST", "DELETE"])]
        )
        settings: dict[str, Any] = {
            "lifespan": "off",
            "log_level": "warning",
            "access_log": False,
            "timeout_keep_alive": 75,
            "backlog": 2048,
        }
        # the gate's settings
        await uvicorn.Server(uvicorn.Config(app, port=port, http="httptools", ws="none", **settings)).serve()


if __name__ == "__main__":
    main = serve(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)
