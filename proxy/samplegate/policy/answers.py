"""Pure. Fixed answers: the result of an ``answer`` rule, and whether a result fits its request.

Functions that build a result return it, or a sentence that gives the reason for none. The sentences name fields, never
values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from samplegate.policy.arguments import ARGUMENT, DEFAULT, path_of, source_of
from samplegate.policy.facts import ABSENT, UNKNOWN, Facts
from samplegate.policy.prompt import SampleFailed
from samplegate.policy.schema import AnswerRule, Rule
from samplegate.policy.script import Script, pick, reply
from samplegate.protocol import results
from samplegate.protocol.elicitation_schema import MISSING, Field, Form, NotFlat, check, read_form
from samplegate.protocol.frames import has_modes
from samplegate.protocol.requests import ElicitationRequest, Kind, Request, SamplingRequest
from samplegate.protocol.strictjson import plain_name, quoted_name
from samplegate.yamlfile import envfile

Environment = Mapping[str, str]
_whole: Final = re.compile(r"[+-]?[0-9]{1,100}\Z")
_ROLES: Final = ("assistant", "user")


def can_answer(rule: AnswerRule, class_: str) -> bool:
    """Whether a rule's answer suits a class of requests (``capabilities.Class``). A file of cases may also decline a
    URL."""
    if rule.cases is not None:
        return True
    return class_ != "elicitation by url" and is_content_for(
        rule.content, "sampling" if class_.startswith("sampling") else "elicitation"
    )


def takes_arguments(rule: Rule) -> bool:
    """Whether a rule answers with arguments of the call."""
    if not isinstance(rule, AnswerRule) or not isinstance(rule.content, dict):
        return False
    return any((source_of(value) or "").startswith(ARGUMENT) for value in rule.content.values())


def is_content_for(content: Any, kind: Kind) -> bool:
    """Whether an answer's content has the kind's form: text or blocks for sampling, values by field name for
    elicitation."""
    return content is None or isinstance(content, dict) if kind == "elicitation" else isinstance(content, (str, list))


def answer(
    rule: AnswerRule, facts: Facts, environment: Environment, script: Script | None = None
) -> Mapping[str, Any] | str:
    """The result of an ``answer`` rule for the request of ``facts``, or the reason for none. ``script`` is the file of
    a rule with ``cases``."""
    request = facts.request
    if rule.cases is not None:
        if script is None:
            return "its case file was not loaded"
        return _played(rule, request, script) if request.kind == "sampling" else _replied(facts, script)
    if not is_content_for(rule.content, request.kind):
        wanted = "text or content blocks" if request.kind == "sampling" else "a mapping of field names to values"
        return f"its content is not {wanted}, as {request.kind} requires"
    try:
        return (
            _sampled(rule, request, environment) if request.kind == "sampling" else _filled_in(rule, facts, environment)
        )
    except KeyError as unset:
        return f"the variable {unset.args[0]} is not set"


def _sampled(rule: AnswerRule, request: SamplingRequest, environment: Environment) -> Mapping[str, Any] | str:
    content = _filled(rule.content, environment)
    blocks = {"type": "text", "text": content} if isinstance(content, str) else content
    return _fitting(
        request, {"role": "assistant", "content": blocks, "model": f"samplegate/{rule.name}", "stopReason": "endTurn"}
    )


def _played(rule: AnswerRule, request: SamplingRequest, script: Script) -> Mapping[str, Any] | str:
    said = pick(script, rule.name, request.params, called=f"samplegate/{rule.name}").result
    if isinstance(said, SampleFailed):
        return (
            "no case in its file matches"
            if said.failure == "no_case"
            else f"the matching case has fail: {said.failure}"
        )
    return _fitting(
        request,
        {"role": "assistant", "content": list(said.content), "model": said.model, "stopReason": said.stop_reason},
    )


def _fitting(request: SamplingRequest, result: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """The result, or the reason why it does not fit the request."""
    blocks = result["content"]
    if not blocks or any(not _is_block(block) for block in _list(blocks)):
        return "its content is not a list of content blocks"
    shaped = results.sampling_result(result, request.origin.revision)
    if shaped is None:
        return f"its content cannot be sent with protocol version {plain_name(request.origin.revision)}"
    return answer_error(request, shaped) or result


def _filled(value: Any, environment: Environment) -> Any:
    """``value`` with the variables in all its texts replaced. Raises KeyError with the name of an unset one."""
    match value:
        case str():
            return envfile.fill(value, environment)
        case list():
            return [_filled(item, environment) for item in value]
        case dict():
            return {name: _filled(item, environment) for name, item in value.items()}
        case _:
            return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _replied(facts: Facts, script: Script) -> Mapping[str, Any] | str:
    """The result of a file of cases for an elicitation. Accepted values must fit the form like other content."""
    said = reply(script, facts.request.params)
    if said is None:
        return "no case in its file matches"
    if said.action != "accept":
        return {"action": said.action}
    return _filled_in(AnswerRule(name="", content=dict(said.values)), facts, None)


def _filled_in(rule: AnswerRule, facts: Facts, environment: Environment | None) -> Mapping[str, Any] | str:
    if facts.is_url:
        return "the gate never accepts a URL"  # R41, T12
    form = facts.form
    if isinstance(form, NotFlat):
        return f"the form is not flat: {form.why}"  # T16
    content = _values(rule, form, facts, environment)
    if isinstance(content, str):
        return content
    misfit = check(form, content)
    return f"its content does not fit the form: {misfit}" if misfit else {"action": "accept", "content": content}


def _values(rule: AnswerRule, form: Form, facts: Facts, environment: Environment | None) -> dict[str, Any] | str:
    """Values by field name, in the form's order. A field that looks secret gets none, whatever the rule gives (R39).
    Without an environment, variables stay as they are."""
    given: Mapping[str, Any] = rule.content or {}
    secret = facts.secret_fields
    values: dict[str, Any] = {}
    for field in form.fields:
        is_secret = field.name in secret and field.type != "boolean"  # a boolean cannot contain a secret
        if is_secret and (field.name in given or field.required):
            return f"field {quoted_name(field.name)} looks like a secret, and the gate never fills in secrets"
        if field.name in given:
            value = given[field.name]
            if environment is None:
                values[field.name] = value
            elif (source := source_of(value)) is None:
                values[field.name] = _typed(value, field, environment)
            else:
                found = _from(source, field, facts)
                if found is MISSING:
                    return f"field {quoted_name(field.name)} has no value, because {_why_missing(source)}"
                values[field.name] = found
        elif rule.defaults and not is_secret and field.default is not MISSING and field.default is not None:
            values[field.name] = field.default
        elif field.required:
            return f"the required field {quoted_name(field.name)} has no value"
    return values


def _from(source: str, field: Field, facts: Facts) -> Any:
    """The value of the form's own default, or of an argument on which all calls in flight that may be the one agree;
    MISSING without one. It is never converted, so it must have the field's type."""
    if source == DEFAULT:
        return MISSING if field.default is None else field.default
    path = path_of(source.removeprefix(ARGUMENT))
    found = [
        ABSENT if candidate.arguments is UNKNOWN else candidate.arguments.at(path)
        for candidate in facts.candidates(exactly=True)
    ]
    same = {(type(value), value) for value in found}
    return MISSING if len(same) != 1 or found[0] is ABSENT or found[0] is UNKNOWN else found[0]


