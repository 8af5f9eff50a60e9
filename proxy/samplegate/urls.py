"""Pure. URLs: the one host that all parsers agree on, validation, and how a URL is shown to a reviewer.

The gate matches a rule's ``host`` and a user's browser opens the URL. So a URL has no host here if RFC 3986 and the
WHATWG URL standard could disagree about it (R41). Examples are user names, backslashes, blanks, percent signs, numeric
addresses, trailing dots, and IDNA 2003 against its successors. No name is resolved and no URL is fetched.
"""

from __future__ import annotations

import re
import unicodedata
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

MAX_REQUESTED: Final = 8192  # characters; more than browsers and web servers accept
MAX_SETTING: Final = 2_000  # characters
LONG_URL: Final = 300  # characters; in a longer URL the host may be out of sight
PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}

_MAX_HOST: Final = 253
_MAX_LABEL: Final = 63
_HIERARCHICAL: Final = frozenset({"http", "https", "ws", "wss", "ftp"})
"""Schemes in which browsers find a host even after no slashes or three."""
_scheme: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ambiguous: Final = re.compile(
    r"[\x00-\x20\x7f-\xa0\\\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]"
)
_authority: Final = re.compile(r"//(\[[0-9A-Fa-f:.]+\]|[^/?#\[\]@:%]+)(?::([0-9]{0,5}))?(?=[/?#]|\Z)")
_label: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_number: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?\Z", re.DOTALL)
_dotted: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(?:\.(?!\Z)|\Z)){4}\Z")
_unprintable_or_non_ascii: Final = re.compile(r"[^\x21-\x7e]")
_host_part: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#\\]*@)?(\[[^\]/?#\\]*\]|[^/?#\\@:]*)")
_netloc: Final = re.compile(r"(?<=//)[^/?#]+")


class Target(NamedTuple):
    """Scheme and host in lower case. ``host`` is ASCII without brackets, "" if the URL has none."""

    scheme: str
    host: str


def split(url: str) -> SplitResult | None:
    """The parts of a URL; None if its host or port is invalid."""
    try:
        parts = urlsplit(url)
        _ = parts.hostname, parts.port
    except ValueError:
        return None
    return parts


def has_user(parts: SplitResult) -> bool:
    """Whether a user name or password, even an empty one, precedes the host."""
    return parts.username is not None or parts.password is not None


def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """The IP address that a text represents, None if it is not one. An IPv4-mapped IPv6 address becomes IPv4."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def is_loopback(host: str) -> bool:
    """Whether a host (without brackets) is this machine: `localhost`, 127.0.0.0/8 or ::1. Any other name may point
    elsewhere."""
    address = address_of(host)
    return host.lower().rstrip(".") == "localhost" if address is None else address.is_loopback


_user: Final = re.compile(r"//[^/@\s]*@")
_query: Final = re.compile(r"\?[^\s'\")]+")


def without_url_secrets(text: str) -> str:
    """A message of a library with the users and queries of its URLs removed, because these may contain secrets."""
    return _query.sub("?[removed]", _user.sub("//[removed]@", text))


def is_open(url: str) -> bool:
    """Whether data sent to a URL travels unencrypted to another machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def is_web(url: str) -> bool:
    """Whether a URL is http or https. All parsers agree on that, even if its host is ambiguous."""
    scheme = _scheme.match(url)
    return scheme is not None and scheme[1].lower() in ("http", "https")


def target(url: str) -> Target | None:
    """The scheme and host of a URL; None if parsers could disagree about them."""
    scheme = _scheme.match(url)
    if scheme is None or _ambiguous.search(url):
        return None
    name = scheme[1].lower()
    rest = url[scheme.end() :]
    if not rest.startswith("//"):
        return None if name in _HIERARCHICAL else Target(name, "")
    authority = _authority.match(rest)
    if authority is None:  # an empty host, a user name, a percent sign, an invalid port
        return Target(name, "") if rest[2:3] in ("", "/") and name not in _HIERARCHICAL | {"file"} else None
    if int(authority[2] or 0) > 65535:
        return None
    after = rest[authority.end() :]
    if after[:1] in ("?", "#") and "@" in after.partition("/")[0]:
        # https://good.example?@evil.example: old parsers look for the @ before the end of the authority
        return None
    host = ascii_host(authority[1])
    return None if host is None else Target(name, host)


