"""The answer to a legacy ``initialize``, made of what a modern server says in ``server/discover`` (R53, R115). Unknown members go on as they came."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core.bridge.cutting import cut
from samplegate.core.eras import LEGACY, META, MODERN, TASKS_EXTENSION
from samplegate.core.jsontext import Malformed, dump, fields, lookup, splice, string

META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
_MODERN_ONLY: Final = frozenset({"resultType", "ttlMs", "cacheScope", "supportedVersions", "protocolVersion", "serverInfo"})


def revision_for(asked: str | None) -> str:
    """The revision that a client is given: the one it asks for where it is known, else the newest legacy one."""
    return asked if asked in LEGACY else LEGACY[-1]


def welcome(discovered: bytes, *, revision: str, server: str, client: bytes) -> bytes:
    """The result of ``initialize``. Raises Malformed.

    ``server`` is our name for it, should it give none; ``client`` the capabilities that the client declared, raw.
    """
    if not _speaks_modern(discovered):
        raise Malformed(f"server/discover names no revision that the gate speaks ({', '.join(MODERN)})")
    info = lookup(discovered, META, META_SERVER_INFO)
    text = cut(discovered, _MODERN_ONLY)
    text = splice(text, ("protocolVersion",), dump(revision))
    text = splice(text, ("capabilities",), capabilities(lookup(discovered, "capabilities"), client))
    text = splice(text, ("serverInfo",), _info(info, server))
    if (said := lookup(text, "instructions")) is not None and string(said) is None:
        text = splice(text, ("instructions",), None)
    return without_meta(text, META_SERVER_INFO)


def _speaks_modern(discovered: bytes) -> bool:
    """Any successful answer is not enough: only one that lists a modern revision (T22)."""
    raw = lookup(discovered, "supportedVersions")
    try:
        return raw is not None and any(version in MODERN for version in msgspec.json.decode(raw, type=list[str]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _info(info: bytes | None, server: str) -> bytes:
    """The server's own words where they have what a legacy client needs."""
    if info is not None and info[:1] == b"{" and string(lookup(info, "name")) is not None:
        return info if string(lookup(info, "version")) is not None else splice(info, ("version",), b'"unknown"')
    return dump({"name": server, "version": "unknown"})


def capabilities(raw: bytes | None, client: bytes) -> bytes:
    """The server's capabilities for a legacy client: no tasks (R108), and of the extensions those that the client declared itself (R82)."""
    text = cut(raw if raw is not None and raw[:1] == b"{" else b"{}", {"tasks"})
    extensions = lookup(text, "extensions")
    if extensions is None:
        return text
    declared = lookup(client, "extensions")
    known = set(fields(declared)) if declared is not None and declared[:1] == b"{" else set()
    offered = fields(extensions).keys() if extensions[:1] == b"{" else frozenset[str]()
    both = (known & offered) - {TASKS_EXTENSION}
    return splice(text, ("extensions",), cut(extensions, set(offered) - both)) if both else cut(text, {"extensions"})


def without_meta(text: bytes, name: str) -> bytes:
    """An object without one member of its ``_meta``, and without ``_meta`` if that was all."""
    meta = lookup(text, META)
    if meta is None or meta[:1] != b"{" or name not in fields(meta):
        return text
    left = cut(meta, {name})
    return splice(text, (META,), left) if fields(left) else cut(text, {META})
