"""Pure. JSON Schema of the policy, for editors. Only the loader checks the rest: references to names, expressions,
times."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from samplegate import SCHEMAS
from samplegate.policy.catalogue import SCRIPTED
from samplegate.policy.file.checks import MAX_NAME, MAX_RULES
from samplegate.policy.file.limit_checks import AMOUNTS, CALENDAR
from samplegate.policy.file.model_checks import VARIABLE_NAME
from samplegate.policy.file.reviewer_checks import ADDRESSES, AUTHORIZATION, BODIES, KEYS, OLD_KEYS
from samplegate.policy.file.rule_checks import ELICITATION_ONLY, FORM_ONLY, MAY_BE_EMPTY, SAMPLING_ONLY, URL_ONLY
from samplegate.policy.schema import Policy

EFFECT: Final = "What happens to a request that the rule matches."
"""Description of the tag key ``effect``, which is not a field."""
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema of a policy file, draft 2020-12: the schema of the structs, and those checks that a schema can
    express."""
    schema = without_null(msgspec.json.schema(Policy))
    structs = schema["$defs"]
    _names(structs)
    _numbers(structs)
    _match(structs["Match"])
    _rules(structs)
    _models(structs["Model"])
    _limits(structs)
    _reviewers(structs)
    return {"$schema": _DIALECT, "$id": f"{SCHEMAS}policy", "title": "samplegate policy", **schema}


def without_null(schema: Any) -> Any:
    """A schema without null, which the loader does not accept. Descriptions come last and have no line breaks."""
    if isinstance(schema, list):
        return [without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: without_null(value) for key, value in schema.items() if not (key == "default" and value is None)}
    if "anyOf" in out:
        out["anyOf"] = [choice for choice in out["anyOf"] if choice != {"type": "null"}]
        if len(out["anyOf"]) == 1:
            out = {**{key: value for key, value in out.items() if key != "anyOf"}, **out["anyOf"][0]}
    if "properties" in out and isinstance(out.get("description"), str):  # a struct's docstring, with line breaks
        out["description"] = " ".join(out["description"].split())
    elif "description" in out:  # a key's description follows its type
        out["description"] = out.pop("description")
    return out


def _names(structs: dict[str, Any]) -> None:
    for name in ("Model", "AllowRule", "AnswerRule", "ForwardRule", "EscalateRule", "DenyRule"):
        structs[name]["properties"]["name"] |= {"minLength": 1, "maxLength": MAX_NAME}
    policy = structs["Policy"]["properties"]
    policy["rules"]["maxItems"] = MAX_RULES
    policy["hints"]["propertyNames"] = {"minLength": 1}
    for table in ("limits", "reviewers"):
        policy[table]["propertyNames"] = {"minLength": 1, "maxLength": MAX_NAME}
    policy["servers"]["propertyNames"] = {"minLength": 1, "maxLength": MAX_NAME, "pattern": r"^[^*?\[]*$"}
    policy["hints"]["additionalProperties"] = _filled(policy["hints"]["additionalProperties"])
    structs["With"]["properties"]["models"]["minItems"] = 1


