"""The HTTP headers that mirror a frame of 2026-07-28: what they are, how values are written in them, and whether they fit the body (R71 to R73).

Not the ``Mcp-Param`` headers of tools' arguments (``toolheaders``), and nothing to decide by: policy reads the body alone (R75).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Final

from samplegate.core import jsontext
from samplegate.core.eras import META_VERSION
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed

VERSION: Final = "MCP-Protocol-Version"
METHOD: Final = "Mcp-Method"
NAME: Final = "Mcp-Name"
MISMATCH: Final = -32020
"""HeaderMismatch; its HTTP status is 400 (R73, R76)."""
NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Methods with an ``Mcp-Name``, and the member of their params that it mirrors (R71)."""
_PREFIX: Final = "=?base64?"
_SUFFIX: Final = "?="
_plain: Final = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_field_value: Final = re.compile(r"[\t -~]*")


def encode(value: str) -> str:
    """A text as a header's value: as it is, or in base64 where it would not come out as it went in (R72).

    Raises UnicodeEncodeError for half a character, which no header can carry.
    """
    if _plain.fullmatch(value) and not _looks_encoded(value):
        return value
    return _PREFIX + base64.b64encode(value.encode()).decode("ascii") + _SUFFIX


def decode(value: str) -> str | None:
    """The text that a header's value stands for; None where no writer that keeps to R72 would have written it."""
    if not _field_value.fullmatch(value):
        return None
    if not _looks_encoded(value):
        return value
    inner = value[len(_PREFIX) : -len(_SUFFIX)]
    try:
        text = base64.b64decode(inner, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    # one text has one spelling: bits that base64 leaves over, or a prefix and suffix that share their question mark, are another's reading
    return text if value == _PREFIX + base64.b64encode(text.encode()).decode("ascii") + _SUFFIX else None


def _looks_encoded(value: str) -> bool:
    return value.startswith(_PREFIX) and value.endswith(_SUFFIX)


def standard(method: str, params: jsontext.Object, version: str) -> dict[str, str]:
    """The headers of a POST of a request or notification (R71); no ``Mcp-Name`` where its member is absent or no text.

    A method or version that is not plain ASCII is encoded too, so that it cannot break out of its line: no server takes it. Raises
    jsontext.Malformed for params of two readings.
    """
    out = {VERSION: _written(version), METHOD: _written(method)}
    name = _named(method, params)
    if name is not None:
        out[NAME] = _written(name)
    return out


def _written(value: str) -> str:
    return encode(value.encode("utf-8", "replace").decode())


def _named(method: str, params: jsontext.Object) -> str | None:
    """What ``Mcp-Name`` mirrors."""
    member = NAMED.get(method)
    return None if member is None else jsontext.string(params.raw(member))


def gathered(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """Headers as ASGI gives them, by name in lower case: names have no case, values do (R72)."""
    out: dict[str, list[str]] = {}
    for name, value in headers:
        out.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip(" \t"))
    return out


def check(headers: Iterable[tuple[bytes, bytes]], frame: Frame) -> str | None:
    """Why the headers of a POST do not match its body (R73), None if they do. For the message of a MISMATCH error; no value of the body is in it.

    ``headers`` as ASGI gives them. A request must have those of R71; of a notification only those that are there count, since the
    specification asks for none.
    """
    found = gathered(headers)
    try:
        version, name = _version(frame), _named(frame.method, frame.object)
    except Malformed as problem:
        return problem.fault
    request = frame.kind == "request"
    return (
        _differs(found, VERSION, version, needed=request, encoded=False)
        or _differs(found, METHOD, frame.method, needed=request, encoded=False)
        or (_differs(found, NAME, name, needed=request and name is not None, encoded=True) if frame.method in NAMED else None)
    )


def _version(frame: Frame) -> str | None:
    return jsontext.string(frame.meta.raw(META_VERSION))


def _differs(found: Mapping[str, list[str]], header: str, value: str | None, *, needed: bool, encoded: bool) -> str | None:
    values = found.get(header.lower(), [])
    if len(values) > 1:
        return f"the header {header} stands {len(values)} times"
    if not values:
        return f"the header {header} is missing" if needed else None
    if value is None and not encoded and not needed:
        return None  # a notification says no version
    text = decode(values[0]) if encoded else values[0]
    if text is None or not _field_value.fullmatch(values[0]):
        return f"the header {header} cannot be decoded"
    return None if text == value else f"the header {header} does not match the body"
