"""How large a tool's schema becomes where its references are written out, as is done for some providers. Pure; an upper bound, in linear time.

A dozen definitions that refer to each other twice are gigabytes. Such a schema is not sent (``sampler/request.py``), so ``MOST`` is the end of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

MOST: Final = 400_000
"""Characters of all tools of a request: more is never sent."""
_CHAIN: Final = 48  # references within references; with more it is not sent either
_STEPS: Final = 20_000
"""References that are followed in one schema, each to every definition of its name: with more it counts as ``MOST``. Real ones have hundreds."""
_AROUND: Final = 6  # the quotes, colon, comma and spaces of a member

_Use: TypeAlias = str | int
"""A definition that is referred to, by its last word, or that stands within another, by its number."""


class _Definitions(msgspec.Struct):
    """The schema itself is number 0; each definition has its own size, without those within it, and what it uses."""

    sizes: list[int]
    uses: list[list[_Use]]
    names: dict[str, list[int]]
    left: int = _STEPS


def grown(schema: Mapping[str, Any]) -> int:
    """Characters of its JSON at most; ``MOST`` where it is more, or definitions refer to each other in a circle."""
    found = _definitions(schema)
    return _total(found, 0, {}, 0)


def _definitions(schema: Mapping[str, Any]) -> _Definitions:
    found = _Definitions([0], [[]], {})
    todo: list[tuple[Any, int]] = [(schema, 0)]
    while todo:
        node, owner = todo.pop()
        if isinstance(node, Mapping):
            found.sizes[owner] += 2 + sum(len(key) + _AROUND for key in node)
            reference = node.get("$ref")
            if isinstance(reference, str):
                found.uses[owner].append(reference.rpartition("/")[2])
            for key, value in node.items():
                if key in ("$defs", "definitions") and isinstance(value, Mapping):
                    todo += [(target, _added(found, owner, name)) for name, target in value.items()]
                else:
                    todo.append((value, owner))
        elif isinstance(node, list):
            found.sizes[owner] += 2 + 2 * len(node)
            todo += [(item, owner) for item in node]
        else:
            found.sizes[owner] += len(msgspec.json.encode(node))
    return found


def _added(found: _Definitions, owner: int, name: str) -> int:
    number = len(found.sizes)
    found.sizes.append(len(name) + _AROUND)
    found.uses.append([])
    found.uses[owner].append(number)
    found.names.setdefault(name, []).append(number)
    return number


def _total(found: _Definitions, number: int, known: dict[int, int], depth: int) -> int:
    if number in known:
        return known[number]
    if depth > _CHAIN:
        return MOST
    known[number] = MOST  # what is met again on its own way goes in a circle
    size, itself = found.sizes[number], 0
    for use in found.uses[number]:
        targets = (use,) if isinstance(use, int) else found.names.get(use, ())
        found.left -= len(targets)
        if found.left < 0:
            return MOST
        for target in targets:
            if target == number:
                itself += 1
            else:
                size += _total(found, target, known, depth + 1)
        if size >= MOST:
            return MOST
    known[number] = min(size * (1 + itself), MOST)  # a definition is written out within itself, but not within that again
    return known[number]
