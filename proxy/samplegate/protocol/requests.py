"""Pure. Sampling and elicitation requests of a server, parsed from their params and checked.

Nothing is decided here. The same values come from a pushed request, from a key of an ``input_required`` result and from
a -32042 error (T3). Other code relies on these checks: types, counts, the revision's shapes, and the balance of tool
results.

Unknown members are kept (R109). A ``requestedSchema`` outside the flat subset is no error here (T16): the request may
be forwarded, but the gate never answers it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.protocol.frames import Era, has_modes
from samplegate.protocol.identity import Identity
from samplegate.protocol.strictjson import JsonFault, decode, plain_name, quoted_name, resembling
from samplegate.urls import requested_url_error

Kind: TypeAlias = Literal["sampling", "elicitation"]
Dialect: TypeAlias = Literal["sep-3118", "rich"]
"""How a host and a server's app talk: SEP-3118, or the notifications of RICH elicitation."""


SAMPLING: Final = "sampling/createMessage"
ELICITATION: Final = "elicitation/create"
ROOTS: Final = "roots/list"


class Offer(msgspec.Struct, frozen=True):
    """Capabilities that are declared to a server."""

    sampling: bool = False
    sampling_tools: bool = False
    sampling_context: bool = False
    form: bool = False
    url: bool = False
    ui: bool = False
    """Whether forms may name the server's own UI (SEP-3118)."""


class Call(msgspec.Struct, frozen=True):
    """A client request in flight during which a server may ask: tools/call, prompts/get or resources/read."""

    method: str
    tool: str | None = None
    """The tool's name for tools/call, else None."""


class Origin(msgspec.Struct, frozen=True):
    """The server, caller and calls of a request. Every name comes from our configuration, never from a peer (T36)."""

    server: str
    caller: str
    era: Era
    revision: str
    calls: tuple[Call, ...] = ()
    """The calls to which a request may belong: one is certain, several are candidates, none is in flight if empty."""
    trace: str = ""
    """The W3C trace context of that request, for the record and for spans only."""
    ambient: str = ""
    """The trace context of the HTTP request with the call, if ``trace`` is another one, from ``_meta``."""
    params: tuple[tuple[bytes | None, ...], ...] = ()
    """For each of ``calls``, the raw params of every call in flight with its method and tool; None if they are not
    kept. Empty: not known for any."""
    identities: tuple[Identity, ...] = ()
    """The identities of the calls, each once: one is certain, several are candidates. All have the name ``caller``.
    Empty: not known."""

    @property
    def params_size(self) -> int:
        """Bytes of ``params``."""
        return sum(len(one) for of_call in self.params for one in of_call if one is not None)


class SamplingRequest(msgspec.Struct, frozen=True):
    """``sampling/createMessage``. ``params`` is the decoded, checked JSON object; do not change its lists and dicts."""

    origin: Origin
    params: Mapping[str, Any]
    size: int
    """Bytes of the params as JSON."""
    kind: Literal["sampling"] = "sampling"


class ElicitationRequest(msgspec.Struct, frozen=True):
    """``elicitation/create``. ``mode`` is resolved: absent means form (R30)."""

    origin: Origin
    params: Mapping[str, Any]
    size: int
    mode: Literal["form", "url"]
    kind: Literal["elicitation"] = "elicitation"


Request: TypeAlias = SamplingRequest | ElicitationRequest


class UiRef(msgspec.Struct, frozen=True):
    """The server's own UI, as a form names it."""

    uri: str
    """``ui://HOST/...``: a resource of the same server."""
    dialect: Dialect
    context: Any = None
    """RICH only: what the server gives its app. Untrusted data."""


MAX_UI_URI: Final = 2048  # characters
_ui_uri: Final = re.compile(r"ui://[A-Za-z0-9._~%-]+(?:[/?][!-~]*)?")


def ui_of(params: Mapping[str, Any], *, negotiated: bool = True) -> UiRef | None:
    """The UI that a form names: in ``_meta.ui.resourceUri`` (SEP-3118, if ``negotiated``), else in ``ui.uri`` (RICH).

    None without a valid one: a host then shows its own form.
    """
    named = _uri_in(params.get("_meta"), "ui", "resourceUri") if negotiated else None
    if named is not None:
        return UiRef(named, "sep-3118")
    own = _uri_in(params, "ui", "uri")
    return None if own is None else UiRef(own, "rich", params["ui"].get("context"))


def _uri_in(node: object, *path: str) -> str | None:
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    is_uri = isinstance(node, str) and len(node) <= MAX_UI_URI and _ui_uri.fullmatch(node) is not None
    return node if is_uri and isinstance(node, str) else None


