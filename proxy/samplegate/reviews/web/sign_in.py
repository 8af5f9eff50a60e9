"""Sign-in and sign-out at the page: session cookies, the session of each request, and CSRF protection of forms.

A cookie is signed and names its user, token and end, so sessions are not stored. Only sessions that were signed out are
remembered. The API ignores cookies. People whom a proxy's assertion identifies have no cookie (``assertion.py``).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import Any, Final
from urllib.parse import parse_qs, quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from samplegate.protocol.strictjson import JsonFault, decode
from samplegate.reviews.sign_in_links import CODE_PREFIX
from samplegate.reviews.verdict import MAX_DEPTH
from samplegate.reviews.web import render
from samplegate.reviews.web.assertion import asserted_of, listener_by
from samplegate.reviews.web.context import Person, Web, problem
from samplegate.reviews.web.security import (
    MAX_VERDICT,
    Pace,
    SharedLoginLimiter,
    headers_of,
    is_cross_site,
    is_own_page,
    sender,
)

MAX_COOKIE: Final = 1024  # characters; ours have about 300
MAX_ENDED: Final = 10_000  # sessions that were signed out and have not expired


class CookieClaims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a session cookie.

    ``token`` is the token's SHA-256 in hex, which can neither be guessed nor used to sign in.
    """

    id: str
    name: str
    token: str
    until: int
    """Unix seconds."""


def write_cookie(claims: CookieClaims, key: bytes) -> str:
    """The cookie with these claims, signed with the store's key."""
    text = base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=")
    return f"{text.decode()}.{_signature(text, key)}"


def read_cookie(cookie: str, key: bytes, now: float) -> CookieClaims | None:
    """The claims of a cookie that is signed by us and has not expired. The signature is checked before parsing."""
    text, _, signature = cookie.rpartition(".")
    if (
        len(cookie) > MAX_COOKIE
        or not cookie.isascii()
        or not hmac.compare_digest(_signature(text.encode(), key), signature)
    ):
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=CookieClaims)
    except (ValueError, msgspec.DecodeError):
        return None
    return claims if now < claims.until else None


def session_form_token(id: str, key: bytes) -> str:
    """The CSRF token of a session's forms, which no other site knows."""
    return hmac.new(_derived(key, b"form"), id.encode(), hashlib.sha256).hexdigest()


def assertion_form_token(subject: str, key: bytes) -> str:
    """The CSRF token of a person's forms whom a proxy's assertion identifies."""
    return hmac.new(_derived(key, b"assertion form"), subject.encode(), hashlib.sha256).hexdigest()


class EndedSessions:
    """Sessions that were signed out before they expired: those that the store knows, as of the last look.

    Beyond MAX_ENDED, all sessions of the token with the most entries end instead. So every sign-out stays effective,
    and no other user's session ends.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, dict[str, int]] = {}
        """By token, then by session."""
        self._all_until: dict[str, int] = {}
        """By token: sessions that expire up to this time have ended."""

    def add(self, claims: CookieClaims) -> bool:
        """End a session. True if there were too many, so that all sessions of one token ended."""
        now = self._clock()
        self._until.setdefault(claims.token, {})[claims.id] = claims.until
        if sum(map(len, self._until.values())) <= MAX_ENDED:
            return False
        self._until = {
            token: {id: until for id, until in ids.items() if now < until} for token, ids in self._until.items()
        }
        self._all_until = {token: until for token, until in self._all_until.items() if now < until}
        if sum(map(len, self._until.values())) <= MAX_ENDED:
            return False
        busiest = max(self._until, key=lambda token: len(self._until[token]))
        self._all_until[busiest] = max(self._all_until.get(busiest, 0), *self._until.pop(busiest).values())
        return True

    def load(self, ended: Iterable[tuple[str, str, float]]) -> None:
        """Take over the sessions that the store knows (``ReviewTransactions.ended_sessions``)."""
        for id, token, until in ended:
            self.add(CookieClaims(id, "", token, ceil(until)))

    def __contains__(self, claims: object) -> bool:
        if not isinstance(claims, CookieClaims):
            return False
        return claims.id in self._until.get(claims.token, ()) or claims.until <= self._all_until.get(claims.token, 0)


def _signature(text: bytes, key: bytes) -> str:
    return (
        base64.urlsafe_b64encode(hmac.new(_derived(key, b"session"), text, hashlib.sha256).digest())
        .rstrip(b"=")
        .decode()
    )


def _derived(key: bytes, use: bytes) -> bytes:
    """A key derived for one use: a signature for one use is invalid for another."""
    return hmac.new(key, b"samplegate reviews page " + use, hashlib.sha256).digest()


SIGN_IN: Final = "/reviews/sign-in"
SIGN_OUT: Final = "/reviews/sign-out"
HOME: Final = "/reviews"
FORM_FIELD: Final = "form_token"
"""The hidden field of every form of a session."""
MAX_FIELDS: Final = 2_000  # of a form: some schemas have hundreds of fields
PER_ADDRESS: Final = Pace(burst=10, rate=0.2)
OVERALL: Final = Pace(burst=200, rate=5.0)
"""Limits on wrong tokens.

