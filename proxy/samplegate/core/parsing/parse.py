"""The params that a server sent -> a checked request, or what is wrong with them. Not a decision: whether it may be asked is ``decide.py``'s.

Checked is what the rest may then rely on: types, counts, the revision's shapes. Unknown members are kept (R109), and a
``requestedSchema`` outside the flat subset is no fault here (T16): it may be forwarded, only never answered by the gate.
"""

from __future__ import annotations

from typing import Any, Final

from samplegate.core.eras import has_modes
from samplegate.core.parsing.messages import Object, check_messages, optional, required, unambiguous
from samplegate.core.parsing.strictjson import Fault, decode, told
from samplegate.core.requests import BadRequest, ElicitationRequest, Origin, Request, SamplingRequest
from samplegate.urls import requested_url_error

SAMPLING: Final = "sampling/createMessage"
ELICITATION: Final = "elicitation/create"
INVALID_PARAMS: Final = -32602
METHOD_NOT_FOUND: Final = -32601

MAX_TOOLS: Final = 1_000
MAX_HINTS: Final = 1_000
MAX_STOPS: Final = 1_000
MAX_PROPERTIES: Final = 1_000  # nobody fills in such a form; the check of an answer is linear in it

_SAMPLING: Final = frozenset(
    "messages maxTokens systemPrompt includeContext temperature stopSequences metadata modelPreferences tools toolChoice task _meta".split()
)
_ELICITATION: Final = frozenset("message mode requestedSchema url elicitationId task _meta".split())
_PREFERENCES: Final = frozenset({"hints", "costPriority", "speedPriority", "intelligencePriority"})
_HINT: Final = frozenset({"name"})
_TOOL: Final = frozenset({"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta"})
_CHOICE: Final = frozenset({"mode"})
_SCHEMA: Final = frozenset(
    "type properties required title description additionalProperties patternProperties propertyNames allOf anyOf oneOf not if then else"
    " $ref $dynamicRef $defs definitions $schema $id dependentRequired dependentSchemas dependencies enum const unevaluatedProperties".split()
)


def parse(method: str, params: bytes | None, origin: Origin) -> Request | BadRequest:
    """The request in ``params`` (raw JSON, None for absent) as ``origin.revision`` defines it; BadRequest for anything else, whatever the bytes."""
    if method not in (SAMPLING, ELICITATION):
        return BadRequest(METHOD_NOT_FOUND, "method: is neither sampling/createMessage nor elicitation/create")
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
    except Fault as fault:
        return BadRequest(INVALID_PARAMS, str(fault))


def _object(params: bytes | None) -> Object:
    if params is None:
        raise Fault("params: are missing")
    try:
        node = decode(params)
    except Fault as fault:
        raise Fault(f"params: {fault}") from None
    if not isinstance(node, dict):
        raise Fault("params: must be an object")
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
    """A positive whole number; 5.0 is one in JSON, true is not (T15)."""
    if isinstance(value, float) and value.is_integer() and value < 1 << 63:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Fault(f"{place}: must be a positive whole number")
    return value


def _optional_number(node: Object, name: str, place: str) -> None:
    optional(node, name, (int, float), "a number", place)
    if isinstance(node.get(name), bool):
        raise Fault(f"{place}{'.' if place else ''}{name}: must be a number")


def _list(node: Object, name: str, most: int, place: str) -> list[Any]:
    """The items of an optional list."""
    optional(node, name, list, "a list", place)
    items: list[Any] = node.get(name, [])
    if len(items) > most:
        raise Fault(f"{place}{'.' if place else ''}{name}: has more than {most} items")
    return items


def _check_stops(node: Object) -> None:
    for index, stop in enumerate(_list(node, "stopSequences", MAX_STOPS, "")):
        if not isinstance(stop, str):
            raise Fault(f"stopSequences.{index}: must be a string")


def _check_preferences(node: Object) -> None:
    """Types only: a priority outside 0..1 or an empty hint is advice that is not followed (R20, R21), no fault."""
    optional(node, "modelPreferences", dict, "an object", "")
    preferences: Object = node.get("modelPreferences", {})
    unambiguous(preferences, _PREFERENCES, "modelPreferences")
    for name in ("costPriority", "speedPriority", "intelligencePriority"):
        _optional_number(preferences, name, "modelPreferences")
    for index, hint in enumerate(_list(preferences, "hints", MAX_HINTS, "modelPreferences")):
        if not isinstance(hint, dict):
            raise Fault(f"modelPreferences.hints.{index}: must be an object")
        unambiguous(hint, _HINT, f"modelPreferences.hints.{index}")
        optional(hint, "name", str, "a string", f"modelPreferences.hints.{index}")


def _check_tools(node: Object) -> None:
    """Looked at in every revision, so that nobody behind meets tools of another type; whether they may come is the capability's question (R8)."""
    for index, tool in enumerate(_list(node, "tools", MAX_TOOLS, "")):
        if not isinstance(tool, dict):
            raise Fault(f"tools.{index}: must be an object")
        unambiguous(tool, _TOOL, f"tools.{index}")
        required(tool, "name", str, "a string", f"tools.{index}")
        required(tool, "inputSchema", dict, "an object", f"tools.{index}")
    optional(node, "toolChoice", dict, "an object", "")
    choice: Object = node.get("toolChoice", {})
    unambiguous(choice, _CHOICE, "toolChoice")
    if choice.get("mode", "auto") not in ("auto", "required", "none"):
        raise Fault("toolChoice.mode: must be auto, required or none")


def _is_url(node: Object, revision: str) -> bool:
    required(node, "message", str, "a string", "")
    mode = node.get("mode", "form")  # R30
    if mode not in ("form", "url") or (mode == "url" and not has_modes(revision)):
        raise Fault(f"mode: is none that {told(revision)} has")
    return bool(mode == "url")


def _check_form(node: Object) -> None:
    required(node, "requestedSchema", dict, "an object", "")
    schema: Object = node["requestedSchema"]
    unambiguous(schema, _SCHEMA, "requestedSchema")
    optional(schema, "properties", dict, "an object", "requestedSchema")
    if len(schema.get("properties", {})) > MAX_PROPERTIES:
        raise Fault(f"requestedSchema.properties: are more than {MAX_PROPERTIES}")
    names = _list(schema, "required", MAX_PROPERTIES, "requestedSchema")
    if not all(isinstance(name, str) for name in names):
        raise Fault("requestedSchema.required: must be a list of strings")


def _check_url(node: Object, revision: str) -> None:
    required(node, "url", str, "a string", "")
    if (fault := requested_url_error(node["url"])) is not None:
        raise Fault(f"url: {fault}")
    if revision == "2025-11-25":  # the only revision that has it (R40)
        required(node, "elicitationId", str, "a string", "")
