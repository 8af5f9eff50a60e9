"""Chromium with the reviewers' listener: one listener for all tests, a browser for each module, and a new store and
context for each test. A test fails if a page writes to its console or sends a request to another host."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import pytest
import uvicorn
from msgspec.structs import replace
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, sync_playwright

from samplegate.reviews.review import Review
from samplegate.reviews.sign_in_links import OneUseCodes
from samplegate.reviews.web.app import reviews_app
from samplegate.reviews.web.context import Person
from tests.fakes.reviewers_listener import OPS, ReviewersListener
from tests.fakes.system_programs import program

ARGUMENTS: Final = ("--disable-dev-shm-usage", "--disable-gpu", "--font-render-hinting=none")
NOT_LOADED: Final = (
    # the address bar's list of suggestions: for each window a page, with ten times the CPU time of the page under test
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,"
    # what Playwright turns off: of two lists, only the last one counts
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,"
    "LensOverlay,MediaRouter,PaintHolding,ThirdPartyStoragePartitioning,AvoidCorsURLLoaderRestartOnRedirect,"
    "OptimizationHints,NetworkTimeServiceQuerying,AimEnabled,PreconnectToSearch"
)
SECONDS: Final = 10.0
LINKS: Final = b"s" * 32
"""The secret of one-use links."""


class Site:
    """The listener over an in-memory store, in a thread with its own event loop."""

    def __init__(self) -> None:
        self.listener = ReviewersListener()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self.url = ""

    def begin(self) -> None:
        self._thread.start()
        assert self._ready.wait(SECONDS)

    def end(self) -> None:
        self._server.should_exit = True
        self._loop.call_soon_threadsafe(self._app.end)
        self._thread.join(SECONDS)
        self._loop.close()

    def run(self, what: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Await something in the listener's event loop."""
        return asyncio.run_coroutine_threadsafe(what(), self._loop).result(SECONDS)

    def open(self, *reviews: Review) -> None:
        for review in reviews:
            self.run(lambda review=review: self.listener.open_review(review))  # type: ignore[misc]

    def get(self, id: str) -> Review:
        found: Review | None = self.run(lambda: self.listener.store.read(lambda store: store.get(id)))
        assert found is not None
        return found

    async def _serve(self) -> None:
        config = uvicorn.Config(
            self._dispatch, host="127.0.0.1", port=0, log_level="error", lifespan="off", interface="asgi3", ws="none"
        )
        self._server = uvicorn.Server(config)
        serving = asyncio.ensure_future(self._server.serve())
        async with asyncio.timeout(SECONDS):
            while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.listener = self._listener()
        self._app = self.listener.app(poll=0.05)
        self._ready.set()
        await serving

    async def _dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    def _listener(self) -> ReviewersListener:
        """A listener that also has one-use links, for a user named olga."""
        found = ReviewersListener(self.url)
        codes, used, known = OneUseCodes(LINKS), set[bytes](), found.web.known
        olga = Person("olga", "admin")

        def one_use(code: str) -> Person | None:
            if not codes.use(code, found.now):
                return None
            used.add(hashlib.sha256(code.encode()).digest())
            return olga

        found.web = replace(found.web, one_use=one_use, known=lambda digest: olga if digest in used else known(digest))
        return found

    def anew(self) -> None:
        """Start with another store and no sessions."""

        async def swap() -> None:
            self._app.end()
            self.listener = self._listener()
            self._app = reviews_app(self.listener.web, poll=0.05)

        self.run(swap)


@pytest.fixture(scope="session")
def _site() -> Iterator[Site]:
    site = Site()
    site.begin()
    yield site
    site.end()


@pytest.fixture
def site(_site: Site) -> Site:
    _site.anew()
    return _site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module's tests: while it is open its event loop runs in this thread, and no test that awaits could."""
    arguments = [*ARGUMENTS, f"--disable-features={NOT_LOADED}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--no-sandbox")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program("chromium"), args=arguments)
        yield found
        found.close()


MAIL: Final = "http://mail.example.net/"
"""A page of another site, which tests fill themselves."""
VIOLATIONS: Final = (
    "addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective}"
    " ${e.blockedURI}`))"
)
REFUSED: Final = re.compile(r"Failed to load resource: .* status of (403|409|422) ")


class Watched:
    """Side effects of a browser: requests to other hosts, and output of its console, Content-Security-Policy and
    dialogs. A page that rejects a form is an error in the console."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.elsewhere: list[str] = []
        self.said: list[str] = []
        context.add_init_script(VIOLATIONS)
        context.on("request", lambda request: self._requested(request.url))
        context.on("console", lambda message: self._told(message.type, message.text))
        context.on("weberror", lambda error: self.said.append(str(error.error)))
        context.on("dialog", self._asked)
        self._ours = (f"{url}/", "data:", "about:", "file:", MAIL)

    def _requested(self, url: str) -> None:
        if not url.startswith(self._ours):
            self.elsewhere.append(url)

    def _told(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not REFUSED.match(text):
            self.said.append(text)

    def _asked(self, dialog: Dialog) -> None:
        self.said.append(f"a dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture
def watched() -> list[Watched]:
    """The side effects of each context of the test."""
    return []


@pytest.fixture
def context_of(browser: Browser, site: Site, watched: list[Watched]) -> Iterator[Callable[..., BrowserContext]]:
    """A new browser context without a sign-in. At its end it must have had no side effects."""
    made: list[BrowserContext] = []

    def make(**more: Any) -> BrowserContext:
        context = browser.new_context(base_url=site.url, **more)
        context.set_default_timeout(SECONDS * 1000)
        made.append(context)
        watched.append(Watched(context, site.url))
        return context

    yield make
    for context in made:
        context.close()
    assert [([], [])] * len(made) == [(each.elsewhere, each.said) for each in watched]


@pytest.fixture
def page_of(context_of: Callable[..., BrowserContext], site: Site) -> Callable[..., Page]:
    """An empty page of a signed-in reviewer."""

    def make(token: str = OPS, **more: Any) -> Page:
        context = context_of(**more)
        found = context.request.post(
            "/reviews/sign-in", form={"token": token}, headers={"origin": site.url}, max_redirects=0
        )
        assert 303 == found.status
        return context.new_page()

    return make


@pytest.fixture
def page(page_of: Callable[..., Page]) -> Page:
    return page_of()
