"""Names that look like the name of a secret."""

from __future__ import annotations

import pytest

from samplegate.secret_names import looks_secret, secret_fields, without_secrets

SECRETS = (
    "password,db_password,DB_PASSWORD,userPassword,apiKey,APIKey,api-keys,Your API"
    " key,access_token,cardNumber,cardnumber,PIN,cvv2,client_secret,one-time code,ssn,private key,Card number (16"
    " digits),userpassword,newpassword,passwords_new,dbPasswd,Passwort2,accesstoken,githubtoken,access_tokens,clientsecret,db_pass,jwt,mnemonic,seedphrase,Seed"  # noqa: E501
    " phrase,sshkey,myapikeys,secretkey,contraseña,mot de"
    " passe,pin_code,ｐａｓｓｗｏｒｄ,ＡＰＩ　ｋｅｙ,pass\u200bword,pass\u00adword,pássword"
)


@pytest.mark.parametrize("name", SECRETS.split(","))
def test_a_name_of_a_secret_is_known(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    "confirm,reason,maxTokens,max_tokens,min_tokens,max_new_tokens,maxOutputTokens,input_tokens,token_count,tokenizer,email,keyboard,pinned,spinach,compass,bypass,secretary,map"
    " key,,é,key".split(","),
)
def test_an_ordinary_name_is_none(name: str) -> None:
    assert not looks_secret(name)


def test_a_field_is_secret_by_name_title_or_format() -> None:
    fields = {
        "password": {},
        "a": {"title": "API key"},
        "b": {"format": "password"},
        "c": {"writeOnly": True},
        "d": {"title": "Reason"},
        "e": True,
    }
    assert frozenset({"password", "a", "b", "c"}) == secret_fields({"properties": fields})
    assert frozenset() == secret_fields({"properties": []}) == secret_fields(None)


@pytest.mark.parametrize(
    "description",
    [
        "Your password, please",
        "Enter your PIN",
        "The token from the mail",
        "What is your credit card?",
        "ｓｅｃｒｅｔ",
        "x" * 500 + " password",
    ],
)
def test_a_field_is_secret_by_what_it_says_of_itself(description: str) -> None:
    assert frozenset({"f"}) == secret_fields(
        {"properties": {"f": {"description": description}, "g": {"description": "Why"}}}
    )


@pytest.mark.parametrize(
    "description",
    [
        "Pass this on to the next reviewer",
        "Pin it to the board",
        "At most 500 tokens",
        "The secretary's name",
        "",
        7,
        None,
    ],
)
def test_ordinary_prose_makes_no_secret(description: object) -> None:
    assert frozenset() == secret_fields({"properties": {"f": {"description": description}}})


def test_a_name_too_long_to_be_read_counts_as_secret() -> None:
    assert looks_secret("a" * 1001)


def test_what_is_too_much_to_be_read_counts_as_secret() -> None:
    fields = {f"f{n}": {"description": "a " * 1000} for n in range(100)}
    found = secret_fields({"properties": fields})
    assert "f0" not in found
    assert "f99" in found


def test_values_under_secret_names_are_removed_at_any_depth() -> None:
    asked = {"a": [{"api_key": "k", "n": 1}], "token": {"x": ["t", None, True, 5]}, "chosen": "c"}
    shown = {
        "a": [{"api_key": "[secret]", "n": 1}],
        "token": {"x": ["[secret]", None, True, "[secret]"]},
        "chosen": "[secret]",
    }
    assert shown == without_secrets(asked, frozenset({"chosen"}))
