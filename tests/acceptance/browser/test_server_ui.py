"""A server's own UI in Chromium: an app fills in the gate's form, and only the gate's buttons decide. The UI is
attached through the store, as a gate does that has read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace
from playwright.sync_api import Error, FrameLocator, Locator, Page, expect

from samplegate.reviews.review import Review, Verdict
from tests.acceptance.browser.conftest import Site, Watched
from tests.acceptance.browser.test_access import Looked, faults
from tests.fakes import server_uis
from tests.fakes.reviews import NOW
from tests.fakes.server_uis import PICKER, Dialect, app, ready
from tests.paths import TESTS

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


def press(page: Page, button: Locator) -> None:
    """Press a button that decides, once it does. A script that scrolls to it is taken for the app."""
    button.scroll_into_view_if_needed()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    calm(page)
    button.click()


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
    press(page, page.get_by_role("button", name="Accept and send"))
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert {"action": "accept", "content": {"color": "#3b82f6", "name": "Blue"}} == verdict.result
    assert ready(review, PICKER).sha256 == verdict.ui
    expect(page.locator("iframe")).to_have_count(0)


@BOTH
@pytest.mark.parametrize(("press", "button"), [("Decline", "Decline"), ("Cancel", "Dismiss")])
def test_what_an_app_declines_is_marked_and_sent_by_the_gates_button(
    page: Page, site: Site, dialect: Dialect, press: str, button: str
) -> None:
    review = server_uis.review(dialect=dialect)
    picker = opened(page, site, review)
    picker.get_by_role("button", name=press).click()
    own = page.locator("#decide").get_by_role("button", name=button)
    expect(own).to_have_class(re.compile("proposed"))
    expect(page.locator("#decide")).to_be_focused()
    expect(page.locator("#ui-told")).to_contain_text(f'The UI suggests "{button}". Nothing was sent yet')
    page.keyboard.press("Enter")
    own.click()
    assert "pending" == site.get(review.id).state, "a press right after the app's choice may have been meant for it"
    calm(page)
    page.keyboard.press("Enter")
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert ({"action": press.lower()}, ready(review, PICKER).sha256) == (verdict.result, verdict.ui)


@BOTH
@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_no_key_that_follows_what_an_app_submits_decides(page: Page, site: Site, dialect: Dialect, key: str) -> None:
    """A person who scrolls with Space, or does what the app says, has not chosen the button that the app suggests."""
    script = "hello((to) => { if (to.params?.message) answer(to, 'cancel'); });"
    opened(page, site, server_uis.review(dialect=dialect), app(script))
    expect(page.locator("button.proposed").first).to_be_visible()
    calm(page)
    page.keyboard.press(key)
    assert page.evaluate("document.querySelector('#decision')?.dataset.sent") is None
    expect(page.locator("#decision")).to_have_count(1)


SUBMITS: Final = "hello((to) => answer(to, 'accept', {color: '#000000'}));"


@BOTH
def test_an_app_that_submits_when_it_is_loaded_decides_nothing(page: Page, site: Site, dialect: Dialect) -> None:
    review = server_uis.review(dialect=dialect)
    opened(page, site, review, app(SUBMITS))
    expect(page.get_by_label("Color required")).to_have_value("#000000")
    assert ("pending", None) == (site.get(review.id).state, site.get(review.id).verdict)
    assert "opened, ui ready" == ", ".join(event.what for event in site.listener.store.history(review.id))


FORM: Final = "<form><input id=color aria-label=Own><button>Use</button></form>"
SENDS_A_FORM: Final = """
  hello((to) => { document.forms[0].onsubmit = (event) => {
    event.preventDefault();
    answer(to, 'accept', {color: document.getElementById('color').value});
  }; });"""


@BOTH
def test_an_app_with_a_form_element_gets_its_submit_event(page: Page, site: Site, dialect: Dialect) -> None:
    frame = opened(page, site, server_uis.review(dialect=dialect), app(SENDS_A_FORM, FORM))
    frame.get_by_label("Own").fill("#123456")
    frame.get_by_role("button", name="Use").click()
    expect(page.get_by_label("Color required")).to_have_value("#123456")


def test_what_a_person_typed_is_replaced_only_if_they_choose_so(page: Page, site: Site) -> None:
    picker = opened(page, site, server_uis.review())
    page.get_by_label("Color required").fill("#111111")
    picker.get_by_label("Color", exact=True).click()
    picker.get_by_label("Color", exact=True).fill("#222222")
    picker.get_by_role("button", name="Use this color").click()
    replace = page.get_by_role("button", name="Use the new values")
    expect(replace).to_be_visible()
    expect(page.get_by_label("Color required")).to_have_value("#111111")
    press(page, replace)
    expect(page.get_by_label("Color required")).to_have_value("#222222")


def test_what_a_person_typed_and_checked_is_replaced_only_if_they_choose_so(page: Page, site: Site) -> None:
    """The app starts anew on the page that comes back."""
    opened(page, site, server_uis.review(), app(SUBMITS))
    field = page.get_by_label("Color required")
    expect(field).to_have_value("#000000")
    field.fill("#111111")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#form-preview")).to_contain_text("No problems found")
    expect(page.get_by_role("button", name="Use the new values")).to_be_visible()
    expect(field).to_have_value("#111111")


NOT_PRESSED: Final = "Object.defineProperty(navigator, 'userActivation', { value: { isActive: false } })"
"""Playwright's scripts count as a press."""


