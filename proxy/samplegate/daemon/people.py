"""Whose a token is, of the people that the settings name: by its hash, at one cost whether there is such a token or
not. No token is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING

from samplegate.auth.tokens import found_by_digest
from samplegate.config.identities import PeopleSettings

if TYPE_CHECKING:
    from samplegate.reviews.web.context import Person


class People:
    """The people in force. ``put`` replaces them: from the next question on the others hold."""

    def __init__(self, settings: PeopleSettings) -> None:
        self._people: dict[bytes, Person] = {}
        self.put(settings)

    def put(self, settings: PeopleSettings) -> None:
        """Others, at a reload: a session or a stream of whoever is gone ends with it."""
        from samplegate.reviews.web.context import Person

        self._people = {
            bytes.fromhex(token.sha256): Person(token.name, token.role, token.reviewers) for token in settings.tokens
        }

    def person(self, token: str) -> Person | None:
        """Whose token it is."""
        return self.known(hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest())

    def known(self, digest: bytes) -> Person | None:
        """Whose token has this SHA-256."""
        return found_by_digest(self._people, digest)


def misfits(settings: PeopleSettings, reviewers: Collection[str]) -> list[str]:
    """What does not go together between the people and the policy's ``reviewers``, for warnings."""
    named = {name for token in settings.tokens for name in token.reviewers or ()}
    may = [token for token in settings.tokens if token.role != "viewer"]
    found = [
        f"people: {name} is no reviewer of the policy, so nobody answers in that name"
        for name in sorted(named - set(reviewers))
    ]
    alone = [
        name
        for name in sorted(reviewers)
        if not any(token.reviewers is None or name in token.reviewers for token in may)
    ]
    return found + [
        f"people: nobody may decide for the reviewer {name}, but by webhook, command or `samplegate reviews`"
        for name in alone
    ]