Generated tokens of 256 bits cannot be guessed. The limits keep the log short, spare the machine, and make hand-written
tokens a little safer.
"""

USED_LINK: Final = (
    "This sign-in link was used before, has expired, or belongs to another page. Get a new one with"
    " `samplegate reviews open`."
)
_SESSION: Final = "samplegate.session"
_FOREIGN: Final = "This form comes from another site"
_place: Final = re.compile(r"/reviews(?:/[A-Za-z0-9_-]{1,64}){0,2}(?:\?[A-Za-z0-9_.=&%+-]{0,500})?")


class PageSession(msgspec.Struct, frozen=True):
    """The session of a signed-in user, with the CSRF token of its forms."""

    claims: CookieClaims | None
    """None for a proxy's assertion: the header of each request is all there is."""
    person: Person
    form: str
    now: Callable[[], Person | None]
    """The current user, for responses that outlast the request's start."""


def person_of(web: Web, request: Request) -> Person | None:
    """The user who has signed in, or None.

    Tokens are looked up with each request, so that a revoked token ends its sessions.
    """
    del web  # the session was looked up when the request arrived
    session: PageSession | None = request.scope.get(_SESSION)
    return None if session is None else session.person


def listener_of(request: Request) -> Callable[[], Person | None]:
    """A function that returns the current user, for open streams. It returns None once the session has ended."""
    session: PageSession | None = request.scope.get(_SESSION)
    return (lambda: None) if session is None else session.now


def form_token(web: Web, request: Request) -> str:
    """The value of the hidden field ``form_token`` of this session's forms; empty if no user is signed in."""
    del web
    session: PageSession | None = request.scope.get(_SESSION)
    return "" if session is None else session.form


async def read_form(web: Web, request: Request) -> Mapping[str, list[str]] | Response:
    """The fields of a form that our page posted in this session, with all their values; otherwise an error page."""
    session: PageSession | None = request.scope.get(_SESSION)
    if session is None:
        return _error_page(
            web,
            request,
            403,
            "You are no longer signed in",
            "No decision was recorded. Sign in and submit the form again.",
        )
    form = await _fields(web, request)
    if isinstance(form, Response):
        return form
    given = form.pop(FORM_FIELD, [])
    if len(given) != 1 or not hmac.compare_digest(given[0].encode(), session.form.encode()):
        return _error_page(
            web,
            request,
            403,
            "This form belongs to another session",
            "No decision was recorded. Reload the page and submit the form again.",
        )
    return form


async def read_json(web: Web, request: Request) -> Mapping[str, Any] | Response:
    """The JSON object that a script of our page posted in this session, without the form's token; otherwise a
    problem."""
    session: PageSession | None = request.scope.get(_SESSION)
    headers = headers_of(request.scope)
    if session is None or is_cross_site(headers):
        return problem(403, "not from a page of ours in this session; reload the page")
    if headers.media_type() != "application/json":
        return problem(415, "send application/json in UTF-8")
    try:
        given = decode(await request.body(), max_bytes=MAX_VERDICT, max_depth=MAX_DEPTH)
    except JsonFault as fault:
        return problem(400, f"the body is not JSON: {fault}")
    token = given.pop(FORM_FIELD, None) if isinstance(given, dict) else None
    if not isinstance(token, str) or not hmac.compare_digest(token.encode("utf-8", "replace"), session.form.encode()):
        return problem(403, "the form belongs to another session; reload the page")
    found: Mapping[str, Any] = given
    return found


