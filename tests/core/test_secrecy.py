"""Which names look like they stand for a secret."""

from __future__ import annotations

import pytest

from samplegate.core.secrecy import looks_secret, secret_fields, without_secrets

SECRETS = (
    "password,db_password,DB_PASSWORD,userPassword,apiKey,APIKey,api-keys,Your API key,access_token,cardNumber,cardnumber,PIN,cvv2,client_secret,"
    "one-time code,ssn,private key,Card number (16 digits)"
)


@pytest.mark.parametrize("name", SECRETS.split(","))
def test_a_name_of_a_secret_is_known(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name", ["confirm", "reason", "maxTokens", "input_tokens", "email", "keyboard", "pinned", "spinach", "compass", "", "é", "key"]
)
def test_an_ordinary_name_is_none(name: str) -> None:
    assert not looks_secret(name)


def test_a_field_is_secret_by_name_title_or_format() -> None:
    fields = {"password": {}, "a": {"title": "API key"}, "b": {"format": "password"}, "c": {"writeOnly": True}, "d": {"title": "Reason"}, "e": True}
    assert frozenset({"password", "a", "b", "c"}) == secret_fields({"properties": fields})
    assert frozenset() == secret_fields({"properties": []}) == secret_fields(None)


def test_values_under_secret_names_are_removed_at_any_depth() -> None:
    asked = {"a": [{"api_key": "k", "n": 1}], "token": {"x": ["t", None, True, 5]}, "chosen": "c"}
    shown = {"a": [{"api_key": "[secret]", "n": 1}], "token": {"x": ["[secret]", None, True, "[secret]"]}, "chosen": "[secret]"}
    assert shown == without_secrets(asked, frozenset({"chosen"}))
