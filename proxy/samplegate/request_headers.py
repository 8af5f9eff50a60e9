"""Pure. HTTP request headers for all listeners: Host, Origin, bearer token, content length, media type.

Each listener has its own trust rules.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from samplegate.urls import address_of

T = TypeVar("T")

_UNKNOWN_DIGEST: Final = bytes(32)  # the hash of no known token


def entry_for_digest(table: Mapping[bytes, T], digest: bytes) -> T | None:
    """The entry for a token's SHA-256.

    The look-up is by a hash, so a caller cannot use timing to approach a stored digest step by step. The comparison
    still takes constant time.
    """
    known = digest if digest in table else _UNKNOWN_DIGEST
    same = hmac.compare_digest(digest, known)
    return table.get(known) if same else None


MAX_TOKEN: Final = 16 * 1024  # characters; tokens with many groups have 8,000
_host: Final = re.compile(r"(?:\[([0-9a-f:.]{2,45}(?:%[0-9a-z._-]{1,32})?)\]|([a-z0-9._-]{1,253}))(?::[0-9]{0,5})?")


class RequestHeaders:
    """Headers of an ASGI scope; their names are in lower case."""

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._headers = headers
        self._last = dict(headers)

    def has(self, name: bytes) -> bool:
        """Whether the header is present, with any value."""
        return name in self._last

    def has_any(self, names: frozenset[bytes]) -> bool:
        """Whether at least one of these headers is present."""
        return not names.isdisjoint(self._last)

    def all(self, name: bytes) -> list[str]:
        """Every value of a header, stripped of blanks."""
        if name not in self._last:
            return []
        return [value.decode("latin-1").strip(" \t") for other, value in self._headers if other == name]

    def single(self, name: bytes) -> str | None:
        """The value of a header that occurs exactly once, else None."""
        found = self._last.get(name)
        return None if found is None or self.is_repeated(name) else found.decode("latin-1").strip(" \t")

    def is_repeated(self, name: bytes) -> bool:
        """Whether the header occurs more than once. With two Host, Origin or Authorization headers, another parser
        could use the other one."""
        return len(self._last) < len(self._headers) and len(self.all(name)) > 1

    def bearer(self) -> str | None:
        """The token of the only Authorization header, if its scheme is Bearer (RFC 6750)."""
        scheme, _, rest = (self.single(b"authorization") or "").partition(" ")
        token = rest.strip(" ")
        return token if scheme.lower() == "bearer" and 0 < len(token) <= MAX_TOKEN else None

    def length(self) -> int | None:
        """The Content-Length in bytes, 0 if absent; None if it occurs twice or is not a number."""
        found = self.single(b"content-length") if self.has(b"content-length") else "0"
        return int(found) if found is not None and found.isascii() and found.isdigit() and len(found) < 19 else None

    def media_type(self) -> str:
        """The only Content-Type without parameters, in lower case; "" if there is none or its charset is not UTF-8."""
        name, *parameters = (self.single(b"content-type") or "").lower().split(";")
        charsets = {
            value.strip().strip('"')
            for key, _, value in (each.partition("=") for each in parameters)
            if key.strip() == "charset"
        }
        return name.strip() if charsets <= {"utf-8", "utf8"} else ""

    def accepts_json(self) -> bool:
        """Whether the Accept header accepts JSON with at least the quality of plain text."""
        json = plain = 0.0
        for part in ",".join(self.all(b"accept")).split(","):
            kind, _, rest = part.partition(";")
            if kind.strip().lower() == "application/json":
                json = max(json, _quality(rest))
            if kind.strip().lower() in ("text/plain", "text/*"):
                plain = max(plain, _quality(rest))
        return json > 0 and json >= plain


def host_name(host: str) -> str:
    """The name of a Host header in lower case, without port, brackets and trailing dot; "" if the header contains
    anything else, such as a user before an @."""
    found = _host.fullmatch(host.lower())
    return "" if found is None else found[1] or found[2].removesuffix(".")


def is_local_name(name: str) -> bool:
    """Whether a host name is safe from DNS rebinding (R96): `localhost` or an IP address."""
    return name == "localhost" or address_of(name) is not None


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
