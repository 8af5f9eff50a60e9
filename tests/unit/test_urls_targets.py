"""The host of a URL is used only if every parser reads the same host."""

from __future__ import annotations

import pytest

from samplegate.urls import Target, origin_of, target


@pytest.mark.parametrize(
    ("url", "scheme", "host"),
    [
        ("https://good.example/path?to=a@b.c", "https", "good.example"),
        ("HTTPS://Good.Example:8443", "https", "good.example"),
        ("https://good.example:/", "https", "good.example"),
        ("https://bücher.example/", "https", "xn--bcher-kva.example"),
        ("https://BÜCHER.example/", "https", "xn--bcher-kva.example"),
        ("https://xn--bcher-kva.example/", "https", "xn--bcher-kva.example"),
        ("https://127.0.0.1:8000/", "https", "127.0.0.1"),
        ("http://[2001:DB8:0:0::1]:80/", "http", "2001:db8::1"),
        ("mailto:someone@good.example", "mailto", ""),
        ("app://callback/done", "app", "callback"),
        ("javascript:alert(1)", "javascript", ""),
        ("app:///done", "app", ""),
    ],
)
def test_a_plain_url_has_its_scheme_and_ascii_host(url: str, scheme: str, host: str) -> None:
    assert Target(scheme, host) == target(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://good.example@evil.example/",
        "https://good.example:80@evil.example/",
        "https://good.example?@evil.example/",
        "https://good.example#@evil.example/",
        "https://evil.example\\@good.example/",
        "https:\\\\good.example/",
        "https:good.example",
        "https:/good.example",
        "https:///good.example",
        "https://good.example./",
        "https://.good.example/",
        "https://good..example/",
        "https://good%2eexample/",
        "https://good.example\t/",
        " https://good.example/",
        "https://go\u200bod.example/",
        "https://good\u3002example/",
        "https://good.example:port/",
        "https://good.example:99999/",
        "https://127.1/",
        "https://0x7f.0.0.1/",
        "https://2130706433/",
        "https://0177.0.0.1/",
        "https://1.2.3.4.5/",
        "https://[::ffff:127.0.0.1]/",
        "https://[fe80::1%25eth0]/",
        "https://[::1/",
        "https://faß.example/",
        "https://\ud800.example/",
        "https://" + "a" * 64 + ".example/",
        "https://" + "a." * 130 + "example/",
        "good.example",
        "",
    ],
)
def test_a_url_that_two_readers_could_take_to_two_hosts_is_not_read(url: str) -> None:
    assert target(url) is None


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://a.example", "https://a.example"),
        ("HTTPS://A.Example:443/x?y#z", "https://a.example"),
        ("http://a.example:80/", "http://a.example"),
        ("https://a.example:80/", "https://a.example:80"),
        ("https://a.example:08443/", "https://a.example:8443"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("https://bücher.example/", "https://xn--bcher-kva.example"),
        ("https://[2001:db8::1]/", None),
        ("https://a@b.example/", None),
        ("https://a.example:99999/", None),
        ("https:a.example", None),
        ("ftp://a.example/", None),
        ("file:///x", None),
        ("app://a/b", None),
        ("javascript:alert(1)", None),
        ("a.example", None),
        ("127.0.0.1:80", None),
        ("", None),
    ],
)
def test_an_origin_is_that_of_browsers_or_none(url: str, origin: str | None) -> None:
    assert origin == origin_of(url)
