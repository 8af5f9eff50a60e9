"""The same URLs for each component that reads them: a request's check, a rule's `host`, settings, webhooks, models, and
users."""

from __future__ import annotations

from typing import Any, Final

import pytest

from samplegate.policy.file import model_checks, reviewer_checks
from samplegate.urls import is_open, is_web, requested_url_error, shown_url, target, url_error

ODD: Final = "contains a space, a control character or a backslash"
NO_HOST: Final = "has no host"
ABSOLUTE: Final = "is not an absolute URL"
PORT: Final = "has an invalid host or port"
NUMBER: Final = "has a numeric host that is not a dotted IPv4 address"
CHARACTER: Final = "has a host with an invalid character"

NO_URL: Final = "is not a URL; use a URL such as https://mcp.example.com/mcp"
NOT_HTTP: Final = "is not an http or https URL with a host; use a URL such as https://mcp.example.com/mcp"
LETTERS: Final = (
    "is not a valid URL: it is longer than 2000 characters, or contains spaces or non-ASCII characters; write"
    " these as %XX"
)
USER: Final = "contains a user name or a password; put credentials in a header"
QUERY: Final = "contains a query; remove it"
FRAGMENT: Final = "contains a fragment; remove it"
OPEN: Final = "is plain http to another machine, so others can read and change the traffic; use https"

HOOK: Final = "this is not an http or https URL; use a URL such as https://reviews.example.com/hook"
HOOK_NO_URL: Final = "this is not a URL; use a URL such as https://reviews.example.com/hook"
HOOK_USER: Final = (
    "the URL contains a user name or password, which is not sent; remove it (messages are signed instead)"
)
HOOK_FRAGMENT: Final = "the URL contains a fragment, which is not sent; remove it"
HOOK_OPEN: Final = "http sends reviews unencrypted over public networks; use https"

BASE: Final = "this is not an http or https URL; use a URL such as http://127.0.0.1:8000/v1"
BASE_NO_URL: Final = "this is not a URL; use a URL such as http://127.0.0.1:8000/v1"
BASE_USER: Final = "the URL contains a user name or password; put the key in a file and set api_key_file"
BASE_QUERY: Final = "the URL contains a query or fragment; remove it"


def asked(url: str) -> tuple[object, ...]:
    """Whether a request may send a user to the URL, and the host that a rule matches (None: more than one reading)."""
    found = target(url)
    return requested_url_error(url), None if found is None else tuple(found), is_web(url)


def written(url: str) -> tuple[object, ...]:
    """What is wrong with the URL as a setting (with and without a query and plain http), as a webhook and as a model's
    api_base."""
    return (
        url_error(url, secure=True),
        url_error(url, query=True),
        reviewer_checks._bad_address(url),
        model_checks._bad_address(url),
    )


def shown(url: str) -> tuple[object, ...]:
    found = shown_url(url)
    return found.scheme, found.host, found.host_unicode, found.port, found.bare


