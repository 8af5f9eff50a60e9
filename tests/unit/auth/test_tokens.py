"""Static tokens: only their hashes are stored."""

from __future__ import annotations

import hashlib
import hmac
from types import SimpleNamespace

import msgspec
import pytest

from samplegate import request_headers as module
from samplegate.auth.tokens import StaticTokens
from samplegate.config.identities import Token
from samplegate.protocol.identity import static


def token(name: str, text: str) -> Token:
    return Token(name, hashlib.sha256(text.encode()).hexdigest())


def name_of(tokens: StaticTokens, text: str) -> str | None:
    found = tokens.caller_of(text)
    return None if found is None else found.name


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
    assert name == name_of(TOKENS, text)


def test_a_token_that_was_withdrawn_later_is_nobodys() -> None:
    withdrawn: set[bytes] = set()
    tokens = StaticTokens([token("ci", "a" * 32), token("ops", "c" * 32)], lambda: withdrawn)
    assert "ci" == name_of(tokens, "a" * 32)
    withdrawn.add(hashlib.sha256(b"a" * 32).digest())
    assert (None, "ops") == (name_of(tokens, "a" * 32), name_of(tokens, "c" * 32))


def test_the_hash_itself_is_no_token() -> None:
    assert name_of(TOKENS, hashlib.sha256(b"a" * 32).hexdigest()) is None


def test_no_token_is_kept() -> None:
    name_of(TOKENS, "a" * 32)
    assert [] == [form for form in ("a" * 32, "61616161") if form in repr(TOKENS.__dict__)]


@pytest.mark.parametrize("text", ["a" * 32, "x" * 32])
def test_a_guess_takes_the_same_steps_whether_there_is_such_a_token(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(module, "hmac", SimpleNamespace(compare_digest=compare))
    name_of(TOKENS, text)
    assert [(32, 32)] == compared


def test_without_tokens_nobody_is_known() -> None:
    assert name_of(StaticTokens([]), "") is None


def test_a_caller_has_the_groups_of_its_token() -> None:
    of_ops = msgspec.structs.replace(token("ops", "c" * 32), groups=("sre", "ops"))
    found = StaticTokens([of_ops]).caller_of("c" * 32)
    assert found is not None
    assert static("ops", frozenset({"ops", "sre"})) == found.identity
