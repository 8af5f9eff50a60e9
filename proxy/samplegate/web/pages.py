"""The pages: what waits, one review, a verdict on it, the history. Handlers only: what is shown is made in ``one.py``, what is said in ``forms.py``.

Nothing that a GET does decides anything. Without script all of it works; with it, lists and changes are live.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from samplegate.core.review import verdicts
from samplegate.core.review.review import Review
from samplegate.core.review.states import Conflict, expired
from samplegate.ports import Unavailable
from samplegate.web import assets, files, listing, render, signin
from samplegate.web.context import Person, Web
from samplegate.web.forms import said
from samplegate.web.one import Try, view

_UNREACHED: Final = "Their store does not answer. Whether your verdict was kept is not known; load the page again."
Handler = Callable[[Request, Person], Awaitable[Response]]


def routes(web: Web) -> list[Route]:
    """All of ``/reviews`` but signing in and out and the events."""
    pages = Pages(web)
    return [
        assets.ROUTE,
        Route("/reviews", pages.signed_in(pages.waiting), methods=["GET"]),
        Route("/reviews/history", pages.signed_in(pages.history), methods=["GET"]),
        Route("/reviews/{id}", pages.signed_in(pages.one), methods=["GET"]),
        Route("/reviews/{id}/verdict", pages.signed_in(pages.back), methods=["GET"]),
        Route("/reviews/{id}/verdict", pages.signed_in(pages.verdict), methods=["POST"]),
        Route("/reviews/{id}/content/{n:int}", pages.signed_in(pages.picture), methods=["GET"]),
        Route("/reviews/{id}/raw", pages.signed_in(pages.raw), methods=["GET"]),
    ]


class Pages:
    """The handlers of one listener. Nothing is remembered between requests."""

    def __init__(self, web: Web) -> None:
        self._web = web

    def signed_in(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """The handler for who is signed in; everybody else is sent to do that. A store that cannot be reached is said so."""

        async def handle(request: Request) -> Response:
            person = signin.person_of(self._web, request)
            if person is None:
                return signin.stranger(request)
            try:
                return await handler(request, person)
            except Unavailable as problem:
                self._web.log.error("reviews.unavailable", problem=str(problem))
                return self._notice(
                    request, person, 503, "The reviews cannot be reached", "Their store does not answer. Nothing was decided; try again."
                )

        return handle

    async def waiting(self, request: Request, person: Person) -> Response:
        """What waits, oldest first."""
        asked = {name: request.query_params.get(name, "") for name in ("reviewer", "server", "kind", "after")}
        return self._page(request, "waiting.html", person, **await listing.waiting(self._web.store, person, asked, self._web.wall()))

    async def history(self, request: Request, person: Person) -> Response:
        """All of them, newest first, as far as the filters let through."""
        asked = {name: request.query_params.get(name, "") for name in ("state", "reviewer", "server", "kind", "before")}
        return self._page(request, "history.html", person, **await listing.history(self._web.store, person, asked, self._web.wall()))

    async def one(self, request: Request, person: Person) -> Response:
        """One review, with the forms that decide it."""
        review = await self._seen(request, person)
        return self._missing(request, person) if review is None else await self._shown(request, person, review)

    async def back(self, request: Request, person: Person) -> Response:
        """Where a form was refused, the browser stands at the address that it was sent to; asked for, that is the review. It decides nothing."""
        del person
        return RedirectResponse(f"/reviews/{quote(request.path_params['id'], safe='')}", 303)

    async def verdict(self, request: Request, person: Person) -> Response:
        """A form was posted: 303 where it decided, 422 with what is wrong at its field, 409 with how it stands, 200 with what it would come to."""
        posted = await signin.read_form(self._web, request)
        if isinstance(posted, Response):
            return posted
        review = await self._seen(request, person)
        if review is None:
            return self._missing(request, person)
        if not person.decides(review):
            return self._notice(request, person, 403, "You may only look", "Your role is viewer: a reviewer decides.")
        if review.state != "pending":
            return await self._shown(request, person, review, status=409)
        return await self._tried(request, person, review, posted)

    async def _tried(self, request: Request, person: Person, review: Review, posted: Mapping[str, list[str]]) -> Response:
        words = said(review, posted)
        read = verdicts.read(words.verdict, review, digest="needed")
        problems = {problem.path: problem.what for problem in read} | words.problems if isinstance(read, tuple) else words.problems
        if words.preview and words.typed.touched == "untouched" and review.kind == "sampling":
            problems = {}
        if problems or words.preview or isinstance(read, tuple):
            tried = Try(posted, words, problems)
            return await self._shown(request, person, review, tried, status=422 if problems and not words.preview else 200)
        now = self._web.wall()
        decided = await self._web.store.write(lambda store: store.decide(review.id, read, who=person.name, door="page", now=now))
        if decided is None:
            return self._missing(request, person)
        if isinstance(decided, Conflict):
            return await self._shown(request, person, decided.review, status=409)
        return RedirectResponse(f"/reviews/{review.id}", 303)

    async def picture(self, request: Request, person: Person) -> Response:
        """A picture of a review, by its number on the page."""
        review = await self._seen(request, person)
        found = None if review is None else await to_thread.run_sync(files.picture_of, review, request.path_params["n"])
        return self._missing(request, person) if found is None else found

    async def raw(self, request: Request, person: Person) -> Response:
        """The whole of what was asked as JSON, as text."""
        review = await self._seen(request, person)
        return self._missing(request, person) if review is None else await to_thread.run_sync(files.raw_of, review)

    async def _seen(self, request: Request, person: Person) -> Review | None:
        """The review, if this person may look at it, as it is now: time may have ended it a moment ago."""
        review = await self._web.store.read(lambda store: store.get(request.path_params["id"]))
        if review is None or not person.sees(review):
            return None
        return expired(review, self._web.wall()) or review

    async def _shown(self, request: Request, person: Person, review: Review, tried: Try | None = None, *, status: int = 200) -> Response:
        events = await self._web.store.read(lambda store: store.history(review.id))
        # a large review takes a tenth of a second to lay out, in which others are served
        values = await to_thread.run_sync(view, review, events, person, self._web.wall(), tried)
        return self._page(request, "review.html", person, status=status, late_by=status == 409, **values)

    def _page(self, request: Request, template: str, person: Person, *, status: int = 200, **values: Any) -> Response:
        return render.page(self._web, request, template, status=status, person=person, form_token=signin.form_token(self._web, request), **values)

    def _missing(self, request: Request, person: Person) -> Response:
        return self._notice(request, person, 404, "There is no such review", "It was never there, is forgotten, or is not for you to see.")

    def _notice(self, request: Request, person: Person, status: int, title: str, text: str) -> Response:
        return self._page(request, "notice.html", person, status=status, title=title, text=text)
