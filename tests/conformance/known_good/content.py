"""The content of the known-good server: bytes, texts and schemas that the suite's descriptions name. No behavior."""

from __future__ import annotations

import base64
import io
import struct
import wave
import zlib
from typing import Any, Final


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _pixel() -> bytes:
    """A red PNG of one pixel."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
        + _chunk(b"IEND", b"")
    )


def _silence() -> bytes:
    """A WAV file of four silent samples."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 1, 8000, 0, "NONE", ""))
        sound.writeframes(b"\x80" * 4)
    return file.getvalue()


PIXEL: Final = base64.b64encode(_pixel()).decode()
SILENCE: Final = base64.b64encode(_silence()).decode()

TEXT: Final = {"type": "string"}
NAME: Final = {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}
COLOR: Final = {"type": "object", "properties": {"color": TEXT}, "required": ["color"]}
CONTEXT: Final = {"type": "object", "properties": {"context": TEXT}, "required": ["context"]}
OK: Final = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
USER: Final = {"type": "object", "properties": {"username": TEXT, "email": TEXT}, "required": ["username", "email"]}

DEFAULTS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}


def _titled(*values: str) -> list[dict[str, str]]:
    return [{"const": value, "title": value.capitalize()} for value in values]


ENUMS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2"]},
        "titledSingle": {"type": "string", "oneOf": _titled("value1", "value2")},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": _titled("value1", "value2")}},
    },
}

# Every keyword that the suite wants to find again in tools/list (SEP-1613, SEP-2106).
WIDE_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": TEXT, "city": TEXT}}},
    "properties": {
        "name": TEXT,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": TEXT,
        "email": TEXT,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
