"""A server's own UI in Chromium: an app fills in the gate's form, and only the gate's buttons decide. The UI is
attached through the store, as a gate does that has read it."""

from __future__ import annotations

import pytest
from playwright.sync_api import FrameLocator, Page, expect

from samplegate.reviews.review import Review
from tests.acceptance.browser.conftest import Site
from tests.fakes import server_uis
from tests.fakes.server_uis import PICKER, Dialect, ready

pytestmark = pytest.mark.timeout(180)
BOTH = pytest.mark.parametrize("dialect", ["sep-3118", "rich"])


def attach(site: Site, review: Review, body: bytes = PICKER) -> str:
    """Add the UI to the review. Returns its hash."""
    ui = ready(review, body)
    site.run(lambda: site.listener.store.write(lambda store: store.attach_ui(review.id, ui, body)))
    return ui.sha256


def opened(page: Page, site: Site, review: Review, body: bytes = PICKER) -> FrameLocator:
    """The page of a review with its UI."""
    site.open(review)
    attach(site, review, body)
    page.goto(f"/reviews/{review.id}")
    return page.frame_locator("#ui iframe")


def calm(page: Page) -> None:
    """Wait until a press of a button decides again."""
    expect(page.locator("#decision.settling")).to_have_count(0)


@BOTH
def test_an_app_fills_in_the_form_and_only_the_gates_button_sends(page: Page, site: Site, dialect: Dialect) -> None:
    review = server_uis.review(dialect=dialect)
    picker = opened(page, site, review)
    expect(picker.get_by_role("heading")).to_have_text("Which service should be moved, and how?")
    for wrong in ("#gggggg", "3b82f6"):
        picker.get_by_label("Color", exact=True).fill(wrong)
        picker.get_by_role("button", name="Use this color").click()
        expect(picker.get_by_role("alert")).not_to_be_empty()
        expect(page.get_by_label("Color required")).to_have_value(wrong)
        expect(page.locator("#ui-told")).to_contain_text("do not fit")
    picker.get_by_label("Color", exact=True).fill("#3b82f6")
    picker.get_by_label("Name").fill("Blue")
    picker.get_by_role("button", name="Use this color").click()
    expect(page.get_by_label("Color required")).to_have_value("#3b82f6")
    expect(page.locator("#ui-told")).to_contain_text("Nothing was sent yet")
    assert "pending" == site.get(review.id).state
    calm(page)
    page.get_by_role("button", name="Accept and send").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert {"action": "accept", "content": {"color": "#3b82f6", "name": "Blue"}} == verdict.result
    assert ready(review, PICKER).sha256 == verdict.ui
    expect(page.locator("iframe")).to_have_count(0)
