"""The frame of a server's own UI: its one-use links, and the headers that isolate it.

Everything in the frame is hostile. Its document has an opaque origin, no storage and no network, whether the page shows
it or somebody opens its address. Chromium honors ``Connection-Allowlist``, which also covers what a
Content-Security-Policy does not: WebRTC, DNS look-ups, preconnects, and the connection of a navigation that the policy
then blocks. Other browsers ignore it, so the page's script asks before it shows a UI there.

A UI that the server gives as a URL is loaded from there. Its origin is opaque, too, but it has network access, so the
page's script asks in every browser.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec
from starlette.requests import Request

from samplegate.reviews.review import ReviewUi
from samplegate.reviews.web.context import Web
from samplegate.reviews.web.security import PAGE_POLICY
from samplegate.urls import target

LINK_TIME: Final = 60.0
"""Seconds in which the page's script must have opened a link to a UI."""
_PURPOSE: Final = b"samplegate link to a server's ui"
_token: Final = re.compile(r"([1-9][0-9]{0,11})\.([0-9a-f]{32})\.([A-Za-z0-9_-]{43})\Z")
_host: Final = re.compile(r"[A-Za-z0-9.-]{1,255}(?::[0-9]{1,5})?\Z")

FEATURES: Final = (
    "accelerometer", "aria-notify", "autoplay", "browsing-topics", "camera", "captured-surface-control",
    "clipboard-read", "clipboard-write", "compute-pressure", "cross-origin-isolated", "deferred-fetch",
    "deferred-fetch-minimal", "digital-credentials-create", "digital-credentials-get", "display-capture",
    "encrypted-media", "fullscreen", "gamepad", "geolocation", "gyroscope", "hid", "identity-credentials-get",
    "idle-detection", "interest-cohort", "keyboard-map", "language-detector", "language-model", "local-fonts",
    "local-network", "local-network-access", "loopback-network", "magnetometer", "media-playback-while-not-visible",
    "microphone", "midi", "on-device-speech-recognition", "otp-credentials", "payment", "picture-in-picture",
    "private-state-token-issuance", "private-state-token-redemption", "publickey-credentials-create",
    "publickey-credentials-get", "screen-wake-lock", "serial", "speaker-selection", "storage-access", "summarizer",
    "sync-xhr", "translator", "unload", "usb", "window-management", "xr-spatial-tracking",
)  # fmt: skip
"""All features of Chromium 156 that Permissions-Policy turns off. A browser warns of names that it does not know."""
FRAME_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        "sandbox allow-scripts allow-forms; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
        " img-src data: blob:; font-src data:; connect-src 'none'; frame-src 'none'; worker-src 'none';"
        " form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
    ),
    "connection-allowlist": "()",
    "permissions-policy": ", ".join(f"{name}=()" for name in FEATURES),
    "x-frame-options": "SAMEORIGIN",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-dns-prefetch-control": "off",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""The headers of a UI, and of the empty response to a link that no longer works."""


class UiLink(msgspec.Struct, frozen=True):
    """The claims of a one-use link."""

    token: str
    """The random part, which may be used once."""
    until: int
    """Unix seconds."""


def write_link(key: bytes, review: str, sha256: str, link: UiLink) -> str:
    """The link's parameter ``t``, signed with the store's key for this UI of this review."""
    return f"{link.until}.{link.token}.{_code(key, review, sha256, link)}"


def read_link(key: bytes, review: str, sha256: str, text: str, now: float) -> UiLink | None:
    """The claims of a parameter ``t`` that is signed for this UI and has not expired."""
    found = _token.match(text)
    if found is None:
        return None
    link = UiLink(found[2], int(found[1]))
    return link if hmac.compare_digest(_code(key, review, sha256, link), found[3]) and now < link.until else None


def _code(key: bytes, review: str, sha256: str, link: UiLink) -> str:
    """The signature, with a derived key: it is valid for nothing else that the store's key signs."""
    own = hmac.digest(key, _PURPOSE, hashlib.sha256)
    bound = json.dumps([review, sha256, link.until, link.token], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(hmac.digest(own, bound, hashlib.sha256)).rstrip(b"=").decode()


def frame_path(review: str) -> str:
    """The path of a review's frame."""
    return f"/reviews/{quote(review, safe='')}/ui"


def page_policy(web: Web, request: Request, review: str, ui: ReviewUi) -> str:
    """The page's Content-Security-Policy with the source of this review's frame, and no other.

    So the frame cannot navigate itself elsewhere with what was typed into it. At an IPv6 address there is no source,
    because a policy cannot name one, and no UI is shown. Until a UI has been read, it may be a URL at any of the rule's
    origins.
    """
    own = [] if ui.url else list(dict.fromkeys(_sources(web, request, frame_path(review))))
    sources = " ".join([*own, *origins_of(web, request, ui)]) or "'none'"
    return f"{PAGE_POLICY}; frame-src {sources}"


def origins_of(web: Web, request: Request, ui: ReviewUi) -> list[str]:
    """The origins from which the page may load this UI now: none at the page's own host, because browsers send its
    cookies to all ports."""
    own = (target(web.url), target(f"http://{request.headers.get('host', '')}"))
    hosts = {found.host for found in own if found is not None}
    wanted = [ui.origin] if ui.url else ui.origins if ui.state == "loading" else ()
    return [origin for origin in wanted if (at := target(origin)) is not None and at.host not in hosts]


def _sources(web: Web, request: Request, path: str) -> Iterator[str]:
    """The frame's address by the name that the browser used, and by the public one, in case a proxy renamed us."""
    host = request.headers.get("host", "")
    if _host.match(host):
        yield f"{host}{path}"
    if _host.match(urlsplit(web.url).netloc):
        yield f"{web.url}{path}"


def is_frame_request(request: Request) -> bool:
    """Whether the browser reports that the page's frame asks, rather than a tab or the frame's own document. Programs
    and old browsers report nothing, and pass."""
    headers = request.headers
    return headers.get("sec-fetch-dest", "iframe") == "iframe" and headers.get("sec-fetch-site", "same-origin") == (
        "same-origin"
    )
