"""What modern requests declare, each in its own envelope (R49), and the same as the gate passes it on. Worked out once for each way of asking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from samplegate.core import jsontext
from samplegate.core.capabilities import Offer
from samplegate.core.eras import META, META_CAPABILITIES, META_VERSION
from samplegate.core.frames import Frame
from samplegate.core.matching.match import Rulebook
from samplegate.core.requests import Call, ClientCapabilities
from samplegate.core.session import declared, doors
from samplegate.core.session.rounds import Note
from samplegate.core.session.state import State

_META_VERSION: Final = META_VERSION.encode()
MAX_KEPT: Final = 256  # a client varies them by tool at most


class Declaration(msgspec.Struct, frozen=True):
    """What a request's envelope declares, and what the gate makes of it under one policy."""

    book: Rulebook
    revision: str
    client: ClientCapabilities
    offer: Offer
    line: bytes | None
    """The capabilities as the server is to see them, None where they stay as they came."""


class Declarations(msgspec.Struct, eq=False):
    """The declarations of a session."""

    state: State
    _kept: dict[tuple[bytes, bytes | None, Call | None, str], Declaration] = msgspec.field(default_factory=dict)
    _withheld: set[str] = msgspec.field(default_factory=set)

    def of(self, meta: Mapping[str, msgspec.Raw], call: Call | None, caller: str) -> Declaration:
        """The declaration of a request with this ``_meta``, for the call that it is."""
        raw = meta.get(META_CAPABILITIES)
        key = (bytes(meta[META_VERSION]), None if raw is None else bytes(raw), call, caller)
        known = self._kept.get(key)
        if known is None or known.book is not self.state.book:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            known = self._kept[key] = self._made(*key)
        return known

    def _made(self, version: bytes, raw: bytes | None, call: Call | None, caller: str) -> Declaration:
        revision, client = jsontext.string(version) or "", declared.read(raw)
        # without the member nothing is declared (R49, R61)
        offer = Offer() if raw is None else self.state.offer("modern", revision, client, call, caller)
        wanted = None if raw is None else declared.rewrite(raw, client, offer, revision)
        return Declaration(self.state.book, revision, client, offer, wanted if wanted != raw else None)

    def withheld(self, declaration: Declaration, call: Call | None, caller: str) -> list[Note]:
        """What the client declared and is not offered, said once for each capability."""
        names = declared.withheld(declaration.client, declaration.offer, declaration.revision)
        new = [name for name in names if name not in self._withheld]
        self._withheld.update(new)
        return [self.state.withheld("modern", new, call, caller)] if new else []


def modern_meta(f: Frame) -> bytes | None:
    """``_meta`` of a request with the modern envelope (R49, R87), None for others. Cheap for those: the key must stand in the bytes, or an escape."""
    if not doors.may_say(f.raw, _META_VERSION):
        return None
    meta = jsontext.lookup(f.payload, META)
    return meta if meta is not None and meta[:1] == b"{" and META_VERSION in jsontext.fields(meta) else None
