"""Pure. The identity of a caller: its name, and the groups and claims of the token that came with one request.

Two tokens of one name may have different claims, so an identity travels with the request that brought the token.
"""

from __future__ import annotations

from typing import Final

import msgspec

MAX_GROUPS: Final = 200
"""Groups of one caller, as many as Microsoft Entra writes into a token."""
MAX_GROUP: Final = 256
"""Characters in the name of a group."""
NO_CLAIMS: Final = b"{}"
"""The claims of a caller without a JWT."""


class Identity(msgspec.Struct, frozen=True):
    """The caller of a request. Limits, sessions and sealed states belong to the ``name`` alone."""

    name: str
    groups: frozenset[str] | None = None
    """None: not known."""
    claims: bytes | None = None
    """The claims of its JWT, a JSON object as the issuer wrote it; None: not known. Bounded as the token is; no log has
    all of them."""

    def __repr__(self) -> str:
        return f"Identity({self.name!r})"


def static(name: str, groups: frozenset[str] = frozenset()) -> Identity:
    """The identity of a caller without a JWT."""
    return Identity(name, groups, NO_CLAIMS)


def in_common(one: Identity, other: Identity) -> Identity:
    """What two identities of one session share: groups and claims that differ are not known."""
    if one is other or one == other:
        return one
    return Identity(
        one.name,
        one.groups if one.groups == other.groups else None,
        one.claims if one.claims == other.claims else None,
    )


LOCAL: Final = static("local")
"""The caller if no tokens are required: on stdio, and of a listener for this machine alone."""
