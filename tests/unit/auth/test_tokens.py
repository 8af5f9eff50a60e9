"""Static tokens: only their hashes are stored."""

from __future__ import annotations

import hashlib
import hmac
from types import SimpleNamespace

import pytest

from samplegate import request_headers as module
from samplegate.auth.tokens import StaticTokens
from samplegate.config.identities import Token


def token(name: str, text: str) -> Token:
    return Token(name, hashlib.sha256(text.encode()).hexdigest())


TOKENS = StaticTokens([token("ci", "a" * 32), token("ci", "b" * 32), token("ops", "c" * 32)])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a" * 32, "ci"),
        ("b" * 32, "ci"),
        ("c" * 32, "ops"),
        ("d" * 32, None),
        ("A" * 32, None),
        ("a" * 31, None),
        ("", None),
        ("a" * 10**6, None),
    ],
)
def test_a_token_is_somebodys_or_nobodys(text: str, name: str | None) -> None:
    assert name == TOKENS.name_of(text)


def test_a_token_that_was_withdrawn_later_is_nobodys() -> None:
    withdrawn: set[bytes] = set()
    tokens = StaticTokens([token("ci", "a" * 32), token("ops", "c" * 32)], lambda: withdrawn)
    assert "ci" == tokens.name_of("a" * 32)
    withdrawn.add(hashlib.sha256(b"a" * 32).digest())
    assert (None, "ops") == (tokens.name_of("a" * 32), tokens.name_of("c" * 32))


def test_the_hash_itself_is_no_token() -> None:
    assert TOKENS.name_of(hashlib.sha256(b"a" * 32).hexdigest()) is None


def test_no_token_is_kept() -> None:
    TOKENS.name_of("a" * 32)
    assert [] == [form for form in ("a" * 32, "61616161") if form in repr(TOKENS.__dict__)]


@pytest.mark.parametrize("text", ["a" * 32, "x" * 32])
def test_a_guess_takes_the_same_steps_whether_there_is_such_a_token(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(module, "hmac", SimpleNamespace(compare_digest=compare))
    TOKENS.name_of(text)
    assert [(32, 32)] == compared


def test_without_tokens_nobody_is_known() -> None:
    assert StaticTokens([]).name_of("") is None
