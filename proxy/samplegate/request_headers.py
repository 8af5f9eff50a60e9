"""Pure. Headers of an HTTP request, as every listener reads them: Host, Origin, bearer token, length, media type. Each
listener has its own rules of trust."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from samplegate.urls import address_of

T = TypeVar("T")

_NOBODY: Final = bytes(32)  # no token's hash: somebody would have to find a text with it


def found_by_digest(table: Mapping[bytes, T], digest: bytes) -> T | None:
    """The entry for a token's SHA-256.

    The look-up is by a digest, which nobody who does not know a token can bring near to a stored one step by step; the
    comparison is of constant time all the same.
    """
    known = digest if digest in table else _NOBODY
    same = hmac.compare_digest(digest, known)
    return table.get(known) if same else None


MAX_TOKEN: Final = 16 * 1024  # characters; tokens with many groups in them have 8,000
_host: Final = re.compile(r"(?:\[([0-9a-f:.]{2,45}(?:%[0-9a-z._-]{1,32})?)\]|([a-z0-9._-]{1,253}))(?::[0-9]{0,5})?")


class RequestHeaders:
    """The headers of an ASGI scope, whose names are in lower case."""

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._headers = headers
        self._last = dict(headers)

    def has(self, name: bytes) -> bool:
        """Whether the header is there, with any value."""
        return name in self._last

    def has_any(self, names: frozenset[bytes]) -> bool:
        """Whether one of these headers is there."""
        return not names.isdisjoint(self._last)

    def all(self, name: bytes) -> list[str]:
        """Every value of a header, without the blanks around it."""
        if name not in self._last:
            return []
        return [value.decode("latin-1").strip(" \t") for other, value in self._headers if other == name]

    def one(self, name: bytes) -> str | None:
        """The value of a header that is there exactly once."""
        found = self._last.get(name)
        return None if found is None or self.is_doubled(name) else found.decode("latin-1").strip(" \t")

    def is_doubled(self, name: bytes) -> bool:
        """Whether the header is there more than once. Of two Host, Origin or Authorization headers, another reader
        could use the other one."""
        return len(self._last) < len(self._headers) and len(self.all(name)) > 1

    def bearer(self) -> str | None:
        """The token of its one Authorization header, if that is of this scheme (RFC 6750)."""
        scheme, _, rest = (self.one(b"authorization") or "").partition(" ")
        token = rest.strip(" ")
        return token if scheme.lower() == "bearer" and 0 < len(token) <= MAX_TOKEN else None

    def length(self) -> int | None:
        """The announced bytes of the body, 0 for none; None for two lengths, or one that is not a number."""
        found = self.one(b"content-length") if self.has(b"content-length") else "0"
        return int(found) if found is not None and found.isascii() and found.isdigit() and len(found) < 19 else None

    def media_type(self) -> str:
        """Its one Content-Type without parameters, in lower case; "" where there is none, or a charset other than
        UTF-8."""
        name, *parameters = (self.one(b"content-type") or "").lower().split(";")
        charsets = {
            value.strip().strip('"')
            for key, _, value in (each.partition("=") for each in parameters)
            if key.strip() == "charset"
        }
        return name.strip() if charsets <= {"utf-8", "utf8"} else ""

    def accepts_json(self) -> bool:
        """Whether its Accept header accepts JSON, with at least the quality of text."""
        json = plain = 0.0
        for part in ",".join(self.all(b"accept")).split(","):
            kind, _, rest = part.partition(";")
            if kind.strip().lower() == "application/json":
                json = max(json, _quality(rest))
            if kind.strip().lower() in ("text/plain", "text/*"):
                plain = max(plain, _quality(rest))
        return json > 0 and json >= plain


def host_name(host: str) -> str:
    """The name of a Host header in lower case, without port, brackets and a dot at its end; "" if there is anything
    else, such as a user before an @."""
    found = _host.fullmatch(host.lower())
    return "" if found is None else found[1] or found[2].removesuffix(".")


def is_local_name(name: str) -> bool:
    """Whether a host name is safe from DNS rebinding (R96): `localhost` or an address."""
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
