"""A tool's schema is bounded before it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.sampler.worker.request import MAX_DEPTH, MAX_EXPANDED, UnsupportedRequest, provider_schema


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def doubling(definitions: int, key: str = "$defs", reference: str = "#/$defs/{}") -> dict[str, Any]:
    """A schema in which each definition refers to the next one twice."""
    pairs = {f"d{n}": {"anyOf": [{"$ref": reference.format(f"d{n + 1}")}] * 2} for n in range(definitions)}
    return {
        "properties": {"a": {"$ref": reference.format("d0")}},
        key: {**pairs, f"d{definitions}": {"type": "string"}},
    }


def test_an_ordinary_schema_goes_as_it_is_but_for_header_names() -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/x", "x-mcp-header": "X"}, "x-mcp-header": {"type": "string"}},
        "$defs": {"x": {"enum": ["a", 1, None]}},
    }
    copy, left = provider_schema(schema, "here", MAX_EXPANDED)

    assert {**schema, "properties": {"x": {"$ref": "#/$defs/x"}, "x-mcp-header": {"type": "string"}}} == copy
    assert 0 < left < MAX_EXPANDED


def test_a_schema_that_refers_to_itself_is_taken() -> None:
    tree = {
        "$ref": "#/$defs/tree",
        "$defs": {"tree": {"properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}}}},
    }

    assert tree == provider_schema(tree, "here", MAX_EXPANDED)[0]


MOST = 20_000


@pytest.mark.parametrize(
    "schema",
    [
        deep(MAX_DEPTH),
        doubling(20),
        doubling(20, "definitions", "#/definitions/{}"),
        doubling(20, reference="http://evil/{}"),
        {"description": "x" * MOST},
        {"enum": list(range(MOST))},
        {"$ref": "#/$defs/d0", "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(100)}},
        {"anyOf": [{"$ref": "#/$defs/a"}] * 10_000, "$defs": {"a": {"const": "x" * 10_000}}},
    ],
    ids=["deep", "doubling", "old-keyword", "elsewhere", "long", "wide", "chain", "long-often"],
)
def test_what_would_grow_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedRequest, match=r"here: "):
        provider_schema(schema, "here", MOST)


def test_what_is_left_shrinks_from_tool_to_tool() -> None:
    _, left = provider_schema({"description": "x" * 100}, "here", 150)

    with pytest.raises(UnsupportedRequest):
        provider_schema({"description": "x" * 100}, "there", left)