@pytest.mark.parametrize("fields", [{"n": {"type": "integer", "default": 10}}, {"n": {"type": "integer"}}])
def test_a_form_that_can_be_sent_as_it_is_changes_only_if_a_person_chooses_so(
    page: Page, site: Site, fields: dict[str, Any]
) -> None:
    """By its default, or because it may be empty."""
    schema = {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if "default" in fields[name]],
    }
    page.add_init_script(NOT_PRESSED)
    review = server_uis.review(params={"message": "How many?", "requestedSchema": schema})
    opened(page, site, review, app(SUBMITS.replace("color: '#000000'", "n: 1000")))
    expect(page.locator("#ui-told")).to_contain_text("The UI submitted new values")
    expect(page.locator("#form input")).to_have_value(str(fields["n"].get("default", "")))
    use = page.get_by_role("button", name="Use the new values")
    use.click()
    expect(page.locator("#form input")).to_have_value(str(fields["n"].get("default", "")))
    press(page, use)
    expect(page.locator("#form input")).to_have_value("1000")


DEFAULT: Final = {
    "message": "How many?",
    "requestedSchema": {"type": "object", "properties": {"n": {"type": "integer", "default": 10}}, "required": ["n"]},
}
SEVEN: Final = app(
    """hello((to) => {
      if (!to.params?.message) return;
      document.querySelector("button").onclick = () => answer(to, "accept", { n: 7 });
      document.querySelector("button").disabled = false;
    });""",
    "<button disabled>Seven</button>",
)


def test_a_default_gives_way_to_what_a_person_submits_in_the_app(page: Page, site: Site) -> None:
    seven = opened(page, site, server_uis.review(params=DEFAULT), SEVEN).get_by_role("button")
    expect(seven).to_be_enabled()
    expect(page.locator("#form input")).to_have_value("10")
    seven.click()
    expect(page.locator("#form input")).to_have_value("7")
    expect(page.get_by_role("button", name="Use the new values")).to_have_count(0)


def test_a_press_beside_the_frame_is_none_in_the_app(page: Page, site: Site) -> None:
    late = SEVEN.replace(
        b".disabled = false;", b"; setTimeout(() => document.querySelector('button').onclick(), 1000);"
    )
    opened(page, site, server_uis.review(params=DEFAULT), late)
    page.get_by_role("heading", name="Decide").click()
    expect(page.locator("#ui-told")).to_contain_text("The UI submitted new values")
    expect(page.locator("#form input")).to_have_value("10")


def test_an_app_that_takes_the_focus_does_not_pose_as_one_that_a_person_uses(page: Page, site: Site) -> None:
    takes = SEVEN.replace(
        b".disabled = false;", b".focus(); setTimeout(() => document.querySelector('button').click(), 500);"
    )
    takes = takes.replace(b"<button disabled>", b"<button>")
    page.add_init_script(NOT_PRESSED)
    opened(page, site, server_uis.review(params=DEFAULT), takes)
    expect(page.locator("#ui-told")).to_contain_text("The UI submitted new values")
    expect(page.locator("#form input")).to_have_value("10")


