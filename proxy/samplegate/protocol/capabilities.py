"""Pure. Capabilities on the wire: the client's declaration, and the object rewritten to the gate's offer.

``policy/capabilities.py`` derives the offer from the policy. Only the members that differ are spliced; the rest stays
as received (R109). Each modern request declares its own capabilities in its envelope (R49). The result is cached for
each distinct declaration.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from samplegate.protocol import rawjson, strictjson
from samplegate.protocol.frames import (
    META_CAPABILITIES,
    META_VERSION,
    TASKS_EXTENSION,
    UI_EXTENSION,
    Frame,
    has_elicitation,
    has_modes,
)
from samplegate.protocol.rawjson import Malformed, lookup, members, splice
from samplegate.protocol.requests import Call, ClientCapabilities, Offer
from samplegate.protocol.rounds import Note
from samplegate.protocol.session_state import SessionPolicy, SessionState

# bytes of declared capabilities, which are searched for each member; real ones have some hundred
MAX_DECLARED: Final = 64 * 1024


_CAPABILITIES: Final = frozenset({"sampling", "elicitation", "roots", "tasks", "extensions", "experimental"})
_SUB: Final = frozenset({"tools", "context"})
_MODES: Final = frozenset({"form", "url"})
_EXTENSIONS: Final = frozenset({TASKS_EXTENSION, UI_EXTENSION})
_UI: Final = frozenset({"elicitation", "mimeTypes"})
UI_MIME_TYPE: Final = "text/html;profile=mcp-app"


def declared_by(raw: bytes | None) -> ClientCapabilities:
    """The capabilities that a ``capabilities`` object declares.

    Raises rawjson.Malformed for duplicate members on the way, or if the object is too large.
    """
    if raw is None or raw[:1] != b"{":
        return ClientCapabilities()
    if len(raw) > MAX_DECLARED:
        raise Malformed(f"capabilities is larger than {MAX_DECLARED} bytes")
    at = _plain(raw, _CAPABILITIES)
    sampling = _object(raw, "sampling")
    elicitation = _object(raw, "elicitation")
    modes = {} if elicitation is None else _plain(elicitation, _MODES)
    sub = {} if sampling is None else _plain(sampling, _SUB)
    extensions = _object(raw, "extensions") or b"{}"
    _plain(extensions, _EXTENSIONS)
    ui = _object(extensions, UI_EXTENSION) or b"{}"
    _plain(ui, _UI)
    return ClientCapabilities(
        sampling=sampling is not None,
        sampling_tools="tools" in sub,
        sampling_context="context" in sub,
        form=elicitation is not None and ("form" in modes or "url" not in modes),  # T24: {} is form only
        url="url" in modes,
        roots="roots" in at,
        tasks=_object(extensions, TASKS_EXTENSION) is not None,
        ui=_object(ui, "elicitation") is not None,
    )


def _plain(raw: bytes, known: frozenset[str]) -> Collection[str]:
    """The names in an object. Raises Malformed if another parser could find capabilities that we do not rewrite."""
    found = members(raw).keys()
    if (name := strictjson.second_reading(found, known)) is not None:
        raise Malformed(f"{name[:40]!r} in capabilities could be read as another member")
    return found


def _object(raw: bytes, name: str) -> bytes | None:
    value = lookup(raw, name)
    return value if value is not None and value[:1] == b"{" else None


def rewrite(
    raw: bytes | None, client: ClientCapabilities, offer: Offer, revision: str, *, tasks: bool = False
) -> bytes:
    """The capabilities that the gate declares to the server: sampling and elicitation as offered, the rest as received.

    Whatever would bypass the policy is removed. ``tasks``: whether the Tasks extension passes.
    """
    text = raw if raw is not None and raw[:1] == b"{" else b"{}"
    text = _sampling(text, client, offer, revision)
    text = _elicitation(text, client, offer, revision)
    text = _ui(text, client, offer)
    text = _legacy_tasks(text)
    return text if tasks and client.tasks else without_tasks_extension(text)


def _sampling(text: bytes, client: ClientCapabilities, offer: Offer, revision: str) -> bytes:
    if not offer.sampling:
        return splice(text, ("sampling",), None)
    tools = offer.sampling_tools and has_modes(revision)
    context = offer.sampling_context and has_modes(revision)
    if (client.sampling, client.sampling_tools, client.sampling_context) == (True, tools, context):
        return text
    parts = [b'"tools":{}'] * tools + [b'"context":{}'] * context
    return splice(text, ("sampling",), b"{" + b",".join(parts) + b"}")


def _elicitation(text: bytes, client: ClientCapabilities, offer: Offer, revision: str) -> bytes:
    url = offer.url and has_modes(revision)
    if not (offer.form or url) or not has_elicitation(revision):
        return splice(text, ("elicitation",), None)
    # servers of SEP-3118 look for `form`, so `{}` is not enough
    named = not offer.ui or _object(_object(text, "elicitation") or b"{}", "form") is not None
    if named and (client.form, client.url) == (offer.form, url):
        return text
    if not has_modes(revision) and not offer.ui:
        return splice(text, ("elicitation",), b"{}")
    parts = [b'"form":{}'] * offer.form + [b'"url":{}'] * url
    return splice(text, ("elicitation",), b"{" + b",".join(parts) + b"}")


def _ui(text: bytes, client: ClientCapabilities, offer: Offer) -> bytes:
    """Declare the server's own UI in forms (SEP-3118), or remove this part of the UI extension."""
    if client.ui == offer.ui:
        return text
    if not offer.ui:
        return splice(text, ("extensions", UI_EXTENSION, "elicitation"), None)
    extensions = _object(text, "extensions") or b"{}"
    ui = _object(extensions, UI_EXTENSION) or b'{"mimeTypes":["' + UI_MIME_TYPE.encode() + b'"]}'
    ui = splice(ui, ("elicitation",), b"{}")
    return splice(text, ("extensions",), splice(extensions, (UI_EXTENSION,), ui))


