"""How a browser comes from elsewhere: by a link, which leads who is signed in to the review, and by a form, which leads
nowhere."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.web.browser import shown
from tests.web.browser.conftest import Site
from tests.web.listener import ADMIN

pytestmark = pytest.mark.timeout(120)
MAIL = "http://mail.example.net/"


def elsewhere(page: Page, body: str) -> None:
    """A page of another site, with this in it."""
    page.route(
        MAIL, lambda route: route.fulfill(content_type="text/html", body=f"<!doctype html><title>mail</title>{body}")
    )
    page.goto(MAIL)


def test_a_link_in_a_message_leads_who_is_signed_in_straight_to_the_review(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    elsewhere(page, f'<a href="{site.url}/reviews/{shown.sampling().id}">a review waits</a>')
    page.get_by_role("link").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    expect(page).to_have_url(re.compile(f"/reviews/{shown.sampling().id}"))


def test_a_link_in_a_message_leads_a_stranger_to_the_review_by_way_of_the_sign_in(
    context_of: object, site: Site
) -> None:
    site.open(shown.sampling())
    page: Page = context_of().new_page()  # type: ignore[operator]
    elsewhere(page, f'<a href="{site.url}/reviews/{shown.sampling().id}">a review waits</a>')
    page.get_by_role("link").click()
    page.get_by_label("Token").fill(ADMIN)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile(f"/reviews/{shown.sampling().id}"))


def test_a_form_of_another_site_signs_nobody_in(context_of: object, site: Site) -> None:
    page: Page = context_of().new_page()  # type: ignore[operator]
    elsewhere(
        page,
        f'<form method="post" action="{site.url}/reviews/sign-in"><input name="token"'
        f' value="{ADMIN}"><button>win</button></form>',
    )
    page.get_by_role("button").click()
    expect(page.get_by_text("a page of another site sent this")).to_be_visible()
    assert [] == page.context.cookies()


def test_a_form_of_another_site_decides_nothing(page: Page, site: Site) -> None:
    opened = shown.sampling()
    site.open(opened)
    fields = f'<input name="verdict" value="approve"><input name="digest" value="{opened.digest}">'
    elsewhere(
        page, f'<form method="post" action="{site.url}/reviews/{opened.id}/verdict">{fields}<button>win</button></form>'
    )
    page.get_by_role("button").click()
    expect(page.get_by_text("a page of another site sent this")).to_be_visible()
    assert "pending" == site.get(opened.id).state
