"""What an HTTP request asks for, as far as the operators' listener looks at it: path, method, headers. Its body is never read."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from typing import Any, Final

import msgspec

MAX_BODY: Final = 65_536  # bytes that a request may announce; nothing here needs one, and some clients send `{}`


class Asked(msgspec.Struct, frozen=True):
    """One request's head."""

    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...]
    """Names in lower case, as ASGI has them."""
    local: str
    """The address that it came to."""

    @classmethod
    def of(cls, scope: Any) -> Asked:
        """From an ASGI scope of type http."""
        address = scope.get("server") or ("", None)
        return cls(scope["method"], scope["path"], tuple(scope["headers"]), str(address[0] or ""))

    def all(self, name: bytes) -> list[str]:
        """Every value of a header."""
        return [value.decode("latin-1").strip() for found, value in self.headers if found == name]

    @property
    def has_body(self) -> bool:
        return self.all(b"content-length") not in ([], ["0"]) or bool(self.all(b"transfer-encoding"))

    @property
    def is_large(self) -> bool:
        """It announces more than is worth waiting for, or a length that is none."""
        return any(not (length.isascii() and length.isdigit()) or int(length[:12]) > MAX_BODY for length in self.all(b"content-length"))

    def wants_json(self) -> bool:
        """Its Accept header names JSON, and not below text."""
        json = plain = 0.0
        for part in ",".join(self.all(b"accept")).split(","):
            kind, _, rest = part.partition(";")
            if kind.strip().lower() == "application/json":
                json = max(json, _quality(rest))
            if kind.strip().lower() in ("text/plain", "text/*"):
                plain = max(plain, _quality(rest))
        return json > 0 and json >= plain

    def bearer(self) -> bytes | None:
        """The token of its one Authorization header, if that is of this scheme."""
        found = self.all(b"authorization")
        scheme, _, token = found[0].partition(" ") if len(found) == 1 else ("", "", "")
        return token.strip().encode("latin-1") if scheme.lower() == "bearer" and token.strip() else None

    def is_misled(self, names: Collection[str]) -> bool:
        """It came to this machine's own address under a foreign name: a web page whose name was made to lead here (DNS rebinding, R96).

        An address as Host is no such name, and a client that sends none is no browser. On other addresses the listener may have any name.
        """
        hosts = self.all(b"host")
        if len(hosts) > 1:
            return True
        return bool(hosts) and _is_loopback(self.local) and not _is_own(_name(hosts[0]), names)


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _name(host: str) -> str:
    """Without the port, in lower case: ``[::1]:80`` is ``::1``."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name if rest[:1] in ("", ":") else ""
    return host.partition(":")[0].removesuffix(".").lower()


def _is_own(name: str, names: Collection[str]) -> bool:
    return name == "localhost" or name in names or _address(name) is not None


def _is_loopback(address: str) -> bool:
    found = _address(address)
    return found is not None and (getattr(found, "ipv4_mapped", None) or found).is_loopback


def _address(text: str) -> Any:
    try:
        return ip_address(text)
    except ValueError:
        return None
