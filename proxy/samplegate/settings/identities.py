"""Callers, people and their tokens: `callers:` and `people:` of the settings, and the files of tokens. Only values, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Meta

from samplegate.core.policyfile.tree import quoted
from samplegate.settings.trees import Part
from samplegate.urls import url_error

Algorithm: TypeAlias = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures that only the holder of a private key can make: no `none`, and nothing that a public key could make too."""

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
MAX_TOKENS: Final = 10_000
MAX_TOKENS_FILE: Final = 2 * 1024 * 1024  # bytes; 10,000 lines of the longest kind
Role: TypeAlias = Literal["viewer", "reviewer", "admin"]
CALLER_NAME: Final = re.compile(r"(?!local\Z)[A-Za-z0-9._@-]{1,64}\Z")
"""A caller's name. No colon, so that none is a JWT's (`jwt:...`); `local` is the caller where no token is needed."""
PERSON_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}\Z")
"""A person's name, as histories and decision logs have it."""

_caller_words: Final = "is no name of a caller; use at most 64 letters, digits and . _ @ -, but not local"
_person_words: Final = "is no name of a person; use at most 64 letters, digits and . _ @ -"
_all_words: Final = "stands beside the role admin, which is for all reviewers; leave it out, or write another role"
_none_words: Final = "names nobody; write names of the policy's reviewers, or leave it out for all"
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


class PersonEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One person's token as it is written."""

    name: str
    role: Role
    sha256: str
    reviewers: list[str] | None = None


class PeopleEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section of people as it is written."""

    tokens: list[PersonEntry] = []
    tokens_file: str | None = None


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


@dataclass(frozen=True, slots=True)
class PersonToken:
    """A person's token, by its hash. ``reviewers``: the policy's reviewers in whose name the person acts; None: all of them."""

    name: str
    role: Role
    sha256: bytes = field(repr=False)
    reviewers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PeopleSettings:
    """Who may sign in. ``given``: whether the settings have the section; ``files`` are those that were read."""

    given: bool = False
    tokens: tuple[PersonToken, ...] = ()
    files: tuple[Path, ...] = ()


AnyToken = TypeVar("AnyToken", Token, PersonToken)


def callers_of(part: Part) -> CallerSettings:
    """The section of callers, with every problem told."""
    entry: CallersEntry | None = part.value(CallersEntry)
    if entry is None:
        return CallerSettings(required=True)
    if not entry.tokens and entry.tokens_file is None and entry.jwt is None:
        part.problem((), "says of no caller how it is known; give tokens, tokens_file or jwt")
    resource = _resource(part, entry)
    tokens = [_caller(part, index, token) for index, token in enumerate(entry.tokens)]
    found, file = _with_file(part, tokens, entry.tokens_file, _caller_in, "use jwt for so many callers")
    jwt = None if entry.jwt is None else _jwt(part, entry.jwt, resource)
    files = [named for named in (file, None if jwt is None else jwt.jwks_file) if named is not None]
    return CallerSettings(True, tuple(found), jwt, resource, tuple(files))


def people_of(part: Part) -> PeopleSettings:
    """The section of people, with every problem told."""
    entry: PeopleEntry | None = part.value(PeopleEntry)
    if entry is None:
        return PeopleSettings(given=True)
    if not entry.tokens and entry.tokens_file is None:
        part.problem((), "names nobody; give tokens or tokens_file")
    tokens = [_person(part, index, token) for index, token in enumerate(entry.tokens)]
    found, file = _with_file(part, tokens, entry.tokens_file, _person_in, "leave those out that nobody uses")
    rights: dict[str, tuple[Role, tuple[str, ...] | None]] = {}
    for token in found:
        if rights.setdefault(token.name, (token.role, token.reviewers)) != (token.role, token.reviewers):
            part.problem((), f"{quoted(token.name)} has tokens with different rights; give all of them one role and the same reviewers")
    return PeopleSettings(True, tuple(found), () if file is None else (file,))


def shared_with(people: PeopleSettings, callers: tuple[Token, ...]) -> list[str]:
    """What is wrong where a caller and a person have one token: the caller could approve the requests of its own calls."""
    names = {token.sha256: token.name for token in callers}
    return [
        f"people: {token.name} has the token of the caller {names[token.sha256]}, who could approve what is asked of themselves; make another"
        for token in people.tokens
        if token.sha256 in names
    ]


def _with_file(
    part: Part,
    tokens: Sequence[AnyToken | None],
    tokens_file: str | None,
    token_in: Callable[[list[str]], AnyToken | str],
    for_fewer: str,
) -> tuple[list[AnyToken], Path | None]:
    """A section's tokens with those of its file, each owned by one name; ``token_in`` reads the words of a line or says what is wrong."""
    file = _path(part, ("tokens_file",), tokens_file)
    found = [token for token in tokens if token is not None] + ([] if file is None else _tokens_in(file, token_in, part.problems))
    if len(found) > MAX_TOKENS:
        part.problem((), f"has more than {MAX_TOKENS} tokens; {for_fewer}")
    owners: dict[bytes, str] = {}
    for token in found:
        if owners.setdefault(token.sha256, token.name) != token.name:
            part.problem((), f"{owners[token.sha256]} and {token.name} have the same token; give each one of their own")
    return found, file


