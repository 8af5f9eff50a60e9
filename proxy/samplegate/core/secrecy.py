"""Which names look like they stand for a secret, and values without them. A guess by name: no promise that other text holds none (R39, T37)."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

REMOVED: Final = "[secret]"

_words: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_one: Final = frozenset(
    "password passwords passwd passwort pwd passphrase passcode secret secrets credential credentials token apikey pin otp totp mfa cvv cvc csc"
    " ssn iban bearer authorization pat privatekey cookie".split()
)
_two: Final = frozenset(
    "api key,access key,secret key,private key,signing key,encryption key,ssh key,license key,account key,recovery code,backup code,security code,"
    "verification code,auth code,card number,credit card,debit card,account number,social security,pass word,one time,seed phrase".split(",")
)
_squashed: Final = frozenset(pair.replace(" ", "") for pair in _two)


def looks_secret(name: str) -> bool:
    """True if a name, title or label asks for what must never go through a form (R39): ``apiKey``, ``DB_PASSWORD``, "Card number"."""
    words = [word.lower() for word in _words.findall(name[:1000])]
    return any(word in _one or word in _squashed for word in words) or any(
        {f"{a} {b}", f"{a} {b.removesuffix('s')}"} & _two for a, b in pairwise(words)
    )


def secret_fields(schema: Any) -> frozenset[str]:
    """The fields of a requestedSchema that look secret by name, title or format."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return frozenset()
    return frozenset(name for name, field in properties.items() if looks_secret(name) or _asks(field))


def _asks(field: Any) -> bool:
    if not isinstance(field, dict):
        return False
    title = field.get("title")
    return field.get("format") == "password" or field.get("writeOnly") is True or (isinstance(title, str) and looks_secret(title))


def without_secrets(value: Any, names: frozenset[str] = frozenset()) -> Any:
    """A copy of decoded JSON in which every string and number under a secret-looking name, or one of ``names``, is REMOVED."""
    match value:
        case dict():
            return {name: _removed(item) if name in names or looks_secret(name) else without_secrets(item, names) for name, item in value.items()}
        case list():
            return [without_secrets(item, names) for item in value]
        case _:
            return value


def _removed(value: Any) -> Any:
    match value:
        case dict():
            return {name: _removed(item) for name, item in value.items()}
        case list():
            return [_removed(item) for item in value]
        case bool() | None:
            return value
        case _:
            return REMOVED
