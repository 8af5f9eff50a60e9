"""The documentation site: it builds without a warning, its links lead somewhere, it needs no other host, and its search
finds pages in a browser."""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from docs.site.pages import PAGES
from tests.fakes.system_programs import program
from tests.paths import ROOT

SECONDS: Final = 240
MILLISECONDS: Final = 60_000.0

pytestmark = [pytest.mark.real, pytest.mark.timeout(2 * SECONDS)]


def build(folder: Path, source: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Build the site as `make site` does, of another checkout's pages if ``source`` is given."""
    command = [sys.executable, "-m", "docs.site", str(folder), str(source)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert (0, "") == (done.returncode, done.stderr)
    return folder


class References(HTMLParser):
    """The links, the resources and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.resources += [
            values[name] for name in ("src", "srcset", "href") if name in values and (tag, name) != ("a", "href")
        ]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, References]:
    return {path: References(path.read_text("utf-8")) for path in site.rglob("*.html")}


def test_every_page_is_on_the_site(site: Path) -> None:
    assert [] == [page for page in PAGES if not (site / page).with_suffix(".html").is_file()]
    assert (site / "README.html").read_bytes() == (site / "index.html").read_bytes()


def test_every_link_leads_to_a_file_and_an_anchor_of_the_site(site: Path, pages: dict[Path, References]) -> None:
    dead = []
    for page, found in pages.items():
        for link in [*found.links, *found.resources]:
            url = urlsplit(link)
            if url.scheme or url.netloc or page.name == "search.html":
                continue
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            if not target.is_file() or (url.fragment and url.fragment not in pages[target].anchors):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert [] == dead


def test_no_page_loads_anything_from_another_host(site: Path, pages: dict[Path, References]) -> None:
    assert [] == [
        link
        for found in pages.values()
        for link in found.resources
        if urlsplit(link).netloc or link.startswith("data:h")
    ]
    foreign = re.compile(r"""@import\s+["']?https?:|url\(\s*["']?(?:https?:)?//""")
    assert [] == [path.name for path in site.rglob("*.css") if foreign.search(path.read_text("utf-8"))]


def copy_of_the_pages(folder: Path) -> Path:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md", "*.yaml", "*.yml"]
    names = subprocess.run([*listed, "*.json", "*.png", "*.svg"], cwd=ROOT, capture_output=True, check=True, timeout=30)
    for name in filter(None, names.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def test_a_broken_link_a_missing_anchor_and_a_page_without_a_place_are_errors(tmp_path: Path) -> None:
    source = copy_of_the_pages(tmp_path / "source")
    with (source / "policies" / "peers.md").open("a") as page:
        page.write("\n[a](gone.md) and [b](limits.md#no-such-heading)\n")
    (source / "docs" / "orphan.md").write_text("# Orphan\n")
    done = build(tmp_path / "site", source)
    assert 1 == done.returncode
    assert [] == [
        word for word in ("'gone.md'", "'no-such-heading'", "orphan.md: WARNING") if word not in done.stderr
    ], done.stderr


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site on loopback, served from its folder."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def browser_page(address: str) -> Iterator[tuple[Page, list[str]]]:
    """A page of Chromium, and the addresses on other hosts that it asked for."""
    foreign: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        page = browser.new_page()
        page.set_default_timeout(MILLISECONDS)
        page.on("request", lambda asked: None if asked.url.startswith(address) else foreign.append(asked.url))
        yield page, foreign
        browser.close()


@pytest.mark.parametrize(
    ("words", "title", "path"),
    [
        ("late_verdict", "Human review", "policies/reviewers.html"),
        ("cassette", "Records and state", "deploy/records.html"),
    ],
)
def test_the_search_finds_a_page(
    browser_page: tuple[Page, list[str]], address: str, words: str, title: str, path: str
) -> None:
    page, foreign = browser_page
    page.goto(f"{address}/index.html")
    page.get_by_role("textbox", name="Search").first.fill(words)
    page.get_by_role("textbox", name="Search").first.press("Enter")
    found = page.locator("#search-results li a", has_text=title).first
    expect(found).to_be_visible(timeout=MILLISECONDS)
    found.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(title, timeout=MILLISECONDS)
    assert page.url.split("#")[0].split("?")[0] == f"{address}/{path}"
    assert [] == foreign


def test_pages_that_explain_a_word_come_before_those_that_mention_it(
    browser_page: tuple[Page, list[str]], address: str
) -> None:
    page, _ = browser_page
    page.goto(f"{address}/search.html?q=budget")
    expect(page.locator("#search-results")).to_contain_text("Search finished", timeout=MILLISECONDS)
    expect(page.locator("#search-results li a", has_text="Changelog")).to_have_count(1, timeout=MILLISECONDS)
    found = page.locator("#search-results li > a").all_inner_texts()
    assert found.index("A pipeline with a budget") < found.index("In a pipeline") < found.index("Changelog")
    assert {"Limits", "Limits > Budgets, rates and concurrency"} & {*found[:6]}, found


def test_no_page_is_wider_than_the_window(browser_page: tuple[Page, list[str]], address: str) -> None:
    page, _ = browser_page
    wide = []
    for name in ("index", "docs/tutorial", "docs/commands", "deploy/settings", "docs/troubleshooting", "search"):
        page.goto(f"{address}/{name}.html")
        for width in (390, 800, 1010, 1150, 1280, 1315, 1440, 1920):
            page.set_viewport_size({"width": width, "height": 800})
            if page.evaluate("document.documentElement.scrollWidth") > width:
                wide.append((name, width))
    assert [] == wide
