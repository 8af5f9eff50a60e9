"""Inlining references in schemas: the result stays within its bound, and this takes little time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.cost import MAX_TOOL_CHARACTERS, expanded_size
from samplegate.sampler.worker import request
from samplegate.sampler.worker.request import UnsupportedRequest


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object"}, {"enum": ["a", 1, None, 1.5, True, "é"]}, {"a": {"b": [{"c": "d"}, []]}}]
)
def test_without_references_it_is_as_long_as_it_is_written(schema: dict[str, Any]) -> None:
    assert len(json.dumps(schema, ensure_ascii=False)) <= expanded_size(schema) <= 2 * len(json.dumps(schema)) + 10


def test_each_reference_counts_for_what_it_refers_to() -> None:
    large = {"description": "x" * 1000}
    once = expanded_size({"$defs": {"a": large}, "properties": {"p": ref("a")}})
    assert 2000 <= once <= 2200
    assert (
        once + 3 * 1000
        <= expanded_size({"$defs": {"a": large}, "properties": {name: ref("a") for name in "pqrs"}})
        <= once + 3 * 1100
    )


def test_a_definition_that_names_itself_is_not_endless() -> None:
    tree = {"$defs": {"node": {"properties": {"left": ref("node"), "right": ref("node")}}}, **ref("node")}
    assert 100 < expanded_size(tree) < 1000


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"a": {"x": ref("b")}, "b": {"x": ref("a")}}, **ref("a")},
        {"$defs": {f"d{n}": {"x": ref(f"d{n + 1}"), "y": ref(f"d{n + 1}")} for n in range(40)}, **ref("d0")},
        {"$defs": {f"d{n}": ref(f"d{n + 1}") for n in range(5000)}, **ref("d0")},
        {"description": "x" * MAX_TOOL_CHARACTERS, **ref("a"), "$defs": {"a": {}}},
    ],
    ids=["a circle", "doubling", "a long chain", "a long text"],
)
def test_what_is_never_sent_is_the_most_and_found_in_a_moment(schema: dict[str, Any]) -> None:
    start = time.thread_time()
    assert expanded_size(schema) >= MAX_TOOL_CHARACTERS
    assert time.thread_time() - start < 1


LEAF = st.dictionaries(st.sampled_from(["type", "title"]), st.text(max_size=5), max_size=2) | st.sampled_from(
    [ref(name) for name in "abcd"]
)
NODES = st.recursive(
    LEAF,
    lambda inner: st.dictionaries(
        st.sampled_from(["x", "y", "items"]), inner | st.lists(inner, max_size=3), max_size=3
    ),
    max_leaves=6,
)


@given(NODES, st.dictionaries(st.sampled_from("abcd"), NODES, max_size=4))
def test_it_is_no_less_than_what_the_sampler_finds_before_it_sends(node: dict[str, Any], defs: dict[str, Any]) -> None:
    schema = {"properties": {"p": node}, "$defs": defs}
    try:
        _, left = request.provider_schema(schema, "at", MAX_TOOL_CHARACTERS)
    except UnsupportedRequest:
        return
    assert expanded_size(schema) >= MAX_TOOL_CHARACTERS - left