def origin_of(url: str) -> str | None:
    """The origin of an http or https URL as browsers write it: ``https://ui.example.com:8443``, without a default port.

    None if parsers could disagree about it, and for IPv6 addresses, which a Content-Security-Policy cannot name.
    """
    found, parts = target(url), split(url)
    if found is None or parts is None or found.scheme not in ("http", "https") or not found.host or ":" in found.host:
        return None
    port = "" if parts.port in (None, PORTS[found.scheme]) else f":{parts.port}"
    return f"{found.scheme}://{found.host}{port}"


def ascii_host(host: str) -> str | None:
    """A host in ASCII and lower case, without brackets; None if implementations disagree about it."""
    if host[:1] == "[":
        try:
            address = IPv6Address(host[1:-1])
        except AddressValueError:
            return None
        return None if address.ipv4_mapped is not None else str(address)
    labels = [_ascii_label(label) for label in host.split(".")]
    name = ".".join(label for label in labels if label is not None)
    return None if None in labels or len(name) > _MAX_HOST or _is_odd_number(name) else name


def _is_odd_number(host: str) -> bool:
    """127.1, 0x7f.1 and 2130706433 are addresses only in browsers."""
    return _number.match(host) is not None and _dotted.match(host) is None


def _ascii_label(label: str) -> str | None:
    """One label in ASCII. A non-ASCII label is accepted only if IDNA 2003 and plain lower-casing give the same, which ß
    and the joiners do not."""
    if label.isascii():
        lower = label.lower()
        return lower if _label.match(lower) else None
    from encodings.idna import ToASCII
    from stringprep import in_table_a1

    plain = unicodedata.normalize("NFC", label.lower())
    if any(in_table_a1(c) or not _is_plain(c) for c in plain):
        return None  # other full stops, symbols, and characters that IDNA 2003 does not know
    try:
        ours = b"xn--" + plain.encode("punycode")
        return ours.decode("ascii") if ToASCII(label) == ours else None
    except UnicodeError:
        return None


def _is_plain(character: str) -> bool:
    """Whether a character may be part of a name: a letter, mark or digit of any alphabet, or a hyphen."""
    return character == "-" or unicodedata.category(character)[0] in "LMN"


# --- validation


def requested_url_error(url: str) -> str | None:
    """Why a URL that a user should open is not an absolute, unambiguous URL (R40, RFC 3986); None if it is. http and
    https need a host."""
    if len(url) > MAX_REQUESTED:
        return f"is longer than {MAX_REQUESTED} characters"
    if _ambiguous.search(url):
        return "contains a space, a control character or a backslash"
    scheme = _scheme.match(url)
    if scheme is None or scheme.end() == len(url):
        return "is not an absolute URL"
    parts = split(url)
    if parts is None:
        return "has an invalid host or port"
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or ":" in host:  # `split` has validated an IPv6 address
        return None
    if not host:
        return "has no host"
    if re.search(r"[%<>^|\[\]\"`{}]", host):
        return "has a host with an invalid character"
    return "has a numeric host that is not a dotted IPv4 address" if _is_odd_number(host) else None


def url_error(url: str, *, query: bool = False, secure: bool = False) -> str | None:
    """Why a configured URL is not a usable http(s) URL, None if it is. The message does not repeat the URL, because
    parts of it may be secret.

    ``query`` allows a query. ``secure`` allows plain http only to this machine.
    """
    if len(url) > MAX_SETTING or _unprintable_or_non_ascii.search(url):
        return (
            f"is not a valid URL: it is longer than {MAX_SETTING} characters, or contains spaces or non-ASCII"
            " characters;"
            " write these as %XX"
        )
    parts = split(url)
    if parts is None:
        return "is not a URL; use a URL such as https://mcp.example.com/mcp"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "is not an http or https URL with a host; use a URL such as https://mcp.example.com/mcp"
    if has_user(parts):
        return "contains a user name or a password; put credentials in a header"
    if "#" in url or ("?" in url and not query):
        return f"contains a {'fragment' if '#' in url else 'query'}; remove it"
    if secure and is_open(url):
        return "is plain http to another machine, so others can read and change the traffic; use https"
    return None


# --- display


class ShownUrl(msgspec.Struct, frozen=True):
    """A URL for display. ``host`` is ASCII (punycode) and ``host_unicode`` its readable form; both are "" if parsers
    disagree about the host."""

    scheme: str
    host: str
    host_unicode: str
    port: int | None
    """None means the scheme's default port."""
    bare: str
    """The URL without user, query and fragment, because these may contain secrets."""
    warnings: tuple[str, ...]
    """Sentences for the reviewer. No warnings does not mean that the URL is safe."""
    around: tuple[str, str, str]
    """The URL split into the text before its host, the host, and the text after it. For an ambiguous host, the first
    part is the whole URL."""


