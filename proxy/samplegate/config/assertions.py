"""Signed assertions of identity-aware proxies: `people.assertion` of the settings. Roles and signature algorithms are
here, too, because tokens have the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from samplegate.config.sources import Section
from samplegate.urls import url_error
from samplegate.yamlfile.tree import quoted

Algorithm: TypeAlias = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signature algorithms that only the holder of a private key can use: no `none`, and no shared-key algorithms."""
ALGORITHMS: Final[tuple[Algorithm, ...]] = ("RS256", "ES256", "EdDSA")
Role: TypeAlias = Literal["viewer", "reviewer", "admin"]

MAX_LISTED: Final = 10_000
"""People and groups of `people.assertion`."""
_ROLE: Final = (
    "A `viewer` sees reviews and a `reviewer` also decides them, both for their `reviewers`; an `admin` sees and"
    " decides all."
)
_EXAMPLE: Final = "use the header with the proxy's signed JWT, for example x-goog-iap-jwt-assertion"
_header: Final = re.compile(r"[a-z0-9-]{1,64}\Z")
_plain: Final = re.compile(
    r"x-forwarded-.*|x-ms-client-principal.*|x-amzn-oidc-(?:identity|accesstoken)|(?:.*-)?(?:user|username|user-id|email|groups?|login|upn)\Z"
)
"""Headers with a user in plain text, as proxies name them."""
_taken: Final = re.compile(r"authorization|proxy-.*|cookie|host|origin|referer|sec-.*|content-.*|accept.*|connection\Z")
_email: Final = re.compile(r"[\x21-\x3f\x41-\x7e]{1,64}@[\x21-\x3f\x41-\x7e]{1,190}\Z")
_issuer: Final = re.compile(r"[\x21-\x7e]{1,512}\Z")


def as_listed(email: str) -> str:
    """An email in the form in which emails are compared: ASCII in lower case, and others unchanged, because other
    alphabets have letters whose lower case is in ASCII."""
    return email.lower() if email.isascii() else email


def reviewers_fault(role: Role, reviewers: tuple[str, ...] | None) -> str | None:
    """Why these reviewers of the policy do not go together with this role, or None."""
    if reviewers is not None and role == "admin":
        return "cannot be combined with the role admin, which covers all reviewers; remove it, or choose another role"
    if reviewers is not None and not (reviewers and all(reviewers)):
        return (
            "names no reviewer, or one without a name; list reviewers of the policy, or leave them out to allow all of"
            " them"
        )
    return None


class GroupRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The role of a group's people."""

    role: Annotated[Role, Meta(description=_ROLE)]
    reviewers: Annotated[
        tuple[str, ...] | None, Meta(description="The policy's reviewers that they act for. Default: all.")
    ] = None


class ListedPerson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The role of a person who is listed by email. It replaces the roles of the person's groups."""

    role: Annotated[Role, Meta(description=_ROLE)]
    reviewers: Annotated[
        tuple[str, ...] | None, Meta(description="The policy's reviewers that the user acts for. Default: all.")
    ] = None
    groups: Annotated[
        tuple[str, ...],
        Meta(description="Groups of the user, in addition to those of the assertion, for reviewers with `groups`."),
    ] = ()
    callers: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "The callers that are this user, for reviewers with `not: caller`. The callers with the assertion's"
                " email or subject as name always are."
            )
        ),
    ] = ()


class AssertionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JWT that an identity-aware proxy sends with each request, and the rights of its people."""

    header: Annotated[str, Meta(description="The name of the proxy's header with the JWT.")]
    issuer: Annotated[str, Meta(description="The `iss` of the assertions, exactly as the proxy writes it.")]
    audience: Annotated[tuple[str, ...], Meta(description="The accepted values of `aud`.")]
    jwks_url: Annotated[
        str | None, Meta(description="The URL of the proxy's public keys. This or `jwks_file` is required.")
    ] = None
    jwks_file: Annotated[Path | None, Meta(description="A file with the proxy's public keys, instead of a URL.")] = None
    algorithms: Annotated[tuple[Algorithm, ...], Meta(description="The accepted signature algorithms.")] = ALGORITHMS
    groups: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description=(
                "The claim with the person's groups, a list of strings or a string, for `roles` and for reviewers with"
                " `groups`. Without the claim in an assertion, only `people` have rights."
            )
        ),
    ] = None
    roles: Annotated[
        dict[str, GroupRole],
        Meta(
            description=(
                "Roles by group. Of several, the highest role counts, with the reviewers of all groups that have it."
            )
        ),
    ] = {}
    people: Annotated[
        dict[str, ListedPerson],
        Meta(description="Roles by email, in ASCII; its case does not matter. They take precedence over `roles`."),
    ] = {}
    leeway: Annotated[int, Meta(ge=0, le=300, description="Allowed clock skew in seconds.")] = 30

    def role_of(self, groups: frozenset[str]) -> GroupRole | None:
        """The role of a person in these groups."""
        found = [role for group, role in self.roles.items() if group in groups]
        for name in ("admin", "reviewer", "viewer"):
            same = [each for each in found if each.role == name]
            if any(each.reviewers is None for each in same):
                return GroupRole(same[0].role)
            if same:
                return GroupRole(
                    same[0].role, tuple(dict.fromkeys(one for each in same for one in each.reviewers or ()))
                )
        return None

    @property
    def rights(self) -> Iterator[GroupRole | ListedPerson]:
        """Everyone's roles."""
        yield from self.people.values()
        yield from self.roles.values()


