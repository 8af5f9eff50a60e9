"""Signed assertions of an identity-aware proxy: a JWT in a header of its own identifies a person and their rights.

The person is the JWT's issuer and subject. Their name is the verified email, because that is what people recognize.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from samplegate.auth.jwt import PREFIX, JwtTokens, Keys
from samplegate.auth.tokens import Unauthenticated
from samplegate.config.assertions import AssertionSettings, Role, as_listed
from samplegate.config.identities import PERSON_NAME, JwtSettings

MAX_SUBJECT: Final = 512
MAX_EMAIL: Final = 254
_LATEST: Final = 2**53  # Unix seconds; a float represents integers up to this value exactly


class AssertedPerson(msgspec.Struct, frozen=True):
    """A person with rights, as one assertion has them."""

    name: str
    subject: str
    """The hash of issuer and subject: the same for one person, whatever their email is."""
    role: Role
    reviewers: tuple[str, ...] | None
    groups: frozenset[str]
    callers: frozenset[str]
    until: float
    """Unix seconds: when the assertion is no longer valid."""


def jwt_settings(settings: AssertionSettings) -> JwtSettings:
    """The assertions' issuer, for ``jwt.Keys`` and ``jwt.JwtTokens``."""
    return JwtSettings(
        issuer=settings.issuer,
        audience=settings.audience,
        jwks_url=settings.jwks_url,
        jwks_file=settings.jwks_file,
        algorithms=settings.algorithms,
        groups=settings.groups,
        leeway=settings.leeway,
    )


class Assertions:
    """The people of one issuer's assertions. Nothing is cached, so that a change of the groups counts at once."""

    def __init__(self, settings: AssertionSettings, keys: Keys) -> None:
        self._settings = settings
        self._tokens = JwtTokens(jwt_settings(settings), keys)
        self._listed = {as_listed(email): person for email, person in settings.people.items()}

    async def person_of(self, assertion: str) -> AssertedPerson:
        """The person of an assertion. Raises Unauthenticated with the reason, ``no_role`` for a person without rights,
        and Unavailable without keys."""
        claims = await self._tokens.verified(assertion)
        subject = claims.get("sub")
        if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
            raise Unauthenticated("subject")
        email = _email(claims)
        groups = self._tokens.groups(claims) if self._settings.groups is not None else None
        listed = None if email is None else self._listed.get(email)
        # an absent claim is not an empty list: then nobody knows what the person's groups are
        role = listed or (None if groups is None else self._settings.role_of(groups))
        if role is None:
            raise Unauthenticated("no_role")
        id = hashlib.sha256(f"{self._settings.issuer}\0{subject}".encode("utf-8", "surrogatepass")).hexdigest()
        callers = {name for one in (email, subject) if one is not None for name in (one, PREFIX + one)}
        return AssertedPerson(
            email if email is not None and PERSON_NAME.match(email) else f"sub-{id[:32]}",
            id,
            role.role,
            role.reviewers,
            (groups or frozenset()).union(() if listed is None else listed.groups),
            frozenset(callers).union(() if listed is None else listed.callers),
            float(min(int(claims["exp"]) + self._settings.leeway, _LATEST)),
        )


def _email(claims: Mapping[str, Any]) -> str | None:
    """The verified email as emails are compared, or None. Proxies that send no `email_verified` verify it themselves.
    Raises Unauthenticated for an email that is not verified."""
    if claims.get("email_verified", True) is not True:
        raise Unauthenticated("email")
    email = claims.get("email")
    if email is None:
        return None
    if not isinstance(email, str) or not 0 < len(email) <= MAX_EMAIL:
        raise Unauthenticated("email")
    return as_listed(email)
