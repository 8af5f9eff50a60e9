"""Pure. The server's own UI of a form: a ``resources/read`` of the gate's own, and the HTML in its result.

The gate asks the server that sent the form, in its protocol version, and declares no capabilities in that request, so
that the server cannot ask back. The resource is ``text/html;profile=mcp-app`` (MCP Apps, ``specification/2026-01-26/
apps.mdx``).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

from samplegate.protocol import frames, rawjson, server_requests
from samplegate.protocol.capabilities import UI_MIME_TYPE
from samplegate.protocol.frames import META, META_CAPABILITIES, Frame
from samplegate.protocol.identity import Identity
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Effects, Over, ResourceRead
from samplegate.protocol.session_state import INTERNAL, Pending, SessionState

READ: Final = "resources/read"
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


def html_of(result: rawjson.Object, uri: str) -> bytes:
    """The HTML in a result of ``resources/read``, in UTF-8.

    Raises Malformed unless exactly this resource has the MIME type of MCP Apps and at most ``MAX_UI`` bytes.
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
    if rawjson.string(content.raw("mimeType")) != UI_MIME_TYPE:
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
    return html
