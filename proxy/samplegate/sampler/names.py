"""Names and ids on their way to a provider: safe, short, unique ones in place of the server's, and back again. Pure.

Tool names of servers hold dots, slashes and anything else; providers take letters, digits, ``_`` and ``-``, 64 of them. Ids of tool uses go
out by position, in the strictest form that a provider asks for (nine letters and digits).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

LONGEST: Final = 64
_SAFE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")


class Offer(msgspec.Struct, frozen=True):
    """What the answer is held against."""

    names: Mapping[str, str] = {}
    """The provider's name of each tool that may be used -> the server's; empty: none may."""
    required: bool = False
    """At least one must be used (R9)."""
    taken: tuple[str, ...] = ()
    """The ids of tool uses in the request: those of the answer are others (T27)."""


def aliases(names: Iterable[str]) -> dict[str, str]:
    """Every name -> the one that the provider sees: itself if it is safe, so that a safe name never loses it to another's alias."""
    wanted = list(dict.fromkeys(names))
    out = {name: name for name in wanted if _SAFE.match(name)}
    used = set(out)
    tried: Counter[str] = Counter()
    for name in wanted:
        if name not in out:
            out[name] = _free(_UNSAFE.sub("_", name)[:LONGEST], used, tried)
            used.add(out[name])
    return out


def positions(ids: Iterable[str]) -> dict[str, str]:
    """Every id of a tool use -> the one that the provider sees."""
    return {id: f"use{number:06d}" for number, id in enumerate(dict.fromkeys(ids), 1)}


def offer(value: Any) -> Offer:
    """An Offer as it came over the worker's pipe."""
    return msgspec.convert(value, Offer)


def _free(base: str, used: set[str], tried: Counter[str]) -> str:
    """The next that is free; ``tried`` keeps a server's ten thousand names of one form from being tried over and over."""
    head = base if _SAFE.match(base[:1]) else f"t_{base}"[:LONGEST]
    while True:
        tail = f"_{tried[head]}" if tried[head] else ""
        tried[head] += 1
        alias = head[: LONGEST - len(tail)] + tail
        if alias not in used:
            return alias
