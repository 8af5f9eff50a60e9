"""Addresses for a person's eyes: the host as it is and as it reads, and what to look at twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.core.review.addresses import Address, read


def test_a_plain_address_has_nothing_to_warn_of() -> None:
    expected = Address("https", "sign.example.com", "sign.example.com", None, "https://sign.example.com/in", ())
    assert expected == read("https://Sign.Example.com:443/in?state=1#top")


@pytest.mark.parametrize(
    ("url", "host", "shown", "warning"),
    [
        ("https://xn--pypl-53dc.com/", "xn--pypl-53dc.com", "p\u0430yp\u0430l.com", "(punycode)"),
        ("https://p\u0430yp\u0430l.com/", "xn--pypl-53dc.com", "p\u0430yp\u0430l.com", "mixes alphabets"),
        ("https://xn--e1awd7f.com/", "xn--e1awd7f.com", "\u0435\u0440\u0456\u0441.com", "(punycode)"),
        ("https://user@evil.example/", "evil.example", "evil.example", "user name before an @"),
        ("https://good.example:pw@evil.example/", "evil.example", "evil.example", "user name before an @"),
        ("http://a.example/", "a.example", "a.example", "not https"),
        ("https://a.example:8443/", "a.example", "a.example", "names the port 8443"),
        ("https://127.0.0.1/", "127.0.0.1", "127.0.0.1", "is a number"),
        ("https://[2001:db8::1]/", "2001:db8::1", "2001:db8::1", "is a number"),
        ("https://stra\u00dfe.example/", "", "", "none that all programs read alike"),
        ("https://good.example?@evil.example/", "good.example", "good.example", "read its host differently"),
        ("https://good.example\\@evil.example/", "", "", "none that all programs read alike"),
        ("mailto:a@b.example", "", "", "no web address"),
        ("https://a.example:99999/", "", "", "cannot be read"),
    ],
)
def test_what_to_look_at_twice_is_said(url: str, host: str, shown: str, warning: str) -> None:
    found = read(url)
    assert (host, shown) == (found.host, found.host_unicode)
    assert any(warning in said for said in found.warnings), found.warnings


APPLE = "\u0430\u0440\u0440\u04cf\u0435"


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (f"{APPLE}.com", ["part 1 of its host is not in plain ASCII: its letters are Cyrillic; programs may write it as xn--80ak6aa92e"]),
        ("stra\u00dfe.example", ["part 1 of its host is not in plain ASCII: its letters are Latin; programs may write it as xn--strae-oqa"]),
        (
            f"www.p{APPLE}.{APPLE}",
            [
                "part 2 of its host is not in plain ASCII: its letters are Latin and Cyrillic; programs may write it as xn--p-8sbp7ba27f",
                "part 3 of its host is not in plain ASCII: its letters are Cyrillic; programs may write it as xn--80ak6aa92e",
            ],
        ),
        ("\uff45xample.com", ["part 1 of its host is not in plain ASCII: its letters are Latin; it has no one form in plain ASCII"]),
        (
            "\u2665.com",
            ["part 1 of its host is not in plain ASCII: it has no letters, and other signs are among them; it has no one form in plain ASCII"],
        ),
        (
            "good\u3002example.com",
            ["part 1 of its host is not in plain ASCII: its letters are Latin, and other signs are among them; it has no one form in plain ASCII"],
        ),
    ],
)
def test_a_host_that_readers_disagree_on_is_told_by_its_letters(host: str, said: list[str]) -> None:
    found = read(f"https://user@{host}:444/login")
    assert ("", "", "https:") == (found.host, found.host_unicode, found.bare)
    assert said == [warning for warning in found.warnings if "ASCII" in warning]


@pytest.mark.parametrize("url", ["https://\u0430\\@evil.example/", "https://\u0430:\u0430:1/", "https://a\uff0fb/"])
def test_where_even_its_place_is_doubtful_only_the_letters_are_told(url: str) -> None:
    warnings = read(url).warnings
    assert any("where its host should stand" in said for said in warnings), warnings
    assert not any("xn--" in said for said in warnings)


def test_a_host_of_very_many_parts_is_told_by_the_first() -> None:
    warnings = read("https://" + ".".join([APPLE] * 5000)).warnings
    assert 5 == sum("xn--" in said for said in warnings)
    assert any("4995 more parts" in said for said in warnings)


@pytest.mark.parametrize("host", ["a%2eb", "0x7f.1", "a..b"])
def test_a_doubtful_host_in_ascii_has_no_letters_to_tell_of(host: str) -> None:
    assert not any("ASCII" in said for said in read(f"https://{host}/").warnings)


@pytest.mark.parametrize("host", ["m\u00fcnchen.example", "\u4f8b\u3048.example", "\ud55c\uad6d\u8a9e.example"])
def test_the_letters_of_one_language_are_no_mixture(host: str) -> None:
    assert not any("mixes" in said for said in read(f"https://{host}/").warnings)
    assert host == read(f"https://{host}/").host_unicode


@pytest.mark.parametrize("label", ["xn--a", "xn--", "xn--99999999999999", "xn--\u00fc"])
def test_punycode_that_is_none_stays_as_it_is(label: str) -> None:
    assert read(f"https://{label}.example/").host_unicode in ("", f"{label}.example")


def test_neither_user_nor_query_nor_fragment_is_in_the_bare_address() -> None:
    assert "https://a.example:8443/in" == read("https://u:p@a.example:8443/in?token=s#t").bare
    assert "https://[2001:db8::1]/x" == read("https://[2001:db8::1]/x?y").bare
    assert "mailto:" == read("mailto:a@b.example").bare


@given(st.text(max_size=40).map("https://".__add__) | st.text(max_size=40))
def test_no_text_makes_it_raise(url: str) -> None:
    assert "@" not in read(url).host
