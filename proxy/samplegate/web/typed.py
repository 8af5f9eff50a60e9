"""What a browser made of a text on its way through a form: line ends, NUL and the like. So an untouched field leaves what was asked untouched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Posted: TypeAlias = Mapping[str, Sequence[str]]
"""A form's fields; a name may come several times."""


def first(posted: Posted, name: str) -> str | None:
    """The field's value, None where the form does not have it."""
    values = posted.get(name)
    return values[0] if values else None


def unbroken(text: str) -> str:
    """With the line ends of this world: browsers send CRLF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def same(original: str, typed: str) -> bool:
    """Whether a field that was filled with ``original`` came back untouched."""
    return unbroken(original).replace("\0", "\ufffd") == unbroken(typed)


def kept(original: str, typed: str) -> str:
    """What stands in the field now: ``original`` to the letter where it is untouched."""
    return original if same(original, typed) else unbroken(typed)
