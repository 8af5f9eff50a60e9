"""Callers, reviewers and their tokens: `callers:` and `people:` of the settings, and the token files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeVar, get_args

import msgspec
from msgspec import Meta

from samplegate.config.assertions import (
    ALGORITHMS,
    Algorithm,
    AssertionSettings,
    ListedPerson,
    Role,
    assertion_of,
    reviewers_fault,
)
from samplegate.config.sources import Section, read_error
from samplegate.policy.schema import Reviewer, may_decide
from samplegate.protocol.identity import MAX_GROUP, MAX_GROUPS
from samplegate.urls import url_error
from samplegate.yamlfile.tree import quoted

MAX_TOKENS: Final = 10_000
MAX_TOKENS_FILE: Final = 2 * 1024 * 1024  # bytes; 10,000 of the longest lines
CALLER_NAME: Final = re.compile(r"(?!local\Z)[A-Za-z0-9._@-]{1,64}\Z")
"""A caller's name. It has no colon, unlike the names of JWT callers (`jwt:...`); `local` is the caller without a
token."""
PERSON_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}\Z")
"""A user's name, as shown in histories and decision logs."""

_digest: Final = re.compile(r"[0-9a-f]{64}\Z")
_DIGEST_ERROR: Final = "is not a SHA-256 hash; write the 64 digits 0-9 a-f that `samplegate token` prints"
_group: Final = re.compile(rf"(?!#)[^\s,]{{1,{MAX_GROUP}}}\Z")
_scope: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}\Z")
_DIGEST: Final = "The SHA-256 hash of the token in hex. The token itself is not stored."


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A static token of a caller."""

    name: Annotated[
        str,
        Meta(
            description=(
                "The caller's name in rules, limits and records. A name may have several tokens, so that they can"
                " be rotated."
            )
        ),
    ]
    sha256: Annotated[str, Meta(description=_DIGEST)]
    groups: Annotated[
        tuple[str, ...], Meta(description="The caller's groups, for `groups` in rules. The same for all its tokens.")
    ] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "sha256", self.sha256.lower())

    def faults(self) -> Iterator[tuple[str, str]]:
        """The problems by key, without the values, which may be tokens."""
        if CALLER_NAME.match(self.name) is None:
            yield "name", "is not a valid caller name; use at most 64 letters, digits and . _ @ -, and not local"
        if _digest.match(self.sha256) is None:
            yield "sha256", _DIGEST_ERROR
        if len(self.groups) > MAX_GROUPS:
            yield "groups", f"has more than {MAX_GROUPS} groups; remove those that no rule names"
        elif any(_group.match(group) is None for group in self.groups):
            yield (
                "groups",
                (
                    f"contains an invalid name; use 1 to {MAX_GROUP} characters without spaces and commas, and no # at"
                    " the start"
                ),
            )

    def __repr__(self) -> str:
        return f"Token({self.name!r})"


class JwtSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The issuer of JWTs. By default, the issuer's metadata gives the URL of its keys."""

    issuer: Annotated[str, Meta(description="The issuer of the tokens: the URL in their `iss`.")]
    audience: Annotated[
        tuple[str, ...],
        Meta(description="The accepted values of `aud`. Default: `resource`, or the URL of the called server."),
    ] = ()
    jwks_url: Annotated[
        str | None, Meta(description="The URL of the issuer's keys. Default: the URL in the issuer's metadata.")
    ] = None
    jwks_file: Annotated[Path | None, Meta(description="A file with the issuer's keys, instead of a URL.")] = None
    algorithms: Annotated[tuple[Algorithm, ...], Meta(description="The accepted signature algorithms.")] = ALGORITHMS
    scopes: Annotated[tuple[str, ...], Meta(description="Scopes that every token must have.")] = ()
    principal: Annotated[
        str,
        Meta(
            min_length=1,
            description="The claim that names the caller. The caller's name is `jwt:` and the claim's value.",
        ),
    ] = "sub"
    groups: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description=(
                "The claim with the caller's groups, for `groups` in rules: a list of strings, or a string. Default:"
                " callers with JWTs have no groups."
            ),
        ),
    ] = None
    leeway: Annotated[int, Meta(ge=0, le=300, description="Allowed clock skew in seconds.")] = 30


class CallerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How callers authenticate: static tokens, or JWTs of an issuer."""

    tokens: Annotated[tuple[Token, ...], Meta(description="Static tokens.")] = ()
    tokens_file: Annotated[
        Path | None,
        Meta(
            description=(
                "A file with more tokens: on each line a name, a SHA-256 hash and, optionally, groups separated by"
                " commas."
            )
        ),
    ] = None
    jwt: Annotated[JwtSettings | None, Meta(description="JWTs of an issuer.")] = None
    resource: Annotated[str | None, Meta(description="The public URL of the daemon, without a server's path.")] = None

    @property
    def required(self) -> bool:
        """True if callers need a token."""
        return bool(self.tokens) or self.tokens_file is not None or self.jwt is not None

    @property
    def files(self) -> tuple[Path, ...]:
        """The token and key files."""
        return tuple(
            file for file in (self.tokens_file, None if self.jwt is None else self.jwt.jwks_file) if file is not None
        )


class PersonToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token of a user, with a role."""

    name: Annotated[
        str,
        Meta(
            description=(
                "The user's name in histories and the decision log. A name may have several tokens, so that they can"
                " be rotated."
            )
        ),
    ]
    role: Annotated[
        Role,
        Meta(
            description=(
                "A `viewer` sees reviews and a `reviewer` also decides them, both for their `reviewers`; an `admin`"
                " sees and decides all."
            )
        ),
    ]
    sha256: Annotated[str, Meta(description=_DIGEST)]
    reviewers: Annotated[
        tuple[str, ...] | None,
        Meta(description="The policy's reviewers that the user acts for. Default: all."),
    ] = None
    groups: Annotated[
        tuple[str, ...],
        Meta(
            description="The user's groups. A reviewer with `groups` is decided by people in one of them, and admins."
        ),
    ] = ()
    callers: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "The callers that are this user, for reviewers with `not: caller`. The caller of the same name always"
                " is, and so is the JWT caller `jwt:` and this name."
            )
        ),
    ] = ()

    @property
    def rights(self) -> tuple[object, ...]:
        """What all tokens of one name must agree in."""
        return self.role, self.reviewers, frozenset(self.groups), frozenset(self.callers)

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "sha256", self.sha256.lower())

    def faults(self) -> Iterator[tuple[str, str]]:
        """The problems by key, without the values, which may be tokens."""
        if PERSON_NAME.match(self.name) is None:
            yield "name", "is not a valid user name; use at most 64 letters, digits and . _ @ -"
        if _digest.match(self.sha256) is None:
            yield "sha256", _DIGEST_ERROR
        why = reviewers_fault(self.role, self.reviewers)
        if why is not None:
            yield "reviewers", why
        for key in ("groups", "callers"):
            if not all(getattr(self, key)):
                yield key, "contains an entry without a name; remove it"

    def __repr__(self) -> str:
        return f"PersonToken({self.name!r}, {self.role!r}, {self.reviewers!r})"


class PeopleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The users who may see and decide reviews."""

    tokens: Annotated[tuple[PersonToken, ...], Meta(description="Users and their tokens.")] = ()
    tokens_file: Annotated[
        Path | None,
        Meta(
            description=(
                "A file with more tokens: on each line a name, a role, a SHA-256 hash and, optionally, reviewers"
                " separated by commas (`*`: all) and groups separated by commas."
            )
        ),
    ] = None
    assertion: Annotated[
        AssertionSettings | None,
        Meta(description="Sign-in by the signed assertion of an identity-aware proxy. Only for `samplegate serve`."),
    ] = None


AnyToken = TypeVar("AnyToken", bound=Token | PersonToken)


def callers_of(part: Section | None) -> CallerSettings:
    """The callers' section with the tokens of its file. Every problem is reported."""
    if part is None or (callers := part.value(CallerSettings)) is None:
        return CallerSettings()
    if not callers.required:
        part.problem((), "defines no way to authenticate; add tokens, tokens_file or jwt")
    why = None if callers.resource is None else url_error(callers.resource, secure=True)
    if why is not None:
        part.problem(("resource",), why)
    tokens, file = _all_tokens(
        part, callers.tokens, callers.tokens_file, _parse_caller, "use jwt for this many callers"
    )
    groups: dict[str, frozenset[str]] = {}
    for token in tokens:
        if groups.setdefault(token.name, frozenset(token.groups)) != frozenset(token.groups):
            part.problem((), f"{quoted(token.name)} has tokens with different groups; give them all the same groups")
    jwt = None if callers.jwt is None else _jwt(part, callers.jwt, callers.resource)
    return CallerSettings(tokens, file, jwt, None if callers.resource is None else callers.resource.rstrip("/"))