def _why_missing(source: str) -> str:
    if source == DEFAULT:
        return "the form has no default for it"
    return f"{source} is not a single text, number or boolean of the call in flight"


def _typed(value: Any, field: Field, environment: Environment) -> Any:
    """A value of the rule. A value from the environment is converted to the field's type, and stays text if that
    fails."""
    filled = _filled(value, environment)
    if not isinstance(value, str) or not any(True for _ in envfile.names(value)):
        return filled
    match field.type:
        case "boolean":
            return {"true": True, "false": False}.get(filled.strip().lower(), filled)
        case "integer" | "number":
            return _number(filled.strip(), filled)
        case "multi_enum":
            return [part.strip() for part in filled.split(",") if part.strip()]
        case "string" | "enum":
            return filled


def _number(text: str, otherwise: str) -> int | float | str:
    if _whole.match(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return otherwise
    return number if math.isfinite(number) else otherwise


def answer_error(request: Request, result: Any) -> str | None:
    """Why a result from a client or a rule does not fit ``request`` (R34, R36, R6), None if it does. The sentence
    contains no value."""
    if not isinstance(result, dict):
        return "the result is not an object"
    return _fits_sampling(request, result) if request.kind == "sampling" else _fits_elicitation(request, result)


def _fits_elicitation(request: ElicitationRequest, result: Mapping[str, Any]) -> str | None:
    action, content = result.get("action"), result.get("content")
    if action in ("decline", "cancel"):
        return None
    if action != "accept":
        return "its action is not one of accept, decline, cancel"
    if request.mode == "url":
        return None if content is None else "it has content, but accepting a URL has none"
    form = read_form(request.params["requestedSchema"], request.origin.revision)
    if isinstance(form, NotFlat):
        return f"it cannot be checked, because the form is not flat: {form.why}"
    if content is not None and not isinstance(content, dict):
        return "its content is not an object"
    return check(form, content or {})


def _fits_sampling(request: SamplingRequest, result: Mapping[str, Any]) -> str | None:
    revision, content = request.origin.revision, result.get("content")
    if result.get("role") not in _ROLES or not isinstance(result.get("model"), str):
        return "its role or model is missing or invalid"
    if not isinstance(result.get("stopReason", ""), str):
        return "its stopReason is not a string"
    if isinstance(content, list) and not has_modes(revision):
        return f"its content is a list, which protocol version {plain_name(revision)} does not support"
    blocks = _list(content)
    if not all(_is_block(block) and block["type"] in _known(revision) for block in blocks):
        return f"its content is not supported by protocol version {plain_name(revision)}"
    return _fits_tools(request.params, [block["type"] for block in blocks])


def _known(revision: str) -> tuple[str, ...]:
    if has_modes(revision):
        return ("text", "image", "audio", "tool_use")
    return ("text", "image") if revision < "2025-03-26" else ("text", "image", "audio")


def _is_block(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    match block:
        case {"type": "text", "text": str()} | {"type": "image" | "audio", "data": str(), "mimeType": str()}:
            return True
        case {"type": "tool_use", "id": str(), "name": str(), "input": dict()}:
            return True
        case _:
            return False


def _fits_tools(params: Mapping[str, Any], types: list[str]) -> str | None:
    """Why the use of tools breaks ``toolChoice`` (R9), None if it does not."""
    mode = (params.get("toolChoice") or {}).get("mode", "auto")
    if "tool_use" in types and (not params.get("tools") or mode == "none"):
        return "it uses a tool, but none is allowed"
    return "it uses no tool, but one is required" if mode == "required" and "tool_use" not in types else None
