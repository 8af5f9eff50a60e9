"""Visits from other sites: a link leads to the review, and a form is rejected."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.acceptance.browser.conftest import MAIL, Site
from tests.fakes import page_reviews as shown
from tests.fakes.reviewers_listener import ADMIN

pytestmark = pytest.mark.timeout(120)


def elsewhere(page: Page, body: str) -> None:
    """A page of another site with this content."""
    page.route(
        MAIL, lambda route: route.fulfill(content_type="text/html", body=f"<!doctype html><title>mail</title>{body}")
    )
    page.goto(MAIL)


def test_a_stranger_is_signed_in_by_no_form_of_another_site_and_led_to_the_review_of_a_link_by_way_of_the_sign_in(
    context_of: Callable[..., BrowserContext], site: Site
) -> None:
    site.open(shown.sampling())
    page = context_of().new_page()
    elsewhere(
        page,
        f'<form method="post" action="{site.url}/reviews/sign-in"><input name="token"'
        f' value="{ADMIN}"><button>win</button></form>'
        f'<a href="{site.url}/reviews/{shown.sampling().id}">a review waits</a>',
    )
    page.get_by_role("button").click()
    expect(page.get_by_text("the request comes from another site")).to_be_visible()
    assert [] == page.context.cookies()
    page.goto(MAIL)
    page.get_by_role("link").click()
    page.get_by_label("Token").fill(ADMIN)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile(f"/reviews/{shown.sampling().id}"))


def test_who_is_signed_in_decides_by_no_form_of_another_site_and_is_led_straight_to_the_review_of_a_link(
    page: Page, site: Site
) -> None:
    opened = shown.sampling()
    site.open(opened)
    fields = f'<input name="do" value="approve"><input name="digest" value="{opened.digest}">'
    elsewhere(
        page,
        f'<form method="post" action="{site.url}/reviews/{opened.id}/verdict">{fields}<button>win</button></form>'
        f'<a href="{site.url}/reviews/{opened.id}">a review waits</a>',
    )
    page.get_by_role("button").click()
    expect(page.get_by_text("the request comes from another site")).to_be_visible()
    assert "pending" == site.get(opened.id).state
    page.goto(MAIL)
    page.get_by_role("link").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    expect(page).to_have_url(re.compile(f"/reviews/{opened.id}"))


def test_a_token_in_the_fragment_fills_the_field_and_is_gone_from_the_address(
    context_of: Callable[..., BrowserContext], site: Site
) -> None:
    page = context_of().new_page()
    page.goto(f"/reviews/sign-in#{ADMIN}")
    expect(page.get_by_label("Token")).to_have_value(ADMIN)
    assert f"{site.url}/reviews/sign-in" == page.url
    expect(page.get_by_role("button", name="Sign in")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.url}/reviews")
