"""The problems of a verdict, each with the field of the page that it belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from samplegate.core.policy import Kind
from samplegate.web.fields import Entry

_NAMES: Final = {
    "edits.systemPrompt": ("edit.system", "System prompt"),
    "edits.model": ("edit.model", "Model"),
    "edits.maxTokens": ("edit.max_tokens", "Max tokens"),
    "edits.temperature": ("edit.temperature", "Temperature"),
    "reason": ("reason", "Reason"),
    "tell_server": ("reason", "Reason"),
    "digest": ("", "What was shown"),
    "action": ("", "Answer"),
}
_message: Final = re.compile(r"edits\.messages\.(\d+)(?:\.content)?(?:\.(\d+))?")
_part: Final = re.compile(r"content(?:\.(\d+))?(?:\.|\Z)")


class Wrong(msgspec.Struct, frozen=True):
    """One line of the summary."""

    anchor: str
    """The field's id; "" for none."""
    label: str
    what: str


def summary(problems: Mapping[str, str], kind: Kind, entries: Sequence[Entry]) -> tuple[Wrong, ...]:
    """All that is wrong, in the order in which it was found."""
    by_key = {f"content.{entry.key}": entry for entry in entries}
    return tuple(_wrong(path, what, kind, by_key) for path, what in problems.items())


def _wrong(path: str, what: str, kind: Kind, by_key: Mapping[str, Entry]) -> Wrong:
    if (entry := by_key.get(path)) is not None:
        return Wrong(entry.name, entry.label, what)
    label = _NAMES[path][1] if path in _NAMES else path.removeprefix("content.") if path.startswith("content") and kind == "elicitation" else ""
    return Wrong(field_of(path, kind), label, what)


def at(problems: Mapping[str, str], kind: Kind) -> dict[str, str]:
    """What is wrong with each field, by its id; where several things are, they are one sentence."""
    found: dict[str, str] = {}
    for path, what in problems.items():
        name = field_of(path, kind)
        found[name] = f"{found[name]}; {what}" if name in found else what
    return found


def field_of(path: str, kind: Kind) -> str:
    """The id of the field that a problem belongs to; "" where it has none."""
    if path in _NAMES:
        return _NAMES[path][0]
    if found := _message.match(path):
        return f"edit.text.{found[1]}.{found[2] or 0}"
    if (found := _part.match(path)) is None:
        return ""
    return "content" if kind == "elicitation" else f"answer.{found[1] or 0}"
