"""Expressions on RE2, ours and a peer's."""

from __future__ import annotations

import pytest

from samplegate.core.matching.patterns import peer_searcher, searcher, utf8


@pytest.mark.parametrize("pattern", [r"^[A-Z]{2}\d{6,8}(-[a-z]+)?$", r"^[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}$", "ä|ö", "(?i)^yes$"])
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