def assertion_of(part: Section, assertion: AssertionSettings) -> AssertionSettings:
    """The settings with the header in lower case and the resolved file. Every problem is reported."""
    for key, what in _faults(assertion):
        part.problem(("assertion", *key), what)
    return msgspec.structs.replace(
        assertion,
        header=assertion.header.lower(),
        jwks_file=part.file(("assertion", "jwks_file"), assertion.jwks_file),
        algorithms=assertion.algorithms or ALGORITHMS,
    )


def _faults(assertion: AssertionSettings) -> Iterator[tuple[tuple[str, ...], str]]:
    """The problems by the path of their key."""
    why = _header_fault(assertion.header.lower())
    if why is not None:
        yield ("header",), why
    if _issuer.match(assertion.issuer) is None:
        yield (
            ("issuer",),
            "is not 1 to 512 printable characters without spaces; use the `iss` of the proxy's assertions",
        )
    if not assertion.audience or "" in assertion.audience:
        yield ("audience",), "names no audience, or an empty one; use the `aud` of the assertions for this page"
    why = None if assertion.jwks_url is None else url_error(assertion.jwks_url, query=True, secure=True)
    if why is not None:
        yield ("jwks_url",), why
    if assertion.jwks_url is not None and assertion.jwks_file is not None:
        yield ("jwks_file",), "cannot be combined with jwks_url; remove one of them"
    if assertion.jwks_url is None and assertion.jwks_file is None:
        yield (), "has no keys to verify assertions with; set jwks_url to the proxy's key set, or jwks_file"
    yield from _rights_faults(assertion)


def _rights_faults(assertion: AssertionSettings) -> Iterator[tuple[tuple[str, ...], str]]:
    if not assertion.roles and not assertion.people:
        yield (), "gives nobody a role; add people by email, or groups and roles"
    if assertion.roles and assertion.groups is None:
        yield ("roles",), "need the claim with the groups; set groups to its name"
    if len(assertion.roles) + len(assertion.people) > MAX_LISTED:
        yield (), f"has more than {MAX_LISTED} roles and people; use roles of groups"
    yield from _role_faults(assertion.roles, "roles")
    yield from _role_faults(assertion.people, "people")
    seen: dict[str, str] = {}
    for email, entry in assertion.people.items():
        if _email.match(email) is None:
            yield ("people", email), "is not an email address in ASCII; use the `email` of the person's assertions"
        if seen.setdefault(as_listed(email), email) != email:
            yield ("people", email), f"is the same email as {quoted(seen[as_listed(email)])}; remove one of them"
        for key in ("groups", "callers"):
            if not all(getattr(entry, key)):
                yield ("people", email, key), "contains an entry without a name; remove it"


def _role_faults(
    entries: Mapping[str, GroupRole] | Mapping[str, ListedPerson], key: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, entry in entries.items():
        why = reviewers_fault(entry.role, entry.reviewers)
        if why is not None:
            yield (key, name, "reviewers"), why


def _header_fault(header: str) -> str | None:
    """Why a header, in lower case, cannot have assertions, or None."""
    if "_" in header:
        return "contains _, which some proxies and servers confuse with -; use a name with - only"
    if _header.match(header) is None:
        return f"is not the name of a header; {_EXAMPLE}"
    if header == "x-amzn-oidc-data":
        return (
            "is AWS ALB's, whose JWTs have no audience and no key set; put a proxy with assertions in between, such as"
            " Pomerium"
        )
    if _plain.match(header) is not None:
        return f"names a plain user header, which anyone who reaches the listener can set; {_EXAMPLE}"
    if _taken.match(header) is not None:
        return f"has another meaning; {_EXAMPLE}"
    return None
