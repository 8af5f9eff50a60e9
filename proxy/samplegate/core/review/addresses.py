"""The address of a URL elicitation for a person's eyes: its host set apart, and what about it should make one look twice. Nothing is fetched (R41).

A guess by letters, and no list of look-alikes: what is not warned of is not safe.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from samplegate.core.matching import hosts

_MOST_LABEL: Final = 63
_MOST_LOOKED_AT: Final = 1_000  # characters
_MOST_PARTS: Final = 5  # of a doubtful host, or alphabets, that are told one by one
_authority: Final = re.compile(r"(?<=//)[^/?#]+")
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_TOGETHER: Final = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
)
"""Scripts that one language writes in one word."""


class Address(msgspec.Struct, frozen=True):
    """``host`` in ASCII, ``host_unicode`` as it would be read; both "" where the address has none that all readers agree on."""

    scheme: str
    host: str
    host_unicode: str
    port: int | None
    """None: the scheme's own."""
    bare: str
    """The address without user, query and fragment, which may hold secrets."""
    warnings: tuple[str, ...]
    """Sentences for the person who decides."""


def read(url: str) -> Address:
    """What a person should see of a URL. Never raises, whatever the text."""
    try:
        parts = urlsplit(url)
        port, name = parts.port, parts.hostname or ""
    except ValueError:
        return Address("", "", "", None, "", ("it cannot be read as an address", *_foreign(url, "")))
    ascii_host = hosts.ascii_host(f"[{name}]" if ":" in name else name) if name else ""
    if "\\" in parts.netloc:  # browsers take it for a slash, and everybody else for a letter
        ascii_host = None
    host = ascii_host or ""
    shown = ".".join(_unicode(label) for label in host.split("."))
    own = None if port == _PORTS.get(parts.scheme) else port
    letters = [] if host else _foreign(url, "" if "\\" in parts.netloc else name)
    warnings = [*_of_url(url, parts, own), *_of_host(ascii_host, shown), *letters]
    return Address(parts.scheme, host, shown, own, _bare(parts, host, own), tuple(warnings))


def _bare(parts: SplitResult, host: str, port: int | None) -> str:
    if not host:
        return f"{parts.scheme}:" if parts.scheme else ""
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}{f':{port}' if port is not None else ''}{parts.path}"


def _of_url(url: str, parts: SplitResult, port: int | None) -> list[str]:
    found = []
    if parts.username is not None or parts.password is not None:
        found.append("it holds a user name before an @, which is not its host")
    if parts.scheme != "https":
        found.append("it is not https: what is entered there can be read on its way" if parts.scheme == "http" else "it is no web address")
    if port is not None:
        found.append(f"it names the port {port}")
    if hosts.read(url) is None and parts.username is None:
        found.append("programs may read its host differently")
    return found


def _of_host(host: str | None, shown: str) -> list[str]:
    if not host:
        return [] if host == "" else ["its host is none that all programs read alike"]
    if _is_number(host):
        return ["its host is a number, no name"]
    found = []
    if any(label.startswith("xn--") for label in host.split(".")):
        found.append(f"its host is written in letters of another alphabet, in plain ASCII {host}: it may only look like a known one (punycode)")
    if mixed := [label for label in shown.split(".") if _is_mixed(label)]:
        found.append(f"{len(mixed)} part{'' if len(mixed) == 1 else 's'} of its host mixes alphabets")
    return found


def _foreign(url: str, name: str) -> list[str]:
    """What a host that has no one reading is written with, part by part where ``name`` tells them. It names no host: readers differ on it."""
    if name.isascii():
        found = _authority.search(url)
        scripts = _scripts(found[0][:_MOST_LOOKED_AT]) if found and not found[0].isascii() else ()
        return [f"where its host should stand are letters that are not plain ASCII: {_listed(scripts)}"] if scripts else []
    foreign = [(number, label) for number, label in enumerate(name.split("."), 1) if not label.isascii()]
    rest = len(foreign) - _MOST_PARTS
    return [*(_part(*each) for each in foreign[:_MOST_PARTS]), *([f"{rest} more parts of its host are not in plain ASCII"] if rest > 0 else [])]


def _part(number: int, label: str) -> str:
    label = label[:_MOST_LOOKED_AT]
    letters = f"its letters are {_listed(scripts)}" if (scripts := _scripts(label)) else "it has no letters"
    signs = "" if all(_is_plain(c) for c in label) else ", and other signs are among them"
    written = _punycode(label)
    programs = f"programs may write it as {written}" if written else "it has no one form in plain ASCII"
    return f"part {number} of its host is not in plain ASCII: {letters}{signs}; {programs}"


def _is_plain(character: str) -> bool:
    """What a name may be made of, in any alphabet."""
    return character == "-" or unicodedata.category(character)[0] in "LMN"


def _punycode(label: str) -> str:
    """The label as ``xn--`` (RFC 3492), where it is letters, marks and digits alone, none of which stands for another, and not too long; else ""."""
    plain = unicodedata.normalize("NFC", label.lower())
    if plain.isascii() or unicodedata.normalize("NFKC", plain) != plain or not all(_is_plain(c) for c in plain):
        return ""
    made = f"xn--{plain.encode('punycode').decode('ascii')}"
    return made if len(made) <= _MOST_LABEL else ""


def _scripts(text: str) -> tuple[str, ...]:
    """The alphabets of its letters, as Unicode names them, in their order."""
    names = (unicodedata.name(c, "UNKNOWN").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ") for c in text if unicodedata.category(c)[0] == "L")
    return tuple(dict.fromkeys(name.split(" ")[0].split("-")[0] for name in names))


def _listed(scripts: Sequence[str]) -> str:
    words = [script if script == "CJK" else script.capitalize() for script in scripts[:_MOST_PARTS]]
    words += [f"{len(scripts) - _MOST_PARTS} more alphabets"] if len(scripts) > _MOST_PARTS else []
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _is_number(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _unicode(label: str) -> str:
    """A label in its own letters; as it is where it is no punycode, or holds more than letters, marks and digits."""
    if not label.startswith("xn--") or len(label) > _MOST_LABEL:
        return label
    try:
        text = label[4:].encode().decode("punycode")
    except (UnicodeError, ValueError, OverflowError):
        return label
    return text if all(_is_plain(c) for c in text) and not text.isascii() and unicodedata.normalize("NFC", text) == text else label


def _is_mixed(label: str) -> bool:
    """Whether its letters are of more alphabets than one language writes with."""
    scripts = frozenset(_scripts(label))
    return len(scripts) > 1 and not any(scripts <= together for together in _TOGETHER)
