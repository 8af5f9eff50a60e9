"""Digests that verdicts are bound to: equal requests have the same digest, and any difference that changes the effect
changes the digest."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.protocol.requests import Call, Origin
from samplegate.reviews.create import call_digest, calls_digest, digest
from tests.fakes.reviews import said

GIVEN: dict[str, Any] = {
    "server": "docs",
    "caller": "local",
    "method": "sampling/createMessage",
    "calls": (Call("tools/call", "purge"),),
    "reviewer": "ops",
    "params": {"messages": [said("a")], "maxTokens": 5},
    "models": ("smart", "cheap"),
    "answer": None,
}


def bound(**other: Any) -> str:
    given: dict[str, Any] = GIVEN | other
    return digest(**given)


@pytest.mark.parametrize(
    "other",
    [
        {"server": "other"},
        {"caller": "other"},
        {"method": "elicitation/create"},
        {"calls": ()},
        {"calls": (Call("tools/call", "other"),)},
        {"calls": (Call("prompts/get", "purge"),)},
        {"during": call_digest(b'{"name":"purge","arguments":{"what":"production"}}')},
        {"reviewer": "other"},
        {"params": {"messages": [said("b")], "maxTokens": 5}},
        {"params": {"messages": [said("a")], "maxTokens": 6}},
        {"params": {"messages": [said("a")], "maxTokens": 5, "temperature": 0}},
        {"models": ("cheap", "smart")},
        {"models": ("smart",)},
        {"answer": {}},
    ],
)
def test_anything_else_has_another_digest(other: dict[str, Any]) -> None:
    assert bound() != bound(**other)


def test_what_differs_from_try_to_try_and_the_order_of_members_do_not_count() -> None:
    params = {"maxTokens": 5, "messages": [said("a")], "_meta": {"progressToken": 1}, "task": {}}
    assert bound() == bound(params=params)


def test_it_says_its_kind_and_is_of_fixed_length() -> None:
    assert ("sha256:", 71) == (bound()[:7], len(bound()))


def test_half_a_character_is_no_fault() -> None:
    assert bound(params={"messages": [said("\ud83d")]}) != bound(params={"messages": [said("\ud83c")]})


def test_no_two_requests_are_one_by_where_their_texts_end() -> None:
    assert bound(server="a", caller="bc") != bound(server="ab", caller="c")


def test_a_call_is_known_by_what_it_was_made_with_and_not_by_what_differs_from_try_to_try() -> None:
    first = call_digest(b'{"name":"purge","arguments":{"what":"staging"},"_meta":{"progressToken":1}}')
    assert first == call_digest(
        b'{"arguments":{"what":"staging"},"name":"purge","requestState":"s","_meta":{"progressToken":2}}'
    )
    assert first != call_digest(b'{"name":"purge","arguments":{"what":"production"}}')


ONE, OTHER = b'{"name":"t","arguments":{"p":1}}', b'{"name":"t","arguments":{"p":2}}'


def origin(*params: bytes | None) -> Origin:
    calls = (Call("tools/call", "t"),) if params else ()
    return Origin("s", "c", "legacy", "2025-11-25", calls, params=(params,) if params else ())


def test_several_calls_are_bound_with_their_arguments_in_any_order() -> None:
    assert calls_digest(origin(ONE, OTHER), "1") == calls_digest(origin(OTHER, ONE), "2")
    every = [calls_digest(origin(*params), "1") for params in ([], [ONE], [OTHER], [ONE, OTHER], [ONE, ONE])]
    assert len(every) == len(set(every))
    assert ["", call_digest(ONE)] == every[:2]


def test_a_call_that_was_not_kept_binds_a_verdict_to_its_round() -> None:
    unknown = Origin("s", "c", "legacy", "2025-11-25", (Call("tools/call", "t"),))
    for each in (unknown, origin(None), origin(ONE, None)):
        assert calls_digest(each, "1") != calls_digest(each, "2")


def test_a_call_without_a_canonical_form_is_bound_as_it_stands() -> None:
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert call_digest(deep) not in ("", call_digest(deep + b" "))
    assert "" == call_digest(None)