def _filled(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without empty lists and texts."""
    out = dict(schema)
    if out.get("type") == "array":
        out |= {"minItems": 1, "items": _filled(out["items"])}
    elif out.get("type") == "string":
        out["minLength"] = 1
    if "anyOf" in out:
        out["anyOf"] = [_filled(choice) for choice in out["anyOf"]]
    return out


def _numbers(structs: dict[str, Any]) -> None:
    for name in ("Range", "Temperature"):
        structs[name]["minProperties"] = 1
    for end in structs["Range"]["properties"].values():
        end["minimum"] = 0


def _match(match: dict[str, Any]) -> None:
    match["properties"] = {
        name: value if name in MAY_BE_EMPTY else _filled(value) for name, value in match["properties"].items()
    }
    match["properties"]["not"] = {"allOf": [match["properties"]["not"]], "minProperties": 1}
    match["allOf"] = [
        _if({"kind": {"const": "sampling"}}, _without(ELICITATION_ONLY)),
        _if({"kind": {"const": "elicitation"}}, _without(SAMPLING_ONLY)),
        _if({"mode": {"enum": ["url", ["url"]]}}, _without(FORM_ONLY)),
        _if({"mode": {"enum": ["form", ["form"]]}}, _without(URL_ONLY)),
    ]


def _if(properties: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    return {"if": {"properties": properties, "required": list(properties)}, "then": then}


def _without(names: tuple[str, ...]) -> dict[str, Any]:
    return {"properties": dict.fromkeys(names, False)}


def _asks(kind: str) -> dict[str, Any]:
    return {"match": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}}


def _rules(structs: dict[str, Any]) -> None:
    for name in ("AllowRule", "AnswerRule", "ForwardRule", "EscalateRule", "DenyRule"):
        structs[name]["properties"]["effect"]["description"] = EFFECT
    structs["AllowRule"]["allOf"] = [{"properties": _asks("sampling"), "required": ["match"]}]
    elicitation: dict[str, Any] = {"match": {"anyOf": [_asks("elicitation")["match"], {"required": ["mode"]}]}}
    structs["EscalateRule"]["allOf"] = [
        {"if": {"properties": elicitation, "required": ["match"]}, "then": _without(("with", "review_answer"))}
    ]
    structs["AllowRule"]["dependentRequired"] = {"show": ["review_answer"]}
    structs["DenyRule"]["allOf"] = [_if(_asks("sampling"), _without(("as",)))]
    block = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": ["text", "image", "audio", "tool_use"]}},
    }
    text_or_blocks = {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": block}]}
    source = {
        "type": "object",
        "properties": {"from": {"type": "string", "pattern": "^(default|arguments\\..+)$"}},
        "required": ["from"],
        "additionalProperties": False,
    }
    plain = [{"type": ["string", "number", "boolean"]}, {"type": "array", "items": {"type": "string"}}]
    value = {"anyOf": [*plain, source]}
    form = {"type": "object", "additionalProperties": value}
    defaults = {"properties": {"defaults": {"const": True}}, "required": ["defaults"]}
    form_only: dict[str, Any] = {"properties": {"mode": {"enum": ["form", ["form"]]}}}
    literal = [
        {"properties": {"match": {"required": ["kind"]}}, "required": ["match"]},
        _if(_asks("sampling"), {"properties": {"content": text_or_blocks, "defaults": False}, "required": ["content"]}),
        _if(
            _asks("elicitation"),
            {"properties": {"content": form, "match": form_only}, "anyOf": [{"required": ["content"]}, defaults]},
        ),
    ]
    structs["AnswerRule"]["properties"]["cases"]["minLength"] = 1
    structs["AnswerRule"]["allOf"] = [
        {**_if({"cases": {}}, _without(("content", "defaults"))), "else": {"allOf": literal}}
    ]


def _models(model: dict[str, Any]) -> None:
    model["properties"]["model"]["minLength"] = 1
    model["properties"]["api_key_env"]["pattern"] = f"^{VARIABLE_NAME.pattern.removesuffix(chr(92) + 'Z')}$"
    model["properties"]["cases"]["minLength"] = 1
    here = {"model": {"const": SCRIPTED}}
    model["allOf"] = [
        {
            **_if(here, {"required": ["cases"], **_without(("api_base", "api_key_env", "api_key_file", "warm"))}),
            "else": _without(("cases",)),
        },
        {"not": {"required": ["api_key_env", "api_key_file"]}},
    ]


def _limits(structs: dict[str, Any]) -> None:
    limit = structs["Limit"]
    limit["properties"]["by"]["uniqueItems"] = True
    limit["oneOf"] = [{"required": [amount]} for amount in AMOUNTS]
    limit["allOf"] = [
        {**_if({"concurrent": {}}, _without(("per", "warn_at"))), "else": {"required": ["per"]}},
        {**_if({"per": {"enum": list(CALENDAR)}}, {"required": ["tz"]}), "else": _without(("tz",))},
    ]
    structs["Brakes"]["anyOf"] = [{"required": [name]} for name in ("requests_per_call", "repeats")]
    for rule in ("AllowRule", "AnswerRule", "ForwardRule", "EscalateRule"):
        structs[rule]["properties"]["limits"] |= {"minItems": 1, "uniqueItems": True}


def _reviewers(structs: dict[str, Any]) -> None:
    structs["Reviewer"]["properties"]["command"] |= {"minItems": 1}
    webhook = structs["Webhook"]
    for key in ("url_env", "secret_env", "old_secret_env", "authorization_env"):
        webhook["properties"][key]["pattern"] = f"^{VARIABLE_NAME.pattern.removesuffix(chr(92) + 'Z')}$"
    for key in ("url_file", "secret_file", "old_secret_file", "authorization_file"):
        webhook["properties"][key]["minLength"] = 1
    webhook["oneOf"] = [{"required": [key]} for key in ADDRESSES]
    signed = {"oneOf": [{"required": [key]} for key in KEYS], "not": {"required": list(OLD_KEYS)}}
    own = {"required": ["body"], **_without(OLD_KEYS)}
    plain = _without((*BODIES, *AUTHORIZATION))
    webhook["allOf"] = [
        {**_if({"format": {"const": "slack"}}, _without((*KEYS, *OLD_KEYS)))},
        {**_if({"format": {"const": "json"}}, own), "else": plain},
        {"anyOf": [{"required": ["format"], "properties": {"format": {"enum": ["slack", "json"]}}}, signed]},
    ]
