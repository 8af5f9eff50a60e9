"""Pure. Translation of messages between the eras (R49, R52, R58, R80, R118).

It covers envelopes, results, errors and capabilities. A modern request's envelope is checked as a modern server would,
and removed for a legacy server. A legacy client's declarations are added to each of its requests. Members that both
eras share stay unchanged (R109), and strict clients get no member that they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from samplegate.protocol import capabilities, frames, input_required, rawjson, results, server_requests
from samplegate.protocol.capabilities import without_tasks_extension
from samplegate.protocol.frames import (
    LEGACY,
    META,
    META_CAPABILITIES,
    META_LOG_LEVEL,
    META_VERSION,
    MODERN,
    TASKS_EXTENSION,
    Frame,
    FrameId,
    has_elicitation,
    has_modes,
)
from samplegate.protocol.http_headers import MAX_TOOLS
from samplegate.protocol.rawjson import Malformed, Object, cut, dump, fields, inserted, lookup, splice, string
from samplegate.protocol.session_state import call_and_token

UNSUPPORTED_VERSION: Final = -32022
META_CLIENT: Final = "io.modelcontextprotocol/clientInfo"
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
REMOVED: Final = frozenset({"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""Client requests that the modern era does not have (R58)."""
_OURS: Final = frozenset(name.casefold() for name in (META_VERSION, META_CAPABILITIES, META_CLIENT, META_LOG_LEVEL))
MAX_VERSIONS: Final = 4096  # bytes of a list of versions; five have 70
MAX_CLIENT_INFO: Final = 16 * 1024  # bytes of a clientInfo that the server gets, including icons


class Refusal(msgspec.Struct, frozen=True):
    """An error for a request that is refused."""

    code: int
    message: str
    data: bytes | None = None

    def line(self, id: FrameId) -> bytes:
        """The error on the wire."""
        return frames.error(id, self.code, self.message, self.data)


class Envelope(msgspec.Struct, frozen=True):
    """The part of a request's envelope that a legacy server can receive."""

    client: bytes | None
    """``clientInfo``, raw JSON."""
    level: str | None
    """The least severe level of the requested log messages; None for no messages (R79)."""


def removed(method: str) -> Refusal | None:
    """The error for a method that the modern era lacks (R58) or that would bypass the policy (tasks, R108)."""
    if method not in REMOVED and not method.startswith("tasks/"):
        return None
    data = rawjson.dump({"supported": MODERN})  # R87: information for a client that expected another era
    why = "tasks are not carried between protocol versions" if method.startswith("tasks/") else ""
    return Refusal(
        results.METHOD_NOT_FOUND,
        f"method not found: {method[:100]}; {why or f'this endpoint uses protocol version {MODERN[0]}'}",
        data,
    )


def read_envelope(f: Frame) -> Envelope | Refusal:
    """The envelope of a request. Raises rawjson.Malformed if it has two readings."""
    meta = f.meta.members
    if not meta:
        return _missing(META)
    version = rawjson.string(_of(meta, META_VERSION))
    if version is None:
        return _missing(META_VERSION)
    if version not in MODERN:
        data = rawjson.dump({"supported": MODERN, "requested": version[:100]})
        return Refusal(UNSUPPORTED_VERSION, "unsupported protocol version", data)
    if (_of(meta, META_CAPABILITIES) or b"")[:1] != b"{":
        return _missing(META_CAPABILITIES)
    level = _of(meta, META_LOG_LEVEL)
    if level is not None and rawjson.string(level) not in LEVELS:
        return Refusal(results.BAD_PARAMS, f"{META_LOG_LEVEL} is not one of {', '.join(LEVELS)}")
    client = _of(meta, META_CLIENT)
    shown = client is not None and client[:1] == b"{" and len(client) <= MAX_CLIENT_INFO
    return Envelope(client if shown else None, rawjson.string(level))


def check(f: Frame) -> None:
    """Raises rawjson.Malformed if another parser could find another request, as before a modern server.

    The check is needed here, because the removed members are not checked later.
    """
    call_and_token(f, modern=True)
    capabilities.declared_by(f.meta.raw(META_CAPABILITIES))


def _of(meta: Mapping[str, msgspec.Raw], name: str) -> bytes | None:
    return bytes(meta[name]) if name in meta else None


def _missing(name: str) -> Refusal:
    return Refusal(results.BAD_PARAMS, f"params: {name} is missing or has the wrong type; {MODERN[0]} requires it")


class Bare(msgspec.Struct, frozen=True):
    """A frame without its modern envelope, for a legacy server."""

    frame: Frame
    answers: bool = False
    """Whether unsolicited answers were removed."""


