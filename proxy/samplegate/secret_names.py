"""Pure. Secret detection by name, and redaction of values under such names. It is a guess: other text may also contain
secrets (R39, T37)."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import Any, Final

REMOVED: Final = "[secret]"

_MAX_NAME: Final = 1_000  # characters; a longer name is not read and counts as secret
# characters of one form's names, titles and descriptions, up to a microsecond each; fields beyond this count as secret
_MAX_TEXT: Final = 100_000

_words: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_not_ascii: Final = re.compile(r"[^\x00-\x7f]+")
_secret_words: Final = frozenset(
    "password passwords passwd passwort pwd passphrase passcode secret secrets credential credentials apikey pin otp"
    " totp mfa cvv cvc csc ssn iban bearer authorization pat privatekey cookie pass dbpass userpass jwt".split()
)
_secret_pairs: Final = frozenset(
    "api key,access key,secret key,private key,signing key,encryption key,ssh key,license key,account key,recovery"
    " code,backup code,security code,verification code,auth code,card number,credit card,debit card,account"
    " number,social security,pass word,one time,seed phrase".split(",")
)
_joined_pairs: Final = frozenset(pair.replace(" ", "") for pair in _secret_pairs)
_secret_stems: Final = re.compile(
    "password|passwd|passwort|passphrase|kennwort|contrasena|mot ?de"
    " ?passe|secret(?!ar)|(?<!m)apikey|privatekey|sshkey|mnemonic|seedphrase|(?<!^max)(?<!^min)token(?!iz)"
)
"""Stems that make any name a secret, but not "secretary", "map key", "tokenizer" and ``max_token``."""
_ambiguous_words: Final = frozenset("pass pin pat cookie bearer csc".split())
"""Words with another meaning in sentences; in capitals (PIN) they mean the secret there too."""
_words_before_count: Final = frozenset(
    "max min new input output prompt completion total stop context num of many per".split()
)
_words_after_count: Final = frozenset({"count", "limit", "budget"})


def looks_secret(name: str) -> bool:
    """Whether a name, title or label asks for data that must never go through a form (R39): ``apiKey``, ``dbpassword``,
    "Card number"."""
    if len(name) > _MAX_NAME:
        return True
    plain = _plain_letters(name)
    words = [word.lower() for word in _words.findall(plain)]
    return _has_secret_word(words, _secret_words) or _has_secret_stem(words, "" if " " not in plain else " ")


def _mentions_secret(prose: str) -> bool:
    """The same for a sentence, in which "pass" or "pin" often means something else."""
    words = _words.findall(_plain_letters(prose))
    lower = [word.lower() for word in words]
    return (
        _has_secret_word(lower, _secret_words - _ambiguous_words)
        or _has_secret_stem(lower, " ")
        or any(word.isupper() and word.lower() in _ambiguous_words for word in words)
    )


def _plain_letters(text: str) -> str:
    """The text in the letters that a reader sees: without full-width forms, accents and invisible characters."""
    return text if text.isascii() else _not_ascii.sub("", unicodedata.normalize("NFKD", text))


def _has_secret_word(words: list[str], single: frozenset[str]) -> bool:
    return any(word in single or word in _joined_pairs for word in words) or any(
        {f"{a} {b}", f"{a} {b.removesuffix('s')}"} & _secret_pairs for a, b in pairwise(words)
    )


def _has_secret_stem(words: list[str], between: str) -> bool:
    text = between.join(words)
    return _secret_stems.search(between.join(_without_counts(words)) if "token" in text else text) is not None


def _without_counts(words: list[str]) -> list[str]:
    """The words without tokens that are counted, which are not secrets: ``max_tokens``, ``token_count``, "500
    tokens"."""
    sides = zip(["", *words[:-1]], words, [*words[1:], ""], strict=True)
    return [
        w
        for a, w, b in sides
        if w not in ("token", "tokens")
        or not (a.isdigit() or b in _words_after_count or (a in _words_before_count and w == "tokens"))
    ]


def secret_fields(schema: Any) -> frozenset[str]:
    """Fields of a requestedSchema that look secret by name, title, description or format."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return frozenset()
    found: set[str] = set()
    left = _MAX_TEXT
    for name, field in properties.items():
        title, description = _text_member(field, "title"), _text_member(field, "description")
        left -= len(name) + len(title) + len(description)
        if left < 0 or _is_marked(field) or looks_secret(name) or looks_secret(title) or _mentions_secret(description):
            found.add(name)
    return frozenset(found)


def _text_member(field: Any, member: str) -> str:
    text = field.get(member) if isinstance(field, dict) else None
    return text if isinstance(text, str) else ""


def _is_marked(field: Any) -> bool:
    return isinstance(field, dict) and (field.get("format") == "password" or field.get("writeOnly") is True)


def without_secrets(value: Any, names: frozenset[str] = frozenset()) -> Any:
    """A copy of decoded JSON in which every string and number under a secret-looking name, or under one of ``names``,
    is REMOVED."""
    match value:
        case dict():
            return {
                name: _redacted(item) if name in names or looks_secret(name) else without_secrets(item, names)
                for name, item in value.items()
            }
        case list():
            return [without_secrets(item, names) for item in value]
        case _:
            return value


def _redacted(value: Any) -> Any:
    match value:
        case dict():
            return {name: _redacted(item) for name, item in value.items()}
        case list():
            return [_redacted(item) for item in value]
        case bool() | None:
            return value
        case _:
            return REMOVED
