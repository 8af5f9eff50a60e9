"""What a request's head says, as far as the listener judges by it: host, origin, token, address, length. It reads no body."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from samplegate.web.context import Web

_PORTS: Final = {"http": 80, "https": 443}


def is_misled(scope: Any, web: Web) -> bool:
    """It came under a name that is none of the listener's: a page whose name was made to lead here (DNS rebinding, R96).

    An address as Host is no such name, and a client that sends none is no browser.
    """
    hosts = Headers(scope=scope).getlist("host")
    if len(hosts) > 1:
        return True
    return bool(hosts) and not _is_own(hosts[0].strip().lower(), web)


def is_foreign(scope: Any, web: Web) -> bool:
    """A page of another origin sent it; what sends no Origin is no page, or no page's script or form."""
    headers = Headers(scope=scope)
    origins = headers.getlist("origin")
    if not origins:
        return False
    origin, ours = _origin(origins[0]), _origin(web.url)
    if len(origins) > 1 or origin is None:
        return True
    if origin == ours:
        return False
    # Reached by another of its names, behind a proxy perhaps, which makes http of https: then the Host alone tells. Under the name of `url` the
    # scheme must be that of `url`, or who listens on the way could put up a page under plain http.
    host = headers.get("host", "").strip().lower()
    return host == urlsplit(web.url).netloc.lower() or origin != _origin(f"{origin[0]}://{host}")


def is_elsewhere(scope: Any) -> bool:
    """A browser says that what sent this is no page of ours; what says nothing is an old one, or none."""
    return Headers(scope=scope).getlist("sec-fetch-site") not in ([], ["same-origin"])


def is_own_page(scope: Any, web: Web) -> bool:
    """A browser says that a page of ours sent it, in one of the two ways that all of them say it of a form that is posted."""
    headers = Headers(scope=scope)
    return not is_foreign(scope, web) and not is_elsewhere(scope) and ("origin" in headers or "sec-fetch-site" in headers)


def bearer(scope: Any) -> str | None:
    """The token of its one Authorization header, if that is of this scheme (RFC 6750)."""
    found = Headers(scope=scope).getlist("authorization")
    scheme, _, token = found[0].partition(" ") if len(found) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" and 0 < len(token.strip()) <= 4096 else None


def sender(scope: Any) -> str:
    """Whose requests are counted together: an address, or the network of an IPv6 one, since a host has 2**64 of those."""
    client = scope.get("client")
    try:
        address = ip_address(client[0] if client else "")
    except ValueError:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if isinstance(address, IPv6Address) and mapped is None:
        return str(IPv6Address(int(address) >> 64 << 64))
    return str(mapped or address)


def length(scope: Any) -> int | None:
    """The bytes that it announces, 0 for none; None where that is no number, or two."""
    found = Headers(scope=scope).getlist("content-length")
    if not found:
        return 0
    return int(found[0]) if len(found) == 1 and found[0].isascii() and found[0].isdigit() and len(found[0]) < 19 else None


def media_type(scope: Any) -> str:
    """Its one Content-Type without parameters, in lower case; a charset other than UTF-8 makes it none that is known."""
    found = Headers(scope=scope).getlist("content-type")
    if len(found) != 1:
        return ""
    name, *parameters = found[0].lower().split(";")
    charsets = [value.strip().strip('"') for key, _, value in (each.partition("=") for each in parameters) if key.strip() == "charset"]
    return name.strip() if set(charsets) <= {"utf-8", "utf8"} else ""


def _is_own(host: str, web: Web) -> bool:
    name = _name(host)
    if name in ("localhost", urlsplit(web.url).hostname) or _is_address(name):
        return True
    return any(taken == "*" or taken.lower() in (host, name, f"{name}:*") for taken in web.hosts)


def _name(host: str) -> str:
    """Without the port: ``[::1]:80`` is ``::1``."""
    if host.startswith("["):
        name, end, rest = host[1:].partition("]")
        return name if end and rest[:1] in ("", ":") else ""
    return host.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _origin(text: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None for what is no http origin, ``null`` among it."""
    try:
        parts = urlsplit(text.strip().lower())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port or _PORTS[parts.scheme]
