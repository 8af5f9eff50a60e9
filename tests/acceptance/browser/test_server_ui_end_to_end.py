"""The demo's color picker from a real server through a real gate to a person in Chromium, and the color back to the
server: both dialects and protocol versions, over stdio and HTTP."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, FrameLocator, Page, expect

from samplegate.demo.color_server import BANNER, LABEL
from tests.acceptance.browser.conftest import SECONDS
from tests.acceptance.browser.test_server_ui import press
from tests.fakes.daemon import BOUND, Client, Gate, client, serving
from tests.fakes.daemon_reviews import TOKEN, settings
from tests.fakes.run_process import call as call_of
from tests.fakes.run_process import modern, opening, running
from tests.system.run.test_reviews_listen import link_of

pytestmark = pytest.mark.timeout(300)
POLICY: Final = """
version: 1
reviewers: {ops: {timeout: 15m}}
rules: [{name: people, match: {mode: form}, effect: escalate, reviewer: ops, ui: show}]
client: {peer_timeout: none}
servers: {colors: {peer_timeout: none}}
"""
COLORS: Final = ("-m", "samplegate.demo.color_server")
ERAS: Final = pytest.mark.parametrize("era", ["legacy", "modern"])


class Talk(Protocol):
    """A client of the gate. ``call`` begins a call of a tool, and returns what waits for its result."""

    def call(self, tool: str) -> Callable[[], dict[str, Any]]: ...


@contextmanager
def stdio(folder: Path, era: str, page: Page) -> Iterator[Talk]:
    """`samplegate run`, whose user opens the page with `samplegate reviews open`."""
    (folder / "policy.yaml").write_text(POLICY)
    options = ("--server", "colors", "--reviews-listen", "127.0.0.1:0")
    with running(folder, *options, command=(sys.executable, *COLORS)) as gate:
        gate.write(*opening(era, elicitation={}))
        gate.read()
        url, place, code = link_of(folder)
        page.goto(f"{url}/reviews/sign-in?next={place}#token={code}")
        ids = iter(range(1, 100))

        class Stdio:
            def call(self, tool: str) -> Callable[[], dict[str, Any]]:
                id = next(ids)
                asked = call_of(id, tool)
                gate.write(modern(asked, elicitation={}) if era == "modern" else asked)

                def result() -> dict[str, Any]:
                    while (frame := gate.read()).get("id") != id or "method" in frame:
                        pass
                    return frame

                return result

        yield Stdio()


def sign_in(page: Page, gate: Gate) -> None:
    page.goto(f"{gate.reviews}/reviews/sign-in")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()


class Http:
    def __init__(self, portal: BlockingPortal, gate: Gate, asks: Client, era: str) -> None:
        self.kill = gate.process.kill
        self._portal, self._asks, self._era = portal, asks, era
        if era == "legacy":
            portal.call(asks.begin)

    def call(self, tool: str) -> Callable[[], dict[str, Any]]:
        ask = self._asks.legacy if self._era == "legacy" else self._asks.modern
        done = self._portal.start_task_soon(partial(ask, "tools/call", name=tool, arguments={}))
        return partial(done.result, BOUND)


@contextmanager
def http(folder: Path, era: str, page: Page) -> Iterator[Http]:
    """`samplegate serve`, to which a person of the settings signs in with their token."""
    servers = {"colors": {"command": sys.executable, "args": COLORS}}
    arguments = settings(folder, policy=POLICY, servers=servers)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(folder, *arguments)) as gate,
        portal.wrap_async_context_manager(client(gate, capabilities={"elicitation": {}})) as asks,
    ):
        portal.call(gate.said, "reviews on")
        sign_in(page, gate)
        yield Http(portal, gate, asks, era)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(SECONDS * 1000)
    yield context.new_page()
    context.close()


def opened(page: Page) -> FrameLocator:
    """The UI of the first pending review, to which a person comes by the queue."""
    page.get_by_role("link", name="Pending").click()
    page.locator("#list h2 a").first.click()
    return page.frame_locator("#ui iframe")


@ERAS
@pytest.mark.parametrize("over", [stdio, http])
def test_a_color_reaches_the_server_by_the_gates_button_only(
    page: Page, tmp_path: Path, over: Callable[[Path, str, Page], Any], era: str
) -> None:
    with over(tmp_path, era, page) as talk:
        for tool in (BANNER, LABEL):
            result = talk.call(tool)
            picker = opened(page)
            field = picker.get_by_label("Color", exact=True)
            for wrong in ("#gggggg", "3b82f6"):
                field.fill(wrong)
                picker.get_by_role("button", name="Use this color").click()
                expect(picker.get_by_role("alert")).not_to_be_empty()
                expect(page.get_by_label("Color required")).to_have_value(wrong)
            field.fill("#3b82f6")
            picker.get_by_role("button", name="Use this color").click()
            expect(page.locator("#ui-told")).to_contain_text("Nothing was sent yet")
            expect(page.locator("#standing")).to_contain_text("expires in")
            press(page, page.get_by_role("button", name="Accept and send"))
            got = result()["result"]["structuredContent"]
            assert {"action": "accept", "content": {"color": "#3b82f6"}} == got
        for action, button in (("decline", "Decline"), ("cancel", "Dismiss")) if over is http else ():
            result = talk.call(LABEL)
            opened(page).get_by_role("button", name=action.title()).click()
            expect(page.locator("button.proposed").filter(visible=True)).to_have_text(button)
            press(page, page.locator("#decide").get_by_role("button", name=button))
            assert {"action": action} == result()["result"]["structuredContent"]


def test_a_kill_after_the_app_has_submitted_decides_nothing(page: Page, tmp_path: Path) -> None:
    with http(tmp_path, "legacy", page) as talk:
        lost = talk.call(BANNER)
        picker = opened(page)
        picker.get_by_label("Color", exact=True).fill("#3b82f6")
        picker.get_by_role("button", name="Use this color").click()
        expect(page.get_by_label("Color required")).to_have_value("#3b82f6")
        talk.kill()
        with pytest.raises(aiohttp.ClientError):
            lost()
    page.context.clear_cookies()
    with http(tmp_path, "legacy", page) as talk:
        result = talk.call(BANNER)
        picker = opened(page)
        expect(page.get_by_label("Color required")).to_have_value("")
        picker.get_by_label("Color", exact=True).fill("#123456")
        picker.get_by_role("button", name="Use this color").click()
        expect(page.get_by_label("Color required")).to_have_value("#123456")
        press(page, page.get_by_role("button", name="Accept and send"))
        assert {"color": "#123456"} == result()["result"]["structuredContent"]["content"]
