"""Pure. A server's challenge: what its `WWW-Authenticate` header tells a client that has no sufficient token (RFC 6750,
RFC 9728)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

MAX_HEADER: Final = 16_384  # characters
_parameter: Final = re.compile(r'(?:^|[\s,])([a-z_]{1,40})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))', re.IGNORECASE)
_scope: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}(?: [\x21\x23-\x5b\x5d-\x7e]{1,256})*\Z")
_url: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,2000}\Z")
MAX_SCOPE: Final = 2_000  # characters


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """A challenge. Members that are not valid are absent."""

    status: int
    """401, or 403 if the token lacks a scope."""
    error: str | None = None
    scope: str | None = None
    resource_metadata: str | None = None
    answered: int = 401
    """The HTTP status that the server really answered with."""

    @property
    def insufficient_scope(self) -> bool:
        """Whether the token lacks a scope."""
        return self.status == 403 and self.error == "insufficient_scope"

    @classmethod
    def of(cls, status: int, headers: Sequence[str], *, answered: int | None = None) -> Challenge:
        """The challenge in the headers of a response with this status. The first value of a parameter counts."""
        found: dict[str, str] = {}
        for name, quoted, plain in _parameter.findall(", ".join(headers)[:MAX_HEADER]):
            found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted else plain)
        scope, url, error = found.get("scope", ""), found.get("resource_metadata", ""), found.get("error", "")
        return cls(
            status=status,
            error=error if re.fullmatch(r"[a-z_]{1,64}", error) else None,
            scope=scope if len(scope) <= MAX_SCOPE and _scope.match(scope) else None,
            resource_metadata=url if _url.match(url) else None,
            answered=status if answered is None else answered,
        )

    def header(self, *, resource_metadata: str | None) -> str:
        """The header with these members only."""
        parts = [
            *([f'error="{self.error}"'] if self.error else []),
            *([f'scope="{self.scope}"'] if self.scope else []),
            *([f'resource_metadata="{resource_metadata}"'] if resource_metadata else []),
        ]
        return f"Bearer {', '.join(parts)}".strip()