def people_of(part: Section | None) -> PeopleSettings:
    """The people's section with the tokens of its file. Every problem is reported."""
    if part is None or (people := part.value(PeopleSettings)) is None:
        return PeopleSettings()
    if not people.tokens and people.tokens_file is None and people.assertion is None:
        part.problem((), "has no users; add tokens, tokens_file or assertion")
    tokens, file = _all_tokens(part, people.tokens, people.tokens_file, _parse_person, "remove unused ones")
    rights: dict[str, tuple[object, ...]] = {}
    for token in tokens:
        if rights.setdefault(token.name, token.rights) != token.rights:
            part.problem(
                (),
                f"{quoted(token.name)} has tokens with different rights; give them all the same role, reviewers,"
                " groups and callers",
            )
    assertion = None if people.assertion is None else assertion_of(part, people.assertion)
    return PeopleSettings(tokens, file, assertion)


def shared_token_errors(people: PeopleSettings, callers: tuple[Token, ...]) -> list[str]:
    """The problems of tokens that belong to a caller and to a user: such a caller could approve the requests of its own
    calls."""
    names = {token.sha256: token.name for token in callers}
    return [
        f"people: {token.name} and the caller {names[token.sha256]} have the same token, so the caller could"
        " approve its"
        " own requests; create another token"
        for token in people.tokens
        if token.sha256 in names
    ]


def shared_audience_errors(people: PeopleSettings, callers: CallerSettings) -> list[str]:
    """The problems of an issuer whose tokens are both callers' tokens and assertions: such a caller could approve the
    requests of its own calls."""
    one, other = people.assertion, callers.jwt
    if one is None or other is None or one.issuer != other.issuer:
        return []
    shared = set(one.audience) & ({*other.audience} or {callers.resource or ""})
    return [
        f"people: assertion and callers.jwt accept the same tokens (issuer {one.issuer}, audience {audience}), so a"
        " caller could approve its own requests; use another audience for each"
        for audience in sorted(shared)
    ]


def _all_tokens(
    part: Section,
    tokens: Sequence[AnyToken],
    tokens_file: Path | None,
    parse_token: Callable[[list[str]], AnyToken | str],
    remedy: str,
) -> tuple[tuple[AnyToken, ...], Path | None]:
    """A section's tokens with those of its file, each owned by one name.

    ``parse_token`` converts the words of a line to a token, or returns the problem.
    """
    for index, entry in enumerate(tokens):
        for key, why in entry.faults():
            part.problem(("tokens", index, key), why)
    file = part.file(("tokens_file",), tokens_file)
    found = [token for token in tokens if _digest.match(token.sha256) is not None]
    if file is not None:
        found += _file_tokens(file, parse_token, part.problems)
    if len(found) > MAX_TOKENS:
        part.problem((), f"has more than {MAX_TOKENS} tokens; {remedy}")
    owners: dict[str, str] = {}
    for token in found:
        if owners.setdefault(token.sha256, token.name) != token.name:
            part.problem((), f"{owners[token.sha256]} and {token.name} have the same token; create one for each")
    return tuple(found), file


