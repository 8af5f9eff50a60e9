"""The REST API: lists reviews, shows them and their history, streams changes and accepts verdicts.

A bearer token identifies the user or the callback, or a proxy's assertion the user; cookies are ignored, and no GET
decides. ``reviews/verdict.py``
defines the format of verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, get_args

import msgspec
import yaml
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from samplegate.policy.schema import Show
from samplegate.protocol.requests import Kind
from samplegate.reviews import verdict as verdicts
from samplegate.reviews.notify import formats
from samplegate.reviews.review import Conflict, Filter, Review, State, Verdict, VoteRefused, expired
from samplegate.reviews.views import to_view, withdrawn_for
from samplegate.reviews.votes import version
from samplegate.reviews.web.assertion import asserted_of, listener_by
from samplegate.reviews.web.context import CHALLENGE, Person, Web, invalid_input, not_found, problem, unauthorized
from samplegate.reviews.web.events import EventStream, Feed, event_json, last_seen
from samplegate.reviews.web.security import Pace, SharedLoginLimiter, headers_of, sender

MAX_LIMIT: Final = 200
DEFAULT_LIMIT: Final = 50
MAX_NAME: Final = 200  # characters of a reviewer's or server's name
MAX_VALUES: Final = 50  # of one parameter
ID: Final = re.compile(r"rv_[A-Za-z0-9]{24}")
STATES: Final[tuple[State, ...]] = get_args(State)
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_KIND: Final[Mapping[str, Kind]] = {kind: kind for kind in KINDS}
_SEVERAL: Final = frozenset({"state", "reviewer"})
_NAMES: Final = (*sorted(_SEVERAL), "server", "kind", "limit", "before")
_limit: Final = re.compile(r"[0-9]{1,3}")


def list_filter(query: Sequence[tuple[str, str]], person: Person) -> Filter | list[tuple[str, str]]:
    """The filter for the requested reviews, limited to those that this user may see; or the problems of the query.

    ``query``: names and values as received.
    """
    given: dict[str, list[str]] = {}
    for name, value in query:
        given.setdefault(name, []).append(value)
    problems = [(name[:MAX_NAME], f"is not one of {', '.join(_NAMES)}") for name in given.keys() - set(_NAMES)]
    problems += [(name, "is given more than once") for name in given.keys() - _SEVERAL if len(given[name]) > 1]
    for name, values in given.items():
        problems += [(name, what) for what in dict.fromkeys(_query_problem(name, value) for value in values) if what]
        problems += [(name, f"is given more than {MAX_VALUES} times")] if len(values) > MAX_VALUES else []
    return problems or _filter(given, person)


def _query_problem(name: str, value: str) -> str:
    match name:
        case "state" | "kind":
            allowed = STATES if name == "state" else KINDS
            return "" if value in allowed else f"is not one of {', '.join(allowed)}"
        case "limit":
            return (
                ""
                if _limit.fullmatch(value) and 1 <= int(value) <= MAX_LIMIT
                else f"must be a whole number from 1 to {MAX_LIMIT}"
            )
        case "before":
            return "" if ID.fullmatch(value) else "is not a review ID"
        case "reviewer" | "server":
            return "" if 0 < len(value) <= MAX_NAME else f"must have 1 to {MAX_NAME} characters"
    return ""


def _filter(given: dict[str, list[str]], person: Person) -> Filter:
    return Filter(
        states=tuple(state for state in STATES if state in given.get("state", [])),
        reviewers=person.reviewers_among(given.get("reviewer")),
        server=given.get("server", [None])[0],
        kind=_KIND.get(given.get("kind", [""])[0]),
        before=given.get("before", [None])[0],
        limit=int(given.get("limit", [str(DEFAULT_LIMIT)])[0]),
    )


PER_ADDRESS: Final = Pace(burst=100, rate=5.0)
OVERALL: Final = Pace(burst=1_000, rate=50.0)
"""Wrong tokens that are answered with 401 before 429.

The limit is higher than a program with an old token needs, so that it does not lock out its neighbours.
"""


@cache
def openapi_document(version: str) -> dict[str, Any]:
    """The API's OpenAPI 3.1 document for one release. It is read when it is first requested."""
    text = files("samplegate.reviews.web").joinpath("openapi.yaml").read_bytes()
    found: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found["info"]["version"] = version
    return found


class Decider(msgspec.Struct, frozen=True):
    """The user or callback that decides a review, and the door. ``show``: how much of the review the response shows."""

    who: str
    door: Literal["api", "callback"]
    show: Show
    callers: frozenset[str] = frozenset()
    subject: str = ""


