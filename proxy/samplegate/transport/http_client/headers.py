"""Mirrored headers of modern requests, and the tool annotations that define them (R71, R74).

The annotations come from the tool lists that pass, or from a list that this module requests. Only each tool's
annotations are kept, so this is not a cache of tool lists.
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
from samplegate.transport.http_client.wire import HttpFault, Wire, error_fault

LIST: Final = "tools/list"
CALL: Final = "tools/call"
MAX_PAGES: Final = 20
MAX_PAGE: Final = 16 * 1024 * 1024  # bytes of one page that we requested ourselves
MAX_TOOLS: Final = 10_000
MAX_SIZE: Final = 16 * 1024 * 1024  # bytes of all remembered annotations
LIST_TIME: Final = 10.0  # seconds for all pages; a call waits for them
LIST_RETRY: Final = 30.0  # seconds after a failed list, in which calls are sent without the annotations
# seconds in which a list counts as fresh, so that neither unknown tool names nor a server that refuses every call cause
# a new list each time
FRESH: Final = 1.0
_META_CLIENT: Final = "io.modelcontextprotocol/clientInfo"
_KEPT: Final = (META_VERSION, _META_CLIENT, META_CAPABILITIES)


class Mirror:
    """The mirrored headers of one server's modern requests."""

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
        """The headers of a request with this ``_meta``. Raises Malformed.

        ``afresh``: the server has refused the known headers, so list the tools again.
        """
        version = rawjson.string(meta.raw(META_VERSION)) or ""
        out = http_headers.standard_headers(f.method, f.object, version)
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
        """The result of a tools/list without the tools that must not be used over HTTP (R74). Raises Malformed."""
        assert f.payload is not None
        listed = self._learned(f.payload)
        return f.changed(payload=rawjson.read(listed.result)) if listed.dropped else f

    def close(self) -> None:
        """Cancel a running tool list."""
        if self._listing is not None:
            self._listing.cancel()

    def _learned(self, result: bytes) -> http_headers.ToolList:
        listed = http_headers.read_tool_list(result)
        for name, fault in listed.dropped.items():
            self._note(Note("tool.refused", {"origin": self._wire.origin, "tool": name[:100], "fault": fault}))
        for name, wanted in (*listed.tools.items(), *((name, {}) for name in listed.dropped)):
            self._remember(name, wanted)
        return listed

    def _remember(self, name: str, wanted: Annotations) -> None:
        """Remember a tool's annotations. If there is no room, forget all tools; they are listed again when needed."""
        if len(name) > MAX_TOOL:  # the gate accepts no call with this name
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
        """List all tools, once for all calls that wait."""
        loop = asyncio.get_running_loop()
        if loop.time() < max(self._rests_until, self._fresh_until):
            return
        if self._listing is None or self._listing.done():
            self._listing = loop.create_task(self._ask(meta, version))
        if await asyncio.shield(self._listing) and name not in self._known and len(self._known) < MAX_TOOLS:
            self._remember(name, {})  # a tool that is on no list has nothing to mirror

    async def _ask(self, meta: rawjson.Object, version: str) -> bool:
        """Request all pages. False on failure."""
        try:
            async with asyncio.timeout(LIST_TIME):
                await self._pages(_only(meta), version)
            self._fresh_until = asyncio.get_running_loop().time() + FRESH
        except (HttpFault, Malformed, aiohttp.ClientError, OSError) as error:
            fault = error.fault if isinstance(error, Malformed) else error_fault(error).reason
            self._note(Note("tools.unlisted", {"origin": self._wire.origin, "fault": fault}))
            self._rests_until = asyncio.get_running_loop().time() + LIST_RETRY
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
        response = await self._wire.post(http_headers.standard_headers(LIST, rawjson.read(params), version), line)
        try:
            found = await wire.answer(response, self._most)
        finally:
            response.close()
        if found.kind != "result" or found.payload is None:
            raise HttpFault("it did not return a tool list")
        return found.payload


def _only(meta: rawjson.Object) -> bytes:
    """The part of ``_meta`` that identifies the client, without the progress token, which belongs to one request
    (R101)."""
    found = meta.members
    return msgspec.json.encode({name: found[name] for name in _KEPT if name in found})
