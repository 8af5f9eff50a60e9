"""Text diffs for edits: the pieces of a text that stayed, were removed or were added.

Two texts that are too large to compare are removed and added as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal, NamedTuple, TypeAlias

MAX_PIECES: Final = 3_000  # words or lines that are compared; the time grows quadratically

What: TypeAlias = Literal["same", "gone", "new"]
_words: Final = re.compile(r"\s+|\w+(?:(?<=\d)[.,:](?=\d)\w+)*|[^\w\s]")  # 1,000.5 is one word
_lines: Final = re.compile(r"[^\n]*\n|[^\n]+")
_SIGNS: Final = frozenset(".,:")
"""Between digits they are part of a number."""
_KEPT: Final = 160
"""Characters of unchanged text on either side of a change."""


class Piece(NamedTuple):
    """A piece of a text."""

    what: What
    text: str


class ShownChange(NamedTuple):
    """The change of one field, under the field's label."""

    label: str
    pieces: tuple[Piece, ...]


def pieces(before: str, after: str) -> tuple[Piece, ...]:
    """The diff of two texts: all pieces but the new are ``before``, all but the gone are ``after``."""
    head = _whole_words(before, after, _common(before, after))
    tail = _common(before[head:][::-1], after[head:][::-1])
    tail = _whole_words(before[::-1], after[::-1], tail)
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    found = [Piece("same", before[:head]), *_compared(old, new), Piece("same", before[len(before) - tail :])]
    return tuple(_joined([piece for piece in found if piece.text]))


def shortened(found: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same pieces with the middle of long unchanged ones left out, so that the changes are easy to find."""
    return tuple(
        Piece("same", _cut(p.text, n > 0, n < len(found) - 1)) if p.what == "same" else p for n, p in enumerate(found)
    )


def _cut(text: str, before: bool, after: bool) -> str:
    kept = (text[:_KEPT] if before else "") + "\n[...]\n" + (text[-_KEPT:] if after else "")
    return kept if len(kept) < len(text) else text


def _common(one: str, other: str) -> int:
    """The length of the common prefix. A binary search, because the texts may be large."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _whole_words(one: str, other: str, count: int) -> int:
    """The largest position up to ``count`` that cuts no word of either text."""
    while count and (_is_within(one, count) or _is_within(other, count)):
        count -= 1
    return count


def _is_within(text: str, at: int) -> bool:
    """Whether a word or a number continues across this position; the same for reversed texts."""
    before, after = text[at - 1 : at], text[at : at + 1]
    if _is_letter(before) and _is_letter(after):
        return True
    if after in _SIGNS:
        return before.isdigit() and text[at + 1 : at + 2].isdigit()
    return before in _SIGNS and after.isdigit() and text[max(0, at - 2) : at - 1].isdigit()


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "_"


def _compared(old: str, new: str) -> list[Piece]:
    for split in (_words, _lines):
        ours, theirs = split.findall(old), split.findall(new)
        if len(ours) + len(theirs) <= MAX_PIECES:
            return _matched(ours, theirs)
    return [Piece("gone", old), Piece("new", new)]


def _matched(old: list[str], new: list[str]) -> list[Piece]:
    out: list[Piece] = []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=True).get_opcodes():
        if tag == "equal":
            out.append(Piece("same", "".join(old[a:b])))
        else:
            out += [Piece("gone", "".join(old[a:b])), Piece("new", "".join(new[c:d]))]
    return out


def _joined(found: Sequence[Piece]) -> list[Piece]:
    out: list[Piece] = []
    for piece in found:
        if out and out[-1].what == piece.what:
            out[-1] = Piece(piece.what, out[-1].text + piece.text)
        else:
            out.append(piece)
    return out


def of_edits(params: Mapping[str, Any], model: str, edits: Mapping[str, Any]) -> list[ShownChange]:
    """The changes by ``edits`` (as in a verdict) to a sampling request, whose model would have been ``model``."""
    names = {"model": "Model", "systemPrompt": "System prompt", "maxTokens": "Max tokens", "temperature": "Temperature"}
    now = {"model": model, **params}
    changes: list[ShownChange] = []
    for name, label in names.items():
        if name in edits:
            changes.append((_change if name == "systemPrompt" else _other)(label, now.get(name), edits[name]))
    for number, (old, new) in enumerate(zip(params.get("messages", ()), edits.get("messages", ()), strict=False), 1):
        changes += of_content(old.get("content"), new.get("content"), f"Message {number}")
    return changes


def of_content(old: Any, new: Any, label: str) -> list[ShownChange]:
    """The changes between two contents with the same blocks."""
    ours, theirs = (content if isinstance(content, list | tuple) else [content] for content in (old, new))
    places = [label if len(ours) == 1 else f"{label}, part {n}" for n in range(1, len(ours) + 1)]
    return [
        _change(place, a.get("text"), b.get("text"))
        for place, a, b in zip(places, ours, theirs, strict=False)
        if a != b
    ]


def _change(label: str, old: object, new: object) -> ShownChange:
    return ShownChange(label, pieces("" if old is None else str(old), "" if new is None else str(new)))


def _other(label: str, old: object, new: object) -> ShownChange:
    """A replaced value. Numbers are replaced whole, never in part."""
    gone = () if old is None else (Piece("gone", str(old)),)
    return ShownChange(label, (*gone, Piece("new", str(new))))