class ReviewApi:
    """The routes over one store. ``feed``: the store's changes."""

    def __init__(self, web: Web, feed: Feed) -> None:
        self._web = web
        self._feed = feed
        self._failed_logins = SharedLoginLimiter(web, "API", PER_ADDRESS, OVERALL)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/openapi.json", self._openapi),
            Route("/v1/reviews", self._list),
            Route("/v1/reviews/events", self._events),
            Route("/v1/reviews/{id}", self._review),
            Route("/v1/reviews/{id}/history", self._history),
            Route("/v1/reviews/{id}/verdict", self._verdict, methods=["POST"]),
        ]

    async def _openapi(self, request: Request) -> Response:
        """Public, because the document is the same for every installation of a release."""
        return JSONResponse(openapi_document(self._web.version))

    async def _list(self, request: Request) -> Response:
        person = await self._person(request)
        if isinstance(person, Response):
            return person
        wanted = list_filter(request.query_params.multi_items(), person)
        if isinstance(wanted, list):
            return invalid_input(wanted)
        found = await self._web.store.read(lambda store: store.list(wanted))
        more = found[-1].id if len(found) == wanted.limit else None
        return JSONResponse({"reviews": [self._view_of(review, "none") for review in found], "next": more})

    async def _review(self, request: Request) -> Response:
        review = await self._visible_review(request)
        return review if isinstance(review, Response) else await self._response(review, "full")

    async def _history(self, request: Request) -> Response:
        review = await self._visible_review(request)
        if isinstance(review, Response):
            return review
        events = await self._web.store.read(lambda store: store.history(review.id))
        return JSONResponse({"events": [event_json(event) for event in events]})

    async def _events(self, request: Request) -> Response:
        person = await self._person(request)
        if isinstance(person, Response):
            return person
        asserted = asserted_of(request.scope)
        if asserted is not None:
            return EventStream(self._feed, listener_by(self._web, asserted), last_seen(request))
        token = headers_of(request.scope).bearer() or ""
        return EventStream(self._feed, lambda: self._web.person(token), last_seen(request))

    async def _verdict(self, request: Request) -> Response:
        found = await self._decidable(request)
        if isinstance(found, Response):
            return found
        review, giver = found
        if headers_of(request.scope).media_type() != "application/json":
            return problem(415, "send the verdict as application/json in UTF-8")
        verdict = verdicts.read(await request.body(), review, digest="needed")
        if not isinstance(verdict, Verdict):
            return invalid_input([(each.path, each.what) for each in verdict])
        return await self._decide(review, verdict, giver)

    async def _decide(self, review: Review, verdict: Verdict, giver: Decider) -> Response:
        """Record the verdict, or one of the approvals that the review needs. A verdict on a decided review, on content
        that was edited meanwhile, or by a person who has approved already gets 409 with the current state."""
        seen = version(review)
        outcome = await self._web.store.write(
            lambda store: store.decide(
                review.id,
                verdict,
                who=giver.who,
                door=giver.door,
                seen=seen,
                callers=giver.callers,
                subject=giver.subject,
            )
        )
        if outcome is None:
            return not_found()
        if isinstance(outcome, VoteRefused):
            now = outcome.review
            if outcome.reason == "caller":
                return problem(403, outcome.why)
            return await to_thread.run_sync(lambda: problem(409, outcome.why, review=self._view_of(now, giver.show)))
        if isinstance(outcome, Conflict):
            stands = outcome.review
            why = (
                withdrawn_for(await self._web.store.read(lambda store: store.history(stands.id)))
                if stands.state == "withdrawn"
                else ""
            )
            said = f"the review is no longer pending: {stands.state}{f' ({why})' if why else ''}"
            return await to_thread.run_sync(lambda: problem(409, said, review=self._view_of(stands, giver.show)))
        self._web.log.info("verdict.given", review=review.id, verdict=verdict.word, who=giver.who, door=giver.door)
        return await self._response(outcome, giver.show)

    async def _decidable(self, request: Request) -> tuple[Review, Decider] | Response:
        """The review, and a user of its reviewer or the holder of its callback token."""
        token = headers_of(request.scope).bearer()
        if token is not None and token.startswith(formats.TOKEN_PREFIX):
            return await self._by_callback(request, token)
        person = await self._person(request)
        if isinstance(person, Response):
            return person
        review = await self._get(request)
        now = self._web.store.wall()
        if review is None or not person.sees(review, now):
            return not_found()
        if (why := person.undecidable(review, now)) is not None:
            return problem(403, why)
        return review, Decider(person.name, "api", "full", person.callers, person.subject)

    async def _by_callback(self, request: Request, token: str) -> tuple[Review, Decider] | Response:
        """The review of a callback token. A wrong token does not reveal whether the review exists."""
        key, review = await self._web.store.write(lambda store: store.key()), await self._get(request)
        why = formats.callback_fault(
            key, token, review.id if review else "", review.digest if review else "", self._web.store.wall()
        )
        if review is not None and why is None:
            return review, Decider("callback", "callback", "none")
        return await self._wrong_token(request, problem(401, f"the token {why}", headers=CHALLENGE))

    async def _visible_review(self, request: Request) -> Review | Response:
        """The review in the path, if this user may see it."""
        person = await self._person(request)
        if isinstance(person, Response):
            return person
        review = await self._get(request)
        return not_found() if review is None or not person.sees(review, self._web.store.wall()) else review

    async def _get(self, request: Request) -> Review | None:
        id = request.path_params["id"]
        return await self._web.store.read(lambda store: store.get(id)) if ID.fullmatch(id) else None

    async def _person(self, request: Request) -> Person | Response:
        """The user with the assertion or the bearer token, or a 401 or 429."""
        asserted = asserted_of(request.scope)
        if asserted is not None:
            return asserted.person
        token = headers_of(request.scope).bearer()
        person = None if token is None else self._web.person(token)
        if person is not None:
            return person
        return unauthorized() if token is None else await self._wrong_token(request, unauthorized())

    async def _wrong_token(self, request: Request, refused: Response) -> Response:
        """The response to a wrong token.

        Valid tokens are never limited, because behind a proxy all have the same address.
        """
        wait = await self._failed_logins.attempt(sender(request.scope))
        return (
            problem(
                429, "too many failed attempts from this address; try again later", headers={"retry-after": str(wait)}
            )
            if wait
            else refused
        )

    async def _response(self, review: Review, show: Show) -> Response:
        """Encode in a thread, because a review with many pictures takes a tenth of a second."""
        return await to_thread.run_sync(lambda: JSONResponse(self._view_of(review, show)))

    def _view_of(self, review: Review, show: Show) -> dict[str, object]:
        now = self._web.store.wall()
        return to_view(expired(review, now) or review, show=show, now=now, url=self._web.url)
