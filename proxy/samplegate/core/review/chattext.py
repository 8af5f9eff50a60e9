"""Hostile text for a chat: nothing in it marks up, mentions, links or hides. Pure; what is said is chosen elsewhere (``views.py``)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

FENCE: Final = "```"
LEAST: Final = 200  # characters: in less nothing is said that helps
_entities: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_address: Final = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}):(?=//)|\b(mailto|tel|data|javascript|slack):(?=\S)|\b(www)\.(?=\S)")
_GAP: Final = "\u200b"
"""Between what a chat would take for a link or a fence: nobody sees it, and it is neither any more."""


def line(text: str, most: int) -> str:
    """One line of plain text of at most ``most`` characters, entities too."""
    return _cut(_shown(text, keep=""), most)


def preformatted(name: str, text: str, most: int) -> str | None:
    """A name of ours and the text between fences, at most ``most`` characters in all, entities and fences too; None if there is no room for it."""
    head = f"*{name}*\n{FENCE}\n"
    room = most - len(head) - len(FENCE) - 1
    if room < LEAST:
        return None
    shown = _shown(text, keep="\n\t").replace("`", f"`{_GAP}")
    return f"{head}{_cut(shown, room)}\n{FENCE}"


def _shown(text: str, keep: str) -> str:
    """Without what is not seen or turns the direction; addresses so that no chat makes links of them."""
    seen = "".join(c if c in keep or not _hidden(c) else " " if c in "\n\r\t" else "\ufffd" for c in text.replace("\r\n", "\n"))
    return _address.sub(lambda found: f"{found[0]}{_GAP}", seen)


def _hidden(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _cut(text: str, most: int) -> str:
    """Escaped, and at most ``most`` characters then, with a mark where something is missing; never half an entity."""
    out = "".join(_entities.get(c, c) for c in text[: most + 1])
    if len(out) <= most:
        return out
    note = f"… [{len(text)} characters]" if most >= LEAST else "…"
    kept, size = [], len(note)
    for c in text[:most]:
        piece = _entities.get(c, c)
        size += len(piece)
        if size > most:
            break
        kept.append(piece)
    return "".join(kept) + note
