"""Peers' texts in Chromium: none of their scripts runs, no request leaves, and no policy is even violated.
tests/unit/reviews/web/test_pages.py has the markup that they become."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from tests.acceptance.browser.conftest import Site, Watched
from tests.fakes import page_reviews as shown
from tests.fakes.hostile_reviews import CANARY, TRIED, everywhere, hostile
from tests.fakes.reviews import text

pytestmark = pytest.mark.timeout(180)


def looked_through(page: Page, path: str) -> None:
    """Open every part of the page, and check that no markup comes from a peer."""
    page.goto(path)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert [False, 1, 0] == page.evaluate(
        "['ran' in window, document.querySelectorAll('script').length, document.querySelectorAll("
        "'iframe, base, meta[http-equiv], style, svg, object, embed').length]"
    ), path


def test_nothing_that_a_peer_writes_does_anything(page: Page, site: Site) -> None:
    """Each payload is in a list, and on a page of each kind of review after two others and before the rest."""
    site.open(
        *(replace(review, id=f"rv_{n}_{m}") for n, one in enumerate(TRIED) for m, review in enumerate(everywhere(one)))
    )
    looked_through(page, "/reviews")
    looked_through(page, "/reviews/history")
    for n in range(0, len(TRIED), 3):
        for m, review in enumerate(everywhere("\n\n".join((*TRIED[n:], *TRIED[:n])))):
            site.open(replace(review, id=f"rv_all_{n}_{m}"))
            looked_through(page, f"/reviews/rv_all_{n}_{m}")


def test_what_was_typed_and_comes_back_does_nothing_either(page: Page, site: Site) -> None:
    site.open(shown.form())
    page.goto(f"/reviews/{shown.form().id}")
    for label in ("Service name", "Port", "Notes", "Restart at"):
        page.get_by_label(label).fill(f"</textarea>\"'><script>{CANARY}</script>")
    page.get_by_role("button", name="Accept and send").click()
    expect(page.get_by_role("alert")).to_contain_text("Not submitted")
    assert not page.evaluate("'ran' in window")


def test_every_field_of_a_review_may_hold_the_worst(page: Page, site: Site) -> None:
    for n, review in enumerate(hostile()):
        found = replace(review, id=f"rv_{n:024}")
        site.open(replace(found, state="pending"))
        site.listener.store.reviews[found.id] = found
        looked_through(page, f"/reviews/{found.id}")
    looked_through(page, "/reviews")
    looked_through(page, "/reviews/history")


def test_a_page_that_was_taken_over_could_still_run_and_reach_nothing(
    page: Page, site: Site, watched: list[Watched]
) -> None:
    """The second line of defense: markup that got into the page after all."""
    failed: list[tuple[str, str | None]] = []
    page.on("requestfailed", lambda request: failed.append((request.url, request.failure)))
    page.goto("/reviews")
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = true\"><img"
        " src=https://evil.example/leak.png>')"
    )
    page.evaluate(
        "document.head.append(Object.assign(document.createElement('script'), { textContent: 'window.ran = true' }))"
    )
    page.wait_for_function("document.querySelectorAll('img').length === 2")
    assert not page.evaluate("'ran' in window")
    (found,) = watched
    assert {("https://evil.example/leak.png", "csp")} == set(failed)
    assert any("script-src" in said for said in found.said)
    assert any("img-src" in said for said in found.said)
    found.said.clear()
    found.elsewhere.clear()


def test_a_huge_review_is_laid_out_and_a_long_text_shows_its_beginning_and_opens(page: Page, site: Site) -> None:
    messages = [{"role": "user", "content": text(f"{n} " + "word\u200b " * 40_000)} for n in range(40)]
    site.open(shown.sampling(params={"messages": messages, "maxTokens": 5}))
    page.goto(f"/reviews/{shown.sampling().id}")
    expect(page.get_by_text("Not shown on this page")).to_be_visible()
    messages = [{"role": "user", "content": text("begin " + "word " * 2_000 + "the end")}]
    site.open(shown.sampling(id="rv_long", params={"messages": messages, "maxTokens": 5}))
    page.goto("/reviews/rv_long")
    end = page.locator(".message.user details").get_by_text("the end")
    expect(end).to_be_hidden()
    page.get_by_text("Show all 10,013 characters of the text").click()
    expect(end).to_be_visible()