class BadRequest(msgspec.Struct, frozen=True):
    """An invalid request that no rule sees, as the JSON-RPC error that the specification names."""

    code: int
    message: str
    """The place and the problem, without content."""


class ClientCapabilities(msgspec.Struct, frozen=True):
    """Capabilities that the client declared, by kind, mode and sub-capability (R113).

    ``elicitation: {}`` means form only (T24).
    """

    sampling: bool = False
    sampling_tools: bool = False
    sampling_context: bool = False
    form: bool = False
    url: bool = False
    roots: bool = False
    tasks: bool = False
    """The Tasks extension of 2026-07-28."""
    ui: bool = False
    """Forms with the server's own UI (SEP-3118)."""


MAX_MESSAGES: Final = 10_000  # a year's chat; all messages are checked in one go
MAX_BLOCKS: Final = 10_000

Object: TypeAlias = dict[str, Any]

_MESSAGE: Final = frozenset({"role", "content", "_meta"})
_CONTENT: Final = frozenset(
    "type text data mimeType id name input toolUseId content structuredContent isError annotations resource uri title"
    " description size _meta".split()
)
_RESOURCE: Final = frozenset({"uri", "mimeType", "text", "blob", "_meta"})


def check_messages(messages: Any, revision: str) -> None:
    """Raises JsonFault if ``revision`` does not allow ``messages`` (R2, R6, R13).

    The same applies to tool results that do not match the tool uses (R10, R11).
    """
    if not isinstance(messages, list):
        raise JsonFault("messages: must be a list")
    if len(messages) > MAX_MESSAGES:
        raise JsonFault(f"messages: has more than {MAX_MESSAGES} items")
    wanted: set[str] = set()
    for index, message in enumerate(messages):
        place = f"messages.{index}"
        wanted = _balance(_checked(message, revision, place), message["role"], wanted, place)
    if wanted:
        raise JsonFault(f"messages.{len(messages) - 1}: has a tool use without a matching tool result")


def _checked(message: Any, revision: str, place: str) -> list[Object]:
    """The content blocks of one message."""
    if not isinstance(message, dict):
        raise JsonFault(f"{place}: must be an object")
    unambiguous(message, _MESSAGE, place)
    if message.get("role") not in ("user", "assistant"):
        raise JsonFault(f"{place}.role: must be user or assistant")
    optional(message, "_meta", dict, "an object", place)
    content = message.get("content")
    if not isinstance(content, list):
        _check_block(content, revision, f"{place}.content")
        assert isinstance(content, dict)
        return [content]
    if not has_modes(revision):
        raise JsonFault(f"{place}.content: is a list, which {plain_name(revision)} does not allow")
    if len(content) > MAX_BLOCKS:
        raise JsonFault(f"{place}.content: has more than {MAX_BLOCKS} blocks")
    for index, block in enumerate(content):
        _check_block(block, revision, f"{place}.content.{index}")
    return content


def _balance(blocks: list[Object], role: str, wanted: set[str], place: str) -> set[str]:
    """The ids of the tool uses that the next message must answer, all of them and nothing else (R10, R11)."""
    results = [block["toolUseId"] for block in blocks if block["type"] == "tool_result"]
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if results and role != "user":
        raise JsonFault(f"{place}: has a tool result, but its role is not user")
    if uses and role != "assistant":
        raise JsonFault(f"{place}: has a tool use, but its role is not assistant")
    if results and len(results) != len(blocks):
        raise JsonFault(f"{place}: mixes tool results with other content")
    if len(results) != len(wanted) or set(results) != wanted:
        raise JsonFault(f"{place}: tool results do not match the preceding tool uses")
    if len(set(uses)) != len(uses):
        raise JsonFault(f"{place}: two tool uses have the same id")
    return set(uses)


def _check_block(block: Any, revision: str, place: str) -> None:
    if not isinstance(block, dict):
        raise JsonFault(f"{place}: must be a content block")
    unambiguous(block, _CONTENT, place)
    type_ = block.get("type")
    since, check = _BLOCKS.get(type_, ("", None)) if isinstance(type_, str) else ("", None)
    if check is None or revision < since:
        raise JsonFault(f"{place}.type: is not a content type of {plain_name(revision)}")
    optional(block, "annotations", dict, "an object", place)
    optional(block, "_meta", dict, "an object", place)
    check(block, revision, place)


def _check_text(block: Object, revision: str, place: str) -> None:
    required(block, "text", str, "a string", place)


def _check_media(block: Object, revision: str, place: str) -> None:
    required(block, "data", str, "a string", place)
    required(block, "mimeType", str, "a string", place)


def _check_use(block: Object, revision: str, place: str) -> None:
    required(block, "id", str, "a string", place)
    required(block, "name", str, "a string", place)
    required(block, "input", dict, "an object", place)


