"""Who may call the daemon: `callers:` of the settings. Only values and what is wrong with them: a call is let in by the package of that name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from samplegate.settings.trees import Part
from samplegate.settings.urls import why_no_url

Algorithm: TypeAlias = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures that only the holder of a private key can make: no `none`, and nothing that a public key could make too."""

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
MAX_TOKENS: Final = 10_000
MAX_TOKENS_FILE: Final = 2 * 1024 * 1024  # bytes; 10,000 lines of the longest kind
NAME: Final = re.compile(r"(?!local\Z)[A-Za-z0-9._@-]{1,64}\Z")
"""A caller's name. No colon, so that none is a JWT's (`jwt:...`); `local` is who calls where nobody needs a token."""

_name_words: Final = "is no name of a caller; use at most 64 letters, digits and . _ @ -, but not local"
_digest: Final = re.compile(r"[0-9a-f]{64}\Z")
_digest_words: Final = "is no SHA-256 of a token; write the 64 digits 0-9 a-f that `samplegate token` prints"
_scope: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}\Z")


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One static token as it is written. What the keys of these three mean is in ``descriptions``."""

    name: str
    sha256: str


class JwtEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The issuer of JWTs as it is written."""

    issuer: str
    audience: list[str] = []
    jwks_url: str | None = None
    jwks_file: str | None = None
    algorithms: list[Algorithm] = []
    scopes: list[str] = []
    principal: Annotated[str, Meta(min_length=1)] = "sub"
    leeway: Annotated[int, Meta(ge=0, le=300)] = 30


class CallersEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section as it is written."""

    tokens: list[TokenEntry] = []
    tokens_file: str | None = None
    jwt: JwtEntry | None = None
    resource: str | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A static token, by its hash."""

    name: str
    sha256: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Tokens of an issuer. Either ``jwks_url``, ``jwks_file`` or neither (the issuer's metadata says); ``leeway`` in seconds."""

    issuer: str
    audience: tuple[str, ...] = ()
    jwks_url: str | None = None
    jwks_file: Path | None = None
    algorithms: tuple[str, ...] = ALGORITHMS
    scopes: tuple[str, ...] = ()
    principal: str = "sub"
    leeway: int = 30


@dataclass(frozen=True, slots=True)
class CallerSettings:
    """Who may call. ``required``: whether a caller needs a token at all; ``files`` are those that were read."""

    required: bool = False
    tokens: tuple[Token, ...] = ()
    jwt: JwtSettings | None = None
    resource: str | None = None
    """Without a slash at its end."""
    files: tuple[Path, ...] = ()


def callers_of(part: Part) -> CallerSettings:
    """The section, with every problem told."""
    entry: CallersEntry | None = part.value(CallersEntry)
    if entry is None:
        return CallerSettings(required=True)
    if not entry.tokens and entry.tokens_file is None and entry.jwt is None:
        part.problem((), "says of no caller how it is known; give tokens, tokens_file or jwt")
    resource = _resource(part, entry)
    tokens = [_token(part, index, token) for index, token in enumerate(entry.tokens)]
    file = _path(part, ("tokens_file",), entry.tokens_file)
    found = [token for token in tokens if token is not None] + ([] if file is None else _tokens_in(file, part.problems))
    _check_tokens(part, found)
    jwt = None if entry.jwt is None else _jwt(part, entry.jwt, resource)
    files = [named for named in (file, None if jwt is None else jwt.jwks_file) if named is not None]
    return CallerSettings(True, tuple(found), jwt, resource, tuple(files))


def _resource(part: Part, entry: CallersEntry) -> str | None:
    if entry.resource is None:
        return None
    why = why_no_url(entry.resource, secure=True)
    if why is not None:
        part.problem(("resource",), why)
    return entry.resource.rstrip("/")


def _path(part: Part, below: tuple[str, ...], text: str | None) -> Path | None:
    try:
        return None if text is None else part.path_of(text)
    except RuntimeError:
        part.problem(below, "begins with ~ though no such home folder is known; write the folder out")
        return None


def _token(part: Part, index: int, token: TokenEntry) -> Token | None:
    digest = token.sha256.lower()
    if NAME.match(token.name) is None:
        part.problem(("tokens", index, "name"), _name_words)
    if _digest.match(digest) is None:
        part.problem(("tokens", index, "sha256"), _digest_words)
        return None
    return Token(token.name, bytes.fromhex(digest))


def _tokens_in(file: Path, problems: list[str]) -> list[Token]:
    """The lines ``name sha256`` of a file; empty ones and those that begin with # say nothing."""
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_TOKENS_FILE + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        problems.append(f"{file}: cannot be read: {getattr(problem, 'strerror', None) or 'it is not UTF-8 text'}")
        return []
    if len(text) > MAX_TOKENS_FILE:
        problems.append(f"{file}: is larger than {MAX_TOKENS_FILE} bytes; keep only tokens in it")
        return []
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        why = _bad_line(words)
        if why is None:
            found.append(Token(words[0], bytes.fromhex(words[1].lower())))
        else:
            problems.append(f"{file}:{number}: {why}")
    return found


def _bad_line(words: list[str]) -> str | None:
    """What is wrong with a line; what stands there may be a token, so it is not shown."""
    if len(words) != 2:
        return "is no name and SHA-256; write both, with a blank between them"
    if NAME.match(words[0]) is None:
        return _name_words
    return None if _digest.match(words[1].lower()) else _digest_words


def _check_tokens(part: Part, tokens: list[Token]) -> None:
    if len(tokens) > MAX_TOKENS:
        part.problem((), f"has more than {MAX_TOKENS} tokens; use jwt for so many callers")
    owners: dict[bytes, str] = {}
    for token in tokens:
        if owners.setdefault(token.sha256, token.name) != token.name:
            part.problem((), f"{owners[token.sha256]} and {token.name} have the same token; give each one of its own")


def _jwt(part: Part, entry: JwtEntry, resource: str | None) -> JwtSettings:
    for name, url, query in (("issuer", entry.issuer, False), ("jwks_url", entry.jwks_url, True)):
        why = None if url is None else why_no_url(url, query=query, secure=True)
        if why is not None:
            part.problem(("jwt", name), why)
    if entry.jwks_url is not None and entry.jwks_file is not None:
        part.problem(("jwt", "jwks_file"), "stands beside jwks_url; give one of them")
    if not entry.audience and resource is None:
        part.problem(("jwt",), "says of no token that it is for this gate; give audience, or resource beside jwt")
    if "" in entry.audience:
        part.problem(("jwt", "audience"), "holds an empty text; write the aud of tokens for this gate")
    if any(_scope.match(scope) is None for scope in entry.scopes):
        part.problem(("jwt", "scopes"), "holds what is no scope; write one a text, without blanks and quotes")
    file = _path(part, ("jwt", "jwks_file"), entry.jwks_file)
    return JwtSettings(
        issuer=entry.issuer,
        audience=tuple(entry.audience),
        jwks_url=entry.jwks_url,
        jwks_file=file,
        algorithms=tuple(entry.algorithms) or ALGORITHMS,
        scopes=tuple(entry.scopes),
        principal=entry.principal,
        leeway=entry.leeway,
    )
