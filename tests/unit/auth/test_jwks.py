"""Key sets: which of their keys can be used."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from samplegate.auth.jwt import MAX_BYTES, fitting, parse
from tests.fakes.issuer import key_set, private, public

RSA = public("r", "RS256")
EC = public("e", "ES256")
ED = public("d", "EdDSA")


def test_a_key_is_found_by_its_name_and_kind() -> None:
    keys = parse(key_set(RSA, EC, ED))
    assert ["r"] == [key.key_id for key in fitting(keys, "r", "RS256")]
    assert ["d"] == [key.key_id for key in fitting(keys, "d", "EdDSA")]
    assert [] == fitting(keys, "r", "ES256")
    assert [] == fitting(keys, "../../etc/passwd", "RS256")


def test_a_token_that_names_no_key_gets_the_only_one_of_its_kind() -> None:
    assert ["e"] == [key.key_id for key in fitting(parse(key_set(RSA, EC)), None, "ES256")]
    assert [] == fitting(parse(key_set(EC, public("e2", "ES256"))), None, "ES256")


def test_a_key_that_says_its_algorithm_is_for_no_other() -> None:
    keys = parse(key_set(public("r", "RS256", alg="RS512")))
    assert [] == fitting(keys, "r", "RS256")
    assert ["r"] == [key.key_id for key in fitting(keys, "r", "RS512")]


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "s"},
        public("r", "RS256", use="enc"),
        public("r", "RS256", key_ops=["sign"]),
        public("r", "RS256", key_ops="verify"),
        public("r", "RS256", kid=5),
        public("r", "RS256", kid="k" * 1000),
        public("r", "RS256", n="AQAB"),
        public("r", "RS256", n=None),
        public("e", "ES256", crv="P-999"),
        public("e", "ES256", crv=["P-256"]),
        public("e", "ES256", x="AAAA"),
        public("e", "ES256", alg="none"),
        RSAAlgorithm.to_jwk(private("r", "RS256"), as_dict=True),
        RSAAlgorithm.to_jwk(rsa.generate_private_key(65_537, 1_024).public_key(), as_dict=True),
        {},
    ],
    ids=lambda key: str(key.get("kty", "nothing")),
)
def test_what_is_no_public_key_that_signs_is_left_out(key: dict[str, object]) -> None:
    assert ["e"] == [each.key_id for each in parse(key_set(key, EC))]
    with pytest.raises(ValueError, match="no usable public signing key"):
        parse(key_set(key))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"<html>", "not a JSON Web Key Set"),
        (b"{}", "not a JSON Web Key Set"),
        (b'{"keys": [5]}', "not a JSON Web Key Set"),
        (b'{"keys": []}', "no usable public signing key"),
        (b"[" * 100_000, "not a JSON Web Key Set"),
        (b'{"keys": [' + b"[" * 100_000, "not a JSON Web Key Set"),
        (b" " * (MAX_BYTES + 1), "larger than"),
        (json.dumps({"keys": [EC] * 101}).encode(), "more than 100 keys"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_text_that_is_no_key_set_is_told(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(text)