def bare(f: Frame) -> Bare | Refusal:
    """A frame without its modern envelope, all else raw (R109).

    Raises rawjson.Malformed for params with two readings.
    """
    params = f.members
    if params is None:
        return Bare(f)
    changes, answers = without_envelope(f.meta), False
    if input_required.has_answers(f.object):
        if (f.object.raw("requestState") or b"null") != b"null":
            # R68
            return Refusal(results.BAD_PARAMS, "unknown requestState: the gate issued none for this server")
        answers = "inputResponses" in params
        if answers and isinstance(problem := input_required.read_unsolicited(bytes(params["inputResponses"])), str):
            return Refusal(results.BAD_PARAMS, problem)
        changes |= {name: None for name in ("requestState", "inputResponses") if name in params}
    # a legacy server's own tasks would let answers bypass the policy (R106, R108)
    if f.method == "tools/call" and "task" in params:
        changes["task"] = None
    return Bare(f.changed(payload=f.object.changed(changes)) if changes else f, answers)


def without_envelope(meta: rawjson.Object) -> dict[str, bytes | None]:
    """The changes to params that remove the modern members of their ``_meta``; an empty ``_meta`` is removed too."""
    left = {name: value for name, value in meta.members.items() if name.casefold() not in _OURS}
    if len(left) == len(meta.members):
        return {}
    return {META: rawjson.object_of(left) if left else None}


MAX_STAMP: Final = 256 * 1024  # bytes of both, which are kept and sent with each request
_STAMPED: Final = frozenset({META_VERSION, META_CAPABILITIES, META_CLIENT, META_LOG_LEVEL})


class Stamp(msgspec.Struct, frozen=True):
    """The members that are added to a request's ``_meta``. ``level`` is one of LEVELS, or None."""

    capabilities: bytes = b"{}"
    info: bytes | None = None
    level: str | None = None
    members: bytes = b""
    """The members of ``_meta``, raw, made from the other fields."""

    def __post_init__(self) -> None:
        parts = [_member(META_VERSION, dump(MODERN[-1])), _member(META_CAPABILITIES, self.capabilities)]
        if self.info is not None:
            parts.append(_member(META_CLIENT, self.info))
        if self.level is not None:
            parts.append(_member(META_LOG_LEVEL, dump(self.level)))
        msgspec.structs.force_setattr(self, "members", b",".join(parts))

    def put(self, params: Object) -> Object:
        """The params with the stamp in ``_meta``, replacing the client's members.

        Raises Malformed if ``_meta`` has two readings.
        """
        raw = params.raw(META)
        if raw is None:
            return params.changed({META: b"{" + self.members + b"}"})
        if raw[:1] != b"{":
            raise Malformed("_meta is not an object")
        return params.changed({META: inserted(cut(raw, _STAMPED), self.members)})


def _member(name: str, value: bytes) -> bytes:
    return dump(name) + b":" + value


def stamp_of(initialize: bytes | None, revision: str) -> Stamp:
    """The stamp from the params of ``initialize``, for the revision that the client was given. Raises Malformed."""
    info, declared = lookup(initialize, "clientInfo"), lookup(initialize, "capabilities")
    if len(info or b"") + len(declared or b"") > MAX_STAMP:
        raise Malformed(f"clientInfo and capabilities are larger than {MAX_STAMP} bytes")
    return Stamp(modern_capabilities(declared, revision), info if info is not None and info[:1] == b"{" else None)


def modern_capabilities(raw: bytes | None, revision: str) -> bytes:
    """Declared capabilities in their modern form.

    They contain no more than the client's revision has (R114), and nothing that the modern era lacks (R58, R108).
    """
    text = cut(raw if raw is not None and raw[:1] == b"{" else b"{}", {"tasks"})
    if not has_elicitation(revision):
        text = cut(text, {"elicitation"})
    if not has_modes(revision):
        for name in ("sampling", "elicitation"):
            text = _plain(text, name)
    if lookup(text, "roots", "listChanged") is not None:
        text = splice(text, ("roots", "listChanged"), None)
    return without_tasks_extension(text)


def _plain(text: bytes, name: str) -> bytes:
    """Remove sub-capabilities unknown to the client's revision, because it would not understand such requests."""
    value = lookup(text, name)
    return text if value is None or value[:1] != b"{" else splice(text, (name,), b"{}")


_DISCOVERED_ONLY: Final = frozenset(
    {"resultType", "ttlMs", "cacheScope", "supportedVersions", "protocolVersion", "serverInfo"}
)