def redirect_to_sign_in(request: Request) -> Response:
    """The redirect of an unknown user to the sign-in page and back.

    A browser that follows a link from another site omits a strict cookie. Then a page of ours repeats the request,
    which includes the cookie.
    """
    headers = request.headers
    if (
        request.method == "GET"
        and headers.get("sec-fetch-site") == "cross-site"
        and "again" not in request.query_params
    ):
        query = f"{request.url.query}&again=1" if request.url.query else "again=1"
        again = back_to(f"{request.url.path}?{query}")
        return Response(
            '<!doctype html><meta charset="utf-8"><title>Reviews</title><meta http-equiv="refresh"'
            f' content="0;url={again.replace("&", "&amp;")}"><p><a href="{again.replace("&", "&amp;")}">Continue to'
            " reviews</a></p>",
            media_type="text/html",
        )
    place = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    place = back_to(place) if request.method in ("GET", "HEAD") else HOME
    return RedirectResponse(SIGN_IN + ("" if place == HOME else f"?next={quote(place, safe='/')}"), 303)


def back_to(place: str) -> str:
    """The page to open after signing in: one of ours, never another site."""
    return place if _place.fullmatch(place) and not place.startswith((SIGN_IN, SIGN_OUT)) else HOME


class SignIn:
    """The two routes and their state: failed logins and ended sessions."""

    def __init__(self, web: Web, ended: EndedSessions) -> None:
        self._web = web
        self._failed_logins = SharedLoginLimiter(web, "page", PER_ADDRESS, OVERALL)
        self._ended = ended

    def routes(self) -> list[Route]:
        return [
            Route(SIGN_IN, self._sign_in, methods=["GET", "POST"]),
            Route(SIGN_OUT, self._sign_out, methods=["POST"]),
        ]

    async def session(self, scope: Scope) -> PageSession | None:
        """The session of a request. Raises Unavailable if the store cannot be read."""
        asserted = asserted_of(scope)
        if asserted is not None:
            key = await self._web.store.write(lambda store: store.key())
            form = assertion_form_token(asserted.person.subject, key)
            return PageSession(None, asserted.person, form, listener_by(self._web, asserted))
        cookie = Request(scope).cookies.get(self.cookie)
        if cookie is None:
            return None
        key, ended = await self._web.store.write(lambda store: (store.key(), store.ended_sessions()))
        self._ended.load(ended)
        claims = read_cookie(cookie, key, self._web.wall())
        person = None if claims is None else self._current_person(claims)
        if claims is None or person is None:
            return None
        return PageSession(claims, person, session_form_token(claims.id, key), lambda: self._current_person(claims))

    def _current_person(self, claims: CookieClaims) -> Person | None:
        """The current user of a session.

        None after its end or sign-out, or if the token is revoked or belongs to another user.
        """
        if self._web.wall() >= claims.until or claims in self._ended:
            return None
        person = self._web.known(bytes.fromhex(claims.token))
        return person if person is not None and person.name == claims.name else None

    async def _sign_in(self, request: Request) -> Response:
        if asserted_of(request.scope) is not None:  # the proxy has signed the user in
            return RedirectResponse(HOME, 303)
        if request.method != "POST":
            return self._page(request, 200, back_to(request.query_params.get("next", HOME)), "")
        if not is_own_page(headers_of(request.scope), self._web):
            return _error_page(self._web, request, 403, _FOREIGN, "Open the sign-in page and use its form.")
        form = await _fields(self._web, request)
        if isinstance(form, Response):
            return form
        place = back_to(form.get("next", [HOME])[0])
        token = form.get("token", [""])[0].strip()
        person = self._web.person(token)
        if person is None and self._web.one_use is not None:
            person = self._web.one_use(token)
        if person is None:
            return await self._wrong_token(request, place, one_use=token.startswith(CODE_PREFIX))
        self._web.log.info("person.signed_in", person=person.name)
        return await self._start_session(person, token, place)

    async def _wrong_token(self, request: Request, place: str, *, one_use: bool) -> Response:
        """The response to a wrong token.

        Valid tokens are never limited, because behind a proxy all have the same address.
        """
        address = sender(request.scope)
        wait = await self._failed_logins.attempt(address)
        if wait:
            response = self._page(request, 429, place, f"Too many failed attempts. Try again in {wait} s.")
            response.headers["retry-after"] = str(wait)
            return response
        self._web.log.warning("person.refused", address=address)
        what = USED_LINK if one_use else "Unknown token. Check that you copied all of it."
        return self._page(request, 403, place, what)

    async def _start_session(self, person: Person, token: str, place: str) -> Response:
        """A new session with a new ID, whatever cookie the request has."""
        until = int(self._web.wall()) + self._web.session
        claims = CookieClaims(
            self._web.random(16).hex(), person.name, hashlib.sha256(token.encode()).hexdigest(), until
        )
        response = RedirectResponse(place, 303)
        self._set(
            response, write_cookie(claims, await self._web.store.write(lambda store: store.key())), self._web.session
        )
        return response

    async def _sign_out(self, request: Request) -> Response:
        form = await read_form(self._web, request)
        if isinstance(form, Response):
            return form
        session: PageSession = request.scope[_SESSION]
        claims = session.claims
        if claims is None:  # there is no session to end
            return RedirectResponse(HOME, 303)
        await self._web.store.write(
            lambda store: store.end_session(claims.id, token=claims.token, until=float(claims.until))
        )
        if self._ended.add(claims):
            self._web.log.warning(
                "person.sessions_ended",
                why=f"more than {MAX_ENDED} sessions were signed out; all sessions of one token have ended",
            )
        self._web.log.info("person.signed_out", person=session.person.name)
        response = RedirectResponse(SIGN_IN, 303)
        self._set(response, "", 0)
        return response

    def _page(self, request: Request, status: int, place: str, what: str) -> Response:
        return render.page(self._web, request, "sign_in.html", status=status, person=None, next=place, problem=what)

    @property
    def _is_secure(self) -> bool:
        return self._web.url.startswith("https:")

    @property
    def cookie(self) -> str:
        """The cookie's name.

        Browsers accept ``__Host-`` only with Secure and for this host alone, so no sibling host can set it.
        """
        return f"__Host-{self._web.cookie}" if self._is_secure else self._web.cookie

    def _set(self, response: Response, value: str, seconds: int) -> None:
        response.set_cookie(
            self.cookie, value, max_age=seconds, path="/", secure=self._is_secure, httponly=True, samesite="strict"
        )


