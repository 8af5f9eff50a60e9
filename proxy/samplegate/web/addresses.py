"""Where in the text of an address its host stands, for a page that sets it apart (R41). What is doubtful about it is ``core.review.addresses``'."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from samplegate.core.parsing.urls import MAX_CHARACTERS
from samplegate.core.review import addresses

LONG: Final = 300  # characters

_host: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#\\]*@)?(\[[^\]/?#\\]*\]|[^/?#\\@:]*)")


class Address(msgspec.Struct, frozen=True):
    """A URL taken apart. ``before + host + after`` is all of it where the host has one reading, else ``host`` is "" and all is in ``before``."""

    before: str
    host: str
    after: str
    ascii: str
    """The host as the network sees it, "" where readers disagree."""
    unicode: str
    """The host with its punycode labels in their letters, "" where it has none."""
    warnings: tuple[str, ...]


def read(url: str) -> Address:
    """The parts of a URL and every doubt about it, as sentences."""
    url = url[: MAX_CHARACTERS + 1]
    known = addresses.read(url)
    found = _host.match(url) if known.host else None
    start, end = found.span(1) if found else (len(url), len(url))
    doubts = [f"{doubt[0].upper()}{doubt[1:]}." for doubt in known.warnings]
    long = ["It is very long: look at its host first."] if len(url) > LONG else []
    letters = known.host_unicode if known.host_unicode != known.host else ""
    return Address(url[:start], url[start:end], url[end:], known.host, letters, (*doubts, *long))
