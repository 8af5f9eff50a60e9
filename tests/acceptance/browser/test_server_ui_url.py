"""A server's own UI from a URL, in Chromium: a person decides whether to load it, and it has a frame without rights
that stays at its origin."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import FrameLocator, Page, expect

from samplegate.reviews.review import Review
from tests.acceptance.browser.conftest import Site, Watched
from tests.acceptance.browser.test_access import faults
from tests.acceptance.browser.test_server_ui import calm, press
from tests.fakes import server_uis
from tests.fakes.server_uis import PICKER, app, ready_at

pytestmark = pytest.mark.timeout(180)


class Elsewhere:
    """A web site on loopback, and the requests that it got: each with its path, cookie and referrer."""

    def __init__(self) -> None:
        self.pages = {"/app": PICKER}
        self.asked: list[tuple[str, str | None, str | None]] = []
        site = self

        class Serves(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.path, self.headers["cookie"], self.headers["referer"]))
                found = site.pages.get(self.path, b"")
                moved = found.removeprefix(b"to ").decode() if found.startswith(b"to ") else ""
                self.send_response(302 if moved else 200)
                if moved:
                    self.send_header("location", moved)
                self.send_header("set-cookie", "who=ann; SameSite=None; Secure")
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(found)))
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(found)

            def log_message(self, format: str, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Serves)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.other = f"http://127.0.0.1:{self._server.server_address[1]}"
        """The same server at another origin."""
        self.url = f"http://localhost:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    found = Elsewhere()
    yield found
    found.close()


def opened(page: Page, site: Site, url: str, *origins: str) -> Review:
    """The page of a review with a UI from a URL, for a rule with these origins."""
    review = server_uis.review(dialect="rich", origins=origins)
    site.open(review)
    page.goto(f"/reviews/{review.id}")  # the UI is read while the page is open
    ui = ready_at(review, url)
    site.run(lambda: site.listener.store.write(lambda store: store.attach_ui(review.id, ui, url.encode())))
    expect(page.get_by_role("button", name="Show the UI")).to_be_visible()
    return review


def frame(page: Page) -> FrameLocator:
    page.get_by_role("button", name="Show the UI").click()
    return page.frame_locator("#ui iframe")


def test_a_person_decides_to_load_it_and_the_gates_button_sends(
    page: Page, site: Site, elsewhere: Elsewhere, watched: list[Watched]
) -> None:
    page.goto(f"{elsewhere.url}/app")  # it has set a cookie
    page.reload()
    assert "who=ann" in [cookie for _, cookie, _ in elsewhere.asked]
    page.goto("about:blank")
    elsewhere.asked.clear()
    review = opened(page, site, f"{elsewhere.url}/app", elsewhere.url)
    expect(page.locator("#ui")).to_contain_text(f"The server's UI is at {elsewhere.url}.")
    expect(page.locator("#ui-told")).to_contain_text(f"{elsewhere.url} gets the form's text")
    assert [] == elsewhere.asked
    calm(page)
    assert [] == faults(page)
    picker = frame(page)
    picker.get_by_label("Color", exact=True).fill("3b82f6")
    picker.get_by_role("button", name="Use this color").click()
    expect(picker.get_by_role("alert")).not_to_be_empty()
    picker.get_by_label("Color", exact=True).fill("#3b82f6")
    picker.get_by_role("button", name="Use this color").click()
    expect(page.get_by_label("Color required")).to_have_value("#3b82f6")
    assert [("/app", None, None)] == elsewhere.asked, "it learns neither who asks nor from where"
    assert "pending" == site.get(review.id).state
    calm(page)
    assert [] == faults(page)
    press(page, page.get_by_role("button", name="Accept and send"))
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    decided = site.get(review.id)
    assert decided.verdict is not None
    assert decided.ui is not None
    assert (decided.ui.sha256, {"color": "#3b82f6"}) == (
        decided.verdict.ui, (decided.verdict.result or {})["content"],
    )  # fmt: skip
    expect(page.locator("body")).to_contain_text(f"{elsewhere.url}/app")
    watched[0].elsewhere.clear()


def test_it_has_no_rights(page: Page, site: Site, elsewhere: Elsewhere, watched: list[Watched]) -> None:
    elsewhere.pages["/app"] = app(
        """
        const tries = [() => localStorage, () => document.cookie, () => parent.document, () => top.location.href,
          () => indexedDB.open("x"), () => window.open("/opened")];
        const tried = (use) => { try { return String(use()); } catch (fault) { return fault.name; } };
        const allowed = document.featurePolicy.allowedFeatures().filter((name) => !name.startsWith("ch-"));
        hello(() => {});
        Object.assign(document.body.dataset, { origin, credentialless, features: allowed, found: tries.map(tried) });
        """
    )
    opened(page, site, f"{elsewhere.url}/app", elsewhere.url)
    body = frame(page).locator("body")
    expect(body).to_have_attribute("data-found", ",".join(["SecurityError"] * 5 + ["null"]))
    expect(body).to_have_attribute("data-origin", "null")
    expect(body).to_have_attribute("data-features", "")
    expect(body).to_have_attribute("data-credentialless", "true")
    assert 1 == len(page.context.pages)
    assert [("/app", None, None)] == elsewhere.asked
    watched[0].elsewhere.clear()
    watched[0].said[:] = [said for said in watched[0].said if "sandboxed" not in said]


@pytest.mark.parametrize("to", ["own", "other"])
def test_it_stays_at_its_page(page: Page, site: Site, elsewhere: Elsewhere, watched: list[Watched], to: str) -> None:
    target = f"{elsewhere.url if to == 'own' else elsewhere.other}/typed"
    elsewhere.pages["/app"] = app(f"hello(() => {{}}); setTimeout(() => {{ location = {target!r}; }}, 300);")
    opened(page, site, f"{elsewhere.url}/app", elsewhere.url)
    frame(page)
    expect(page.locator("#ui-told")).to_contain_text("left its page")
    expect(page.locator("iframe")).to_have_count(0)
    assert ["/app"] + ["/typed"] * (to == "own") == [path for path, _, _ in elsewhere.asked]
    watched[0].elsewhere.clear()
    watched[0].said[:] = [said for said in watched[0].said if "frame-src" not in said]


def test_it_is_loaded_from_no_other_origin_also_by_a_redirect(
    page: Page, site: Site, elsewhere: Elsewhere, watched: list[Watched]
) -> None:
    elsewhere.pages |= {"/app": f"to {elsewhere.other}/moved".encode(), "/moved": PICKER}
    page.clock.install()
    opened(page, site, f"{elsewhere.url}/app", elsewhere.url)
    with page.expect_console_message(lambda message: "frame-src" in message.text):
        frame(page)
    page.clock.run_for(15_001)
    expect(page.locator("#ui-told")).to_contain_text("did not start in time. Use the form below")
    assert [("/app", None, None)] == elsewhere.asked
    watched[0].elsewhere.clear()
    watched[0].said.clear()


def test_at_the_host_of_the_review_page_it_is_not_loaded_and_the_page_says_why(
    page: Page, site: Site, elsewhere: Elsewhere
) -> None:
    opened(page, site, f"{elsewhere.other}/app", elsewhere.other)
    page.get_by_role("button", name="Show the UI").click()
    expect(page.locator("#ui-told")).to_have_text(
        "The UI cannot be shown: its URL has the same host as this page; serve the UI from another host."
        " Use the form below."
    )
    assert [] == elsewhere.asked
    expect(page.locator("iframe")).to_have_count(0)