class SessionMiddleware:
    """Looks up the session of each page before its handler runs. The API and static files have none."""

    def __init__(self, app: ASGIApp, signin: SignIn) -> None:
        self._app = app
        self._signin = signin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and f"{scope['path']}/".startswith("/reviews/")
            and not scope["path"].startswith("/reviews/static/")
        ):
            scope = {**scope, _SESSION: await self._signin.session(scope)}
        await self._app(scope, receive, send)


async def _fields(web: Web, request: Request) -> dict[str, list[str]] | Response:
    """The fields of a posted form, each with its values as received; otherwise an error page."""
    if is_cross_site(headers_of(request.scope)):
        return _error_page(web, request, 403, _FOREIGN, "Nothing was changed. Open the reviews page directly.")
    if headers_of(request.scope).media_type() != "application/x-www-form-urlencoded":
        return _error_page(
            web,
            request,
            415,
            "Unsupported content type",
            "Nothing was changed. Send forms as application/x-www-form-urlencoded.",
        )
    try:
        text = (await request.body()).decode("ascii")
        return parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        return _error_page(
            web,
            request,
            400,
            "Invalid form data",
            f"It is not URL-encoded UTF-8, or has more than {MAX_FIELDS} fields.",
        )


def _error_page(web: Web, request: Request, status: int, title: str, text: str) -> Response:
    """A page that explains why the request was refused."""
    return render.page(
        web,
        request,
        "notice.html",
        status=status,
        person=person_of(web, request),
        form_token=form_token(web, request),
        title=title,
        text=text,
    )
