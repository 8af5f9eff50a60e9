"""The address of a URL elicitation, taken apart for a person."""

from __future__ import annotations

import pytest

from samplegate.web.addresses import read


def test_the_host_stands_apart() -> None:
    found = read("https://login.example.com/consent?a=1#b")
    assert ("https://", "login.example.com", "/consent?a=1#b") == (found.before, found.host, found.after)
    assert ("login.example.com", "", ()) == (found.ascii, found.unicode, found.warnings)


@pytest.mark.parametrize("host", ["xn--pypal-4ve.com", "pаypal.com"])
def test_punycode_and_letters_that_look_like_others_are_shown_both_ways_and_warned_of(host: str) -> None:
    found = read(f"https://{host}/")
    assert ("xn--pypal-4ve.com", "pаypal.com") == (found.ascii, found.unicode)
    assert any("punycode" in warning for warning in found.warnings)
    assert any("mixes alphabets" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("url", "warning"),
    [
        ("https://bank.example@evil.example/", "user name"),
        ("http://login.example.com/", "not https"),
        ("https://127.0.0.1/", "is a number"),
        ("https://[::1]/", "is a number"),
        ("https://login.example.com:8443/", "names the port 8443"),
        ("myapp:open", "no web address"),
        ("https://login.example.com/" + "a" * 400, "very long"),
        ("https://good.example\\@evil.example/", "alike"),
        ("https://good.example/\u202emoc.live", "differently"),
        ("https://0x7f.1/", "alike"),
    ],
)
def test_what_is_doubtful_is_said(url: str, warning: str) -> None:
    assert [] != [said for said in read(url).warnings if warning in said]


@pytest.mark.parametrize("url", ["https://good.example\\@evil.example/", "https://a%2eb/", "nothing", ""])
def test_where_readers_disagree_no_host_is_named(url: str) -> None:
    found = read(url)
    assert ("", "") == (found.host, found.ascii)
    assert url == found.before


@pytest.mark.parametrize("url", ["https://login.example.com/a", "https://xn--pypal-4ve.com", "mailto:a@b", "https://[::1]:8080/x"])
def test_no_part_of_the_address_is_lost(url: str) -> None:
    found = read(url)
    assert url == found.before + found.host + found.after


def test_a_user_name_in_front_is_not_the_host() -> None:
    found = read("https://bank.example@evil.example/a")
    assert ("https://bank.example@", "evil.example", "/a") == (found.before, found.host, found.after)
