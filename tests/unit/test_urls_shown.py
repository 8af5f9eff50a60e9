"""URLs as shown to users: the host as it is and decoded, and warnings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.urls import shown_url


def test_a_plain_address_has_nothing_to_warn_of() -> None:
    found = shown_url("https://Sign.Example.com:443/in?state=1#top")
    assert ("https", "sign.example.com", "sign.example.com") == (found.scheme, found.host, found.host_unicode)
    assert (None, "https://sign.example.com/in", ()) == (found.port, found.bare, found.warnings)
    assert ("https://", "Sign.Example.com", ":443/in?state=1#top") == found.around


@pytest.mark.parametrize(
    ("url", "host", "shown", "warning"),
    [
        ("https://xn--pypl-53dc.com/", "xn--pypl-53dc.com", "p\u0430yp\u0430l.com", "(punycode)"),
        (
            "https://p\u0430yp\u0430l.com/",
            "xn--pypl-53dc.com",
            "p\u0430yp\u0430l.com",
            "its ASCII form (punycode): xn--pypl-53dc.com",
        ),
        ("https://xn--e1awd7f.com/", "xn--e1awd7f.com", "\u0435\u0440\u0456\u0441.com", "(punycode)"),
        ("https://user@evil.example/", "evil.example", "evil.example", "user name before an @"),
        ("https://good.example:pw@evil.example/", "evil.example", "evil.example", "user name before an @"),
        ("http://a.example/", "a.example", "a.example", "not https"),
        ("https://a.example:8443/", "a.example", "a.example", "uses port 8443"),
        ("https://127.0.0.1/", "127.0.0.1", "127.0.0.1", "is an IP address"),
        ("https://[2001:db8::1]/", "2001:db8::1", "2001:db8::1", "is an IP address"),
        ("https://stra\u00dfe.example/", "", "", "is ambiguous"),
        ("https://good.example?@evil.example/", "good.example", "good.example", "disagree about the host of the URL"),
        ("https://good.example\\@evil.example/", "", "", "is ambiguous"),
        ("mailto:a@b.example", "", "", "not a web address"),
        ("https://a.example:99999/", "", "", "the URL is not valid"),
        ("myapp:open", "", "", "not a web address"),
        ("https://a.example/" + "a" * 400, "a.example", "a.example", "very long"),
        ("https://good.example/\u202emoc.live", "good.example", "good.example", "disagree"),
        ("https://0x7f.1/", "", "", "is ambiguous"),
    ],
)
def test_what_to_look_at_twice_is_said(url: str, host: str, shown: str, warning: str) -> None:
    found = shown_url(url)
    assert (host, shown) == (found.host, found.host_unicode)
    assert any(warning in said for said in found.warnings), found.warnings


APPLE = "\u0430\u0440\u0440\u04cf\u0435"


@pytest.mark.parametrize(
    ("host", "form"),
    [
        (f"{APPLE}.com", "programs may convert it to xn--80ak6aa92e.com"),
        ("stra\u00dfe.example", "programs may convert it to xn--strae-oqa.example"),
        (f"www.p{APPLE}.{APPLE}", "programs may convert it to www.xn--p-8sbp7ba27f.xn--80ak6aa92e"),
        ("\uff45xample.com", "it has no single ASCII form"),
        ("\u2665.com", "it has no single ASCII form"),
        ("good\u3002example.com", "it has no single ASCII form"),
        (".".join([APPLE] * 1500), "it has no single ASCII form"),
        (APPLE * 1500, "it has no single ASCII form"),
    ],
)
def test_a_host_that_readers_disagree_on_is_told_in_ascii_where_that_is_one(host: str, form: str) -> None:
    found = shown_url(f"https://user@{host}:444/login")
    assert ("", "", "https:") == (found.host, found.host_unicode, found.bare)
    assert [f"the host has non-ASCII letters, which may look like others; {form}"] == [
        said for said in found.warnings if "ASCII" in said
    ]


@pytest.mark.parametrize("url", ["https://\u0430\\@evil.example/", "https://\u0430:\u0430:1/", "https://a\uff0fb/"])
def test_where_even_its_place_is_doubtful_no_form_is_told(url: str) -> None:
    warnings = shown_url(url).warnings
    assert "the URL has non-ASCII letters where its host should be" in warnings
    assert not any("xn--" in said for said in warnings)


@pytest.mark.parametrize("host", ["a%2eb", "0x7f.1", "a..b"])
def test_a_doubtful_host_in_ascii_has_no_letters_to_tell_of(host: str) -> None:
    assert not any("ASCII" in said for said in shown_url(f"https://{host}/").warnings)


@pytest.mark.parametrize("host", ["m\u00fcnchen.example", "\u4f8b\u3048.example", "\ud55c\uad6d\u8a9e.example"])
def test_letters_beyond_ascii_are_shown_both_ways(host: str) -> None:
    found = shown_url(f"https://{host}/")
    assert host == found.host_unicode
    assert any(found.host in said for said in found.warnings)


@pytest.mark.parametrize("label", ["xn--a", "xn--", "xn--99999999999999", "xn--\u00fc"])
def test_punycode_that_is_none_stays_as_it_is(label: str) -> None:
    assert shown_url(f"https://{label}.example/").host_unicode in ("", f"{label}.example")


def test_neither_user_nor_query_nor_fragment_is_in_the_bare_address() -> None:
    assert "https://a.example:8443/in" == shown_url("https://u:p@a.example:8443/in?token=s#t").bare
    assert "https://[2001:db8::1]/x" == shown_url("https://[2001:db8::1]/x?y").bare
    assert "mailto:" == shown_url("mailto:a@b.example").bare


@given(st.text(max_size=40).map("https://".__add__) | st.text(max_size=40))
def test_no_text_makes_it_raise(url: str) -> None:
    assert "@" not in shown_url(url).host


@pytest.mark.parametrize("url", ["https://good.example\\@evil.example/", "https://a%2eb/", "nothing", ""])
def test_where_readers_disagree_no_host_is_named(url: str) -> None:
    found = shown_url(url)
    assert ("", (url, "", "")) == (found.host, found.around)


@pytest.mark.parametrize(
    "url", ["https://login.example.com/a", "https://xn--pypal-4ve.com", "mailto:a@b", "https://[::1]:8080/x"]
)
def test_no_part_of_the_address_is_lost(url: str) -> None:
    assert url == "".join(shown_url(url).around)


def test_a_user_name_in_front_is_not_the_host() -> None:
    assert ("https://bank.example@", "evil.example", "/a") == shown_url("https://bank.example@evil.example/a").around
