"""URLs that a request may send a user to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.urls import requested_url_error

TAKEN = [
    "https://example.com/login?state=1#top",
    "http://127.0.0.1:8080/",
    "https://[::1]:8443/x",
    "HTTPS://EXAMPLE.com",
    "https://user@example.com/",
    "https://bücher.example/",
    "https://xn--bcher-kva.example/",
    "mailto:ops@example.com",
    "vscode://extension/auth",
]
REFUSED = {
    "": "is not an absolute URL",
    "/login": "is not an absolute URL",
    "example.com/login": "is not an absolute URL",
    "//example.com": "is not an absolute URL",
    "https:": "is not an absolute URL",
    "https://": "has no host",
    "https:example.com": "has no host",
    "https:/example.com": "has no host",
    "https:///example.com": "has no host",
    "https://:443/": "has no host",
    "https://good.example\\@bad.example/": "contains a space, a control character or a backslash",
    "https://good.example/ @bad.example": "contains a space, a control character or a backslash",
    "ht\ttps://bad.example/": "contains a space, a control character or a backslash",
    "https://good.example\u200b.bad.example/": "contains a space, a control character or a backslash",
    "https://ex%61mple.com/": "has a host with an invalid character",
    "https://example.com:99999/": "has an invalid host or port",
    "https://example.com:port/": "has an invalid host or port",
    "https://[::1/": "has an invalid host or port",
    "https://good.example\uff0fx/": "has an invalid host or port",
    "http://2130706433/": "has a numeric host that is not a dotted IPv4 address",
    "http://0x7f.1/": "has a numeric host that is not a dotted IPv4 address",
    "http://127.0.0.01/": "has a numeric host that is not a dotted IPv4 address",
    "https://example.com/" + "a" * 9000: "is longer than 8192 characters",
}


@pytest.mark.parametrize("url", TAKEN)
def test_an_absolute_url_is_taken(url: str) -> None:
    assert requested_url_error(url) is None


@pytest.mark.parametrize("url", REFUSED, ids=lambda url: url[:40].encode("unicode_escape").decode() or "empty")
def test_what_browsers_could_take_elsewhere_is_refused(url: str) -> None:
    assert REFUSED[url] == requested_url_error(url)


@given(st.text() | st.text(alphabet="htps:/@[]%.#?0123456789ax\\ ", max_size=40))
def test_any_text_gets_an_answer(text: str) -> None:
    assert requested_url_error(text) is None or "http" not in str(requested_url_error(text))