@pytest.mark.parametrize(
    ("dialect", "first"), [("sep-3118", "{color: '#111111'}"), ("rich", "{color: '#111111', unknown: 1}")]
)
def test_values_that_a_person_may_have_read_are_replaced_only_if_they_choose_so(
    page: Page, site: Site, dialect: Dialect, first: str
) -> None:
    script = "hello((to) => { if (to.params?.message) { window.to = to; document.body.append('go'); } });"
    opened(page, site, server_uis.review(dialect=dialect), app(script)).get_by_text("go").wait_for()
    field, told = page.get_by_label("Color required"), page.locator("#ui-told")
    use = page.get_by_role("button", name="Use the new values")
    for content, shown in (("{color: 'wrong'}", "wrong"), (first, "#111111")):
        page.frames[1].evaluate(f"answer(to, 'accept', {content})")
        expect(field).to_have_value(shown)
    page.frames[1].evaluate("answer(to, 'accept', {color: '#222222'})")
    expect(told).to_contain_text("The UI submitted new values")
    expect(field).to_have_value("#111111")
    page.frames[1].evaluate("answer(to, 'accept', {color: 'wrong'})")
    expect(told).to_contain_text("do not fit")
    expect(field).to_have_value("#111111")
    page.frames[1].evaluate("answer(to, 'accept', {color: '#333333'})")
    expect(told).to_contain_text("The UI submitted new values")
    press(page, use)
    expect(field).to_have_value("#333333")
    expect(use).to_have_count(0)
    page.frames[1].evaluate("answer(to, 'accept', {color: '#333333'})")
    expect(use).to_have_count(0)


def test_a_person_can_close_the_ui_and_use_the_form(page: Page, site: Site) -> None:
    review = server_uis.review()
    picker = opened(page, site, review)
    expect(picker.get_by_role("heading")).to_have_text("Which service should be moved, and how?")
    page.get_by_role("button", name="Close the UI").click()
    expect(page.locator("iframe")).to_have_count(0)
    expect(page.get_by_role("button", name="Close the UI")).to_have_count(0)
    page.get_by_label("Color required").fill("#123456")
    press(page, page.get_by_role("button", name="Accept and send"))
    expect(page.locator("#standing")).to_contain_text("Answered by ann")


CLEANS_UP: Final = """
  hello((to) => { if (to.method === "elicitation/create") document.body.append("asked"); });
  addEventListener("message", ({ data }) => data.method === "ui/resource-teardown" && console.log("cleaned up"));"""


def test_an_app_is_told_that_it_is_closed(page: Page, site: Site) -> None:
    opened(page, site, server_uis.review(), app(CLEANS_UP)).get_by_text("asked").wait_for()
    with page.expect_console_message(lambda message: message.text == "cleaned up"):
        page.get_by_role("button", name="Close the UI").click()
    expect(page.locator("iframe")).to_have_count(0)


def test_a_press_that_an_app_interrupts_decides_nothing(page: Page, site: Site) -> None:
    """The app changes the values right before a person presses the button."""
    review = server_uis.review()
    script = (
        "hello((to) => { if (to.method === 'elicitation/create')"
        " document.querySelector('button').onclick = () => answer(to, 'accept', {color: '#000000'}); })"
    )
    frame = opened(page, site, review, app(script, "<button>Go</button>"))
    frame.get_by_role("button").click()
    expect(page.get_by_label("Color required")).to_have_value("#000000")
    page.get_by_role("button", name="Accept and send").click()
    assert "pending" == site.get(review.id).state
    press(page, page.get_by_role("button", name="Accept and send"))
    expect(page.locator("#standing")).to_contain_text("Answered by ann")


def press_decline(page: Page, count: int = 1) -> None:
    """Press the button where it is now, without a scroll. ``count``: 2 for the second press of a double click."""
    button = page.locator("#decide").get_by_role("button", name="Decline").bounding_box()
    assert button is not None
    page.mouse.move(button["x"] + 9, button["y"] + 9)
    page.mouse.down(click_count=count)
    page.mouse.up(click_count=count)


def answer_after(page: Page, count: int = 1) -> None:
    """A press of a button decides nothing now, and decides after a while."""
    press_decline(page, count)
    assert page.evaluate("document.querySelector('#decision')?.dataset.sent") is None
    expect(page.locator("#decision")).to_have_count(1)
    calm(page)
    press_decline(page)
    expect(page.locator("#standing")).to_contain_text("Answered by ann")


WAITS: Final = (
    "hello((to) => { if (to.method === 'elicitation/create') { window.to = to; document.body.append('go'); } });"
)