def revision_for(asked: str | None) -> str:
    """The revision for a client: the requested one if it is known, else the newest legacy one."""
    return asked if asked in LEGACY else LEGACY[-1]


def initialize_result(discovered: bytes, *, revision: str, server: str, client: bytes) -> bytes:
    """The result of ``initialize``, made from a modern server's ``server/discover`` (R53, R115). Raises Malformed.

    ``server`` is our name for it, if it gives none; ``client`` is the client's declared capabilities, raw.
    """
    # a successful answer alone is not enough (T22)
    if set(MODERN).isdisjoint(versions(lookup(discovered, "supportedVersions"))):
        raise Malformed(f"server/discover lists no protocol version that the gate supports ({', '.join(MODERN)})")
    info = lookup(discovered, META, META_SERVER)
    text = cut(discovered, _DISCOVERED_ONLY)
    text = splice(text, ("protocolVersion",), dump(revision))
    text = splice(text, ("capabilities",), legacy_capabilities(lookup(discovered, "capabilities"), client))
    text = splice(text, ("serverInfo",), _info(info, server))
    if (said := lookup(text, "instructions")) is not None and string(said) is None:
        text = splice(text, ("instructions",), None)
    return without_meta(text, META_SERVER)


def versions(raw: bytes | None) -> list[str]:
    """The revisions in a server's raw list; none if it is not a list, or too long."""
    try:
        return [] if raw is None or len(raw) > MAX_VERSIONS else msgspec.json.decode(raw, type=list[str])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def _info(info: bytes | None, server: str) -> bytes:
    """The server's own info, if it has the members that a legacy client needs."""
    if info is not None and info[:1] == b"{" and string(lookup(info, "name")) is not None:
        return info if string(lookup(info, "version")) is not None else splice(info, ("version",), b'"unknown"')
    return dump({"name": server, "version": "unknown"})


def legacy_capabilities(raw: bytes | None, client: bytes) -> bytes:
    """The server's capabilities for a legacy client.

    Tasks are removed (R108). Of the extensions, those remain that the client declared itself (R82).
    """
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
    """An object without one member of its ``_meta``, and without ``_meta`` if that was its only member."""
    meta = lookup(text, META)
    left = None if meta is None else _without(meta, name)
    return text if left == meta else splice(text, (META,), left)


def _without(meta: bytes, name: str) -> bytes | None:
    """An object without a member; None if it has no other. Anything else is unchanged."""
    if meta[:1] != b"{" or name not in fields(meta):
        return meta
    left = cut(meta, {name})
    return left if fields(left) else None


_MODERN_ONLY: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
OF_MODERN: Final = frozenset({-32020, -32021, -32022})
"""HeaderMismatch, MissingRequiredClientCapability, UnsupportedProtocolVersion: in no legacy revision (R56)."""
COMPLETE: Final = "complete"


def legacy_result(f: Frame, method: str) -> bytes:
    """The line of a result for the client.

    Raises Malformed if it has two readings, or for a type that is neither complete nor absent (R52).
    """
    found = f.members
    if found is None:
        return f.raw
    if server_requests.result_type(f.object) not in (None, COMPLETE):
        raise Malformed("result has a resultType that the client's protocol version does not have")
    gone = {name for name in _MODERN_ONLY if name in found}
    if method == "tools/call" and not _is_object(found.get("structuredContent", _NOTHING)):
        gone.add("structuredContent")  # the text beside it has the same content
    changed = {META: _without(bytes(found[META]), META_SERVER)} if META in found else {}
    if method == "tools/list" and "tools" in found:
        changed["tools"] = _tools(bytes(found["tools"]))
    changes: dict[str, bytes | None] = dict.fromkeys(gone)
    changes |= {name: value for name, value in changed.items() if value != found[name]}
    return f.changed(payload=f.object.changed(changes)).raw if changes else f.raw


_NOTHING: Final = msgspec.Raw(b"{}")


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"


def _tools(listed: bytes) -> bytes:
    """The tools without output schemas other than an object's, which only the modern era allows (R13)."""
    if not server_requests.may_contain(listed, b"outputSchema"):
        return listed
    if listed[:1] != b"[":
        return listed
    tools = rawjson.elements(listed, MAX_TOOLS)
    fitted = [tool if _fits(tool) else cut(tool, {"outputSchema"}) for tool in tools]
    return listed if fitted == tools else b"[" + b",".join(fitted) + b"]"


def _fits(tool: bytes) -> bool:
    schema = rawjson.lookup(tool, "outputSchema")
    return schema is None or rawjson.string(rawjson.lookup(schema, "type")) == "object"


MAX_REASON: Final = 1_000  # characters


