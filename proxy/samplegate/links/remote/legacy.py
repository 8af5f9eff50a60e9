"""What a legacy server gave us to keep: a session id and the negotiated revision, and the headers that say them again (R94). No I/O."""

from __future__ import annotations

import re
from typing import Final

from samplegate.core import http_headers, jsontext
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed
from samplegate.links.remote.faults import Fault

SESSION: Final = "Mcp-Session-Id"
FIRST_WITH_HEADER: Final = "2025-06-18"
_id: Final = re.compile(r"[!-~]{1,1024}")
_revision: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")


class Legacy:
    """One session with a legacy server."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.revision = ""
        self.begun = False
        """Whether an ``initialize`` was answered with a result."""
        self.gone = False
        """Whether the server has said that it does not know the session any more."""

    def forget(self) -> None:
        """Another session is about to begin."""
        self.id, self.revision, self.begun, self.gone = None, "", False, False

    def headers(self) -> dict[str, str]:
        """What every request after ``initialize`` carries."""
        out = {} if self.id is None else {SESSION: self.id}
        if self.revision >= FIRST_WITH_HEADER and _revision.fullmatch(self.revision):
            out[http_headers.VERSION] = self.revision
        return out

    def began(self, session: list[str], answer: Frame) -> None:
        """``initialize`` was answered with a result, and this many session ids came with it. Raises Fault for one that no header may hold."""
        if len(session) > 1 or (session and not _id.fullmatch(session[0])):
            raise Fault("its session id is not one of at most 1024 visible ASCII characters")
        try:
            revision = jsontext.string(jsontext.lookup(answer.payload, "protocolVersion"))
        except Malformed:
            revision = None
        self.id, self.revision, self.begun, self.gone = (session[0] if session else None), revision or "", True, False