def test_an_app_that_scrolls_the_page_puts_no_other_button_under_a_press(page: Page, site: Site) -> None:
    review = server_uis.review()
    opened(page, site, review, app(WAITS)).get_by_text("go").wait_for()
    calm(page)
    page.frames[1].evaluate("document.querySelector('p').scrollIntoView({block: 'start'})")
    page.wait_for_function("scrollY > 100")
    answer_after(page)


def test_a_person_who_scrolls_does_not_wait(page: Page, site: Site) -> None:
    review = server_uis.review()
    opened(page, site, review, app(WAITS)).get_by_text("go").wait_for()
    calm(page)
    page.mouse.move(1100, 300)
    page.mouse.wheel(0, 150)
    page.wait_for_function("scrollY > 100")
    expect(page.locator("#decision.settling")).to_have_count(0)
    page.get_by_role("button", name="Decline").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")


@pytest.mark.parametrize(
    "submitted", ["'constructor', {}", "'accept', {color: 'wrong'}", "'accept', {color: '#000000'}"]
)
def test_what_the_page_tells_about_a_submission_moves_no_other_button_under_a_press(
    page: Page, site: Site, submitted: str
) -> None:
    """Also beside a form that a person has edited, which stays as it is."""
    review = server_uis.review()
    opened(page, site, review, app(WAITS)).get_by_text("go").wait_for()
    page.get_by_label("Color required").fill("#111111")
    page.get_by_label("Note").focus()
    calm(page)
    page.frames[1].evaluate(f"answer(to, {submitted})")
    expect(page.locator("#ui-told")).not_to_be_empty()
    answer_after(page)


def test_a_window_that_changes_its_size_puts_no_other_button_under_a_press(page: Page, site: Site) -> None:
    """On a phone, an app closes the keyboard, and the bar with the buttons is where the keys were."""
    opened(page, site, server_uis.review(), app(WAITS)).get_by_text("go").wait_for()
    calm(page)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("innerHeight === 900")
    answer_after(page)


def test_the_first_problems_of_many_are_told_beside_the_ui(page: Page, site: Site) -> None:
    opened(page, site, server_uis.review(), app(WAITS)).get_by_text("go").wait_for()
    page.frames[1].evaluate(
        "answer(to, 'accept', Object.fromEntries(Array.from({length: 40}, (_, n) => [`f${n}`, n])))"
    )
    expect(page.locator("#ui-told")).to_contain_text("f0: is not a field of this form.")
    expect(page.locator("#ui-told")).to_contain_text("And 38 more.")


def test_a_ui_that_appears_moves_no_other_button_under_a_press(page: Page, site: Site) -> None:
    review = server_uis.review()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    expect(page.locator("#ui")).to_contain_text("It is being loaded")
    attach(site, review, app(WAITS))
    expect(page.locator("iframe")).to_have_count(1)
    answer_after(page)


def test_the_second_press_of_a_double_click_decides_nothing(page: Page, site: Site) -> None:
    """The first one may have chosen an option of a list that was over the button."""
    review = server_uis.review()
    opened(page, site, review, app(WAITS)).get_by_text("go").wait_for()
    calm(page)
    answer_after(page, count=2)