def shown_url(url: str) -> ShownUrl:
    """How to show a URL that a server asks the user to open. Never raises."""
    long = ["the URL is very long; check its host first"] if len(url) > LONG_URL else []
    parts = split(url)
    if parts is None:
        return ShownUrl(
            "", "", "", None, "", ("the URL is not valid", *_non_ascii_warnings(url, ""), *long), (url, "", "")
        )
    is_split = "\\" in parts.netloc  # browsers read a backslash as a slash, other parsers as a character
    name = "" if is_split else parts.hostname or ""
    read = None if is_split else ascii_host(f"[{name}]" if ":" in name else name) if name else ""
    host = read or ""
    port = None if parts.port == PORTS.get(parts.scheme) else parts.port
    found = _host_part.match(url) if host else None
    start, end = found.span(1) if found else (len(url), len(url))
    return ShownUrl(
        scheme=parts.scheme,
        host=host,
        host_unicode=".".join(_unicode_label(label) for label in host.split(".")),
        port=port,
        bare=_without_user_and_query(parts, host, port),
        warnings=(
            *_url_warnings(url, parts, port),
            *_host_warnings(read),
            *([] if host else _non_ascii_warnings(url, name)),
            *long,
        ),
        around=(url[:start], url[start:end], url[end:]),
    )


def _without_user_and_query(parts: SplitResult, host: str, port: int | None) -> str:
    if not host:
        return f"{parts.scheme}:" if parts.scheme else ""
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}{f':{port}' if port is not None else ''}{parts.path}"


def _url_warnings(url: str, parts: SplitResult, port: int | None) -> list[str]:
    found = []
    if has_user(parts):
        found.append("the URL contains a user name before an @, which is not its host")
    if parts.scheme != "https":
        found.append(
            "the URL is not https, so data entered there is sent unencrypted"
            if parts.scheme == "http"
            else "the URL is not a web address"
        )
    if port is not None:
        found.append(f"the URL uses port {port}")
    if target(url) is None and parts.username is None:
        found.append("programs may disagree about the host of the URL")
    return found


def _host_warnings(host: str | None) -> list[str]:
    if host is None:
        return ["the host is ambiguous"]
    if address_of(host) is not None:
        return ["the host is an IP address, not a name"]
    if any(label.startswith("xn--") for label in host.split(".")):
        return [
            f"the host has non-ASCII letters, which may look like others; compare its ASCII form (punycode): {host}"
        ]
    return []


def _non_ascii_warnings(url: str, name: str) -> list[str]:
    """A warning about non-ASCII letters in an ambiguous host, with the ASCII form that programs may use. ``name`` is
    the host as most parsers see it."""
    if name.isascii():
        found = _netloc.search(url)
        return ["the URL has non-ASCII letters where its host should be"] if found and not found[0].isascii() else []
    labels = (
        [label if label.isascii() else _punycode(label) for label in name.split(".")]
        if len(name) <= _MAX_HOST
        else [""]
    )
    form = f"programs may convert it to {'.'.join(labels)}" if all(labels) else "it has no single ASCII form"
    return [f"the host has non-ASCII letters, which may look like others; {form}"]


def _punycode(label: str) -> str:
    """The label in punycode, ``xn--`` (RFC 3492); "" if it contains other characters than letters, marks and digits, is
    changed by NFKC, or is too long."""
    plain = unicodedata.normalize("NFC", label.lower())
    if plain.isascii() or unicodedata.normalize("NFKC", plain) != plain or not all(_is_plain(c) for c in plain):
        return ""
    made = f"xn--{plain.encode('punycode').decode('ascii')}"
    return made if len(made) <= _MAX_LABEL else ""


def _unicode_label(label: str) -> str:
    """A punycode label in Unicode; unchanged if it is not punycode or contains more than letters, marks and digits."""
    if not label.startswith("xn--") or len(label) > _MAX_LABEL:
        return label
    try:
        text = label[4:].encode().decode("punycode")
    except (UnicodeError, ValueError, OverflowError):
        return label
    return (
        text
        if all(_is_plain(c) for c in text) and not text.isascii() and unicodedata.normalize("NFC", text) == text
        else label
    )
