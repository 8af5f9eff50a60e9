"""The ASGI application of the reviewers' listener: its routes and middleware."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from samplegate.reviews.web import events, pages, ui
from samplegate.reviews.web.api import ReviewApi
from samplegate.reviews.web.assertion import AssertionMiddleware
from samplegate.reviews.web.context import Web
from samplegate.reviews.web.security import BODY_TIME, PageGuard
from samplegate.reviews.web.sign_in import (
    HOME,
    EndedSessions,
    SessionMiddleware,
    SignIn,
    listener_of,
    person_of,
    redirect_to_sign_in,
)


class ReviewsApp:
    """The application. ``end`` ends its event streams and accepts no new ones, so that a listener can close."""

    def __init__(self, web: Web, *, poll: float, keep_alive: float, body_time: float) -> None:
        ended = EndedSessions(web.wall)
        self._feed = events.Feed(web, poll=poll, keep_alive=keep_alive, ended=ended.load)
        signin = SignIn(web, ended)
        routes = [*ReviewApi(web, self._feed).routes(), *signin.routes(), *_more(web, self._feed)]
        routes += [*ui.routes(web), *pages.routes(web)]
        router = Router(routes, redirect_slashes=False, default=_nothing)
        people = AssertionMiddleware(SessionMiddleware(router, signin), web, signin.cookie)
        self._app = PageGuard(people, web, body_time=body_time)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        # `app`: makes the router raise its refusals, which PageGuard turns into responses
        await self._app({**scope, "app": self}, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self.end()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    def end(self) -> None:
        """End the event streams, for the daemon's shutdown."""
        self._feed.end()


def reviews_app(
    web: Web, *, poll: float = events.POLL, keep_alive: float = events.KEEP_ALIVE, body_time: float = BODY_TIME
) -> ReviewsApp:
    """The API below /v1 and the page below /reviews. Call it in the running event loop.

    ``poll``: seconds between two checks of the store for other processes' changes, while a stream is open.
    ``keep_alive``: seconds of silence on a stream before a comment is sent. ``body_time``: seconds for a request's
    body.
    """
    return ReviewsApp(web, poll=poll, keep_alive=keep_alive, body_time=body_time)


def _more(web: Web, feed: events.Feed) -> list[Route]:
    async def home(_request: Request) -> Response:
        return RedirectResponse(HOME, 303)

    async def changes(request: Request) -> Response:
        """The page's event stream, which lasts as long as its session."""
        if person_of(web, request) is None:
            return redirect_to_sign_in(request)
        return events.EventStream(feed, listener_of(request), events.last_seen(request))

    return [Route("/", home), Route("/reviews/events", changes)]


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise HTTPException(404)
