"""The server's own UI on the page of a review: its frame, its description for the page's script, and what its app
submits.

The app proposes, the gate decides: what it submits fills the gate's own form, which a person sends. No route here
decides anything, and none accepts a cookie in place of a link or a form's token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from samplegate.errors import Unavailable
from samplegate.protocol.elicitation_schema import NotFlat, read_form
from samplegate.reviews import verdict as verdicts
from samplegate.reviews.review import FieldProblem, Review, ReviewUi, Verdict, ready_ui
from samplegate.reviews.web import forms, pages, render, sign_in
from samplegate.reviews.web.context import Person, Web, problem
from samplegate.reviews.web.ui_frame import (
    FRAME_HEADERS,
    LINK_TIME,
    UiLink,
    frame_path,
    is_frame_request,
    origins_of,
    read_link,
    write_link,
)
from samplegate.reviews.web.visible import plain
from samplegate.secret_names import secret_fields

SECRET: Final = "looks like a secret, so it was not filled in; enter it here if you are sure"
"""The problem with a secret-looking field that an app filled in. The app is not told, because it cannot correct it."""


class Proposal(msgspec.Struct, frozen=True):
    """An app's values in the gate's form."""

    rejected: pages.RejectedForm
    problems: tuple[str, ...]
    """The problems that the app can correct, each with its field."""
    sendable: bool
    """Whether the filled form can be sent as it is, also if the app submitted more than it can show."""


def proposal_of(review: Review, content: Any) -> Proposal:
    """Fill the gate's form with the content that an app submitted, and check it as if it had been typed."""
    read = verdicts.read({"verdict": "answer", "action": "accept", "content": content}, review, digest="optional")
    found = () if isinstance(read, Verdict) else read
    posted = {**forms.filled_form(review, content), "do": [forms.PREVIEW]}
    form = forms.parse_form(review, posted)
    secret = {f"content.{name}": SECRET for name in _secrets(review, content)}
    problems = form.problems | {each.path: each.what for each in found} | secret
    filled = {name: value for name, value in form.verdict.items() if name != "digest"}
    sendable = not form.problems and isinstance(verdicts.read(filled, review, digest="optional"), Verdict)
    return Proposal(pages.RejectedForm(posted, form, problems), tuple(_sentences(review, found)), sendable)


def _secrets(review: Review, content: Any) -> set[str]:
    names = secret_fields(review.params.get("requestedSchema"))
    return {name for name in content if name in names} if isinstance(content, dict) else set()


def _sentences(review: Review, found: Sequence[FieldProblem]) -> Iterator[str]:
    """The problems by the fields' titles, as the app may show them."""
    form = read_form(review.params.get("requestedSchema"), review.revision)
    titles = {} if isinstance(form, NotFlat) else {field.name: field.title for field in form.fields}
    for each in found:
        name = each.path.removeprefix("content.")
        yield f"{plain((titles.get(name) or name)[: forms.MAX_LABEL])}: {each.what}"


def routes(web: Web) -> list[Route]:
    """The routes below ``/reviews/{id}/ui``."""
    shown = pages.Pages(web)
    ui = UiRoutes(web, shown)
    return [
        Route("/reviews/{id}/ui", ui.frame, methods=["GET"]),
        Route("/reviews/{id}/ui/description", shown.signed_in(ui.description), methods=["GET"]),
        Route("/reviews/{id}/ui/proposal", shown.signed_in(ui.proposal), methods=["POST"]),
    ]


class UiRoutes:
    """The handlers of one listener."""

    def __init__(self, web: Web, shown: pages.Pages) -> None:
        self._web = web
        self._pages = shown

    async def frame(self, request: Request) -> Response:
        """The UI's bytes, for a link that the page's script got a moment ago; otherwise 404 without content. Cookies
        are ignored."""
        try:
            body = await self._opened(request) if is_frame_request(request) else None
        except Unavailable as fault:
            self._web.log.error("reviews.unavailable", problem=str(fault))
            return Response(b"", 503, FRAME_HEADERS)
        if body is None:
            return Response(b"", 404, FRAME_HEADERS)
        return Response(body, 200, FRAME_HEADERS, "text/html; charset=utf-8")

    async def _opened(self, request: Request) -> bytes | None:
        id, text = request.path_params["id"], request.query_params.get("t", "")
        key, review = await self._web.store.write(lambda store: store.key()), await self._get(id)
        ui = None if review is None else ready_ui(review)
        link = None if ui is None else read_link(key, id, ui.sha256, text, self._web.store.wall())
        if ui is None or ui.url or link is None:
            return None
        sha256, token, until = ui.sha256, link.token, float(link.until)
        return await self._web.store.write(lambda store: store.open_ui(id, sha256, token=token, until=until))

    async def _get(self, id: str) -> Review | None:
        return await self._web.store.read(lambda store: store.get(id))

    async def description(self, request: Request, person: Person) -> Response:
        """What the page's script needs to show the UI: a new link, and what the app gets, as JSON."""
        found = await self._shown(request, person)
        if isinstance(found, Response):
            return found
        review, ui = found
        if ui.url and not origins_of(self._web, request, ui):
            return problem(409, "its URL has the same host as this page; serve the UI from another host")
        return JSONResponse(
            {
                "src": ui.url or await self._link(review.id, ui.sha256),
                "sha256": ui.sha256,
                "dialect": ui.dialect,
                "version": self._web.version,
                "params": review.params,
                "context": ui.context,
            }
        )

    async def _link(self, id: str, sha256: str) -> str:
        key = await self._web.store.write(lambda store: store.key())
        link = UiLink(self._web.random(16).hex(), int(self._web.store.wall() + LINK_TIME))
        return f"{frame_path(id)}?t={write_link(key, id, sha256, link)}"

    async def proposal(self, request: Request, person: Person) -> Response:
        """What the app submitted: the gate's form filled with it, and the problems. It decides nothing."""
        given = await sign_in.read_json(self._web, request)
        if isinstance(given, Response):
            return given
        found = await self._shown(request, person)
        if isinstance(found, Response):
            return found
        review, ui = found
        if given.get("ui") != ui.sha256:
            return problem(409, "the review shows another UI; reload the page")
        action = given.get("action")
        if action not in verdicts.ACTIONS:
            return JSONResponse({"problems": ["action: must be accept, decline or cancel"], "form": None})
        if action != "accept":
            return JSONResponse({"problems": [], "form": None})
        made = await to_thread.run_sync(proposal_of, review, given.get("content"))
        values = await to_thread.run_sync(pages.view, review, (), person, self._web.store.wall(), made.rejected)
        form = render.part("form.html", **values)
        return JSONResponse({"problems": list(made.problems), "form": form, "sendable": made.sendable})

    async def _shown(self, request: Request, person: Person) -> tuple[Review, ReviewUi] | Response:
        """The review and the UI that this user is shown."""
        review = await self._pages.visible_review(request, person)
        if review is None:
            return problem(404, "there is no such review, or you may not see it")
        if (why := person.undecidable(review, self._web.store.wall())) is not None:
            return problem(403, why)
        ui = ready_ui(review)
        if ui is None or not pages.shows_ui(review):
            return problem(409, "the review has no UI to show now")
        return review, ui
