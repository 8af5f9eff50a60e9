"""What modern requests declare, each in its own envelope (R49), and the same as the gate passes it on. Worked out once for each way of asking."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core import jsontext
from samplegate.core.capabilities import Offer
from samplegate.core.eras import META_CAPABILITIES, META_VERSION
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed
from samplegate.core.matching.match import Rulebook
from samplegate.core.requests import Call, ClientCapabilities
from samplegate.core.session import declared
from samplegate.core.session.rounds import Note
from samplegate.core.session.state import State

_META_VERSION: Final = META_VERSION.encode()
MAX_KEPT: Final = 1024 * 1024  # bytes of what is remembered of a session; a client varies its capabilities by tool at most
ENTRY: Final = 4096  # bytes that stand for what else one takes: names are bounded (``inflight.MAX_TOOL``)
MAX_VERSION: Final = 64  # bytes


class Declaration(msgspec.Struct, frozen=True):
    """What a request's envelope declares, and what the gate makes of it under one policy."""

    book: Rulebook
    revision: str
    client: ClientCapabilities
    offer: Offer
    line: bytes | None
    """The capabilities as the server is to see them, None where they stay as they came."""
    withheld: tuple[str, ...]
    """What the client declared and is not offered, by name."""


class Declarations(msgspec.Struct, eq=False):
    """The declarations of a session."""

    state: State
    _kept: dict[tuple[bytes, bytes | None, Call | None, str], Declaration] = msgspec.field(default_factory=dict)
    _size: int = 0
    _withheld: set[str] = msgspec.field(default_factory=set)

    def of(self, meta: jsontext.Object, call: Call | None, caller: str) -> Declaration:
        """The declaration of a request with this ``_meta``, for the call that it is. Raises Malformed where it is too large."""
        version, raw = meta.raw(META_VERSION) or b"", meta.raw(META_CAPABILITIES)
        if len(version) > MAX_VERSION:
            raise Malformed(f"its protocol version is longer than {MAX_VERSION} bytes")
        key = (version, raw, call, caller)
        known = self._kept.get(key)
        if known is None or known.book is not self.state.book:
            known = self._made(*key)
            size = ENTRY + (0 if raw is None else len(raw)) + len(known.line or b"")
            if self._size + size > MAX_KEPT:
                self._kept.clear()
                self._size = 0
            self._kept[key] = known
            self._size += size
        return known

    def _made(self, version: bytes, raw: bytes | None, call: Call | None, caller: str) -> Declaration:
        revision, client = jsontext.string(version) or "", declared.read(raw)
        # without the member nothing is declared (R49, R61)
        offer = Offer() if raw is None else self.state.offer("modern", revision, client, call, caller)
        wanted = None if raw is None else declared.rewrite(raw, client, offer, revision)
        withheld = tuple(declared.withheld(client, offer, revision))
        return Declaration(self.state.book, revision, client, offer, wanted if wanted != raw else None, withheld)

    def withheld(self, declaration: Declaration, call: Call | None, caller: str) -> list[Note]:
        """What the client declared and is not offered, said once for each capability."""
        new = [name for name in declaration.withheld if name not in self._withheld]
        self._withheld.update(new)
        return [self.state.withheld("modern", new, call, caller)] if new else []


def modern_meta(f: Frame) -> jsontext.Object | None:
    """``_meta`` of a request with the modern envelope (R49, R87), None for others. Cheap for those: the key must stand in the bytes, or an escape."""
    if not f.may_say(_META_VERSION):
        return None
    return f.meta if META_VERSION in f.meta.members else None