def _file_tokens(file: Path, parse_token: Callable[[list[str]], AnyToken | str], problems: list[str]) -> list[AnyToken]:
    """The tokens in a file, one per line; blank lines and lines that begin with # are skipped.

    Lines are never shown in errors, because they may contain a token.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_TOKENS_FILE + 1)
        if len(data) > MAX_TOKENS_FILE:
            problems.append(f"{file}: is larger than {MAX_TOKENS_FILE} bytes; keep only tokens in it")
            return []
        lines = data.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        problems.append(f"{file}: {read_error(problem)}")
        return []
    found = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        token = parse_token(words)
        why = token if isinstance(token, str) else next((fault for _, fault in token.faults()), None)
        if why is not None:
            problems.append(f"{file}:{number}: {why}")
        elif not isinstance(token, str):
            found.append(token)
    return found


def _parse_caller(words: list[str]) -> Token | str:
    """The token of a line ``name sha256 [group,group]``, or the problem."""
    if len(words) not in (2, 3):
        return "expected a name and a SHA-256 hash, separated by a space. Groups may follow, separated by commas"
    name, sha256, *groups = words
    return Token(name, sha256, tuple(groups[0].split(",")) if groups else ())


def _parse_person(words: list[str]) -> PersonToken | str:
    """The token of a line ``name role sha256 [reviewer,reviewer [group,group]]``, or the problem. ``*`` stands for all
    reviewers."""
    if len(words) not in (3, 4, 5) or "#" in words[3:]:
        return (
            "expected a name, a role and a SHA-256 hash, separated by spaces. Reviewers (or *) and groups may follow,"
            " each separated by commas"
        )
    name, role, sha256, *lists = words
    reviewers, groups = (lists or ["*"])[0], "".join(lists[1:])
    for known in get_args(Role):
        if role == known:
            return PersonToken(
                name,
                known,
                sha256,
                None if reviewers == "*" else tuple(reviewers.split(",")),
                tuple(groups.split(",")) if groups else (),
            )
    return f"has no valid role after the name; use one of {', '.join(get_args(Role))}"


def _jwt(part: Section, jwt: JwtSettings, resource: str | None) -> JwtSettings:
    for name, url, query in (("issuer", jwt.issuer, False), ("jwks_url", jwt.jwks_url, True)):
        why = None if url is None else url_error(url, query=query, secure=True)
        if why is not None:
            part.problem(("jwt", name), why)
    if jwt.jwks_url is not None and jwt.jwks_file is not None:
        part.problem(("jwt", "jwks_file"), "cannot be combined with jwks_url; remove one of them")
    if not jwt.audience and resource is None:
        part.problem(("jwt",), "has no audience; set `audience`, or `callers.resource`")
    if "" in jwt.audience:
        part.problem(("jwt", "audience"), "contains an empty string; use the `aud` of tokens for this gate")
    if any(_scope.match(scope) is None for scope in jwt.scopes):
        part.problem(
            ("jwt", "scopes"), "contains an invalid scope; write each scope as a string without spaces and quotes"
        )
    return msgspec.structs.replace(
        jwt, jwks_file=part.file(("jwt", "jwks_file"), jwt.jwks_file), algorithms=jwt.algorithms or ALGORITHMS
    )


def caller_warnings(settings: CallerSettings, *, groups: bool, claims: bool) -> list[str]:
    """Warnings about rules that name ``groups`` or ``claims`` that no caller can have."""
    found = []
    configured = any(token.groups for token in settings.tokens) or (
        settings.jwt is not None and settings.jwt.groups is not None
    )
    if groups and not configured:
        found.append(
            "callers: rules name groups, but no caller has any; add groups to tokens, or set callers.jwt.groups"
        )
    if claims and settings.jwt is None:
        found.append("callers: rules name claims, but callers have no JWTs, so no claim is ever set; add callers.jwt")
    return found


def reviewer_warnings(settings: PeopleSettings, reviewers: Collection[str]) -> list[str]:
    """Warnings about mismatches between the people and the policy's ``reviewers``."""
    everyone = [*settings.tokens, *([] if settings.assertion is None else settings.assertion.rights)]
    named = {name for one in everyone for name in one.reviewers or ()}
    may = [one for one in everyone if one.role != "viewer"]
    found = [
        f"people: {name} is not a reviewer in the policy, so this has no effect"
        for name in sorted(named - set(reviewers))
    ]
    alone = [
        name for name in sorted(reviewers) if not any(one.reviewers is None or name in one.reviewers for one in may)
    ]
    return found + [
        f"people: no user may decide for the reviewer {name}; only a webhook, a command or `samplegate reviews` can"
        for name in alone
    ]


def approval_warnings(settings: PeopleSettings, reviewers: Mapping[str, Reviewer]) -> list[str]:
    """Warnings about reviewers who need more approvals than can be given."""
    found: list[str] = []
    for name, reviewer in reviewers.items():
        deciders = [(name, reviewer), *((also, reviewers[also]) for also in reviewer.also)]
        people = {
            token.name.casefold()
            for token in settings.tokens
            if any(_may_decide(token, token.groups, acts_for, set(one.groups)) for acts_for, one in deciders)
        }
        if settings.assertion is not None:
            if settings.assertion.groups is not None:
                continue  # nobody knows who is in the groups
            people |= {
                email.casefold()
                for email, entry in settings.assertion.people.items()
                if any(_may_decide(entry, entry.groups, acts_for, set(one.groups)) for acts_for, one in deciders)
            }
        if not people and reviewer.groups and settings != PeopleSettings():
            found.append(
                f"people: no user is in the groups of the reviewer {name} ({', '.join(reviewer.groups)}); only a"
                " webhook, a command or `samplegate reviews` can decide"
            )
        by_program = any(may_decide(one) for _, one in deciders)
        if reviewer.approvals > max(1, len(people) + by_program):
            program = ", and all programs together give one" if by_program else ""
            found.append(
                f"people: the reviewer {name} needs {reviewer.approvals} approvals, but {len(people)}"
                f" user{'' if len(people) == 1 else 's'} may decide for it{program}; add users, or lower approvals"
            )
    return found


def _may_decide(one: PersonToken | ListedPerson, own: Collection[str], reviewer: str, groups: set[str]) -> bool:
    if one.role == "admin":
        return True
    acts_for = one.reviewers is None or reviewer in one.reviewers
    return one.role == "reviewer" and acts_for and (not groups or not groups.isdisjoint(own))
