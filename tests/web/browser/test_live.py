"""What script adds: the list and a review follow what happens, clocks run down, edits are told as they are typed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from samplegate.core.review.review import Verdict
from tests.core.review.made import NOW
from tests.web.browser import shown
from tests.web.browser.conftest import Site

pytestmark = pytest.mark.timeout(120)


def decide(site: Site, id: str, word: str = "reject") -> None:
    verdict = Verdict(word=word)  # type: ignore[arg-type]
    site.run(lambda: site.house.store.write(lambda store: store.decide(id, verdict, who="ben", door="cli", now=NOW)))


def live(page: Page) -> Page:
    expect(page.locator(".live.on")).to_be_attached()
    return page


def test_the_list_follows_what_is_asked_and_decided(page: Page, site: Site) -> None:
    live(page)
    expect(page.get_by_text("Nothing waits.")).to_be_visible()
    site.open(shown.sampling())
    expect(page.get_by_role("link", name="tickets asks a model")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("1 review waits")
    assert "(1) Waiting - samplegate" == page.title()
    site.open(shown.url())
    expect(page.get_by_role("listitem")).to_have_count(2)
    decide(site, shown.sampling().id)
    expect(page.get_by_role("listitem")).to_have_count(1)


def test_the_focus_stays_where_it_is_when_the_list_changes(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    live(page)
    link = page.get_by_role("link", name="tickets asks a model")
    link.focus()
    site.open(shown.url())
    expect(page.get_by_role("listitem")).to_have_count(2)
    expect(link).to_be_focused()


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
    page.get_by_label("The server sees the reason").check()
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("alert")).to_contain_text("Not submitted")
    assert page.url.endswith("/verdict")
    decide(site, shown.sampling().id)
    expect(page.locator("#standing")).to_contain_text("Rejected by ben")
    page.get_by_role("link", name="Load the page again").click()
    expect(page.get_by_text("The verdict", exact=True)).to_be_visible()
    assert page.url.endswith(shown.sampling().id)


def test_the_address_that_a_form_is_sent_to_leads_to_its_review(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.goto(f"/reviews/{shown.sampling().id}/verdict")
    assert page.url.endswith(shown.sampling().id)
    expect(page.get_by_role("heading", level=1)).to_have_text("tickets asks a model")


def test_a_filtered_list_stays_filtered_as_it_follows(page: Page, site: Site) -> None:
    page.get_by_label("Server").fill("calendar")
    page.get_by_role("button", name="Filter").click()
    live(page)
    expect(page.get_by_text("None that waits fits the filter")).to_be_visible()
    site.open(shown.sampling(), shown.url())
    expect(page.get_by_role("link", name="calendar wants a web page opened")).to_be_visible()
    expect(page.get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_label("Server")).to_have_value("calendar")


def test_a_clock_runs_down(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.clock.install(time=NOW)
    page.clock.pause_at(NOW + 100)  # a clock that is wrong: the listener's counts
    page.goto(f"/reviews/{shown.sampling().id}")
    clock = page.get_by_role("timer").first
    expect(clock).to_have_text("42 s")
    page.clock.run_for(12_000)
    expect(clock).to_have_text("30 s")


def test_what_was_typed_is_not_lost_when_a_clock_ends(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.clock.install()
    page.goto(f"/reviews/{shown.sampling().id}")
    page.get_by_role("textbox", name="Reason").fill("half a thought")
    site.house.now = NOW + 50
    page.clock.run_for(60_000)
    expect(page.locator("#standing")).to_contain_text("A verdict now answers the next same request")
    expect(page.get_by_role("textbox", name="Reason")).to_have_value("half a thought")


def test_changes_are_told_while_they_are_typed_and_decide_nothing(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.goto(f"/reviews/{shown.sampling().id}#edit.system")
    page.get_by_label("Temperature").fill("0.9")
    expect(page.get_by_role("group", name="Changes").locator("ins")).to_contain_text("0.9")
    assert "pending" == site.get(shown.sampling().id).state


def test_two_presses_of_a_button_are_one_verdict(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.goto(f"/reviews/{shown.sampling().id}")
    posts: list[str] = []
    page.on("request", lambda request: posts.append(request.url) if request.method == "POST" else None)
    page.get_by_role("button", name="Approve", exact=True).dblclick()
    expect(page.locator("#standing")).to_contain_text("Approved by ann")
    assert 1 == len(posts)


def test_a_link_to_a_folded_form_opens_it(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.goto(f"/reviews/{shown.sampling().id}")
    page.get_by_role("link", name="edit", exact=True).click()
    expect(page.get_by_label("Max tokens")).to_be_visible()


def test_the_list_is_asked_anew_by_a_link_without_script(page_of: Callable[..., Page], site: Site) -> None:
    page = page_of(java_script_enabled=False)
    site.open(shown.sampling())
    page.get_by_role("link", name="Refresh").click()
    expect(page.get_by_role("link", name="tickets asks a model")).to_be_visible()