def rejected(method: str, error: bytes | None) -> str:
    """The message for a client whose server rejected the gate's own request, with the server's or the connection's
    reason: many clients show the message only."""
    try:
        reason = string(lookup(error, "message"))
    except Malformed:
        reason = None
    return f"the server rejected {method}{f': {reason[:MAX_REASON]}' if reason else ''}"


def legacy_error(f: Frame) -> bytes:
    """The line of an error for the client, unchanged except for codes that its era does not have (R118)."""
    return rawjson.splice(f.raw, ("error", "code"), rawjson.dump(results.INTERNAL)) if f.code in OF_MODERN else f.raw


META_SERVER: Final = "io.modelcontextprotocol/serverInfo"
CACHED: Final = frozenset(
    {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)
"""The methods whose results state how long they may be cached (R80)."""
MAX_HELLO: Final = 1024 * 1024  # bytes of the answer to initialize; instructions have some KiB
NOT_FOUND: Final = -32002  # of a resource, in the legacy era; -32602 in the modern one (R56)
_COMPLETE: Final = {"resultType": b'"complete"'}
# the lists of one session may differ from the next one's (R81)
_UNCACHED: Final = {"ttlMs": b"0", "cacheScope": b'"private"'}
_QUESTIONS: Final = ("inputRequests", "requestState")
_MODERN: Final = {name.casefold(): name for name in ("resultType", "ttlMs", "cacheScope", *_QUESTIONS)}


class ServerHello(msgspec.Struct, frozen=True):
    """A legacy server's description of itself from ``initialize``; raw JSON."""

    capabilities: bytes
    info: bytes | None
    instructions: bytes | None


def server_hello(result: bytes) -> ServerHello:
    """The server's description in the result of ``initialize``. Raises Malformed if it is invalid or too large."""
    if len(result) > MAX_HELLO:
        raise Malformed(f"larger than {MAX_HELLO} bytes")
    found = rawjson.fields(result)
    raw = bytes(found["capabilities"]) if "capabilities" in found else b""
    if raw[:1] != b"{":
        raise Malformed("capabilities is not an object")
    for name in list(rawjson.fields(raw)):
        if name.casefold() == "tasks":  # tasks of neither era are relayed here (R108)
            raw = rawjson.splice(raw, (name,), None)
    info, instructions = (rawjson.lookup(result, name) for name in ("serverInfo", "instructions"))
    return ServerHello(
        without_tasks_extension(raw),
        info if info is not None and info[:1] == b"{" else None,
        instructions if instructions is not None and instructions[:1] == b'"' else None,
    )


def discover_result(hello: ServerHello, *, tasks: bool) -> bytes:
    """The result of ``server/discover`` (R53). ``tasks``: whether calls may become tasks of the gate, if their client
    declares tasks in them."""
    offered = capabilities.with_tasks_extension(hello.capabilities) if tasks else hello.capabilities
    parts = [b'"supportedVersions":' + rawjson.dump(MODERN), b'"capabilities":' + offered]
    if hello.instructions is not None:
        parts.append(b'"instructions":' + hello.instructions)
    return modern_result("server/discover", b"{" + b",".join(parts) + b"}", hello.info)


def modern_result(method: str, result: bytes, info: bytes | None) -> bytes:
    """A result with the members of the modern era.

    Raises rawjson.Malformed if it is not an object, or if another parser could find other members.
    """
    found = rawjson.fields(result)
    for name in found:
        if name not in _MODERN.values() and name.casefold() in _MODERN:
            raise Malformed(f"{name[:20]!r} in result resembles a protocol member")
    more: dict[str, bytes] = {**_COMPLETE, **(_UNCACHED if method in CACHED else {})}
    if info is not None:
        meta = bytes(found[META]) if META in found else b""
        more[META] = rawjson.splice(meta if meta[:1] == b"{" else b"{}", (META_SERVER,), info)
    for name in (*_QUESTIONS, *more):  # questions have no meaning in the server's era, and so must have none here (T3)
        if name in found:
            result = rawjson.splice(result, (name,), more.pop(name, None))
    left = found.keys() - set(_QUESTIONS)
    # in one copy, because results can be large
    head = b",".join(rawjson.dump(name) + b":" + value for name, value in more.items())
    at = result.index(b"{") + 1
    return result[:at] + head + (b"," if head and left else b"") + result[at:]


def modern_error(f: Frame) -> bytes:
    """The line of an error with its code in the modern era; all others stay unchanged (R56, R118)."""
    return rawjson.splice(f.raw, ("error", "code"), rawjson.dump(results.BAD_PARAMS)) if f.code == NOT_FOUND else f.raw
