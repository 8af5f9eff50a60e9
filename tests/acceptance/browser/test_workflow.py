"""The reviewer's day: phones, the way to the next review, local times, tables and notifications."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from samplegate.reviews.review import Review
from samplegate.reviews.sign_in_links import OpenPage, link, make_code, write_opener
from tests.acceptance.browser.conftest import LINKS, Site
from tests.fakes import page_reviews as shown
from tests.fakes.reviews import NOW

pytestmark = pytest.mark.timeout(180)
REVIEWS: Final = (shown.sampling, shown.answer, shown.form, shown.url)
PHONE: Final = {"width": 390, "height": 844}
LOOKS: Final[tuple[tuple[int, Literal["light", "dark"]], ...]] = (
    (390, "light"),
    (390, "dark"),
    (1280, "light"),
    (1280, "dark"),
)
SMALL_TARGETS: Final = """() => [...document.querySelectorAll(
    "button, .button, nav a, .meta > a, .live a, summary, select, textarea, .row h2 a, label.choice, "
    + "input:not([type=radio], [type=checkbox], [type=hidden])")]
  .filter((each) => each.checkVisibility() && each.getBoundingClientRect().height < 43.9)
  .map((each) => each.outerHTML.slice(0, 120))"""
WITHOUT_MARKER: Final = """() => [...document.querySelectorAll("summary")]
  .filter((each) => getComputedStyle(each).display !== "list-item").map((each) => each.textContent)"""
"""What can be opened and has no triangle."""
CLOSED: Final = """() => [...document.querySelectorAll(".standing, .quick, .card, .bar")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.className)"""


def review_with(text: str, **more: object) -> Review:
    return shown.sampling(params={"messages": [{"role": "user", "content": shown.text(text)}], "maxTokens": 5}, **more)


@pytest.mark.parametrize("make", REVIEWS)
def test_on_a_phone_the_decision_is_in_the_first_view_and_every_target_is_large_enough(
    page_of: Callable[..., Page], site: Site, make: Callable[[], Review]
) -> None:
    site.open(make())
    page = page_of(viewport=PHONE)
    for path in (f"/reviews/{make().id}", "/reviews", "/reviews/history"):
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert [] == page.evaluate(SMALL_TARGETS), path
        assert [] == page.evaluate(WITHOUT_MARKER), path
        assert PHONE["width"] >= page.evaluate("document.documentElement.scrollWidth"), path
    page.goto(f"/reviews/{make().id}")
    bar = page.get_by_role("group", name="Quick decision")
    for button in bar.get_by_role("button").all():
        box = button.bounding_box()
        assert box is not None
        assert 844 >= box["y"] + box["height"]
    bar.get_by_role("link", name="More").click()
    expect(page.locator("#decide")).to_be_in_viewport()


def test_a_form_is_declined_from_the_bar_of_a_phone(page_of: Callable[..., Page], site: Site) -> None:
    site.open(shown.form())
    page = page_of(viewport=PHONE)
    page.goto(f"/reviews/{shown.form().id}")
    bar = page.get_by_role("group", name="Quick decision")
    bar.get_by_role("button", name="Accept and send").click()
    expect(page.get_by_role("alert")).to_contain_text("is required")
    bar.get_by_role("button", name="Decline").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(shown.form().id).verdict
    assert verdict is not None
    assert {"action": "decline"} == verdict.result


def test_the_bar_of_a_phone_follows_the_edits(page_of: Callable[..., Page], site: Site) -> None:
    site.open(shown.sampling())
    page = page_of(viewport=PHONE)
    page.goto(f"/reviews/{shown.sampling().id}")
    bar = page.get_by_role("group", name="Quick decision")
    expect(bar.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    page.get_by_text("Edit the request").click()
    page.get_by_label("Max tokens").fill("7")
    expect(bar.get_by_role("button", name="Approve with edits")).to_be_visible()
    expect(bar.get_by_role("button", name="Approve", exact=True)).to_be_hidden()
    bar.get_by_role("button", name="Approve with edits").click()
    expect(page.locator("#standing")).to_contain_text("Approved by ann")


def test_a_wide_screen_has_no_bar_and_a_low_one_no_fixed_bar(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.goto(f"/reviews/{shown.sampling().id}")
    expect(page.locator(".quick")).to_be_hidden()
    page.set_viewport_size({"width": 320, "height": 256})  # 1280 x 1024 at 400%
    assert "static" == page.locator(".quick").evaluate("(each) => getComputedStyle(each).position")


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_no_page_is_wider_than_its_screen(
    page_of: Callable[..., Page], site: Site, width: int, scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    table = "|" + "column|" * 40 + "\n" + "|" + "-|" * 40 + "\n" + ("|" + "value|" * 40 + "\n") * 3
    site.open(*(make() for make in REVIEWS), review_with(table, id="rv_table"))
    page = page_of(viewport={"width": width, "height": 844}, color_scheme=scheme)
    for path in ("/reviews", "/reviews/history", "/reviews/rv_table", *(f"/reviews/{make().id}" for make in REVIEWS)):
        page.goto(path)
        page.screenshot(path=tmp_path / f"{path.replace('/', '-')}.png")
        assert width >= page.evaluate("document.documentElement.scrollWidth"), path
        assert [] == page.evaluate(CLOSED), path
    page.goto("/reviews/rv_table")
    assert page.locator("table").evaluate("(each) => each.scrollWidth > each.clientWidth")
    page.locator("button[value=reject]:visible").last.click()
    expect(page.locator("#standing")).to_contain_text("Rejected by ann")
    assert width >= page.evaluate("document.documentElement.scrollWidth")


def test_a_queue_is_worked_off_without_the_list_and_by_keyboard(page: Page, site: Site) -> None:
    site.open(shown.sampling(), shown.answer(), shown.form())
    page.goto(f"/reviews/{shown.form().id}")
    page.get_by_role("button", name="Decline", exact=True).press("Enter")
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    expect(page.locator("#standing")).to_be_focused()
    expect(page.get_by_role("heading", level=1)).to_be_in_viewport()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Next review")).to_be_focused()
    expect(page.locator(".onward")).to_contain_text("2 pending")
    page.keyboard.press("Enter")
    expect(page.locator("[data-state=pending]")).to_be_attached()
    page.get_by_role("link", name="Next review (1 more)").click()
    expect(page.locator("[data-state=pending]")).to_be_attached()


def test_the_outcome_follows_what_becomes_of_the_decision(page: Page, site: Site) -> None:
    site.open(shown.sampling(waiter="w", held_until=NOW + 30))
    page.goto(f"/reviews/{shown.sampling().id}")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#standing")).to_contain_text("is being answered with this decision")
    page.get_by_role("link", name="Back to queue").last.focus()
    site.listener.now = NOW + 1
    site.run(lambda: site.listener.store.write(lambda store: store.use([(shown.sampling().id, "w", "d1")])))
    expect(page.locator("#standing")).to_contain_text("the request was answered with it")
    expect(page.locator("#standing time").first).to_have_attribute("title", "15 Jan 2027, 08:00:00 UTC")


def test_times_are_local_with_utc_beside_them_and_utc_without_script(page_of: Callable[..., Page], site: Site) -> None:
    site.open(shown.sampling(created=NOW))
    page = page_of(timezone_id="Asia/Kolkata")
    page.goto(f"/reviews/{shown.sampling().id}")
    time = page.locator("header.head time")
    expect(time).to_have_text("15 Jan 2027, 13:30:00 GMT+5:30")
    expect(time).to_have_attribute("title", "15 Jan 2027, 08:00:00 UTC")
    expect(time).to_have_attribute("datetime", "2027-01-15T08:00:00Z")
    plain = page_of(java_script_enabled=False, timezone_id="Asia/Kolkata")
    plain.goto(f"/reviews/{shown.sampling().id}")
    expect(plain.locator("header.head time")).to_have_text("15 Jan 2027, 08:00:00 UTC")


FAKE_NOTIFICATIONS: Final = """
  window.told = [];
  window.asked = 0;
  class Fake extends EventTarget {
    static permission = sessionStorage.getItem("permission") ?? "default";
    static async requestPermission() {
      window.asked++;
      sessionStorage.setItem("permission", "granted");
      return (Fake.permission = "granted");
    }
    constructor(title, options) { super(); window.told.push([title, options.body, options.tag]); }
  }
  window.Notification = Fake;
  document.hasFocus = () => false;
