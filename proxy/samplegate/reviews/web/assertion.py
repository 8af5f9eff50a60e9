"""Sign-in by the signed assertion of an identity-aware proxy: its header is read with every request, and there is no
session.

Each verdict needs an assertion that is valid then, so it is by a person who has the role then. A request has one
assertion, under the exact name of the header, and no other credentials. The proxy's own cookie makes the browser send
it, so forms need the token of the person, as those of a session do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from samplegate.errors import Unavailable
from samplegate.request_headers import MAX_TOKEN, RequestHeaders
from samplegate.reviews.web.context import Asserted, AssertionHeader, Person, Web
from samplegate.reviews.web.security import (
    error_response,
    headers_of,
    is_api,
    is_cross_site,
    is_own_page,
    sender,
)

ASSERTED: Final = "samplegate.asserted"
"""The key of the ``Asserted`` in the scope. Clients cannot set it."""
LOG_INTERVAL: Final = 10.0
"""Minimum seconds between two log lines with the same reason, because any client can cause any number of refusals."""
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_NO_ROLE: Final = "the proxy's assertion is valid, but the settings give this person no role; ask the gate's operator"
_EXPIRED: Final = "the proxy's assertion was rejected: {}; reload the page, or sign in at the proxy again"
_REJECTED: Final = "the proxy's assertion was rejected: {}; the gate's log has the reason, too"


def asserted_of(scope: Scope) -> Asserted | None:
    """The person of the request's assertion, or None."""
    found: Asserted | None = scope.get(ASSERTED)
    return found


def listener_by(web: Web, asserted: Asserted) -> Callable[[], Person | None]:
    """A function that returns the person for open streams: until the assertion ends, or a reload."""
    header = web.assertion()
    return lambda: asserted.person if web.assertion() is header and web.wall() < asserted.until else None


class AssertionRefusal(msgspec.Struct, frozen=True):
    """Why a request with an assertion is refused: a reason from a finite set, and a sentence for the client."""

    status: int
    reason: str
    detail: str
    headers: dict[str, str] = {}


class AssertionMiddleware:
    """Reads the assertion of each request, if assertions are configured. Static files need none.

    ``cookie`` is the name of the session cookie.
    """

    def __init__(self, app: ASGIApp, web: Web, cookie: str) -> None:
        self._app = app
        self._web = web
        self._cookie = cookie
        self._logged: dict[str, float] = {}
        self._omitted: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assertion = self._web.assertion()
        if assertion is None or scope["type"] != "http" or scope["path"].startswith("/reviews/static/"):
            await self._app(scope, receive, send)
            return
        found = self._refused(scope, assertion.header) or await self._asserted(scope, assertion)
        if isinstance(found, AssertionRefusal):
            self._report(scope, found)
            await error_response(scope, found.status, found.detail, found.headers)(scope, receive, send)
            return
        await self._app(scope if found is None else {**scope, ASSERTED: found}, receive, send)

    def _refused(self, scope: Scope, header: str) -> AssertionRefusal | None:
        """Why a request is refused whatever its assertion is. Headers that are not clear are refused first."""
        why = _unclear(scope, header.encode())
        if why is not None:
            what = f"the header {header} {why[1]}; the proxy must remove what clients send in its place"
            return AssertionRefusal(400, why[0], what)
        headers = headers_of(scope)
        if not headers.has(header.encode()):
            return None
        if self._has_session(headers):
            what = "the request has an assertion and a session of the page; the session has ended now, so reload"
            return AssertionRefusal(400, "two_kinds", what, self._without_session())
        if headers.has(b"authorization"):
            what = "the request has an assertion and an Authorization header; send one of them"
            return AssertionRefusal(400, "two_kinds", what)
        # programs name no origin; every browser does, for its forms
        ours = not is_cross_site(headers) if is_api(scope) else is_own_page(headers, self._web)
        if scope["method"] not in _READS and not ours:
            what = "origin: the request comes from another site; open the reviews page directly"
            return AssertionRefusal(403, "site", what)
        return None

    async def _asserted(self, scope: Scope, assertion: AssertionHeader) -> Asserted | AssertionRefusal | None:
        """The person of a request; None if it has no assertion."""
        text = headers_of(scope).single(assertion.header.encode())
        if text is None:
            return None
        try:
            found = await assertion.person(text) if 0 < len(text) <= MAX_TOKEN else "malformed"
        except Unavailable as problem:
            what = f"{problem}, so the proxy's assertion cannot be verified; try again"
            return AssertionRefusal(503, "no_keys", what, {"retry-after": "10"})
        if isinstance(found, str):
            what = _NO_ROLE if found == "no_role" else (_EXPIRED if found == "expired" else _REJECTED).format(found)
            return AssertionRefusal(403, found, what)
        return found

    def _has_session(self, headers: RequestHeaders) -> bool:
        crumbs = (crumb for value in headers.all(b"cookie") for crumb in value.split(";"))
        return any(crumb.partition("=")[0].strip() == self._cookie for crumb in crumbs)

    def _without_session(self) -> dict[str, str]:
        """The header that removes the session's cookie, which nothing else would before it expires."""
        secure = "; Secure" if self._web.url.startswith("https:") else ""
        return {"set-cookie": f'{self._cookie}=""; HttpOnly; Max-Age=0; Path=/; SameSite=strict{secure}'}

    def _report(self, scope: Scope, refusal: AssertionRefusal) -> None:
        """Count a refusal, and log it unless its reason was just logged."""
        reason, now = refusal.reason, self._web.wall()
        self._web.count("samplegate_assertions_refused_total", reason=reason)
        if abs(now - self._logged.get(reason, float("-inf"))) < LOG_INTERVAL:
            self._omitted[reason] = self._omitted.get(reason, 0) + 1
            return
        self._logged[reason] = now
        more = {"more": omitted} if (omitted := self._omitted.pop(reason, 0)) else {}
        self._web.log.warning("assertion.refused", reason=reason, status=refusal.status, address=sender(scope), **more)


def _unclear(scope: Scope, name: bytes) -> tuple[str, str] | None:
    """Why it is not clear which header has the assertion, as a reason and a clause: a repeated one, or one with another
    spelling, which some proxies and servers take for the same."""
    same = [other for other, _ in scope["headers"] if other.lower().replace(b"_", b"-") == name]
    if any(other.lower() != name for other in same):
        return "underscore", "also appears with _ in place of -"
    return ("repeated", "appears more than once") if len(same) > 1 else None