HOSTILE: Final = {
    "large": ("post({jsonrpc: '2.0', id: 1, method: 'x', params: 'x'.repeat(5_000_000)});", "too large"),
    "many values": ("post(Array(1_000_000).fill(0));", "too large"),
    "sparse": ("post(Array(4_000_000_000));", "too large"),
    "deep": ("let deep = []; for (let n = 0; n < 500; n++) deep = [deep]; post(deep);", "too large"),
    "cyclic": ("const cycle = {}; cycle.cycle = cycle; post(cycle);", "too large"),
    "a flood": ("for (let n = 0; n < 5000; n++) post({jsonrpc: '2.0', method: 'x'});", "too many messages"),
    "a slow flood": (
        "const some = () => { for (let n = 0; n < 9; n++) post({method: 'ping'}); }; setInterval(some, 9);",
        "too many messages",
    ),
    "submissions": ("hello((to) => answer(to, 'accept', {color: 'wrong'}));", "submitted too often"),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_an_app_that_sends_too_much_is_closed_and_the_form_stays(page: Page, site: Site, attack: str) -> None:
    script, told = HOSTILE[attack]
    review = server_uis.review()
    opened(page, site, review, app(script))
    expect(page.locator("#ui-told")).to_contain_text(told)
    expect(page.locator("iframe")).to_have_count(0)
    page.get_by_label("Color required").fill("#123456")
    press(page, page.get_by_role("button", name="Accept and send"))
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert ready(review, app(script)).sha256 == verdict.ui, "it was shown for a moment"


ODD: Final = """
  const params = {action: 'accept', content: {color: '#000000'}};
  const good = {jsonrpc: '2.0', method: 'ui/submit-elicitation', params};
  for (const odd of [null, 7, 'text', [], {}, [good], {jsonrpc: '1.0', id: 1, method: 'ping'},
    {...good, jsonrpc: undefined}, {jsonrpc: '2.0', id: {}, method: 'ping'},
    {jsonrpc: '2.0', id: 'samplegate-1', result: params}, {jsonrpc: '2.0', id: undefined, result: params},
    new Map([['jsonrpc', '2.0']]), new Date(), new ArrayBuffer(9), {type: 'ui-size-change'},
    {type: 'ui-size-change', payload: {height: 'x'}}, {jsonrpc: '2.0', method: 'ui/notifications/initialized'},
    {jsonrpc: '2.0', method: 'ui/notifications/size-changed', params: {height: 1e99, width: -1}},
    {jsonrpc: '2.0', id: 1, method: '__proto__', params: null},
    JSON.parse('{"__proto__": {"jsonrpc": "2.0", "method": "ui/submit-elicitation"}}')]) post(odd);
  parent.postMessage(good, '*', [new MessageChannel().port1]);
"""


@BOTH
def test_messages_of_other_shapes_have_no_effect(page: Page, site: Site, dialect: Dialect) -> None:
    review = server_uis.review(dialect=dialect)
    script = ODD + "hello((to) => { if (to.params?.message) document.body.append('asked'); });"
    frame = opened(page, site, review, app(script))
    expect(frame.get_by_text("asked")).to_be_visible()
    expect(page.get_by_label("Color required")).to_have_value("")
    expect(page.locator("#ui-told")).to_be_empty()


def test_messages_from_another_source_have_no_effect(page: Page, site: Site) -> None:
    """From a frame in the app's frame, from the page itself, and from another window."""
    inner = (
        "top.postMessage({jsonrpc: '2.0', method: 'ui/submit-elicitation', params: GOOD}, '*');"
        " top.postMessage({type: 'ui-lifecycle-iframe-ready'}, '*')"
    )
    good = "{action: 'accept', content: {color: '#000000'}}"
    script = f"""
      hello((to) => {{
        const frame = document.createElement('iframe');
        frame.srcdoc = "<script>{inner.replace("GOOD", good)};parent.postMessage('done', '*')</scr" + "ipt>";
        document.body.append(frame);
        addEventListener('message', ({{ data }}) => {{ if (data === 'done') document.body.append('tried'); }});
      }});"""
    frame = opened(page, site, server_uis.review(dialect="rich"), app(script))
    expect(frame.get_by_text("tried")).to_be_visible()
    page.evaluate(f"postMessage({{jsonrpc: '2.0', method: 'ui/submit-elicitation', params: {good}}}, '*')")
    page.evaluate("new Promise((done) => { addEventListener('message', done); postMessage('last', '*'); })")
    expect(page.get_by_label("Color required")).to_have_value("")
    expect(page.locator("#ui-told")).to_be_empty()


def test_two_reviews_never_cross(page_of: Callable[..., Page], site: Site) -> None:
    pages = [page_of(), page_of()]
    pages[1] = pages[0].context.new_page()
    reviews = [server_uis.review("rv_first"), server_uis.review("rv_second", dialect="rich")]
    pickers = [opened(page, site, review) for page, review in zip(pages, reviews, strict=True)]
    for n, (page, picker) in enumerate(zip(pages, pickers, strict=True)):
        page.bring_to_front()
        picker.get_by_label("Color", exact=True).fill(f"#{n}{n}{n}{n}{n}{n}")
        picker.get_by_role("button", name="Use this color").click()
    for n, page in enumerate(pages):
        expect(page.get_by_label("Color required")).to_have_value(f"#{n}{n}{n}{n}{n}{n}")
    calm(pages[0])
    pages[0].get_by_role("button", name="Accept and send").click()
    expect(pages[0].locator("#standing")).to_contain_text("Answered by ann")
    assert ("answered", "pending") == (site.get("rv_first").state, site.get("rv_second").state)
    expect(pages[1].get_by_label("Color required")).to_have_value("#111111")


def test_a_ui_that_is_read_later_appears_beside_what_was_typed(page: Page, site: Site) -> None:
    review = server_uis.review()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    expect(page.locator("#ui")).to_contain_text("It is being loaded")
    page.get_by_label("Color required").fill("#12345")
    page.get_by_label("Note").fill("half a thought")
    sha256 = attach(site, review)
    picker = page.frame_locator("#ui iframe")
    expect(picker.get_by_role("heading")).to_have_text("Which service should be moved, and how?")
    expect(page.locator("#ui-facts")).to_contain_text(f"sha256:{sha256}")
    expect(page.locator("#events")).to_contain_text(f"sha256:{sha256}")
    expect(page.get_by_label("Color required")).to_have_value("#12345")
    expect(page.get_by_label("Note")).to_have_value("half a thought")
    expect(page.get_by_label("Color required")).not_to_be_focused()


def test_a_ui_that_failed_says_why_and_the_form_stays(page: Page, site: Site) -> None:
    review = server_uis.review()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    failed = replace(review.ui, state="failed", problem="no answer within 10s") if review.ui else None
    assert failed is not None
    site.run(lambda: site.listener.store.write(lambda store: store.attach_ui(review.id, failed, b"")))
    expect(page.locator("#ui")).to_contain_text("cannot be shown: no answer within 10s")
    page.get_by_label("Color required").fill("#123456")
    press(page, page.get_by_role("button", name="Accept and send"))
    expect(page.locator("#standing")).to_contain_text("Answered by ann")


def test_a_decision_before_the_ui_arrives_is_bound_to_none(page: Page, site: Site) -> None:
    review = server_uis.review()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.get_by_label("Color required").fill("#123456")
    page.get_by_role("button", name="Accept and send").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert "" == verdict.ui
    attach(site, review)
    assert ["opened", "answered"] == [event.what for event in site.listener.store.history(review.id)]
    expect(page.locator("iframe, #ui")).to_have_count(0)


def test_a_ui_is_gone_when_somebody_else_has_decided(page: Page, site: Site) -> None:
    review = server_uis.review()
    picker = opened(page, site, review)
    expect(picker.get_by_role("heading")).to_be_visible()
    verdict = Verdict(word="answer", result={"action": "decline"})
    site.run(lambda: site.listener.store.write(lambda store: store.decide(review.id, verdict, who="ben", door="api")))
    expect(page.locator("#standing")).to_contain_text("Answered by ben")
    expect(page.locator("iframe")).to_have_count(0)
    page.reload()
    expect(page.locator("iframe, #ui")).to_have_count(0)


UNABLE: Final = """
  addEventListener("message", () => post({jsonrpc: "2.0", method: "ui/notifications/initialized"}));
  post({jsonrpc: "2.0", id: 0, method: "ui/initialize", params: {appInfo: {}, appCapabilities: {tools: {}}}});
"""
LATE: Final = {
    "no messages": ("", "did not start in time"),
    "the other dialect": ("post({type: 'ui-lifecycle-iframe-ready'});", "did not start in time"),
    "initialized without a greeting": ("post({jsonrpc: '2.0', method: 'ui/notifications/initialized'});", "in time"),
    "no elicitation": (UNABLE, "cannot answer forms"),
    "an error": (
        "hello(({id}) => { if (id !== 0) post({jsonrpc: '2.0', id, error: {code: -32601, message: 'no'}}); });",
        "could not answer the form",
    ),
}


@pytest.mark.parametrize("fault", LATE)
def test_an_app_that_does_not_start_or_answer_leaves_the_form(page: Page, site: Site, fault: str) -> None:
    script, told = LATE[fault]
    review = server_uis.review()
    page.clock.install(time=NOW)
    opened(page, site, review, app(script))
    if "in time" in told:
        expect(page.locator("#ui iframe")).to_have_count(1)
        page.clock.run_for(14_000)
        expect(page.locator("#ui iframe")).to_have_count(1)
        page.clock.run_for(1_001)
    expect(page.locator("#ui-told")).to_contain_text(told)
    expect(page.locator("#ui-told")).to_contain_text("Use the form below")
    expect(page.locator("iframe")).to_have_count(0)
    page.get_by_label("Color required").fill("#123456")
    page.clock.run_for(1_001)
    page.get_by_role("button", name="Accept and send").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")


def test_a_browser_that_does_not_isolate_the_frame_asks_first(page_of: Callable[..., Page], site: Site) -> None:
    page, review = page_of(user_agent="Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Firefox/144.0"), server_uis.review()
    site.open(review)
    attach(site, review)
    page.goto(f"/reviews/{review.id}")
    expect(page.locator("#ui-told")).to_contain_text("cannot keep the UI from sending what you enter in it")
    expect(page.locator("iframe")).to_have_count(0)
    expect(page.locator("#seen-ui")).to_have_value("")
    page.get_by_role("button", name="Show the UI").click()
    expect(page.frame_locator("#ui iframe").get_by_role("heading")).to_be_visible()
    expect(page.get_by_role("button", name="Show the UI")).to_have_count(0)


def test_without_script_there_is_the_form_alone(page_of: Callable[..., Page], site: Site) -> None:
    review = server_uis.review()
    page = page_of(java_script_enabled=False)
    opened(page, site, review)
    expect(page.locator("iframe")).to_have_count(0)
    expect(page.get_by_text("The UI needs JavaScript")).to_be_visible()
    page.get_by_label("Color required").fill("#123456")
    page.get_by_role("button", name="Accept and send").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert "" == verdict.ui


def test_the_address_of_a_frame_opened_by_hand_shows_nothing(page: Page, site: Site, watched: list[Watched]) -> None:
    """In a browser that does not report where a request comes from, it runs with an opaque origin."""
    review = server_uis.review()
    site.open(review)
    attach(site, review, app("try { localStorage.x = 1 } catch (fault) { document.body.append(origin, fault.name) }"))
    page.goto(f"/reviews/{review.id}/raw")
    source = page.request.get(f"/reviews/{review.id}/ui/description").json()["src"]
    with pytest.raises(Error, match="ERR_HTTP_RESPONSE_CODE_FAILURE"):
        page.goto(source)
    answer = page.request.get(source)
    again = page.request.get(source)
    assert (200, 404, b"") == (answer.status, again.status, again.body())
    page.route("**/ui?t=*", lambda route: route.fulfill(response=answer))
    page.goto(source)
    expect(page.locator("body")).to_contain_text("nullSecurityError")
    assert ["status of 404" in said for said in watched[0].said] == [True]
    watched[0].said.clear()


def test_a_proxy_that_signs_people_in_gets_its_cookies_with_the_frames_request_too(page: Page, site: Site) -> None:
    """The gate itself ignores them there."""
    review = server_uis.review()
    site.open(review)
    attach(site, review)
    with page.expect_request("**/ui?t=*") as asked:
        page.goto(f"/reviews/{review.id}")
    assert "samplegate" in asked.value.all_headers().get("cookie", "")


TRAP: Final = "<input aria-label='trap'>"


def test_an_app_that_takes_the_focus_from_a_field_again_and_again_is_closed(page: Page, site: Site) -> None:
    script = "hello(() => {}); setInterval(() => document.querySelector('input').focus(), 20);"
    frame = opened(page, site, server_uis.review(), app(script, TRAP))
    expect(frame.get_by_label("trap")).to_be_visible()
    field = page.get_by_label("Note")
    field.click()
    expect(page.locator("#ui-told")).to_contain_text("took the focus")
    expect(page.locator("iframe")).to_have_count(0)
    expect(field).to_be_focused()
    page.keyboard.type("a secret of mine")
    expect(field).to_have_value("a secret of mine")


def test_a_field_gets_the_focus_back_and_a_person_can_go_to_the_app(page: Page, site: Site) -> None:
    script = """hello((to) => {
      const take = () => { document.querySelector("input").focus(); document.body.append("took"); };
      if (to.method) addEventListener("resize", take);
    });"""
    frame = opened(page, site, server_uis.review(), app(script, TRAP))
    expect(frame.get_by_label("trap")).to_be_visible()
    field = page.get_by_label("Note")
    field.click()
    page.evaluate("document.querySelector('iframe').style.height = '300px'")
    expect(frame.get_by_text("took")).to_be_visible()
    expect(field).to_be_focused()
    frame.get_by_label("trap").click()
    page.keyboard.type("given")
    expect(frame.get_by_label("trap")).to_have_value("given")
    expect(page.locator("#ui-told")).to_be_empty()


@pytest.mark.real
def test_axe_finds_nothing_with_a_ui_and_nothing_stands_beyond_the_edge(page: Page, site: Site) -> None:
    """The dialect changes nothing in the page."""
    review = server_uis.review(server="deployer" * 20)
    looked = Looked(page)
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    looked.at("loading")
    attach(site, review)
    picker = page.frame_locator("#ui iframe")
    expect(picker.get_by_role("heading")).to_be_visible()
    calm(page)
    looked.at("shown")
    assert [] == faults(page.frames[1])
    picker.get_by_label("Color", exact=True).fill("red")
    picker.get_by_role("button", name="Use this color").click()
    expect(page.locator("#ui-told")).to_contain_text("do not fit")
    calm(page)
    looked.at("refused")
    assert [] == faults(page.frames[1])
    picker.get_by_role("button", name="Decline").click()
    expect(page.locator("button.proposed").first).to_be_visible()
    calm(page)
    looked.at("declined")
    for width in (1280, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_app_gets_the_theme_and_its_changes(page: Page, site: Site) -> None:
    script = """
      addEventListener("message", ({ data }) => {
        const theme = data.result?.hostContext?.theme ?? data.params?.theme;
        if (theme) document.body.append(`${data.method ?? "start"}: ${theme}. `);
      });
      hello(() => {});"""
    page.emulate_media(color_scheme="dark")
    frame = opened(page, site, server_uis.review(), app(script))
    expect(frame.locator("body")).to_contain_text("start: dark.")
    page.emulate_media(color_scheme="light")
    expect(frame.locator("body")).to_contain_text("ui/notifications/host-context-changed: light.")


def test_the_ui_is_reached_by_keyboard_between_message_and_form(page: Page, site: Site) -> None:
    picker = opened(page, site, server_uis.review())
    expect(picker.get_by_role("heading")).to_be_visible()
    expect(page.locator("iframe[title='UI from deployer']")).to_have_count(1)
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "IFRAME":
            break
    page.keyboard.press("Tab")  # from the swatch to its text
    page.keyboard.type("#abcdef")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Color required")).to_have_value("#abcdef")
    expect(page.locator("#form")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Color required")).to_be_focused()


SDK: Final = TESTS / "acceptance/sdk/node_modules/@modelcontextprotocol/ext-apps/dist/src/app-with-deps.js"
SDK_APP: Final = """
  const app = new App({name: "sdk", version: "1"}, {elicitation: {}});
  app.setRequestHandler("elicitation/create", ({params}) => new Promise((done) => {
    document.querySelector("h1").textContent = `${params.message} (${params.requestedSchema.required})`;
    document.querySelector("button").onclick = () =>
      done({action: "accept", content: {color: document.querySelector("input").value}});
  }));
  await app.connect();
  document.querySelector("p").textContent = `${app.getHostContext().theme}, ${app.getHostVersion().name}`;
"""


@pytest.mark.real
def test_an_app_of_the_official_sdk_works(page: Page, site: Site, watched: list[Watched]) -> None:
    """Version 2.0.4 of @modelcontextprotocol/ext-apps, as the bundle that apps inline. It tries whether it may use
    eval, and does without."""
    code = SDK.read_text("utf-8")
    exports = code.rindex("export{")
    name = re.search(r"([\w$]+) as App[,}]", code[exports:])
    assert name is not None
    script = f"{code[:exports]};const App = {name[1]};{SDK_APP}".replace("</script", "<\\/script")
    body = '<!doctype html><meta charset="utf-8"><h1></h1><p></p><input aria-label="Color"><button>Go</button>'
    review = server_uis.review()
    frame = opened(page, site, review, f'{body}<script type="module">{script}</script>'.encode())
    expect(frame.get_by_role("heading")).to_have_text("Which service should be moved, and how? (color)")
    expect(frame.locator("p")).to_have_text("light, samplegate")
    for color in ("red", "#3b82f6"):
        frame.get_by_label("Color").fill(color)
        frame.get_by_role("button").click()
        expect(page.get_by_label("Color required")).to_have_value(color)
    expect(page.locator("#ui-told")).to_contain_text("Nothing was sent yet")
    press(page, page.get_by_role("button", name="Accept and send"))
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    assert {"policy: script-src eval"} == set(watched[0].said)
    watched[0].said.clear()
