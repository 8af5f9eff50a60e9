"""The address of a URL elicitation for a person who judges it: its host apart, and what makes it doubtful. Never fetched, never a link (R41, T12)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

import msgspec

from samplegate.core.matching import hosts
from samplegate.core.parsing.urls import MAX_CHARACTERS

_authority: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/*([^/?#\\]*)")
_PLAIN: Final = "It is not https: what is sent there can be read and changed on the way."
_dotted: Final = re.compile(r"[0-9.]+\Z")


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
    """The parts of a URL and every doubt about it."""
    url = url[: MAX_CHARACTERS + 1]
    known = hosts.read(url)
    found = _authority.match(url)
    start, end = found.span(1) if found and known and known.host else (len(url), len(url))
    host = url[start:end]
    name = known.host if known else ""
    letters = _letters(name)
    return Address(url[:start], host, url[end:], name, letters, tuple(_doubts(url, known, found[1] if found else "", letters)))


def _doubts(url: str, known: hosts.Address | None, authority: str, letters: str) -> list[str]:
    doubts: list[str] = []
    if known is None:
        doubts.append("Readers of addresses disagree about this one: a browser may open another host than the one that you read.")
    if "@" in authority:
        doubts.append("There is a user name in front of the host: what stands before the @ is not where it leads.")
    if letters:
        doubts.append(f"The host is written in punycode or with letters beyond a to z. Its letters can look like others: {_scripts(letters)}.")
    if known is not None and known.host:
        if _dotted.match(known.host) or ":" in known.host:
            doubts.append("The host is a number, not a name.")
        if ":" in authority.rpartition("]")[2]:
            doubts.append("It names a port of its own.")
    if known is not None and known.scheme != "https":
        doubts.append(_PLAIN if known.scheme == "http" else "It is no web address.")
    if len(url) > 300:
        doubts.append("It is very long: look at its host first.")
    return doubts


def _letters(host: str) -> str:
    """``xn--pypal-4ve.com`` as the letters that a browser may show; "" for a plain host."""
    if "xn--" not in host:
        return ""
    return ".".join(_label(label) for label in host.split("."))


def _label(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode("ascii").decode("punycode")
    except UnicodeError:
        return label


def _scripts(letters: str) -> str:
    """Which alphabets: the first word of each letter's name."""
    names = {unicodedata.name(letter, "unknown").partition(" ")[0].capitalize() for letter in letters if letter.isalpha()}
    return ", ".join(sorted(names))
