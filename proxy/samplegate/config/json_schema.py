"""The JSON Schema of the daemon's settings file, for editors.

It is derived from the definitions, and omits checks that JSON Schema cannot express.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from samplegate import SCHEMAS
from samplegate.config.identities import CallerSettings, PeopleSettings
from samplegate.config.serve_settings import SERVE_SETTINGS
from samplegate.config.servers import NAME, ServerEntry
from samplegate.config.settings import Setting

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema of the file for ``serve --settings``, as draft 2020-12."""
    (server, callers, people), definitions = msgspec.json.schema_components(
        [ServerEntry, CallerSettings, PeopleSettings],
        ref_template="#/$defs/{name}",
        schema_hook=lambda _: {"type": "string"},
    )
    for definition in definitions.values():
        definition["description"] = " ".join(definition["description"].split())  # a docstring, with line breaks
        definition["properties"] = {key: _bare(schema) for key, schema in definition["properties"].items()}
    names = {"pattern": "^" + NAME.pattern.replace(r"\Z", "$")}
    sections = {
        "servers": {"type": "object", "propertyNames": names, "additionalProperties": server},
        "callers": callers,
        "people": people,
    }
    properties = {
        name: {**sections.get(name, _plain(setting)), "description": setting.meta.description}
        for name, setting in SERVE_SETTINGS.items()
    }
    return {
        "$schema": _DIALECT,
        "$id": f"{SCHEMAS}settings",
        "title": "The settings of samplegate serve",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": definitions,
    }


def _plain(setting: Setting) -> dict[str, Any]:
    """The schema of a setting with a single value; a path is a string."""
    if setting.path or setting.section:
        return {"type": "string", "minLength": 1}
    return _bare(msgspec.json.schema(setting.type))


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without its default, and without the null that represents an absent key."""
    found = {key: value for key, value in schema.items() if key not in ("default", "anyOf")}
    only, *_ = [choice for choice in schema.get("anyOf", [{}]) if choice != {"type": "null"}]
    return {**found, **only}