ROWS: Final[list[tuple[str, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]]] = [
    (
        "https://good.example/path?to=a@b.c",
        (None, ("https", "good.example"), True),
        (QUERY, None, None, BASE_QUERY),
        ("https", "good.example", "good.example", None, "https://good.example/path"),
    ),
    (
        "HTTPS://Good.Example:8443",
        (None, ("https", "good.example"), True),
        (None, None, None, None),
        ("https", "good.example", "good.example", 8443, "https://good.example:8443"),
    ),
    (
        "https://good.example:/",
        (None, ("https", "good.example"), True),
        (None, None, None, None),
        ("https", "good.example", "good.example", None, "https://good.example/"),
    ),
    (
        "https://good.example:443/",
        (None, ("https", "good.example"), True),
        (None, None, None, None),
        ("https", "good.example", "good.example", None, "https://good.example/"),
    ),
    (
        "http://good.example:80/x",
        (None, ("http", "good.example"), True),
        (OPEN, None, HOOK_OPEN, None),
        ("http", "good.example", "good.example", None, "http://good.example/x"),
    ),
    (
        "https://good.example:0/",
        (None, ("https", "good.example"), True),
        (None, None, HOOK, BASE),
        ("https", "good.example", "good.example", 0, "https://good.example:0/"),
    ),
    (
        "https://good.example#top",
        (None, ("https", "good.example"), True),
        (FRAGMENT, FRAGMENT, HOOK_FRAGMENT, BASE_QUERY),
        ("https", "good.example", "good.example", None, "https://good.example"),
    ),
    (
        "https://good.example/?",
        (None, ("https", "good.example"), True),
        (QUERY, None, None, None),
        ("https", "good.example", "good.example", None, "https://good.example/"),
    ),
    (
        "https://good.example/#",
        (None, ("https", "good.example"), True),
        (FRAGMENT, FRAGMENT, None, None),
        ("https", "good.example", "good.example", None, "https://good.example/"),
    ),
    (
        "https://good.example?@evil.example/",
        (None, None, True),
        (QUERY, None, None, BASE_QUERY),
        ("https", "good.example", "good.example", None, "https://good.example"),
    ),
    (
        "https://good.example#@evil.example/",
        (None, None, True),
        (FRAGMENT, FRAGMENT, HOOK_FRAGMENT, BASE_QUERY),
        ("https", "good.example", "good.example", None, "https://good.example"),
    ),
    (
        "https://good.example@evil.example/",
        (None, None, True),
        (USER, USER, HOOK_USER, BASE_USER),
        ("https", "evil.example", "evil.example", None, "https://evil.example/"),
    ),
    (
        "https://u:p@good.example/",
        (None, None, True),
        (USER, USER, HOOK_USER, BASE_USER),
        ("https", "good.example", "good.example", None, "https://good.example/"),
    ),
    (
        "https://@good.example/",
        (None, None, True),
        (USER, USER, HOOK_USER, BASE_USER),
        ("https", "good.example", "good.example", None, "https://good.example/"),
    ),
    (
        "https://:@good.example/",
        (None, None, True),
        (USER, USER, HOOK_USER, BASE_USER),
        ("https", "good.example", "good.example", None, "https://good.example/"),
    ),
    (
        "https://b\xfccher.example/",
        (None, ("https", "xn--bcher-kva.example"), True),
        (LETTERS, LETTERS, None, None),
        ("https", "xn--bcher-kva.example", "b\xfccher.example", None, "https://xn--bcher-kva.example/"),
    ),
    (
        "https://B\xdcCHER.example/",
        (None, ("https", "xn--bcher-kva.example"), True),
        (LETTERS, LETTERS, None, None),
        ("https", "xn--bcher-kva.example", "b\xfccher.example", None, "https://xn--bcher-kva.example/"),
    ),
    (
        "https://xn--bcher-kva.example/",
        (None, ("https", "xn--bcher-kva.example"), True),
        (None, None, None, None),
        ("https", "xn--bcher-kva.example", "b\xfccher.example", None, "https://xn--bcher-kva.example/"),
    ),
    ("https://fa\xdf.example/", (None, None, True), (LETTERS, LETTERS, None, None), ("https", "", "", None, "https:")),
    (
        "https://p\u0430yp\u0430l.com/",
        (None, ("https", "xn--pypl-53dc.com"), True),
        (LETTERS, LETTERS, None, None),
        ("https", "xn--pypl-53dc.com", "p\u0430yp\u0430l.com", None, "https://xn--pypl-53dc.com/"),
    ),
    (
        "https://good\u3002example/",
        (None, None, True),
        (LETTERS, LETTERS, None, None),
        ("https", "", "", None, "https:"),
    ),
    (
        "https://\uff45xample.com/",
        (None, None, True),
        (LETTERS, LETTERS, None, None),
        ("https", "", "", None, "https:"),
    ),
    ("https://\u2665.com/", (None, None, True), (LETTERS, LETTERS, None, None), ("https", "", "", None, "https:")),
    (
        "https://good.example\uff0fx/",
        (PORT, None, True),
        (LETTERS, LETTERS, HOOK_NO_URL, BASE_NO_URL),
        ("", "", "", None, ""),
    ),
    (
        "https://127.0.0.1:8000/v1",
        (None, ("https", "127.0.0.1"), True),
        (None, None, None, None),
        ("https", "127.0.0.1", "127.0.0.1", 8000, "https://127.0.0.1:8000/v1"),
    ),
    (
        "http://127.0.0.1:8000/v1",
        (None, ("http", "127.0.0.1"), True),
        (None, None, None, None),
        ("http", "127.0.0.1", "127.0.0.1", 8000, "http://127.0.0.1:8000/v1"),
    ),
    (
        "http://localhost:8000/v1",
        (None, ("http", "localhost"), True),
        (None, None, None, None),
        ("http", "localhost", "localhost", 8000, "http://localhost:8000/v1"),
    ),
    (
        "http://10.1.2.3/",
        (None, ("http", "10.1.2.3"), True),
        (OPEN, None, None, None),
        ("http", "10.1.2.3", "10.1.2.3", None, "http://10.1.2.3/"),
    ),
    (
        "http://reviews/",
        (None, ("http", "reviews"), True),
        (OPEN, None, None, None),
        ("http", "reviews", "reviews", None, "http://reviews/"),
    ),
    (
        "http://a.internal/",
        (None, ("http", "a.internal"), True),
        (OPEN, None, None, None),
        ("http", "a.internal", "a.internal", None, "http://a.internal/"),
    ),
    (
        "http://a.example/",
        (None, ("http", "a.example"), True),
        (OPEN, None, HOOK_OPEN, None),
        ("http", "a.example", "a.example", None, "http://a.example/"),
    ),
    ("https://127.0.0.1./", (NUMBER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://127.1/", (NUMBER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://127.0.0.01/", (NUMBER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://0x7f.0.0.1/", (NUMBER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://0X7F.1/", (NUMBER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://2130706433/", (NUMBER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://1.2.3.4.5/", (NUMBER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://a.1/", (NUMBER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://a.0x/", (NUMBER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    (
        "https://[2001:DB8:0:0::1]:443/x",
        (None, ("https", "2001:db8::1"), True),
        (None, None, None, None),
        ("https", "2001:db8::1", "2001:db8::1", None, "https://[2001:db8::1]/x"),
    ),
    (
        "http://[::1]:80/",
        (None, ("http", "::1"), True),
        (None, None, None, None),
        ("http", "::1", "::1", None, "http://[::1]/"),
    ),
    ("https://[::ffff:127.0.0.1]/", (None, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    (
        "https://[fe80::1%25eth0]/",
        (None, None, True),
        (None, None, None, None),
        ("https", "fe80::1%25eth0", "fe80::1%25eth0", None, "https://[fe80::1%25eth0]/"),
    ),
    ("https://[::1/", (PORT, None, True), (NO_URL, NO_URL, HOOK_NO_URL, BASE_NO_URL), ("", "", "", None, "")),
    ("https://[::1]x/", (None, None, True), (None, None, None, None), ("https", "::1", "::1", None, "https://[::1]/")),
    ("https://[v1.a]/", (None, None, True), (None, None, None, None), ("https", "v1.a", "v1.a", None, "https://v1.a/")),
    ("https://good.example./", (None, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://.good.example/", (None, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://good..example/", (None, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://good%2eexample/", (CHARACTER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    (
        "https://a_b.example/",
        (None, ("https", "a_b.example"), True),
        (None, None, None, None),
        ("https", "a_b.example", "a_b.example", None, "https://a_b.example/"),
    ),
    ("https://-a.example/", (None, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://a<b.example/", (CHARACTER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://a{b}.example/", (CHARACTER, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://a,b.example/", (None, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    ("https://a!b/", (None, None, True), (None, None, None, None), ("https", "", "", None, "https:")),
    (
        "https://good.example:port/",
        (PORT, None, True),
        (NO_URL, NO_URL, HOOK_NO_URL, BASE_NO_URL),
        ("", "", "", None, ""),
    ),
    (
        "https://good.example:99999/",
        (PORT, None, True),
        (NO_URL, NO_URL, HOOK_NO_URL, BASE_NO_URL),
        ("", "", "", None, ""),
    ),
    (
        "https://good.example:+80/",
        (PORT, None, True),
        (NO_URL, NO_URL, HOOK_NO_URL, BASE_NO_URL),
        ("", "", "", None, ""),
    ),
    ("https:good.example", (NO_HOST, None, True), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("https", "", "", None, "https:")),
    ("https:/good.example", (NO_HOST, None, True), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("https", "", "", None, "https:")),
    (
        "https:///good.example",
        (NO_HOST, None, True),
        (NOT_HTTP, NOT_HTTP, HOOK, BASE),
        ("https", "", "", None, "https:"),
    ),
    ("https://", (NO_HOST, None, True), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("https", "", "", None, "https:")),
    ("https:", (ABSOLUTE, None, True), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("https", "", "", None, "https:")),
    ("https://:443/", (NO_HOST, None, True), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("https", "", "", None, "https:")),
    ("https:\\\\good.example/", (ODD, None, True), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("https", "", "", None, "https:")),
    (
        "https://evil.example\\@good.example/",
        (ODD, None, True),
        (USER, USER, HOOK_USER, BASE_USER),
        ("https", "", "", None, "https:"),
    ),
    (
        "https://good.example/\\x",
        (ODD, None, True),
        (None, None, None, None),
        ("https", "good.example", "good.example", None, "https://good.example/\\x"),
    ),
    (
        "https://good.example\t/",
        (ODD, None, True),
        (LETTERS, LETTERS, HOOK, None),
        ("https", "good.example", "good.example", None, "https://good.example/"),
    ),
    (
        " https://good.example/",
        (ODD, None, False),
        (LETTERS, LETTERS, HOOK, None),
        ("https", "good.example", "good.example", None, "https://good.example/"),
    ),
    (
        "https://good.example/a b",
        (ODD, None, True),
        (LETTERS, LETTERS, HOOK, None),
        ("https", "good.example", "good.example", None, "https://good.example/a b"),
    ),
    (
        "https://go\u200bod.example/",
        (ODD, None, True),
        (LETTERS, LETTERS, None, None),
        ("https", "", "", None, "https:"),
    ),
    (
        "https://good.example/\u180e",
        (ODD, None, True),
        (LETTERS, LETTERS, None, None),
        ("https", "good.example", "good.example", None, "https://good.example/\u180e"),
    ),
    (
        "https://good.example/\u202emoc.live",
        (ODD, None, True),
        (LETTERS, LETTERS, HOOK, None),
        ("https", "good.example", "good.example", None, "https://good.example/\u202emoc.live"),
    ),
    (
        "https://good.example/\xa0",
        (ODD, None, True),
        (LETTERS, LETTERS, None, None),
        ("https", "good.example", "good.example", None, "https://good.example/\xa0"),
    ),
    (
        "https://good.example/\xfc",
        (None, ("https", "good.example"), True),
        (LETTERS, LETTERS, None, None),
        ("https", "good.example", "good.example", None, "https://good.example/\xfc"),
    ),
    ("https://\ud800.example/", (ODD, None, True), (LETTERS, LETTERS, None, None), ("https", "", "", None, "https:")),
    (
        "https://good.example/\ud800",
        (ODD, None, True),
        (LETTERS, LETTERS, None, None),
        ("https", "good.example", "good.example", None, "https://good.example/\ud800"),
    ),
    (
        "mailto:someone@good.example",
        (None, ("mailto", ""), False),
        (NOT_HTTP, NOT_HTTP, HOOK, BASE),
        ("mailto", "", "", None, "mailto:"),
    ),
    (
        "app://callback/done",
        (None, ("app", "callback"), False),
        (NOT_HTTP, NOT_HTTP, HOOK, BASE),
        ("app", "callback", "callback", None, "app://callback/done"),
    ),
    ("app:///done", (None, ("app", ""), False), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("app", "", "", None, "app:")),
    ("app:", (ABSOLUTE, ("app", ""), False), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("app", "", "", None, "app:")),
    ("app:x", (None, ("app", ""), False), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("app", "", "", None, "app:")),
    (
        "javascript:alert(1)",
        (None, ("javascript", ""), False),
        (NOT_HTTP, NOT_HTTP, HOOK, BASE),
        ("javascript", "", "", None, "javascript:"),
    ),
    ("file:///etc/passwd", (None, None, False), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("file", "", "", None, "file:")),
    (
        "file://host/x",
        (None, ("file", "host"), False),
        (NOT_HTTP, NOT_HTTP, HOOK, BASE),
        ("file", "host", "host", None, "file://host/x"),
    ),
    (
        "ws://good.example/",
        (None, ("ws", "good.example"), False),
        (NOT_HTTP, NOT_HTTP, HOOK, BASE),
        ("ws", "good.example", "good.example", None, "ws://good.example/"),
    ),
    ("ftp:/good.example", (None, None, False), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("ftp", "", "", None, "ftp:")),
    ("good.example", (ABSOLUTE, None, False), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("", "", "", None, "")),
    (
        "good.example:8080",
        (None, ("good.example", ""), False),
        (NOT_HTTP, NOT_HTTP, HOOK, BASE),
        ("good.example", "", "", None, "good.example:"),
    ),
    (
        "//good.example",
        (ABSOLUTE, None, False),
        (NOT_HTTP, NOT_HTTP, HOOK, BASE),
        ("", "good.example", "good.example", None, "://good.example"),
    ),
    ("/path", (ABSOLUTE, None, False), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("", "", "", None, "")),
    ("", (ABSOLUTE, None, False), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("", "", "", None, "")),
    ("1http://good.example", (ABSOLUTE, None, False), (NOT_HTTP, NOT_HTTP, HOOK, BASE), ("", "", "", None, "")),
    ("ht tp://good.example", (ODD, None, False), (LETTERS, LETTERS, HOOK, BASE), ("", "", "", None, "")),
    (
        "https://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example/",
        (None, ("https", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example"), True),
        (None, None, None, None),
        (
            "https",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example",
            None,
            "https://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example/",
        ),
    ),
    (
        "https://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example/",
        (None, None, True),
        (None, None, None, None),
        ("https", "", "", None, "https:"),
    ),
    (
        "https://" + "a." * 130 + "example/",
        (None, None, True),
        (None, None, None, None),
        ("https", "", "", None, "https:"),
    ),
    (
        "https://good.example/" + "a" * 2000,
        (None, ("https", "good.example"), True),
        (LETTERS, LETTERS, None, None),
        ("https", "good.example", "good.example", None, "https://good.example/" + "a" * 2000),
    ),
    (
        "https://good.example/" + "a" * 8200,
        ("is longer than 8192 characters", ("https", "good.example"), True),
        (LETTERS, LETTERS, None, None),
        ("https", "good.example", "good.example", None, "https://good.example/" + "a" * 8200),
    ),
]


@pytest.mark.parametrize(("url", "expected"), [(row[0], row[1]) for row in ROWS])
def test_what_a_request_asks_to_open(url: str, expected: tuple[Any, ...]) -> None:
    assert expected == asked(url)


@pytest.mark.parametrize(("url", "expected"), [(row[0], row[2]) for row in ROWS])
def test_what_operators_write(url: str, expected: tuple[Any, ...]) -> None:
    assert expected == written(url)


@pytest.mark.parametrize(("url", "expected"), [(row[0], row[3]) for row in ROWS])
def test_what_a_person_sees(url: str, expected: tuple[Any, ...]) -> None:
    assert expected == shown(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example", False),
        ("http://a.example", True),
        ("http://localhost", False),
        ("http://LOCALHOST.:80", False),
        ("http://127.8.8.8/", False),
        ("http://[::1]/", False),
        ("http://10.0.0.1", True),
        ("http://127.0.0.1.example", True),
    ],
)
def test_what_travels_unencrypted(url: str, expected: bool) -> None:
    assert expected == is_open(url)
