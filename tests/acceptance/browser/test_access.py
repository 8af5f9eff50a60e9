"""Accessibility of the page: keyboard only, screen readers, narrow screens, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import BrowserContext, Frame, Page, expect

from samplegate.reviews.review import Also, Edits, Review, Verdict, Vote
from tests.acceptance.browser.conftest import Site, Watched
from tests.fakes import page_reviews as shown
from tests.fakes import server_uis
from tests.fakes.reviewers_listener import OPS
from tests.fakes.reviews import NOW
from tests.paths import TESTS

pytestmark = pytest.mark.timeout(180)
AXE: Final = TESTS / "acceptance" / "sdk" / "node_modules" / "axe-core" / "axe.min.js"
REVIEWS: Final = (shown.sampling, shown.answer, shown.form, shown.url)
Look = tuple[int, Literal["light", "dark"]]
LOOKS: Final[tuple[tuple[Look, Look], ...]] = (((320, "light"), (1280, "dark")), ((320, "dark"), (1280, "light")))
"""Each width with each scheme: one page is looked at in the first two, the next one in the other two."""


def faults(page: Page | Frame) -> list[str]:
    """The findings of axe: the rules of WCAG 2.2 A and AA and its own best practices."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text("utf-8"))
    found: dict[str, Any] = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{each['id']}: {node['html'][:150]} {node['failureSummary'][:200]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


def voted(name: str) -> Review:
    """A review that this person has edited, and that needs more approvals."""
    votes = [
        Vote(by=name, how=how, verdict="approve", at=NOW, digest="sha256:d", void=how == "webhook", reason="fine")
        for how in ("webhook", "page")
    ]
    proposal = Verdict(word="approve", edits=Edits(max_tokens=7))
    also = {"groups": ("ops",), "also": (Also(name),), "also_from": NOW + 60}
    return shown.sampling(id="rv_voted", approvals=3, votes=tuple(votes), proposal=proposal, **also)


class Looked:
    """A page looked at in both widths and both schemes, page by page."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._turn = 0

    def at(self, what: str) -> None:
        self._turn += 1
        for width, scheme in LOOKS[self._turn % 2]:
            self._page.set_viewport_size({"width": width, "height": 900})
            self._page.emulate_media(color_scheme=scheme)
            self._page.evaluate("Promise.all(document.getAnimations().map((each) => each.finished))")
            expect(self._page.locator(".settling")).to_have_count(0)  # buttons wait after a change of the size
            assert [] == faults(self._page), (what, width, scheme)


@pytest.mark.real
def test_axe_finds_nothing_on_lists_and_reviews(page: Page, site: Site, watched: list[Watched]) -> None:
    looked = Looked(page)
    page.goto("/reviews")
    looked.at("nothing waits")
    site.open(*(make() for make in REVIEWS), voted("ann"))
    ids = [*(make().id for make in REVIEWS), "rv_voted"]
    for path in ["/reviews", "/reviews/history", *(f"/reviews/{id}" for id in ids), "/reviews/rv_nothing"]:
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        looked.at(path)
    assert [True] == ["status of 404" in said for said in watched[0].said]
    watched[0].said.clear()


@pytest.mark.real
def test_axe_finds_nothing_on_the_way_from_the_sign_in_to_a_decision(
    context_of: Callable[..., BrowserContext], site: Site
) -> None:
    site.open(shown.sampling(), shown.form())
    page = context_of().new_page()
    looked = Looked(page)
    page.goto(f"/reviews/{shown.sampling().id}")
    looked.at("the sign-in")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    looked.at("a wrong token")
    page.get_by_label("Token").fill(OPS)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="your edits").click()
    page.get_by_label("Message 1 (user)").fill("Summarise it in one line.")
    expect(page.get_by_role("group", name="Changes").locator("ins").first).to_be_visible()
    looked.at("changes")
    page.goto(f"/reviews/{shown.form().id}")
    page.get_by_role("button", name="Accept and send").click()
    expect(page.get_by_role("alert")).to_be_visible()
    looked.at("a refused form")
    page.get_by_role("button", name="Decline").click()
    expect(page.locator("#standing")).to_contain_text("by ann")
    looked.at("a decided form")


def test_nothing_stands_beyond_the_edge_of_the_screen(page: Page, site: Site) -> None:
    long = "x" * 3_000
    site.open(*(make(server=f"server-{long[:150]}", caller=long[:150]) for make in REVIEWS))
    site.open(
        voted(long[:100]),
        shown.sampling(
            id="rv_long",
            arguments={long: long},
            params={"messages": [{"role": "user", "content": shown.text(long)}], "maxTokens": 5},
        ),
    )
    site.open(server_uis.review("rv_ui"))
    ui = server_uis.ready(server_uis.review("rv_ui"), server_uis.PICKER)
    site.run(lambda: site.listener.store.write(lambda store: store.attach_ui("rv_ui", ui, server_uis.PICKER)))
    for path in [
        "/reviews",
        "/reviews/history",
        "/reviews/rv_long",
        "/reviews/rv_voted",
        "/reviews/rv_ui",
        *(f"/reviews/{make().id}" for make in REVIEWS),
    ]:
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        for width in (1920, 768, 320):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)


def pressed(page: Page, key: str, until: str, most: int = 80) -> None:
    """Press the key until the focused element has this text or id. Every element on the way must show its focus."""
    for _ in range(most):
        page.keyboard.press(key)
        said, outline = page.evaluate(
            "[(document.activeElement.textContent || document.activeElement.id).trim(),"
            " getComputedStyle(document.activeElement).outlineWidth]"
        )
        assert "3px" == outline, said
        if until == said:
            return
    pytest.fail(f"{until}: is not reached with {key}")


def test_a_request_is_approved_by_keyboard_alone(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.goto("/reviews")
    pressed(page, "Tab", "Sampling request from tickets")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sampling request from tickets")
    pressed(page, "Tab", "Skip to decision")
    page.keyboard.press("Enter")
    pressed(page, "Tab", "Approve", most=3)
    page.keyboard.press("Enter")
    expect(page.locator("#standing")).to_contain_text("Approved by ann")


def test_a_form_is_filled_in_by_keyboard_and_a_mistake_leads_to_its_field(page: Page, site: Site) -> None:
    site.open(shown.form({"port": {"type": "integer", "maximum": 10}, "name": {"type": "string"}}, ("port",)))
    page.goto(f"/reviews/{shown.form().id}")
    assert "Form with 2 fields from deployer - samplegate" == page.title()
    for role in ("banner", "main", "navigation"):
        expect(page.get_by_role(role)).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    pressed(page, "Tab", "f.0")
    page.keyboard.type("11")
    page.keyboard.press("Enter")  # checks, and submits nothing
    expect(page.get_by_role("alert")).to_be_focused()
    assert "pending" == site.get(shown.form().id).state
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("port")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("12")
    pressed(page, "Tab", "Accept and send")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_focused()
    assert "Problem: Form with 2 fields from deployer - samplegate" == page.title()
    expect(page.get_by_label("port")).to_have_accessible_description(re.compile("at most 10"))
    page.get_by_label("port").press("Control+a")
    page.keyboard.type("9")
    pressed(page, "Tab", "Accept and send")
    page.keyboard.press("Enter")
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