def _tokens_in(file: Path, token_in: Callable[[list[str]], AnyToken | str], problems: list[str]) -> list[AnyToken]:
    """The tokens in a file, one a line; empty lines and those that begin with # are comments. A line may hold a token, so it is never shown."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_TOKENS_FILE + 1)
        if len(data) > MAX_TOKENS_FILE:
            problems.append(f"{file}: is larger than {MAX_TOKENS_FILE} bytes; keep only tokens in it")
            return []
        lines = data.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        problems.append(f"{file}: cannot be read: {getattr(problem, 'strerror', None) or 'it is not UTF-8 text'}")
        return []
    found = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        token = token_in(words)
        if isinstance(token, str):
            problems.append(f"{file}:{number}: {token}")
        else:
            found.append(token)
    return found


def _caller_in(words: list[str]) -> Token | str:
    """The token of a line ``name sha256``, or what is wrong with the line."""
    if len(words) != 2:
        return "is no name and SHA-256; write both, with a blank between them"
    name, digest = words[0], words[1].lower()
    if CALLER_NAME.match(name) is None:
        return _caller_words
    return Token(name, bytes.fromhex(digest)) if _digest.match(digest) else _digest_words


def _person_in(words: list[str]) -> PersonToken | str:
    """The token of a line ``name role sha256 [reviewer,reviewer]``, or what is wrong with the line."""
    if len(words) not in (3, 4):
        return "is no name, role and SHA-256; write these with blanks between them, and perhaps reviewers, separated by commas"
    name, digest = words[0], words[2].lower()
    reviewers = tuple(words[3].split(",")) if len(words) == 4 else None
    if PERSON_NAME.match(name) is None:
        return _person_words
    known: list[Role] = [role for role in get_args(Role) if role == words[1]]
    if not known:
        return f"has no role behind the name; write one of {', '.join(get_args(Role))}"
    if _digest.match(digest) is None:
        return _digest_words
    return _bad_reviewers(known[0], reviewers) or PersonToken(name, known[0], bytes.fromhex(digest), reviewers)


def _caller(part: Part, index: int, entry: TokenEntry) -> Token | None:
    if CALLER_NAME.match(entry.name) is None:
        part.problem(("tokens", index, "name"), _caller_words)
    digest = _sha256(part, index, entry.sha256)
    return None if digest is None else Token(entry.name, digest)


def _person(part: Part, index: int, entry: PersonEntry) -> PersonToken | None:
    reviewers = None if entry.reviewers is None else tuple(entry.reviewers)
    if PERSON_NAME.match(entry.name) is None:
        part.problem(("tokens", index, "name"), _person_words)
    why = _bad_reviewers(entry.role, reviewers)
    if why is not None:
        part.problem(("tokens", index, "reviewers"), why)
    digest = _sha256(part, index, entry.sha256)
    return None if digest is None else PersonToken(entry.name, entry.role, digest, reviewers)


def _sha256(part: Part, index: int, text: str) -> bytes | None:
    if _digest.match(text.lower()) is None:
        part.problem(("tokens", index, "sha256"), _digest_words)
        return None
    return bytes.fromhex(text)


def _bad_reviewers(role: Role, reviewers: tuple[str, ...] | None) -> str | None:
    if reviewers is None:
        return None
    if role == "admin":
        return _all_words
    return None if reviewers and all(reviewers) else _none_words


def _resource(part: Part, entry: CallersEntry) -> str | None:
    if entry.resource is None:
        return None
    why = url_error(entry.resource, secure=True)
    if why is not None:
        part.problem(("resource",), why)
    return entry.resource.rstrip("/")


def _path(part: Part, below: tuple[str, ...], text: str | None) -> Path | None:
    try:
        return None if text is None else part.path_of(text)
    except RuntimeError:
        part.problem(below, "begins with ~ though no such home folder is known; write the folder out")
        return None


def _jwt(part: Part, entry: JwtEntry, resource: str | None) -> JwtSettings:
    for name, url, query in (("issuer", entry.issuer, False), ("jwks_url", entry.jwks_url, True)):
        why = None if url is None else url_error(url, query=query, secure=True)
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
