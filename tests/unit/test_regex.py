"""Regular expressions on RE2, ours and a peer's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.regex import any_of, peer_searcher, searcher, utf8


@pytest.mark.parametrize(
    "pattern", [r"^[A-Z]{2}\d{6,8}(-[a-z]+)?$", r"^[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}$", "ä|ö", "(?i)^yes$"]
)
def test_what_a_form_needs_compiles_for_a_peer(pattern: str) -> None:
    assert not isinstance(peer_searcher(pattern), str)


@pytest.mark.parametrize("pattern", [r"(?i)[\pL\pN]{300}", r"\pL{1000}", r"(\pL{30}){30}"])
def test_a_peer_gets_no_program_that_takes_long_to_compile(pattern: str) -> None:
    assert isinstance(peer_searcher(pattern), str)


def test_the_operator_may_write_larger_expressions_than_a_peer() -> None:
    assert not isinstance(searcher(r"\pL{50}"), str)
    assert isinstance(peer_searcher(r"\pL{50}"), str)


def test_a_peers_expression_is_compiled_once() -> None:
    assert peer_searcher("^once$") is peer_searcher("^once$")


def test_half_a_character_is_no_expression_and_is_found_as_a_question_mark() -> None:
    assert isinstance(peer_searcher("\ud800"), str)
    assert b"?" == utf8("\ud800")


class TestAnyOf:
    """One combined search decides the same as many single ones."""

    PATTERNS = ("(?i)^ignore", "token$", "a.c", r"\bcat\b", "^$", "x{2,3}", "(?s)b.*d", "[|)]", r"\(", "é", "a|b", "")

    @given(
        st.lists(st.sampled_from(PATTERNS), min_size=2, max_size=6), st.text("aAbcdx IGNOREignorekt|)(\né", max_size=30)
    )
    def test_it_finds_something_where_one_of_them_does(self, patterns: list[str], text: str) -> None:
        combined = any_of(patterns)
        assert combined is not None
        searches = [searcher(pattern) for pattern in patterns]
        found = any(search(text.encode()) is not None for search in searches if not isinstance(search, str))
        assert found == (combined(text.encode()) is not None)

    @pytest.mark.parametrize("patterns", [[], ["one"], [r"\Qa", "b"]])
    def test_where_it_is_no_gain_or_not_sure_there_is_none(self, patterns: list[str]) -> None:
        assert any_of(patterns) is None