def _legacy_tasks(text: bytes) -> bytes:
    """Remove legacy tasks for sampling and elicitation, because requests in them would bypass the policy (R106)."""
    for kind in ("sampling", "elicitation"):
        if lookup(text, "tasks", "requests", kind) is not None:
            text = splice(text, ("tasks", "requests", kind), None)
    return text


def without_tasks_extension(capabilities: bytes) -> bytes:
    """Capabilities of either side without the Tasks extension of the modern era (R108)."""
    if lookup(capabilities, "extensions", TASKS_EXTENSION) is None:
        return capabilities
    return splice(capabilities, ("extensions", TASKS_EXTENSION), None)


def with_tasks_extension(capabilities: bytes) -> bytes:
    """Capabilities of a server with the Tasks extension."""
    if lookup(capabilities, "extensions", TASKS_EXTENSION) is not None or capabilities[:1] != b"{":
        return capabilities
    if _object(capabilities, "extensions") is None:
        return splice(capabilities, ("extensions",), b'{"' + TASKS_EXTENSION.encode() + b'":{}}')
    return splice(capabilities, ("extensions", TASKS_EXTENSION), b"{}")


def has_modern_extension(raw: bytes | None) -> bool:
    """Whether a ``capabilities`` object declares the Tasks or the UI extension.

    Raises rawjson.Malformed as ``declared_by`` does.
    """
    if raw is not None and len(raw) > MAX_DECLARED:
        raise Malformed(f"capabilities is larger than {MAX_DECLARED} bytes")
    return any(lookup(raw, "extensions", name) is not None for name in (TASKS_EXTENSION, UI_EXTENSION))


def withheld_from(client: ClientCapabilities, offer: Offer, revision: str) -> list[str]:
    """Names of the capabilities that the client declared and the revision has, but the policy withholds."""
    modes = has_modes(revision)
    pairs = (
        ("sampling", client.sampling, offer.sampling),
        ("sampling.tools", client.sampling_tools and modes, offer.sampling_tools),
        ("sampling.context", client.sampling_context and modes, offer.sampling_context),
        ("elicitation.form", client.form and has_elicitation(revision), offer.form),
        ("elicitation.url", client.url and modes, offer.url),
    )
    return [name for name, has, offered in pairs if has and not offered]


_META_VERSION: Final = META_VERSION.encode()
# bytes of a session's cached declarations; a client varies its capabilities by tool at most
MAX_KEPT: Final = 1024 * 1024
ENTRY: Final = 4096  # bytes for the rest of a cached declaration, whose names are bounded (``session_state.MAX_TOOL``)
MAX_VERSION: Final = 64  # bytes


class Declaration(msgspec.Struct, frozen=True):
    """The capabilities of a request's envelope, and the gate's offer for them under one policy."""

    policy: SessionPolicy
    revision: str
    client: ClientCapabilities
    offer: Offer
    line: bytes | None
    """The capabilities for the server; None if the client's stay as received."""
    withheld: tuple[str, ...]
    """Names of the declared capabilities that are not offered."""


class Declarations(msgspec.Struct, eq=False):
    """Cached declarations of a session."""

    state: SessionState
    _kept: dict[tuple[bytes, bytes | None, Call | None, str], Declaration] = msgspec.field(default_factory=dict)
    _size: int = 0
    _withheld: set[str] = msgspec.field(default_factory=set)

    def of(self, meta: rawjson.Object, call: Call | None, caller: str) -> Declaration:
        """The declaration of a request with this ``_meta``, for its call. Raises Malformed if it is too large."""
        version, raw = meta.raw(META_VERSION) or b"", meta.raw(META_CAPABILITIES)
        if len(version) > MAX_VERSION:
            raise Malformed(f"protocol version is longer than {MAX_VERSION} bytes")
        key = (version, raw, call, caller)
        known = self._kept.get(key)
        if known is None or known.policy is not self.state.policy:
            known = self._made(*key)
            size = ENTRY + (0 if raw is None else len(raw)) + len(known.line or b"")
            if self._size + size > MAX_KEPT:
                self._kept.clear()
                self._size = 0
            self._kept[key] = known
            self._size += size
        return known

    def _made(self, version: bytes, raw: bytes | None, call: Call | None, caller: str) -> Declaration:
        revision, client = rawjson.string(version) or "", declared_by(raw)
        # without the member, nothing is declared (R49, R61)
        offer = Offer() if raw is None else self.state.offer("modern", revision, client, call, caller)
        wanted = None if raw is None else rewrite(raw, client, offer, revision, tasks=self.state.tasks)
        withheld = tuple(withheld_from(client, offer, revision))
        return Declaration(self.state.policy, revision, client, offer, wanted if wanted != raw else None, withheld)

    def withheld(self, declaration: Declaration, call: Call | None, caller: str) -> list[Note]:
        """Warnings for declared capabilities that are not offered, once for each capability."""
        new = [name for name in declaration.withheld if name not in self._withheld]
        self._withheld.update(new)
        return [self.state.withheld("modern", new, call, caller)] if new else []


def modern_meta(f: Frame) -> rawjson.Object | None:
    """``_meta`` of a request with the modern envelope (R49, R87); None for others.

    The check is cheap for others: the bytes must contain the key or an escape.
    """
    if not f.may_contain(_META_VERSION):
        return None
    return f.meta if META_VERSION in f.meta.members else None