def _check_result(block: Object, revision: str, place: str) -> None:
    required(block, "toolUseId", str, "a string", place)
    optional(block, "isError", bool, "true or false", place)
    if revision < "2026":
        optional(block, "structuredContent", dict, "an object", place)
    required(block, "content", list, "a list", place)
    for index, inner in enumerate(block["content"]):
        at = f"{place}.content.{index}"
        if not isinstance(inner, dict) or not isinstance(inner.get("type"), str):
            raise JsonFault(f"{at}: must be a content block")
        if inner["type"] in ("text", "image", "audio"):
            _check_block(inner, revision, at)
        else:
            _check_other(inner, at)


def _check_other(block: Object, place: str) -> None:
    """Check a block that only a tool's result may contain: a resource, a link to one, or an unknown type."""
    unambiguous(block, _CONTENT, place)
    if isinstance(resource := block.get("resource"), dict):
        unambiguous(resource, _RESOURCE, f"{place}.resource")


_BLOCKS: Final[dict[str, tuple[str, Callable[[Object, str, str], None]]]] = {
    "text": ("", _check_text),
    "image": ("", _check_media),
    "audio": ("2025-03-26", _check_media),
    "tool_use": ("2025-11-25", _check_use),
    "tool_result": ("2025-11-25", _check_result),
}
"""Each type of content, with the first revision that has it and the check of its members."""


def unambiguous(node: Object, known: frozenset[str], place: str) -> None:
    """Raises JsonFault for a member that another parser may take for one of ``known``."""
    if (name := resembling(node, known)) is not None:
        raise JsonFault(f"{place}: {quoted_name(name)} could be read as another member")


def required(node: Object, name: str, type_: type | tuple[type, ...], what: str, place: str) -> None:
    """Raises JsonFault unless the member exists and has that JSON type."""
    if not isinstance(node.get(name), type_):
        raise JsonFault(f"{place}.{name}: must be {what}" if place else f"{name}: must be {what}")


def optional(node: Object, name: str, type_: type | tuple[type, ...], what: str, place: str) -> None:
    """Check a member that may be absent. A null is removed, because several SDKs read it as absent."""
    if node.get(name) is not None:
        required(node, name, type_, what, place)
    elif name in node:
        del node[name]


INVALID_PARAMS: Final = -32602
METHOD_NOT_FOUND: Final = -32601

MAX_TOOLS: Final = 1_000
MAX_HINTS: Final = 1_000
MAX_STOPS: Final = 1_000
MAX_PROPERTIES: Final = 1_000  # real forms have far fewer fields; the check of an answer is linear in their number

_SAMPLING: Final = frozenset(
    "messages maxTokens systemPrompt includeContext temperature stopSequences metadata modelPreferences tools"
    " toolChoice task _meta".split()
)
_ELICITATION: Final = frozenset("message mode requestedSchema url elicitationId task _meta".split())
_PREFERENCES: Final = frozenset({"hints", "costPriority", "speedPriority", "intelligencePriority"})
_HINT: Final = frozenset({"name"})
_TOOL: Final = frozenset(
    {"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta"}
)
_CHOICE: Final = frozenset({"mode"})
_SCHEMA: Final = frozenset(
    "type properties required title description additionalProperties patternProperties propertyNames allOf anyOf oneOf"
    " not if then else $ref $dynamicRef $defs definitions $schema $id dependentRequired dependentSchemas dependencies"
    " enum const unevaluatedProperties".split()
)


def parse(method: str, params: bytes | None, origin: Origin) -> Request | BadRequest:
    """The request in ``params`` (raw JSON, None for absent), as ``origin.revision`` defines it.

    Returns BadRequest for anything else, whatever the bytes.
    """
    if method not in (SAMPLING, ELICITATION):
        return BadRequest(METHOD_NOT_FOUND, "method: must be sampling/createMessage or elicitation/create")
    try:
        node = _object(params)
        unambiguous(node, _SAMPLING if method == SAMPLING else _ELICITATION, "params")
        if method == SAMPLING:
            _check_sampling(node, origin.revision)
            return SamplingRequest(origin, node, len(params or b""))
        mode = "url" if _is_url(node, origin.revision) else "form"
        if mode == "url":
            _check_url(node, origin.revision)
            return ElicitationRequest(origin, node, len(params or b""), "url")
        _check_form(node)
        return ElicitationRequest(origin, node, len(params or b""), "form")
    except JsonFault as fault:
        return BadRequest(INVALID_PARAMS, str(fault))


def _object(params: bytes | None) -> Object:
    if params is None:
        raise JsonFault("params: is required")
    try:
        node = decode(params)
    except JsonFault as fault:
        raise JsonFault(f"params: {fault}") from None
    if not isinstance(node, dict):
        raise JsonFault("params: must be an object")
    optional(node, "_meta", dict, "an object", "")
    return node


