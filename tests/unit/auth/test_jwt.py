"""JWT verification: which tokens are accepted, which are rejected, and why."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec.structs import replace

from samplegate.auth.jwt import JwtTokens, Keys, KeySet, parse
from samplegate.auth.tokens import InsufficientScope, Unauthenticated
from samplegate.config.identities import JwtSettings
from tests.fakes.issuer import AUDIENCE, ISSUER, key_set, mint, private, public

pytestmark = pytest.mark.anyio

SETTINGS = JwtSettings(ISSUER, audience=(AUDIENCE,), leeway=10)
KEYS = parse(key_set(public("k", "ES256"), public("r", "RS256"), public("d", "EdDSA"), public("p", "PS256")))


def tokens(settings: JwtSettings = SETTINGS) -> JwtTokens:
    async def source() -> KeySet:
        return KEYS

    return JwtTokens(settings, Keys(source, clock=lambda: 0.0, on_fetch=lambda _: None))


async def refused(token: str, settings: JwtSettings = SETTINGS) -> str:
    with pytest.raises(Unauthenticated) as problem:
        await tokens(settings).caller_of(token)
    return problem.value.reason


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(header: dict[str, Any], signature: bytes = b"") -> str:
    body = f"{part(header)}.{part({'iss': ISSUER, 'aud': AUDIENCE, 'sub': 'alice', 'exp': int(time.time()) + 300})}"
    return f"{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize(("name", "algorithm"), [("k", "ES256"), ("r", "RS256"), ("d", "EdDSA")])
async def test_a_token_of_the_issuer_says_who_calls(name: str, algorithm: str) -> None:
    found = await tokens().caller_of(mint(name, algorithm))
    assert found is not None
    assert ("jwt:alice", None) == (found.name, found.audiences)


async def test_a_caller_has_the_claims_as_the_issuer_wrote_them() -> None:
    found = await tokens().caller_of(mint(dept="finance", n=1.0))
    assert found is not None
    assert found.identity.claims is not None
    claims = json.loads(found.identity.claims)
    assert ("finance", "alice", frozenset()) == (claims["dept"], claims["sub"], found.identity.groups)
    assert b'"n": 1.0' in found.identity.claims
    assert "finance" not in repr(found)


@pytest.mark.parametrize(
    ("value", "groups"),
    [
        (["ops", "sre", "ops"], {"ops", "sre"}),
        ("ops", {"ops"}),
        ([], set()),
        (["g" * 256], {"g" * 256}),
        ([f"g{number}" for number in range(200)], {f"g{number}" for number in range(200)}),
        ([f"g{number}" for number in range(201)], None),
        (["g" * 257], None),
        ("g" * 257, None),
        (["ops", 1], None),
        (["ops", ""], None),
        ("", None),
        ({"ops": True}, None),
        (True, None),
        (None, None),
    ],
)
async def test_groups_come_from_the_configured_claim(value: Any, groups: set[str] | None) -> None:
    """Issuers leave out the claim of a user with too many groups, so an absent one is not known."""
    found = await tokens(replace(SETTINGS, groups="roles")).caller_of(mint(roles=value))
    assert found is not None
    assert groups == found.identity.groups


async def test_what_is_no_jwt_is_left_to_others() -> None:
    assert await tokens().caller_of("a" * 64) is None
    assert await tokens().caller_of("a.b") is None


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": timedelta(minutes=-1)}, "expired"),
        ({"exp": None}, "claims"),
        ({"exp": "soon"}, "malformed"),
        ({"nbf": timedelta(minutes=10)}, "not_yet"),
        ({"iat": timedelta(minutes=10)}, "not_yet"),
        ({"iss": "https://evil.example.com"}, "issuer"),
        ({"iss": f"{ISSUER}/"}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"iss": None}, "claims"),
        ({"aud": "https://other.example.com"}, "audience"),
        ({"aud": ["https://other.example.com"]}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": None}, "claims"),
        ({"aud": {"a": AUDIENCE}}, "audience"),
        ({"sub": None}, "principal"),
        ({"sub": ""}, "principal"),
        ({"sub": "a b"}, "principal"),
        ({"sub": "a\nb"}, "principal"),
        ({"sub": "ali\u200bce"}, "principal"),
        ({"sub": "a" * 257}, "principal"),
        ({"cnf": {"jkt": "x"}}, "bound"),
    ],
    ids=str,
)
async def test_a_token_that_is_not_for_us_now_is_refused(claims: dict[str, Any], reason: str) -> None:
    now = time.time()
    at: dict[str, Any] = {
        name: int(now + value.total_seconds()) if isinstance(value, timedelta) else value
        for name, value in claims.items()
    }
    assert reason == await refused(mint(**at))


@pytest.mark.parametrize(("claim", "seconds"), [("exp", -1), ("nbf", 5), ("iat", 5)])
async def test_clocks_may_differ_a_little(claim: str, seconds: int) -> None:
    claims: dict[str, Any] = {claim: int(time.time()) + seconds}
    assert await tokens().caller_of(mint(**claims)) is not None


async def test_an_audience_may_be_one_of_several() -> None:
    assert await tokens().caller_of(mint(aud=["x", AUDIENCE])) is not None


async def test_a_token_that_never_ends_is_taken_as_one_that_ends_late() -> None:
    found = await tokens().caller_of(mint(exp=10**400))
    assert found is not None
    assert 2**53 == found.expires


async def test_a_token_without_a_signature_is_none() -> None:
    for name in ("none", "None", "NONE", ""):
        assert "algorithm" == await refused(unsigned({"alg": name, "kid": "k"}))


async def test_a_public_key_makes_no_token() -> None:
    pem = private("r", "RS256").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for shared in (pem, pem.strip()):
        body = unsigned({"alg": "HS256", "kid": "r"}).rpartition(".")[0]
        token = unsigned({"alg": "HS256", "kid": "r"}, hmac.new(shared, body.encode(), hashlib.sha256).digest())
        assert "algorithm" == await refused(token)


async def test_an_algorithm_that_is_not_set_is_refused_though_its_key_is_there() -> None:
    assert "algorithm" == await refused(mint("p", "PS256"))
    assert "algorithm" == await refused(mint("k", "ES256"), replace(SETTINGS, algorithms=("RS256",)))
    assert await tokens(replace(SETTINGS, algorithms=("PS256",))).caller_of(mint("p", "PS256")) is not None


async def test_a_key_is_used_only_for_its_own_kind() -> None:
    assert "unknown_key" == await refused(mint("k", "ES256", header={"kid": "r"}))


async def test_anothers_signature_under_our_issuers_key_is_refused() -> None:
    assert "signature" == await refused(mint("stranger", "ES256", header={"kid": "k"}))
    good = mint()
    assert "signature" == await refused(good[:-8] + ("AAAAAAAA" if not good.endswith("AAAAAAAA") else "BBBBBBBB"))


async def test_what_a_header_says_of_keys_elsewhere_is_not_looked_at() -> None:
    own = public("stranger", "ES256")
    token = mint(
        "stranger",
        "ES256",
        header={"kid": "k", "jwk": own, "jku": "https://evil.example.com/keys", "x5u": "https://evil.example.com"},
    )
    assert "signature" == await refused(token)


@pytest.mark.parametrize("kid", ["../../../../dev/null", "k\0", "' or 1=1", "K", "", "k" * 10_000])
async def test_a_keys_name_is_only_looked_up(kid: str) -> None:
    assert "unknown_key" == await refused(mint(header={"kid": kid}))


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "ES256", "kid": 5},
        {"alg": "ES256", "kid": "k", "typ": "logout+jwt"},
        {"alg": "ES256", "kid": "k", "typ": ["JWT"]},
    ],
    ids=str,
)
async def test_a_header_of_another_kind_of_token_is_refused(header: dict[str, Any]) -> None:
    assert "malformed" == await refused(unsigned(header, b"x" * 64))


async def test_a_header_that_we_would_have_to_understand_is_refused() -> None:
    assert "malformed" == await refused(mint(header={"crit": ["exp"], "exp": 1}))
    assert "malformed" == await refused(unsigned({"alg": "ES256", "kid": "k", "crit": []}, b"x" * 64))


@pytest.mark.parametrize(
    "token", ["..", "a.b.c", "e30.e30.e30", "\u00e4.b.c", f"{part([1])}.e30.e30", f"{'[' * 50}.a.b"], ids=repr
)
async def test_what_only_looks_like_a_jwt_is_refused(token: str) -> None:
    assert await refused(token) in ("malformed", "algorithm")


@pytest.mark.parametrize("claims", [{"scope": "mcp other"}, {"scp": "mcp"}, {"scp": ["other", "mcp"]}], ids=str)
async def test_scopes_are_read_as_issuers_write_them(claims: dict[str, Any]) -> None:
    assert await tokens(replace(SETTINGS, scopes=("mcp",))).caller_of(mint(**claims)) is not None


@pytest.mark.parametrize("claims", [{}, {"scope": "mcp2"}, {"scope": ["mcp"], "scp": 5}, {"scope": "mcp"}], ids=str)
async def test_a_token_needs_every_scope(claims: dict[str, Any]) -> None:
    with pytest.raises(InsufficientScope):
        await tokens(replace(SETTINGS, scopes=("mcp", "admin"))).caller_of(mint(**claims))


async def test_the_principal_is_the_claim_that_is_set() -> None:
    settings = replace(SETTINGS, principal="client_id")
    found = await tokens(settings).caller_of(mint(client_id="ci"))
    assert found is not None
    assert "jwt:ci" == found.name
    assert "principal" == await refused(mint(client_id=["ci"]), settings)


async def test_without_a_set_audience_the_tokens_own_is_handed_on() -> None:
    found = await tokens(replace(SETTINGS, audience=())).caller_of(mint(aud=["https://b", "https://a"]))
    assert found is not None
    assert frozenset({"https://a", "https://b"}) == found.audiences


async def test_the_tests_tokens_are_real_ones() -> None:
    claims = jwt.decode(
        mint(), private("k", "ES256").public_key(), algorithms=["ES256"], audience=AUDIENCE, issuer=ISSUER
    )
    assert "alice" == claims["sub"]
