"""A tool's schema as it may leave: bounded in depth, size, and in what it grows to. Pure; no reference is followed off the schema.

A server writes it, and litellm writes every ``$ref`` out for some providers, without a bound: a dozen definitions that refer to each other twice
are gigabytes (R17).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from samplegate.sampler.parts import Unfit, whole

MAX_DEPTH: Final = 48  # deeper ones stop providers and recursing libraries alike
MAX_CHAIN: Final = 48  # references within references, likewise
MAX_GROWN: Final = 400_000  # characters and nodes of all of a request's tools, references written out; real ones have some thousands each
HEADER: Final = "x-mcp-header"
"""What MCP's HTTP puts into schemas; no provider's business (T25)."""


def fit(schema: Mapping[str, Any], at: str, most: int) -> tuple[dict[str, Any], int]:
    """A copy for a provider, and what is left of ``most`` after it; ``at`` is its place. Raises Unfit."""
    copy: dict[str, Any] = _copied(schema, at, MAX_DEPTH)
    left = most - _grown(copy, most)
    if left <= 0:
        raise Unfit(f"{at}: with its references written out it is too large; the server must send a simpler one, or fewer tools")
    return copy, left


def _copied(value: Any, at: str, depth: int) -> Any:
    if depth == 0:
        raise Unfit(f"{at}: it is deeper than {MAX_DEPTH}; the server must send a flatter one")
    if isinstance(value, Mapping):
        return {whole(str(key)): _copied(one, at, depth - 1) for key, one in value.items() if not (key == HEADER and isinstance(one, str))}
    if isinstance(value, list):
        return [_copied(one, at, depth - 1) for one in value]
    return whole(value) if isinstance(value, str) else value


def _grown(schema: Mapping[str, Any], most: int) -> int:
    """Its size, at least ``most`` where it is more, found by walking it as litellm does: a reference is known by its last word, and not followed
    inside itself.
    """
    targets: defaultdict[str, list[Any]] = defaultdict(list)
    for name, target in _definitions(schema):
        targets[name].append(target)
    size = 0
    todo: list[tuple[Any, frozenset[str]]] = [(schema, frozenset())]
    while todo and size < most:
        node, inside = todo.pop()
        size += 1
        if isinstance(node, str):
            size += len(node)
        elif isinstance(node, list):
            todo += [(one, inside) for one in node]
        elif isinstance(node, Mapping):
            size += sum(map(len, node))
            todo += [(one, inside) for one in node.values()]
            meant = _meant(node)
            if meant is not None and meant not in inside:
                if len(inside) == MAX_CHAIN:
                    return most
                todo += [(target, inside | {meant}) for target in targets.get(meant, ())]
    return size


def _meant(node: Mapping[str, Any]) -> str | None:
    reference = node.get("$ref")
    return reference.rpartition("/")[2] if isinstance(reference, str) else None


def _definitions(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every definition, wherever it stands."""
    todo: list[Any] = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo += node
        elif isinstance(node, Mapping):
            todo += node.values()
            for key in ("$defs", "definitions"):
                if isinstance(node.get(key), Mapping):
                    yield from node[key].items()
