"""Bearer tokens: each is resolved to a caller, at most once a minute by the verifier."""

from __future__ import annotations

import pytest

from samplegate.auth.tokens import CACHE_SECONDS, MAX_CACHED, Bearers, Caller, StaticTokens, Unauthenticated
from samplegate.protocol.identity import static

pytestmark = pytest.mark.anyio


class Verifier:
    """A verifier that accepts every token as that of the caller it names, until ``expires``."""

    def __init__(self, expires: int | None = None) -> None:
        self.expires = expires
        self.now = 0.0
        self.asked = 0
        self.bearers = Bearers(StaticTokens([]), self.caller_of, wall=lambda: self.now, leeway=5)

    async def caller_of(self, token: str) -> Caller | None:
        self.asked += 1
        return None if token == "stranger" else Caller(static(token), expires=self.expires)

    async def ask(self, token: str) -> Caller:
        return self.bearers.known(token) or await self.bearers.verified(token)


async def test_a_verified_token_is_known_for_a_minute() -> None:
    verifier = Verifier()
    assert ["alice"] * 3 == [(await verifier.ask("alice")).name for _ in range(3)]
    verifier.now = CACHE_SECONDS - 1
    await verifier.ask("alice")
    assert 1 == verifier.asked
    verifier.now = CACHE_SECONDS
    await verifier.ask("alice")
    assert 2 == verifier.asked


async def test_a_token_is_known_no_longer_than_it_lives() -> None:
    verifier = Verifier(expires=10)
    await verifier.ask("alice")
    verifier.now = 14
    assert verifier.bearers.known("alice") is not None
    verifier.now = 15
    assert verifier.bearers.known("alice") is None
    with pytest.raises(Unauthenticated, match="expired"):
        await verifier.ask("alice")


async def test_what_was_refused_is_not_remembered() -> None:
    verifier = Verifier()
    for _ in range(2):
        with pytest.raises(Unauthenticated, match="unknown_token"):
            await verifier.ask("stranger")
    assert 2 == verifier.asked


async def test_without_a_verifier_only_static_tokens_are_taken() -> None:
    with pytest.raises(Unauthenticated, match="unknown_token"):
        await Bearers(StaticTokens([]), None, wall=lambda: 0.0).verified("x")


async def test_what_is_remembered_is_bounded_and_holds_no_token() -> None:
    verifier = Verifier()
    for number in range(MAX_CACHED + 100):
        await verifier.ask(f"token-{number}")
    assert verifier.bearers.known("token-0") is None
    assert verifier.bearers.known(f"token-{MAX_CACHED + 99}") is not None
    assert MAX_CACHED == len(verifier.bearers._seen)
