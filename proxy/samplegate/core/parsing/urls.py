"""The address of a URL elicitation: is it one that every reader takes to the same host. Not a fetch: nothing here touches the net (R41)."""

from __future__ import annotations

import re
from typing import Final

MAX_CHARACTERS: Final = 8192  # beyond what browsers and web servers take

_scheme: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.")
_ambiguous: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\\u00a0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")
_numeric: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9a-fA-F]*)\.?\Z", re.DOTALL)
_dotted: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(?:\.(?!\Z)|\Z)){4}")


def fault(url: str) -> str | None:
    """Why ``url`` is no absolute URL with one reading (R40, RFC 3986), None if it is one.

    http and https need a host. Refused is also what browsers read otherwise than this parser, because a rule's ``host`` is
    matched here and the person's browser opens it: blanks, control characters, backslashes, percent signs and odd numbers in the host.
    """
    if len(url) > MAX_CHARACTERS:
        return f"is longer than {MAX_CHARACTERS} characters"
    if _ambiguous.search(url):
        return "holds a blank, a control character or a backslash"
    if not _scheme.match(url):
        return "is not an absolute URL"
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "has a host or port that cannot be read"
    if parts.scheme in ("http", "https"):
        return _host_fault(host or "")
    return None


def _host_fault(host: str) -> str | None:
    if not host:
        return "has no host"
    if ":" in host:  # an IPv6 address, already checked by the parser
        return None
    if re.search(r"[%<>^|\[\]\"`{}]", host):
        return "has a host with a character that no host has"
    if _numeric.match(host) and not _dotted.match(host):
        return "has a number for a host that is not four decimal parts"
    return None
