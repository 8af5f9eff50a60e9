"""The JSON Schema of the ``*_test.yaml`` file, for editors. What a schema cannot say (time that runs backwards, names twice) the loader checks."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from samplegate.core.policyfile.schema import without_null
from samplegate.core.trials.contradictions import OF_STEPS, REQUESTS
from samplegate.core.trials.descriptions import describe
from samplegate.core.trials.suite import Suite

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Draft 2020-12: that of the structs, and as much of the contradictions as a schema can say."""
    schema: dict[str, Any] = without_null(msgspec.json.schema(Suite))
    structs = schema["$defs"]
    for name, struct in structs.items():
        for key in struct["properties"]:
            struct["properties"][key] = {**struct["properties"][key], "description": describe(name, key)}
    structs["Suite"]["properties"]["cases"]["minItems"] = 1
    _case(structs["Case"])
    structs["Step"]["allOf"] = [_at_most_one(REQUESTS)]
    structs["Sampling"]["allOf"] = [{"oneOf": _required("text", "messages")}, _at_most_one(("hints", "modelPreferences"))]
    structs["Said"]["oneOf"] = _required("answer", "edits")
    structs["Elicitation"]["allOf"] = [_at_most_one(("url", "fields")), _at_most_one(("url", "required"))]
    return {"$schema": _DIALECT, "title": "samplegate policy tests", **schema}


def _case(case: dict[str, Any]) -> None:
    """With steps or as one request."""
    case["properties"]["steps"]["minItems"] = 1
    case["if"] = {"required": ["steps"]}
    case["then"] = {"allOf": [{"properties": dict.fromkeys(OF_STEPS, False)}, _at_most_one(REQUESTS)]}
    case["else"] = {"required": ["expect"], "oneOf": _required(*REQUESTS)}


def _required(*names: str) -> list[dict[str, Any]]:
    return [{"required": [name]} for name in names]


def _at_most_one(names: tuple[str, ...]) -> dict[str, Any]:
    pairs = [[one, other] for index, one in enumerate(names) for other in names[index + 1 :]]
    return {"not": {"anyOf": [{"required": pair} for pair in pairs]}}
