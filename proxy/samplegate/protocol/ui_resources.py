"""Pure. The server's own UI of a form: a ``resources/read`` of the gate's own, and the HTML in its result.

The gate asks the server that sent the form, in its protocol version, and declares no capabilities in that request, so
that the server cannot ask back. The resource is ``text/html;profile=mcp-app`` (MCP Apps, ``specification/2026-01-26/
apps.mdx``), or a URL in ``text/uri-list`` (RFC 2483; the ``externalUrl`` of mcp-ui) at an origin that a rule names.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from samplegate.protocol import frames, rawjson, server_requests
from samplegate.protocol.capabilities import UI_MIME_TYPE
from samplegate.protocol.frames import META, META_CAPABILITIES, Frame
from samplegate.protocol.identity import Identity
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Effects, Over, ResourceRead
from samplegate.protocol.session_state import INTERNAL, Pending, SessionState
from samplegate.urls import origin_of

READ: Final = "resources/read"
URL_MIME_TYPE: Final = "text/uri-list"
MAX_URL: Final = 2048  # characters
MAX_UI: Final = 1024 * 1024
"""Bytes of the HTML."""
MAX_RESULT: Final = 4 * MAX_UI
"""Bytes of the result: escapes make a text longer."""
MAX_CONTENTS: Final = 16
MAX_READS: Final = 64
"""Reads at one time."""


class UiReads:
    """The reads of a session that the server has not answered."""

    def __init__(self, state: SessionState, cancel: Callable[[Pending], Effects]) -> None:
        self._state = state
        self._cancel = cancel
        self._open: dict[str, Pending] = {}

    def begin(self, token: str, uri: str, meta: bytes | None, identity: Identity, now: float) -> Effects:
        """Ask the server for a resource; the answer is a ``ResourceRead`` with this token.

        ``meta``: ``_meta`` of the call in which the server asks, raw JSON; None in the legacy era.
        """
        state = self._state
        if len(self._open) >= MAX_READS:
            return [ResourceRead(token, None, f"{MAX_READS} resources are being read already")]
        params = {"uri": rawjson.dump(uri)}
        if meta is not None:
            meta = rawjson.splice(rawjson.splice(meta, ("progressToken",), None), (META_CAPABILITIES,), b"{}")
            params[META] = meta
        own = state.new_id()
        line = frames.request(own, READ, rawjson.object_of(params))
        if (full := state.call_fault(len(line))) is not None:
            return [ResourceRead(token, None, full)]
        pending = Pending(INTERNAL, own, own, READ, now, modern=meta is not None, identity=identity, read=token)
        pending.size += len(line)
        self._open[token] = pending
        state.enter(pending)
        return [state.to_server(pending, line)]

    def answered(self, pending: Pending, f: Frame) -> Effects:
        """Handle the server's answer to a read."""
        self._open.pop(pending.read, None)
        self._state.inflight.remove(pending)
        if f.kind == "error":
            return [ResourceRead(pending.read, None, f"the server answered with error {f.code}")]
        try:
            return [ResourceRead(pending.read, f.object, "")]
        except Malformed as problem:
            return [ResourceRead(pending.read, None, problem.fault)]

    def lost(self, pending: Pending, fault: str) -> Effects:
        """Handle an answer that could not be read."""
        self._open.pop(pending.read, None)
        self._state.inflight.remove(pending)
        return [ResourceRead(pending.read, None, fault)]

    def give_up(self, token: str) -> Effects:
        """Cancel a read."""
        pending = self._open.pop(token, None)
        if pending is None:
            return []
        out: Effects = [effect for effect in self._cancel(pending) if not isinstance(effect, Over)]
        if not (pending.modern and self._state.streams):  # else the server's stream is closed
            self._state.abandon(pending)  # its answer may be on the way
        return out

    def end(self) -> Effects:
        """Fail all reads: a side has ended for good."""
        tokens = list(self._open)
        self._open.clear()
        return [ResourceRead(token, None, "the server has stopped") for token in tokens]


class UiResource(msgspec.Struct, frozen=True):
    """A server's own UI: HTML in UTF-8, or the URL of a page in ASCII."""

    body: bytes
    is_url: bool = False


def ui_in(result: rawjson.Object, uri: str, origins: Collection[str] = ()) -> UiResource:
    """The UI in a result of ``resources/read``. Only a URL at one of these origins counts.

    Raises Malformed unless exactly this resource has the MIME type and at most ``MAX_UI`` bytes.
    """
    if len(result.text) > MAX_RESULT:
        raise Malformed(f"the result has more than {MAX_RESULT} bytes")
    if server_requests.result_type(result) not in (None, "complete"):
        raise Malformed("the result asks for input")
    raw = result.raw("contents")
    contents = [] if raw is None else rawjson.elements(raw, MAX_CONTENTS)
    if len(contents) != 1:
        raise Malformed(f"the result has {len(contents)} contents, not one")
    content = rawjson.read(contents[0])
    if rawjson.string(content.raw("uri")) != uri:
        raise Malformed("the content has another URI")
    mime_type = rawjson.string(content.raw("mimeType"))
    if mime_type == URL_MIME_TYPE and not origins:
        raise Malformed("the content is a URL, which needs RICH elicitation and ui_origins in the rule")
    if mime_type not in (UI_MIME_TYPE, URL_MIME_TYPE):
        raise Malformed(f"the content's MIME type is not {UI_MIME_TYPE}")
    text, blob = rawjson.string(content.raw("text")), rawjson.string(content.raw("blob"))
    if (text is None) == (blob is None):
        raise Malformed("the content has neither text nor a blob, or both")
    try:
        html = base64.b64decode(blob, validate=True) if blob is not None else (text or "").encode()
        html.decode()
    except (binascii.Error, UnicodeError, ValueError):
        raise Malformed("the content is not UTF-8") from None
    if not html or len(html) > MAX_UI:
        raise Malformed(f"the content has {len(html)} bytes, not 1 to {MAX_UI}")
    return UiResource(html) if mime_type == UI_MIME_TYPE else UiResource(_url_in(html, origins), is_url=True)


def _url_in(uris: bytes, origins: Collection[str]) -> bytes:
    """The only URL of a ``text/uri-list``. Raises Malformed unless it is at one of these origins."""
    lines = [line for line in uris.decode().splitlines() if line.strip() and not line.startswith("#")]
    if len(lines) != 1:
        raise Malformed(f"the content has {len(lines)} URLs, not one")
    url = lines[0].strip()
    if len(url) > MAX_URL or not url.isascii():
        raise Malformed(f"the URL is not ASCII with at most {MAX_URL} characters")
    if origin_of(url) not in origins:
        raise Malformed("the URL's origin is not one of the rule's ui_origins")
    return url.encode()
