"""One YAML scalar -> its value, by YAML 1.2's core schema. Whatever YAML 1.1 reads as something else is refused rather than guessed."""

from __future__ import annotations

import re
from typing import Any, Final

from samplegate.core.policyfile.tree import Plain, quoted

CORE: Final = "tag:yaml.org,2002:"
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_WORDS: Final[dict[str, Plain]] = {w: v for n, v in (("null", None), ("true", True), ("false", False)) for w in (n, n.title(), n.upper())}
_NOTHING: Final = frozenset({"", "~"})
_TWO_READINGS: Final = re.compile(
    r"(?:y|n|yes|no|on|off)\Z"
    r"|[-+]?0[0-9_]+(?:\.[0-9]*)?\Z|[-+]?0[ob][0-9_]+\Z|[-+]?0x[0-9a-f]*_[0-9a-f_]*\Z"  # octal, binary
    r"|[-+]?[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?\Z"  # 1_000
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z"  # base 60
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?\Z"  # dates
    r"|[-+]?\.(?:inf|nan)\Z",
    re.IGNORECASE,
)
LARGEST: Final = 2**63 - 1


def resolve(event: Any) -> Plain:
    """The value of a scalar by YAML 1.2's core schema. Raises ValueError for a tag or spelling that is not read here."""
    text: str = event.value
    if re.search("[\ud800-\udfff]", text):
        raise ValueError("half a character is escaped here; write the whole one")  # libyaml says so itself, PyYAML's own reader does not
    if event.tag == CORE + "str" or event.tag == "!" or event.implicit[1]:
        return text
    if event.tag is not None and event.tag not in {CORE + name for name in ("null", "bool", "int", "float")}:
        raise ValueError(f"tag {quoted(str(event.tag))} is not read here; remove it")
    if _TWO_READINGS.match(text):
        raise ValueError(
            f"{quoted(text)} means different things to different YAML readers; quote it for text, or write true, false or a plain number"
        )
    value = _number(text)
    if event.tag is not None and {"null": type(None), "bool": bool, "int": int, "float": float}[event.tag.removeprefix(CORE)] is not type(value):
        raise ValueError(f"{quoted(text)} is not what tag {quoted(event.tag)} says; remove the tag")
    return value


def _number(text: str) -> Plain:
    if text in _NOTHING or text in _WORDS:
        return _WORDS.get(text)
    if _INT.match(text) or _HEX.match(text):
        number = int(text, 0 if _HEX.match(text) else 10) if len(text) <= 20 else LARGEST + 1
        if abs(number) > LARGEST:
            raise ValueError(f"{quoted(text)} is too large a number; the largest is {LARGEST}")
        return number
    if _FLOAT.match(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError(f"{quoted(text)} is too large a number; write a smaller one")
        return value
    return text


def reread(text: str) -> Plain:
    """What text would be without its quotes; the text itself where that cannot be read."""
    try:
        return _number(text)
    except ValueError:
        return text
