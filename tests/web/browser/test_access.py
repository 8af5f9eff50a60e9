"""The page for everybody: by keyboard alone, for screen readers, on a narrow screen, in light and dark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from tests.web.browser import shown
from tests.web.browser.conftest import Site
from tests.web.listener import OPS

pytestmark = pytest.mark.timeout(180)
AXE: Final = Path(__file__).resolve().parents[2] / "real" / "node_modules" / "axe-core" / "axe.min.js"
REVIEWS: Final = (shown.sampling, shown.answer, shown.form, shown.url)


def faults(page: Page) -> list[str]:
    """What axe finds of the rules of WCAG 2.2 A and AA and its own best practices."""
    page.evaluate(AXE.read_text("utf-8"))
    found: dict[str, Any] = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{each['id']}: {node['html'][:150]} {node['failureSummary'][:200]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.real
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_axe_finds_nothing(scheme: str, width: int, page_of: Callable[..., Page], site: Site) -> None:
    page = page_of(OPS, color_scheme=scheme, viewport={"width": width, "height": 900})
    assert [] == faults(page)
    site.open(*(make() for make in REVIEWS))
    for path in ["/reviews", "/reviews/history", "/reviews/rv_nothing", *(f"/reviews/{make().id}" for make in REVIEWS)]:
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert [] == faults(page), path
    page.goto(f"/reviews/{shown.sampling().id}#edit.system")
    page.get_by_label("Message 1 (user)").fill("Summarise it in one line.")
    expect(page.get_by_role("group", name="Changes").locator("ins").first).to_be_visible()
    assert [] == faults(page)
    page.goto(f"/reviews/{shown.form().id}")
    page.get_by_role("button", name="Accept and send").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert [] == faults(page)
    page.get_by_role("button", name="Decline").click()
    expect(page.locator("#standing")).to_contain_text("by ann")
    assert [] == faults(page)


@pytest.mark.real
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_at_the_sign_in(scheme: str, context_of: Callable[..., Any]) -> None:
    page: Page = context_of(color_scheme=scheme).new_page()
    page.goto("/reviews/sign-in")
    assert [] == faults(page)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert [] == faults(page)


@pytest.mark.parametrize("width", [320, 768, 1920])
def test_nothing_stands_beyond_the_edge_of_the_screen(width: int, page_of: Callable[..., Page], site: Site) -> None:
    page = page_of(OPS, viewport={"width": width, "height": 800})
    long = "x" * 3_000
    site.open(*(make(server=f"server-{long[:150]}", caller=long[:150]) for make in REVIEWS))
    site.open(
        shown.sampling(
            id="rv_long",
            arguments={long: long},
            params={"messages": [{"role": "user", "content": shown.text(long)}], "maxTokens": 5},
        )
    )
    for path in ["/reviews", "/reviews/history", "/reviews/rv_long", *(f"/reviews/{make().id}" for make in REVIEWS)]:
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def pressed(page: Page, key: str, until: str, most: int = 80) -> None:
    """Press the key until what has the focus says so."""
    for _ in range(most):
        page.keyboard.press(key)
        if until == page.evaluate("(document.activeElement.textContent || document.activeElement.id).trim()"):
            return
    pytest.fail(f"{until}: is not reached with {key}")


def test_a_request_is_approved_by_keyboard_alone(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.goto("/reviews")
    pressed(page, "Tab", "tickets asks a model")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("tickets asks a model")
    pressed(page, "Tab", "Skip to the decision")
    page.keyboard.press("Enter")
    pressed(page, "Tab", "Approve", most=3)
    page.keyboard.press("Enter")
    expect(page.locator("#standing")).to_contain_text("Approved by ann")


def test_a_form_is_filled_in_by_keyboard_and_a_mistake_leads_to_its_field(page: Page, site: Site) -> None:
    site.open(shown.form({"port": {"type": "integer", "maximum": 10}, "name": {"type": "string"}}, ("port",)))
    page.goto(f"/reviews/{shown.form().id}")
    pressed(page, "Tab", "f.0")
    page.keyboard.type("11")
    page.keyboard.press("Enter")  # checks, and sends nothing
    expect(page.get_by_role("alert")).to_be_focused()
    assert "pending" == site.get(shown.form().id).state
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("port")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("9")
    pressed(page, "Tab", "Accept and send")
    page.keyboard.press("Enter")
    expect(page.locator("#standing")).to_contain_text("Answered by ann")


def test_what_has_the_focus_is_seen(page: Page) -> None:
    page.goto("/reviews")
    for _ in range(6):
        page.keyboard.press("Tab")
        width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert "3px" == width


def test_the_page_says_what_it_is_to_who_cannot_see_it(page: Page, site: Site) -> None:
    site.open(shown.form())
    page.goto(f"/reviews/{shown.form().id}")
    assert "deployer asks for 13 values - samplegate" == page.title()
    for role in ("banner", "main", "navigation"):
        expect(page.get_by_role(role)).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    page.get_by_role("button", name="Accept and send").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert page.title().startswith("Problem: ")
    described = page.get_by_label("Service name").get_attribute("aria-describedby")
    assert "f.0-hint f.0-problem" == described