def _check_sampling(node: Object, revision: str) -> None:
    check_messages(node.get("messages"), revision)
    node["maxTokens"] = _whole(node.get("maxTokens"), "maxTokens")
    optional(node, "systemPrompt", str, "a string", "")
    optional(node, "includeContext", str, "a string", "")
    optional(node, "metadata", dict, "an object", "")
    _optional_number(node, "temperature", "")
    _check_stops(node)
    _check_preferences(node)
    _check_tools(node)


def _whole(value: Any, place: str) -> int:
    """A positive whole number; in JSON, 5.0 is one and true is not (T15)."""
    if isinstance(value, float) and value.is_integer() and value < 1 << 63:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise JsonFault(f"{place}: must be a positive whole number")
    return value


def _optional_number(node: Object, name: str, place: str) -> None:
    optional(node, name, (int, float), "a number", place)
    if isinstance(node.get(name), bool):
        raise JsonFault(f"{place}{'.' if place else ''}{name}: must be a number")


def _list(node: Object, name: str, most: int, place: str) -> list[Any]:
    """The items of an optional list."""
    optional(node, name, list, "a list", place)
    items: list[Any] = node.get(name, [])
    if len(items) > most:
        raise JsonFault(f"{place}{'.' if place else ''}{name}: has more than {most} items")
    return items


def _check_stops(node: Object) -> None:
    for index, stop in enumerate(_list(node, "stopSequences", MAX_STOPS, "")):
        if not isinstance(stop, str):
            raise JsonFault(f"stopSequences.{index}: must be a string")


def _check_preferences(node: Object) -> None:
    """Check types only: a priority outside 0..1 or an empty hint is advice that is ignored (R20, R21), not an error."""
    optional(node, "modelPreferences", dict, "an object", "")
    preferences: Object = node.get("modelPreferences", {})
    unambiguous(preferences, _PREFERENCES, "modelPreferences")
    for name in ("costPriority", "speedPriority", "intelligencePriority"):
        _optional_number(preferences, name, "modelPreferences")
    for index, hint in enumerate(_list(preferences, "hints", MAX_HINTS, "modelPreferences")):
        if not isinstance(hint, dict):
            raise JsonFault(f"modelPreferences.hints.{index}: must be an object")
        unambiguous(hint, _HINT, f"modelPreferences.hints.{index}")
        optional(hint, "name", str, "a string", f"modelPreferences.hints.{index}")


def _check_tools(node: Object) -> None:
    """Check the tools in every revision, so that later code never meets tools of another type.

    Whether a server may send tools depends on the capability (R8).
    """
    for index, tool in enumerate(_list(node, "tools", MAX_TOOLS, "")):
        if not isinstance(tool, dict):
            raise JsonFault(f"tools.{index}: must be an object")
        unambiguous(tool, _TOOL, f"tools.{index}")
        required(tool, "name", str, "a string", f"tools.{index}")
        required(tool, "inputSchema", dict, "an object", f"tools.{index}")
    optional(node, "toolChoice", dict, "an object", "")
    choice: Object = node.get("toolChoice", {})
    unambiguous(choice, _CHOICE, "toolChoice")
    if choice.get("mode", "auto") not in ("auto", "required", "none"):
        raise JsonFault("toolChoice.mode: must be auto, required or none")


def _is_url(node: Object, revision: str) -> bool:
    required(node, "message", str, "a string", "")
    mode = node.get("mode", "form")  # R30
    if mode not in ("form", "url") or (mode == "url" and not has_modes(revision)):
        raise JsonFault(f"mode: is not a mode of {plain_name(revision)}")
    return bool(mode == "url")


def _check_form(node: Object) -> None:
    required(node, "requestedSchema", dict, "an object", "")
    schema: Object = node["requestedSchema"]
    unambiguous(schema, _SCHEMA, "requestedSchema")
    optional(schema, "properties", dict, "an object", "requestedSchema")
    if len(schema.get("properties", {})) > MAX_PROPERTIES:
        raise JsonFault(f"requestedSchema.properties: has more than {MAX_PROPERTIES} properties")
    names = _list(schema, "required", MAX_PROPERTIES, "requestedSchema")
    if not all(isinstance(name, str) for name in names):
        raise JsonFault("requestedSchema.required: must be a list of strings")


def _check_url(node: Object, revision: str) -> None:
    required(node, "url", str, "a string", "")
    if (fault := requested_url_error(node["url"])) is not None:
        raise JsonFault(f"url: {fault}")
    if revision == "2025-11-25":  # the only revision that has it (R40)
        required(node, "elicitationId", str, "a string", "")
