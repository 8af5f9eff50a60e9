"""Loop detection: a server that repeats its requests gets no answers for a while."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.limits.brakes import MAX_CALLS, BrakeState, digest
from samplegate.policy import schema

PER_CALL: Final = schema.Brakes(requests_per_call=3, cooling="60s")
REPEATS: Final = schema.Brakes(repeats=3, cooling="60s")


def tries(brakes: BrakeState, digests: str, call: str = "c", server: str = "s", now: float = 0.0) -> list[bool]:
    """Whether each of the requests may proceed."""
    return [brakes.asked(server, (call,), each, now) is None for each in digests]


def test_the_request_that_is_one_too_many_for_a_call_puts_the_brake_on() -> None:
    brakes = BrakeState(PER_CALL)
    assert [True, True, True] == tries(brakes, "abc")
    tripped, after = brakes.asked("s", ("c",), "d", 5.0), brakes.asked("s", ("c",), "e", 6.0)
    assert tripped is not None
    assert after is not None
    assert ("requests_per_call", True, 65.0) == (tripped.which, tripped.tripped, tripped.until)
    assert ("requests_per_call", False, 65.0) == (after.which, after.tripped, after.until)
    assert (
        "brakes.requests_per_call: the server sent more than 3 requests in one call; its requests are not"
        " answered for 60s" == tripped.detail
    )


def test_the_repeat_that_is_full_puts_the_brake_on_and_another_request_between_does_not_count_on() -> None:
    assert [True, True, False] == tries(BrakeState(REPEATS), "aaa")
    assert [True, True, True, True, True, False] == tries(BrakeState(REPEATS), "aabaaa")
    braked = BrakeState(schema.Brakes(repeats=2)).asked("s", (), "a", 0.0)
    assert braked is None


def test_repeats_count_over_calls_of_one_server_and_not_over_servers() -> None:
    brakes = BrakeState(REPEATS)
    assert [True] == tries(brakes, "a", call="1")
    assert [True] == tries(brakes, "a", call="2")
    assert [True, True] == tries(brakes, "aa", server="other")
    assert [False] == tries(brakes, "a", call="3")


def test_a_server_on_the_brake_is_left_unanswered_in_every_call_and_others_are_not() -> None:
    brakes = BrakeState(PER_CALL)
    tries(brakes, "abcd")
    assert [False] == tries(brakes, "e", call="another")
    assert [True] == tries(brakes, "e", server="other")


def test_asking_while_it_cools_does_not_prolong_it_and_after_it_all_counts_anew() -> None:
    for terms in (PER_CALL, REPEATS):
        brakes = BrakeState(terms)
        tries(brakes, "aaaa")
        assert [False] * 5 == tries(brakes, "aaaaa", now=59.9)
        assert [True, True] == tries(brakes, "aa", now=60.0)


def test_calls_count_each_by_itself_and_every_candidate_counts() -> None:
    brakes = BrakeState(PER_CALL)
    assert [True, True, True] == tries(brakes, "abc", call="1")
    assert [True] == tries(brakes, "d", call="2")
    assert brakes.asked("s", ("1", "2"), "e", 0.0) is not None
    brakes = BrakeState(PER_CALL)
    assert [None, None, None] == [brakes.asked("s", ("1", "2", "1"), each, 0.0) for each in "abc"]
    assert brakes.asked("s", ("2",), "d", 0.0) is not None


@pytest.mark.parametrize("terms", [None, schema.Brakes()])
def test_without_brakes_nothing_is_stopped(terms: schema.Brakes | None) -> None:
    brakes = BrakeState(terms)
    assert not brakes.compares
    assert [True] * 100 == tries(brakes, "a" * 100)


def test_digests_are_asked_for_only_where_repeats_count() -> None:
    assert (False, True) == (BrakeState(PER_CALL).compares, BrakeState(REPEATS).compares)
    assert [True, True, True] == tries(BrakeState(PER_CALL), "aaa")


def test_no_more_calls_are_remembered_than_so_many_and_the_oldest_go_first() -> None:
    brakes = BrakeState(schema.Brakes(requests_per_call=1))
    for number in range(MAX_CALLS):
        assert brakes.asked("s", (f"{number}",), "a", 0.0) is None
    assert brakes.asked("s", ("new",), "a", 0.0) is None
    assert brakes.asked("s", ("0",), "a", 0.0) is None  # forgotten
    assert brakes.asked("s", (f"{MAX_CALLS - 1}",), "a", 0.0) is not None


# -- digests
# ----------------------------------------------------------------------------------------------------------------------

ASKED: Final[dict[str, Any]] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}],
    "maxTokens": 5,
    "systemPrompt": "p",
}


@pytest.mark.parametrize(
    "same",
    [
        {**ASKED, "_meta": {"progressToken": 7}},
        {**ASKED, "metadata": {"n": 1}, "modelPreferences": {"hints": []}, "progressToken": 1, "task": {"ttl": 1}},
        dict(reversed(ASKED.items())),
        {**ASKED, "messages": [{"role": "user", "content": {"type": "text", "text": "hello", "_meta": {"n": 2}}}]},
    ],
    ids=["_meta", "other passing members", "another order", "inner _meta"],
)
def test_what_may_pass_makes_no_other_request(same: dict[str, Any]) -> None:
    assert digest(ASKED) == digest(same)


@pytest.mark.parametrize(
    "other",
    [
        {**ASKED, "messages": [{"role": "user", "content": {"type": "text", "text": "hello!"}}]},
        {**ASKED, "systemPrompt": "q"},
        {**ASKED, "maxTokens": 6},
        {"message": "hello", "mode": "url", "url": "https://a.example"},
        {},
    ],
)
def test_what_is_asked_makes_another_request(other: dict[str, Any]) -> None:
    assert digest(ASKED) != digest(other)


def test_an_elicitation_by_url_is_the_same_under_another_id() -> None:
    asked = {"message": "m", "mode": "url", "url": "https://a.example"}
    assert digest({**asked, "elicitationId": "1"}) == digest({**asked, "elicitationId": "2"})


def deep() -> Any:
    inside: Any = 1
    for _ in range(100_000):
        inside = [inside]
    return inside


@pytest.mark.parametrize(
    "value",
    ["\ud800", 10**5000, float("nan"), deep(), {1: 2, "a": 3}, object()],
    ids=lambda value: type(value).__name__,
)
def test_no_value_makes_it_raise(value: Any) -> None:
    assert digest({"messages": value}) == digest({"messages": value})


@given(
    st.dictionaries(
        st.text(max_size=3),
        st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=3), st.lists, max_leaves=5),
        max_size=4,
    )
)
def test_a_digest_is_short_text(params: dict[str, Any]) -> None:
    assert 64 == len(digest(params))
