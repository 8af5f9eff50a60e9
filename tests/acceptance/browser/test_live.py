"""The page's script: the list and a review follow events, and clocks count down."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from samplegate.reviews.review import Verdict
from tests.acceptance.browser.conftest import Site
from tests.fakes import page_reviews as shown
from tests.fakes.reviews import NOW

pytestmark = pytest.mark.timeout(120)


def decide(site: Site, id: str) -> None:
    """Reject the review through another door."""
    site.run(
        lambda: site.listener.store.write(lambda store: store.decide(id, Verdict(word="reject"), who="ben", door="cli"))
    )


def live(page: Page) -> Page:
    expect(page.locator(".live.on")).to_be_attached()
    return page


def test_the_list_follows_what_is_asked_and_decided_and_keeps_the_focus_and_the_filter(page: Page, site: Site) -> None:
    page.goto("/reviews")
    live(page)
    expect(page.get_by_text("No pending reviews.")).to_be_visible()
    site.open(shown.sampling())
    link = page.get_by_role("link", name="Sampling request from tickets")
    expect(link).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("1 pending review")
    assert "(1) Pending reviews - samplegate" == page.title()
    link.focus()
    site.open(shown.url())
    expect(page.get_by_role("listitem")).to_have_count(2)
    expect(link).to_be_focused()
    decide(site, shown.sampling().id)
    expect(page.get_by_role("listitem")).to_have_count(1)
    page.get_by_label("Server").fill("deployer")
    page.get_by_role("button", name="Filter").click()
    live(page)
    expect(page.get_by_text("No pending reviews match the filter")).to_be_visible()
    site.open(shown.answer(), shown.form())
    expect(page.get_by_role("link", name="Form with 13 fields from deployer")).to_be_visible()
    expect(page.get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_label("Server")).to_have_value("deployer")


def test_a_review_that_somebody_else_decides_says_so_and_takes_no_more_verdicts(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.goto(f"/reviews/{shown.sampling().id}")
    page.get_by_role("textbox", name="Reason").fill("half a thought")
    decide(site, shown.sampling().id)
    expect(page.locator("#standing")).to_contain_text("Rejected by ben")
    expect(page.get_by_role("button", name="Approve", exact=True)).to_be_disabled()
    expect(page.get_by_role("textbox", name="Reason")).to_have_value("half a thought")


def test_the_page_of_a_refused_form_still_follows_and_leads_back(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.goto(f"/reviews/{shown.sampling().id}")
    page.get_by_label("Show the reason to the server").check()
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("alert")).to_contain_text("Not submitted")
    assert page.url.endswith("/verdict")
    decide(site, shown.sampling().id)
    expect(page.locator("#standing")).to_contain_text("Rejected by ben")
    page.get_by_role("link", name="Reload to see the result").click()
    expect(page.get_by_role("heading", name="Decision", exact=True)).to_be_visible()
    assert page.url.endswith(shown.sampling().id)


def test_a_clock_runs_down_and_what_was_typed_is_not_lost_when_it_ends(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.clock.install(time=NOW)
    page.clock.pause_at(NOW + 100)  # a clock that is wrong: the listener's counts
    page.goto(f"/reviews/{shown.sampling().id}")
    clock = page.get_by_role("timer").first
    expect(clock).to_have_text("42 s")
    page.clock.run_for(12_000)
    expect(clock).to_have_text("30 s")
    page.get_by_role("textbox", name="Reason").fill("half a thought")
    site.listener.now = NOW + 50
    page.clock.run_for(60_000)
    expect(page.locator("#standing")).to_contain_text("A decision now answers the next identical request")
    expect(page.get_by_role("textbox", name="Reason")).to_have_value("half a thought")


def test_a_second_press_while_the_first_is_on_its_way_sends_nothing(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.goto(f"/reviews/{shown.sampling().id}")
    assert [False, True] == page.evaluate(
        """() => {
          const stopped = [], approve = document.querySelector("button[value=approve]");
          addEventListener("submit", (event) => stopped.push(event.defaultPrevented));
          approve.click();
          approve.click();
          return stopped;
        }"""
    )
    expect(page.locator("#standing")).to_contain_text("Approved by ann")
