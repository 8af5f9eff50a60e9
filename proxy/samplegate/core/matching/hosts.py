"""The scheme and the ASCII host of a URL, or that it has no single reading. Not a check of what may be asked: ``urls.py`` refuses whole requests.

A rule's ``host`` is matched here and a person's browser opens the URL, so nothing counts as read that RFC 3986 and the browsers'
standard could take to two hosts (R41): user names, backslashes, blanks, percent signs, numbers for addresses, trailing dots, IDNA 2003
against its successors.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_scheme: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_odd: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]")
_authority: Final = re.compile(r"//(\[[0-9A-Fa-f:.]+\]|[^/?#\[\]@:%]+)(?::([0-9]{0,5}))?(?=[/?#]|\Z)")
_label: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_number: Final = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")
_dotted: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(?:\.|\Z)){4}\Z")

_HIERARCHICAL: Final = frozenset({"http", "https", "ws", "wss", "ftp"})
"""Browsers find a host in these even where the two slashes are missing or are three."""
_MAX_HOST: Final = 253


class Address(NamedTuple):
    """Lower case; ``host`` is "" where the URL has none, without brackets for IPv6."""

    scheme: str
    host: str


def read(url: str) -> Address | None:
    """The scheme and host that every reader takes from ``url``; None where two could differ."""
    scheme = _scheme.match(url)
    if scheme is None or _odd.search(url):
        return None
    name = scheme[1].lower()
    rest = url[scheme.end() :]
    if not rest.startswith("//"):
        return None if name in _HIERARCHICAL else Address(name, "")
    authority = _authority.match(rest)
    if authority is None:  # an empty host, a user name, a percent sign, a port that is none
        return Address(name, "") if rest[2:3] in ("", "/") and name not in _HIERARCHICAL | {"file"} else None
    if int(authority[2] or 0) > 65535 or _hides_user(rest, authority.end()):
        return None
    host = ascii_host(authority[1])
    return None if host is None else Address(name, host)


def is_web(url: str) -> bool:
    """Whether ``url`` is by http or https, which every reader sees alike even where its host has two readings."""
    scheme = _scheme.match(url)
    return scheme is not None and scheme[1].lower() in ("http", "https")


def _hides_user(rest: str, end: int) -> bool:
    """``https://good.example?@evil.example``: old parsers look for the @ before they look for the end of the authority."""
    return rest[end : end + 1] in ("?", "#") and "@" in rest[end:].partition("/")[0]


def ascii_host(host: str) -> str | None:
    """A host in its ASCII form, lower case, None where the readers of host names disagree about it."""
    if host[:1] == "[":
        return _ipv6(host[1:-1])
    labels = [_ascii_label(label) for label in host.split(".")]
    if any(label is None for label in labels):
        return None
    name = ".".join(label for label in labels if label is not None)
    if len(name) > _MAX_HOST:
        return None
    if _number.match(name.rpartition(".")[2]) and not _dotted.match(name):
        return None  # 127.1, 0x7f.1 and 2130706433 are addresses to browsers only
    return name


def _ipv6(text: str) -> str | None:
    from ipaddress import AddressValueError, IPv6Address

    try:
        address = IPv6Address(text)
    except AddressValueError:
        return None
    return None if address.ipv4_mapped is not None else str(address)


def _ascii_label(label: str) -> str | None:
    """One label; a non-ASCII one only where IDNA 2003 and plain lower-casing give the same (ß and the joiners do not)."""
    if label.isascii():
        lower = label.lower()
        return lower if _label.match(lower) else None
    import unicodedata
    from encodings.idna import ToASCII
    from stringprep import in_table_a1

    plain = unicodedata.normalize("NFC", label.lower())
    if any(in_table_a1(c) or (c != "-" and unicodedata.category(c)[0] not in "LMN") for c in plain):
        return None  # other full stops, signs, and what IDNA 2003 does not know yet
    try:
        ours = b"xn--" + plain.encode("punycode")
        return ours.decode("ascii") if ToASCII(label) == ours else None
    except UnicodeError:
        return None
