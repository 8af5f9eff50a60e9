"""What a modern request's headers must mirror, and the tools' annotations that say so: learned from the lists that
pass, else asked for (R71, R74).

Not a cache of lists: of each tool only the annotations are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import aiohttp
import msgspec

from samplegate.protocol import frames, http_headers, rawjson
from samplegate.protocol.frames import META_CAPABILITIES, META_VERSION, Frame
from samplegate.protocol.http_headers import Annotations
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Note
from samplegate.protocol.session_state import MAX_TOOL
from samplegate.transport.http_client import wire
from samplegate.transport.http_client.wire import HttpFault, Wire, of_error

LIST: Final = "tools/list"
CALL: Final = "tools/call"
MAX_PAGES: Final = 20
MAX_PAGE: Final = 16 * 1024 * 1024  # bytes of one page of our own asking
MAX_TOOLS: Final = 10_000
MAX_SIZE: Final = 16 * 1024 * 1024  # bytes of what is remembered of them
LIST_TIME: Final = 10.0  # seconds for all pages; a call waits for them
COOL: Final = 30.0  # seconds after a list that failed, in which calls go without it
# seconds in which a list is as new as can be: neither odd names nor a server that refuses all have it asked for each
# time
FRESH: Final = 1.0
_META_CLIENT: Final = "io.modelcontextprotocol/clientInfo"
_KEPT: Final = (META_VERSION, _META_CLIENT, META_CAPABILITIES)


class Mirror:
    """The headers of one server's modern requests."""

    def __init__(self, wire: Wire, note: Callable[[Note], None], max_frame: int) -> None:
        self._wire = wire
        self._note = note
        self._most = min(max_frame, MAX_PAGE)
        self._known: dict[str, Annotations] = {}
        self._size = 0
        self._listing: asyncio.Task[bool] | None = None
        self._rests_until = 0.0
        self._fresh_until = 0.0
        self._asked = 0

    async def headers(self, f: Frame, meta: rawjson.Object, *, afresh: bool = False) -> dict[str, str]:
        """The headers of a request with this ``_meta``. ``afresh``: the server has refused those we knew. Raises
        Malformed."""
        version = rawjson.string(meta.raw(META_VERSION)) or ""
        out = http_headers.standard(f.method, f.object, version)
        name = rawjson.string(f.lookup("name")) if f.method == CALL else None
        if name is None:
            return out
        if afresh or name not in self._known:
            await self._listed(name, meta, version)
        wanted = self._known.get(name)
        if wanted and "arguments" in f.object.members:
            out.update(http_headers.param_headers(wanted, f.lookup("arguments")))
        return out

    def learn(self, f: Frame) -> Frame:
        """The result of a tools/list as it goes on: without the tools that must not be used (R74). Raises Malformed."""
        assert f.payload is not None
        listed = self._learned(f.payload)
        return f.changed(payload=rawjson.read(listed.result)) if listed.dropped else f

    def close(self) -> None:
        """Ask nothing any more."""
        if self._listing is not None:
            self._listing.cancel()

    def _learned(self, result: bytes) -> http_headers.Listed:
        listed = http_headers.listed(result)
        for name, fault in listed.dropped.items():
            self._note(Note("tool.refused", {"origin": self._wire.origin, "tool": name[:100], "fault": fault}))
        for name, wanted in (*listed.tools.items(), *((name, {}) for name in listed.dropped)):
            self._remember(name, wanted)
        return listed

    def _remember(self, name: str, wanted: Annotations) -> None:
        """What a tool wants mirrored. Where there is no more room all is forgotten, and asked for again when it is
        needed."""
        if len(name) > MAX_TOOL:  # nobody can call it
            return
        if name in self._known:
            self._size -= http_headers.size(name, self._known.pop(name))
        size = http_headers.size(name, wanted)
        if len(self._known) >= MAX_TOOLS or self._size + size > MAX_SIZE:
            self._known.clear()
            self._size = 0
        self._known[name] = wanted
        self._size += size

    async def _listed(self, name: str, meta: rawjson.Object, version: str) -> None:
        """Have all tools listed, once for all calls that wait for it."""
        loop = asyncio.get_running_loop()
        if loop.time() < max(self._rests_until, self._fresh_until):
            return
        if self._listing is None or self._listing.done():
            self._listing = loop.create_task(self._ask(meta, version))
        if await asyncio.shield(self._listing) and name not in self._known and len(self._known) < MAX_TOOLS:
            self._remember(name, {})  # a tool that is on no list has nothing to mirror

    async def _ask(self, meta: rawjson.Object, version: str) -> bool:
        """Ask for all pages; False if they cannot be had."""
        try:
            async with asyncio.timeout(LIST_TIME):
                await self._pages(_only(meta), version)
            self._fresh_until = asyncio.get_running_loop().time() + FRESH
        except (HttpFault, Malformed, aiohttp.ClientError, OSError) as error:
            fault = error.fault if isinstance(error, Malformed) else of_error(error).reason
            self._note(Note("tools.unlisted", {"origin": self._wire.origin, "fault": fault}))
            self._rests_until = asyncio.get_running_loop().time() + COOL
            return False
        return True

    async def _pages(self, meta: bytes, version: str) -> None:
        cursor: bytes | None = None
        for _ in range(MAX_PAGES):
            tail = b"" if cursor is None else b',"cursor":' + cursor
            cursor = self._learned(await self._page(b'{"_meta":' + meta + tail + b"}", version)).cursor
            if cursor is None:
                return

    async def _page(self, params: bytes, version: str) -> bytes:
        self._asked += 1
        line = frames.request(f"sg-tools-{self._asked}", LIST, params)
        response = await self._wire.post(http_headers.standard(LIST, rawjson.read(params), version), line)
        try:
            found = await wire.answer(response, self._most)
        finally:
            response.close()
        if found.kind != "result" or found.payload is None:
            raise HttpFault("it does not list its tools")
        return found.payload


def _only(meta: rawjson.Object) -> bytes:
    """Who asks, without what belongs to the call alone: a progress token names one request (R101)."""
    found = meta.members
    return msgspec.json.encode({name: found[name] for name in _KEPT if name in found})
