"""The app of the recipe `server-ui` in Chromium: it fills in the gate's form, also when a person chooses anew."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.browser.conftest import Site
from tests.acceptance.browser.test_server_ui import press
from tests.fakes import server_uis
from tests.fakes.page_reviews import form
from tests.paths import ROOT

pytestmark = pytest.mark.timeout(180)
PAGE: Final = (ROOT / "policies" / "recipes" / "server-ui.md").read_text("utf-8")
PERCENT: Final[dict[str, Any]] = {
    "percent": {"type": "integer", "title": "Share of traffic in percent", "minimum": 0, "maximum": 50}
}
"""Unlike the recipe's form, this one has values that the slider offers and the form does not take."""


def test_a_person_chooses_twice_and_sends_the_second_value(page: Page, site: Site) -> None:
    app = re.search(r'HTML = """(.*?)"""', PAGE, re.DOTALL)
    assert app is not None
    html = app[1].encode()
    review = form(PERCENT, ("percent",), id="rv_recipe" + "0" * 18, ui=server_uis.review().ui)
    site.open(review)
    ui = server_uis.ready(review, html)
    site.run(lambda: site.listener.store.write(lambda store: store.attach_ui(review.id, ui, html)))
    page.goto(f"/reviews/{review.id}")
    frame = page.frame_locator("#ui iframe")
    field = page.get_by_label("Share of traffic in percent required")
    accept = page.get_by_role("button", name="Accept and send")
    for value, fits in (("75", False), ("25", True), ("40", True)):
        frame.get_by_role("slider").fill(value)
        frame.get_by_role("button", name="Use this share").click()
        if value == "40":
            expect(page.locator("#ui-told")).to_contain_text("new values")
            press(page, page.get_by_role("button", name="Use the new values"))
        expect(field).to_have_value(value)
        expect(page.locator("button.proposed").filter(visible=True)).to_have_count(1 if fits else 0)
    press(page, accept)
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert {"action": "accept", "content": {"percent": 40}} == verdict.result