"""


def test_a_browser_is_notified_only_after_a_click_and_never_of_content(
    page_of: Callable[..., Page], site: Site
) -> None:
    page = page_of()
    page.add_init_script(FAKE_NOTIFICATIONS)
    page.goto("/reviews")
    expect(page.locator(".live.on")).to_be_attached()
    site.open(shown.url())
    expect(page.get_by_role("listitem")).to_have_count(1)
    assert [0, []] == page.evaluate("[asked, told]")
    page.get_by_role("button", name="Notifications: off").click()
    expect(page.get_by_role("button", name="Notifications: on")).to_have_attribute("aria-pressed", "true")
    page.goto("/reviews")  # it is remembered
    expect(page.get_by_role("button", name="Notifications: on")).to_be_visible()
    expect(page.locator(".live.on")).to_be_attached()
    site.open(shown.sampling())
    page.wait_for_function("told.length")
    assert [["Review pending", "Sampling request from tickets", shown.sampling().id]] == page.evaluate("told")
    page.get_by_role("button", name="Notifications: on").click()
    expect(page.get_by_role("button", name="Notifications: off")).to_be_visible()
    site.open(shown.form())
    expect(page.get_by_role("listitem")).to_have_count(3)
    assert 1 == page.evaluate("told.length")


def test_a_browser_that_blocks_notifications_is_told_so_and_the_page_works(
    page_of: Callable[..., Page], site: Site
) -> None:
    page = page_of()
    page.add_init_script("window.Notification = class { static permission = 'denied'; };")
    page.goto("/reviews")
    expect(page.get_by_role("button", name="Notifications are blocked in this browser")).to_be_disabled()
    site.open(shown.sampling())
    expect(page.get_by_role("listitem")).to_have_count(1)


def test_notifications_are_not_offered_without_script(context_of: Callable[..., BrowserContext], site: Site) -> None:
    site.open(shown.sampling())
    context = context_of(java_script_enabled=False)
    context.request.post("/reviews/sign-in", form={"token": "sg_ops"}, headers={"origin": site.url}, max_redirects=0)
    page = context.new_page()
    page.goto("/reviews")
    expect(page.locator("#notify")).to_be_hidden()
    expect(page.get_by_role("listitem")).to_have_count(1)


def test_a_one_use_link_signs_in_by_itself_and_leaves_no_code_behind(
    context_of: Callable[..., BrowserContext], site: Site, tmp_path: Path
) -> None:
    """The browser starts at a file, as `samplegate reviews open` starts it."""
    site.open(shown.sampling())
    code = make_code(LINKS, now=NOW, random=bytes)
    to = link(OpenPage(site.url, LINKS, NOW), f"/reviews/{shown.sampling().id}", code)
    page = context_of().new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.url} {request.headers.get('referer')}"))
    page.goto(write_opener(tmp_path, to, now=NOW, random=bytes).as_uri())
    expect(page.get_by_role("heading", level=1)).to_have_text("Sampling request from tickets")
    expect(page.get_by_text("olga", exact=False).first).to_be_visible()
    assert f"{site.url}/reviews/{shown.sampling().id}" == page.url
    assert [] == [each for each in asked if code in each.partition("#")[0]]
    again = context_of().new_page()
    again.goto(to)
    expect(again.get_by_role("alert")).to_contain_text("This sign-in link was used before")
    expect(again.get_by_label("Token")).to_have_value("")


def test_without_script_the_code_of_a_link_can_be_pasted(context_of: Callable[..., BrowserContext], site: Site) -> None:
    code = make_code(LINKS, now=NOW, random=bytes)
    page = context_of(java_script_enabled=False).new_page()
    page.goto(f"/reviews/sign-in?next=/reviews#token={code}")
    page.get_by_label("Token").fill(code)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Pending reviews")
