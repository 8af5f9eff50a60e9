"""The texts of a sampling review that a person can edit, as fields. Not what was made of them (``forms.py``)."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core.review.review import Review
from samplegate.web.forms import texts

MAX_EDITED: Final = 150_000  # characters of one form: up to three bytes each on the way back, and the listener takes 1 MiB
MAX_EDITORS: Final = 200


class Editor(msgspec.Struct, frozen=True):
    """One text."""

    name: str
    label: str
    text: str


def editors(review: Review) -> tuple[Editor, ...]:
    """The texts of the messages, as far as they fit into a form."""
    if review.bounds is None:
        return ()
    found = [
        Editor(f"edit.text.{m}.{b}", f"Message {m + 1}{f', part {b + 1}' if b else ''} ({message.get('role')})", text)
        for m, message in enumerate(review.params.get("messages", ()))
        for b, text in texts(message.get("content"))
    ]
    return _fitting(found)


def answers(review: Review) -> tuple[Editor, ...]:
    """The texts of a model's answer; an empty one where a person is to write it."""
    if review.answer is None:
        return (Editor("answer.0", "Your answer", ""),)
    found = list(texts(review.answer.get("content")))
    return _fitting([Editor(f"answer.{b}", f"Part {b + 1}" if len(found) > 1 else "The answer", text) for b, text in found])


def _fitting(found: list[Editor]) -> tuple[Editor, ...]:
    kept: list[Editor] = []
    left = MAX_EDITED
    for editor in found[:MAX_EDITORS]:
        left -= len(editor.text)
        if left >= 0:
            kept.append(editor)
    return tuple(kept)
