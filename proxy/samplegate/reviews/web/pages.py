"""The HTML pages for reviewers: the queue, a review with its decision form, and the history.

Functions above ``Pages`` build the values for the templates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import quote, urlencode

import msgspec
from anyio import to_thread
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from samplegate.errors import Unavailable
from samplegate.protocol.elicitation_schema import NotFlat, read_form
from samplegate.protocol.requests import Kind
from samplegate.reviews import verdict as verdicts
from samplegate.reviews.review import (
    DECIDED,
    ENDED,
    Conflict,
    Filter,
    Review,
    ReviewEvent,
    State,
    Verdict,
    VoteRefused,
    expired,
    ready_ui,
    scrub_verdict,
)
from samplegate.reviews.store import ReviewStore, ReviewTransactions
from samplegate.reviews.views import withdrawn_for
from samplegate.reviews.votes import is_caller, progress, version
from samplegate.reviews.web import diff, forms, render, sign_in
from samplegate.reviews.web.content import Block, ContentReader, PageBudget, ShownText
from samplegate.reviews.web.context import Person, Posted, Web, first_value, many
from samplegate.reviews.web.diff import ShownChange
from samplegate.reviews.web.forms import TypedForm, answers, editors, parse_form, problems_by_field, summary, texts
from samplegate.reviews.web.render import lines
from samplegate.reviews.web.ui_frame import page_policy
from samplegate.urls import shown_url

LENGTH: Final = 120  # characters
_SCANNED: Final = 20 * LENGTH
_CUT: Final = " ..."
_BLANKS: Final = " \t\r\n\f\v"
_blank: Final = re.compile(f"[{_BLANKS}]+")


class ReviewSummary(NamedTuple):
    """A summary of a review for a list. ``words`` may be ""."""

    label: str
    words: str


def review_summary(review: Review) -> ReviewSummary:
    """The part of the review that a reviewer needs first. Never raises: unknown shapes have no words."""
    if review.stage == "answer":
        return ReviewSummary("answer", first_words(next(_texts(review.answer or {}), "")))
    if review.kind == "sampling":
        return ReviewSummary("last user message", first_words(_last_user_text(review.params)))
    if review.mode == "url":
        return ReviewSummary("host", _host(str(review.params.get("url", ""))))
    return ReviewSummary("message", first_words(str(review.params.get("message", ""))))


def first_words(text: str) -> str:
    """The beginning of a text as one line.

    Only plain blanks and line ends are collapsed; the template spells out other invisible characters.
    """
    text = text.lstrip(_BLANKS)
    line = _blank.sub(" ", text[:_SCANNED]).rstrip(" ")
    if len(line) <= LENGTH and len(text) <= _SCANNED:
        return line
    return line[: LENGTH - len(_CUT)].rstrip(" ") + _CUT


def _last_user_text(params: Mapping[str, Any]) -> str:
    """The last text of the user that is not blank."""
    messages = params.get("messages")
    for message in reversed(messages if isinstance(messages, list | tuple) else ()):
        if isinstance(message, Mapping) and message.get("role") == "user":
            for text in reversed(list(_texts(message))):
                if text.strip(_BLANKS):
                    return text
    return ""


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    return (text for _, text in texts(message.get("content")))


def _host(url: str) -> str:
    """The host in ASCII and in Unicode. A host that parsers read differently is not shown."""
    address = shown_url(url)
    if address.host:
        return address.host if address.host_unicode == address.host else f"{address.host} ({address.host_unicode})"
    return "unclear" if "//" in url else "none"


Phase: TypeAlias = Literal["waits", "outlived", "used", "taken", "kept", "unused", "expired", "withdrawn"]
"""The phase of a review.

``waits``: the request waits; ``outlived``: only the review is still open. After a verdict: ``used``; ``taken`` by a
waiting request; ``kept`` for the next identical request; ``unused`` and expired.
"""


class ReviewStatus(msgspec.Struct, frozen=True):
    """The phase of a review and its times."""

    phase: Phase
    request_until: float
    """When the request stops waiting, or stopped."""
    review_until: float
    late: float
    """How long a verdict can be used after it was given, in seconds; 0: only by a request that waits."""
    kept_until: float
    """If decided: when the verdict expires."""
    too_late: bool
    """If decided: whether the request had already ended."""


def review_status(review: Review, now: float) -> ReviewStatus:
    """The review's status at ``now``."""
    request_until = review.expires if review.answers_until is None else min(review.answers_until, review.expires)
    kept_until = (review.decided or 0.0) + review.late
    return ReviewStatus(
        phase=_phase(review, now, request_until, kept_until),
        request_until=request_until,
        review_until=review.expires,
        late=review.late,
        kept_until=kept_until,
        too_late=(review.decided or 0.0) >= request_until,
    )


def _phase(review: Review, now: float, request_until: float, kept_until: float) -> Phase:
    if review.state == "pending":
        return "waits" if now < request_until else "outlived"
    if review.state not in DECIDED:
        return "withdrawn" if review.state == "withdrawn" else "expired"
    if review.used_by is not None:
        return "used"
    if review.waiter is not None and now < review.held_until:
        return "taken"
    return "kept" if now < kept_until else "unused"


def request_summary(review: Review) -> str:
    """The request in a few words, as a title that the server's name completes."""
    if review.stage == "answer":
        return "Model's answer for"
    if review.kind == "sampling":
        return "Sampling request from"
    if review.mode == "url":
        return "URL request from"
    schema = review.params.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    return (
        f"Form with {many(len(fields), 'field')} from" if isinstance(fields, dict) and fields else "Consent form from"
    )


def kind(review: Review) -> str:
    """The kind of review in at most two words."""
    if review.kind == "sampling":
        return "Model answer" if review.stage == "answer" else "Sampling"
    return "URL" if review.mode == "url" else "Form"


class ShownVerdict(msgspec.Struct, frozen=True):
    """A verdict as the page shows it."""

    changes: tuple[ShownChange, ...]
    blocks: tuple[Block, ...]
    """A reviewer's own answer to a sampling request."""
    action: str
    """The action of an elicitation's answer."""
    content: ShownText | None


def outcome(review: Review, verdict: Verdict | None, space: PageBudget) -> ShownVerdict | None:
    """The verdict of a decided review, or what the approvals of a pending one are for. Secrets that were filled in are
    not shown again (R39)."""
    verdict = scrub_verdict(replace(review, verdict=verdict)).verdict
    if verdict is None:
        return None
    edits = {} if verdict.edits is None else msgspec.to_builtins(verdict.edits)
    result = verdict.result or {}
    model = review.bounds.models[0] if review.bounds and review.bounds.models else ""
    if review.kind == "elicitation":
        content = result.get("content")
        return ShownVerdict((), (), str(result.get("action", "")), None if not content else space.json(content))
    changed = [*diff.of_edits(review.params, model, edits)]
    if review.answer is not None and "content" in result:
        changed += diff.of_content(review.answer.get("content"), result["content"], "Answer")
    blocks = ContentReader(space).content(result["content"]) if "content" in result and review.answer is None else ()
    return ShownVerdict(short(changed), blocks, "", None)


def changes(review: Review, typed: TypedForm) -> tuple[ShownChange, ...]:
    """The changes by the edits in the form."""
    if review.answer is not None:
        return short(diff.of_content(review.answer.get("content"), typed.answer, "Answer"))
    model = review.bounds.models[0] if review.bounds and review.bounds.models else ""
    return short(diff.of_edits(review.params, model, typed.edits))


def sent(verdict: Mapping[str, Any]) -> str:
    """The values of a form as the server would get them, as indented JSON; "" if there are none."""
    content = verdict.get("content")
    return (
        json.dumps(content, indent=2, ensure_ascii=False) if isinstance(content, dict) and "action" in verdict else ""
    )


def short(found: list[ShownChange]) -> tuple[ShownChange, ...]:
    """The changes without the middles of long unchanged texts."""
    return tuple(ShownChange(change.label, diff.shortened(change.pieces)) for change in found)


MAX_WAITING: Final = 100
PAGE: Final = 50
MAX_NAME: Final = 200  # characters of a reviewer's or server's name
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
STATES: Final[tuple[State, ...]] = tuple(state for state in get_args(State) if state in ENDED)
OUTCOMES: Final[Mapping[Phase, str]] = {
    "used": "used", "taken": "being used", "kept": "not used yet", "unused": "never used",
    "expired": "no decision in time", "withdrawn": "request withdrawn",
}  # fmt: skip
"""What became of a completed review, by its phase."""
ACTIONS: Final = {"accept": "accepted", "decline": "declined", "cancel": "dismissed"}
"""A reviewer's answer to a form or URL, by the action that the server gets."""


async def waiting(store: ReviewStore, person: Person, asked: Mapping[str, str]) -> dict[str, Any]:
    """The variables of ``waiting.html``. ``asked["after"]`` is the last review of the page before."""
    chosen = _chosen(asked)
    after = asked["after"][:100]
    wanted = replace(
        _filter(chosen, person), states=("pending",), before=after or None, limit=MAX_WAITING + 1, oldest_first=True
    )
    found, now = await store.read(lambda store: store.list(wanted)), store.wall()
    more = len(found) > MAX_WAITING
    listed = [review for review in found[:MAX_WAITING] if expired(review, now) is None]
    return {
        "rows": [_row(review, now) for review in listed], "more": more, "chosen": chosen, "kinds": KINDS,
        "filtered": any(chosen.values()),
        "at": _at("/reviews", chosen, after=after), "later": _at("/reviews", chosen,
        after=found[MAX_WAITING - 1].id) if more else "",
        "oldest": _at("/reviews", chosen) if after else "",
    }  # fmt: skip


async def history(store: ReviewStore, person: Person, asked: Mapping[str, str]) -> dict[str, Any]:
    """The variables of ``history.html``: reviews that have ended, newest first. An invalid filter is ignored."""
    chosen = _chosen(asked) | {"state": asked["state"] if asked["state"] in STATES else ""}
    states = tuple(state for state in STATES if chosen["state"] in ("", state))
    wanted = replace(_filter(chosen, person), states=states, before=asked["before"][:100] or None, limit=PAGE + 1)
    found, now = list(await store.read(lambda store: store.list(wanted))), store.wall()
    return {
        "rows": [_row(review, now) for review in found[:PAGE]], "outcomes": OUTCOMES,
        "chosen": chosen, "states": STATES, "kinds": KINDS, "filtered": any(chosen.values()),
        "older": _at("/reviews/history", chosen, before=found[PAGE - 1].id) if len(found) > PAGE else "",
        "newest": _at("/reviews/history", chosen) if asked["before"] else "",
    }  # fmt: skip


NEXT: Final = 20
"""Reviews to look at for the next one: some may have expired without a note of it in the store."""


async def next_pending(store: ReviewStore, person: Person, after: str) -> str | None:
    """The ID of the oldest pending review that was opened after the review ``after``, else of the oldest of all. Never
    ``after`` itself. None if there is no other."""
    wanted = Filter(reviewers=person.reviewers_among(None), states=("pending",), limit=NEXT, oldest_first=True)
    for before in (after[:100] or None, None):
        found = await store.read(partial(_listed, wanted=replace(wanted, before=before)))
        for review in found:
            if review.id != after and expired(review, store.wall()) is None:
                return review.id
    return None


def _listed(store: ReviewTransactions, wanted: Filter) -> Sequence[Review]:
    return store.list(wanted)


async def count_pending(store: ReviewStore, person: Person, besides: Review) -> int:
    """The number of pending reviews that this user may see, besides one."""
    counts = await store.read(lambda store: store.pending())
    seen = person.reviewers_among(None)
    count = sum(number for name, (number, _) in counts.items() if seen is None or name in seen)
    return max(0, count - (besides.state == "pending"))


def _chosen(asked: Mapping[str, str]) -> dict[str, str]:
    """The filters of both lists; "" if not set."""
    names = {name: asked[name].strip()[:MAX_NAME] for name in ("reviewer", "server")}
    return {"kind": asked["kind"] if asked["kind"] in KINDS else "", **names}


def _filter(chosen: Mapping[str, str], person: Person) -> Filter:
    reviewers = person.reviewers_among([chosen["reviewer"]] if chosen["reviewer"] else None)
    return Filter(
        reviewers=reviewers,
        server=chosen["server"] or None,
        kind=next((kind for kind in KINDS if kind == chosen["kind"]), None),
    )


def _at(path: str, chosen: Mapping[str, str], **more: str) -> str:
    query = urlencode({name: value for name, value in {**chosen, **more}.items() if value})
    return f"{path}?{query}" if query else path


def _row(review: Review, now: float) -> dict[str, Any]:
    return {
        "review": review,
        "asks": request_summary(review),
        "kind": kind(review),
        "standing": review_status(review, now),
        "about": review_summary(review),
        "progress": progress(review),
        "action": ACTIONS.get(str((review.verdict.result or {}).get("action")), "") if review.verdict else "",
    }


MAX_TOOLS: Final = 100
_APART: Final = frozenset({"messages", "systemPrompt", "maxTokens", "temperature", "tools"})
"""The params of a sampling request that have a section of their own on the page."""


class RejectedForm(msgspec.Struct, frozen=True):
    """A posted form that decided nothing. The page shows its input again, with the problems or a preview."""

    posted: Posted
    form: forms.PostedForm
    problems: Mapping[str, str]
    """By the paths of ``review.FieldProblem``."""


def view(
    review: Review, events: Sequence[ReviewEvent], person: Person, now: float, tried: RejectedForm | None = None
) -> dict[str, Any]:
    """The variables of ``review.html``."""
    space = PageBudget()
    reader = ContentReader(space)
    problems = {} if tried is None else tried.problems
    decides = person.decides(review, now) and review.state == "pending"
    posted = (forms.prefilled(review) if decides else None) if tried is None else tried.posted
    touched = "untouched" if posted is None else forms.parse_form(review, posted).typed.touched
    shows = tried is not None and tried.form.preview
    values: dict[str, Any] = {
        "review": review, "standing": review_status(review, now), "asks": request_summary(review), "kind": kind(review),
        "lines": lines(events),
        "withdrawn_for": withdrawn_for(events),
        "decides": decides, "undecidable": person.undecidable(review, now) or "", "problems": problems,
        "digest": version(review), "progress": progress(review),
        "own_call": is_caller(review, person.name, person.callers),
        "touched": touched, "preview": shows,
        "tried": tried is not None, "changes": () if tried is None else changes(review, tried.form.typed),
        "sent": sent(tried.form.verdict) if tried is not None and shows and not problems else "",
        "arguments": None if review.arguments is None else space.json(review.arguments),
    }  # fmt: skip
    values |= _sampling(review, space, reader) if review.kind == "sampling" else _elicitation(review, problems, posted)
    values["typed"] = _Typed(posted)
    values["summary"] = summary(problems, review.kind, values["entries"])
    by_field = problems_by_field(problems, review.kind)
    values["problem_at"] = lambda name: by_field.get(name, "")
    values["outcome"] = outcome(review, review.verdict, space)
    values["proposal"] = outcome(review, review.proposal, space)
    values["message"] = (
        space.text(str(review.params.get("message", "")), rendered=False) if review.kind == "elicitation" else None
    )
    values["raw"] = space.json(review.params)
    values["shows_ui"] = decides and shows_ui(review)
    ui, seen = ready_ui(review), None if tried is None else first_value(tried.posted, "ui")
    values["seen_ui"] = seen if ui is not None and seen == ui.sha256 else ""
    return values | {"left_out": space.left_out, "unread": reader.left_out}


def shows_ui(review: Review) -> bool:
    """Whether reviewers of this form are shown the server's own UI, now or when it has been read. A form that the gate
    cannot check has none, because nothing that an app submits could be sent."""
    return (
        review.ui is not None
        and review.state == "pending"
        and review.mode == "form"
        and not isinstance(read_form(review.params.get("requestedSchema"), review.revision), NotFlat)
    )


class _Typed:
    """The value of an input: the posted one, else the template's."""

    def __init__(self, posted: Posted | None) -> None:
        self._posted = posted

    def __call__(self, name: str, otherwise: object = "") -> str:
        found = None if self._posted is None else first_value(self._posted, name)
        return found if found is not None else "" if otherwise is None else str(otherwise)


def _sampling(review: Review, space: PageBudget, reader: ContentReader) -> dict[str, Any]:
    params, answer = review.params, review.answer
    apart = _APART | {each.param for each in review.unsent}
    system, others = params.get("systemPrompt"), {name: value for name, value in params.items() if name not in apart}
    # in the page's order, because earlier parts use the budget first
    released = () if answer is None else reader.content(answer.get("content"))
    about = (
        None
        if answer is None
        else space.json({name: value for name, value in answer.items() if name not in ("content", "role")})
    )
    return {
        "answer": released, "about": about,
        "system": space.text(system) if isinstance(system, str) and system else None,
        "messages": reader.messages(params),
        "tools": _tools(params, space),
        "others": space.json(others) if others else None,
        "unsent": tuple((each, space.json(each.value)) for each in review.unsent),
        "editors": editors(review), "answers": answers(review), "entries": (),
    }  # fmt: skip


def _tools(params: Mapping[str, Any], space: PageBudget) -> tuple[tuple[str, ShownText], ...]:
    listed = params.get("tools")
    tools = [tool for tool in listed if isinstance(tool, dict)][:MAX_TOOLS] if isinstance(listed, list) else []
    return tuple((str(tool.get("name", ""))[:200], space.json(tool)) for tool in tools)


def _elicitation(review: Review, problems: Mapping[str, str], posted: Posted | None) -> dict[str, Any]:
    base: dict[str, Any] = {"address": None, "entries": (), "unflat": "", "as_json": False}
    if review.mode == "url":
        return base | {"address": shown_url(str(review.params.get("url", "")))}
    form = read_form(review.params.get("requestedSchema"), review.revision)
    if isinstance(form, NotFlat):
        return base | {"unflat": form.why}
    if not forms.drawable(form):
        return base | {"as_json": True}
    by_name = {path.removeprefix("content."): what for path, what in problems.items() if path.startswith("content.")}
    return base | {"entries": forms.entries(form, posted, by_name)}


Handler = Callable[[Request, Person], Awaitable[Response]]


def routes(web: Web) -> list[Route]:
    """The routes below ``/reviews``, except those for signing in and out and for events."""
    pages = Pages(web)
    return [
        render.ROUTE,
        Route("/reviews", pages.signed_in(pages.waiting), methods=["GET"]),
        Route("/reviews/history", pages.signed_in(pages.history), methods=["GET"]),
        Route("/reviews/next", pages.signed_in(pages.next), methods=["GET"]),
        Route("/reviews/{id}", pages.signed_in(pages.show), methods=["GET"]),
        Route("/reviews/{id}/verdict", pages.signed_in(pages.back), methods=["GET"]),
        Route("/reviews/{id}/verdict", pages.signed_in(pages.verdict), methods=["POST"]),
        Route("/reviews/{id}/content/{n:int}", pages.signed_in(pages.picture), methods=["GET"]),
        Route("/reviews/{id}/raw", pages.signed_in(pages.raw), methods=["GET"]),
    ]


class Pages:
    """The handlers of one listener. They keep no state between requests."""

    def __init__(self, web: Web) -> None:
        self._web = web

    def signed_in(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """The handler for signed-in users. Others are redirected to the sign-in page. A failed store gets 503."""

        async def handle(request: Request) -> Response:
            person = sign_in.person_of(self._web, request)
            if person is None:
                return sign_in.redirect_to_sign_in(request)
            try:
                return await handler(request, person)
            except Unavailable as problem:
                self._web.log.error("reviews.unavailable", problem=str(problem))
                return self._notice(
                    request,
                    person,
                    503,
                    "Reviews are unavailable",
                    "The review store is not responding. No decision was recorded. Try again.",
                )

        return handle

    async def waiting(self, request: Request, person: Person) -> Response:
        """The queue, oldest first."""
        asked = {name: request.query_params.get(name, "") for name in ("reviewer", "server", "kind", "after")}
        return self._page(request, "waiting.html", person, **await waiting(self._web.store, person, asked))

    async def history(self, request: Request, person: Person) -> Response:
        """All reviews, newest first, filtered."""
        asked = {name: request.query_params.get(name, "") for name in ("state", "reviewer", "server", "kind", "before")}
        return self._page(request, "history.html", person, **await history(self._web.store, person, asked))

    async def next(self, request: Request, person: Person) -> Response:
        """Redirect to the next pending review, or to the queue if there is none."""
        after = request.query_params.get("after", "")
        found = await next_pending(self._web.store, person, after)
        return RedirectResponse("/reviews" if found is None else f"/reviews/{found}", 303)

    async def show(self, request: Request, person: Person) -> Response:
        """One review, with its decision form."""
        review = await self.visible_review(request, person)
        return self._missing(request, person) if review is None else await self._review_page(request, person, review)

    async def back(self, request: Request, person: Person) -> Response:
        """Redirect to the review.

        After a refused form the browser shows the form's URL, so a reload with GET must work. It decides nothing.
        """
        del person
        return RedirectResponse(f"/reviews/{quote(request.path_params['id'], safe='')}", 303)

    async def verdict(self, request: Request, person: Person) -> Response:
        """Handle a posted decision form.

        303 after a decision, 422 with the problems at their fields, 409 with the current state, 200 for a preview.
        """
        posted = await sign_in.read_form(self._web, request)
        if isinstance(posted, Response):
            return posted
        review = await self.visible_review(request, person)
        if review is None:
            return self._missing(request, person)
        if (why := person.undecidable(review, self._web.store.wall())) is not None:
            said = "Your role is viewer. Only reviewers can decide."
            return self._notice(
                request,
                person,
                403,
                "Not permitted",
                said if person.role == "viewer" else f"{why[0].upper()}{why[1:]}.",
            )
        if review.state != "pending":
            return await self._review_page(request, person, review, status=409)
        return await self._decide(request, person, review, posted)

    async def _decide(
        self, request: Request, person: Person, review: Review, posted: Mapping[str, list[str]]
    ) -> Response:
        form = parse_form(review, posted)
        read = verdicts.read(form.verdict, review, digest="needed")
        problems = (
            {problem.path: problem.what for problem in read} | form.problems
            if isinstance(read, tuple)
            else form.problems
        )
        if form.preview and form.typed.touched == "untouched" and review.kind == "sampling":
            problems = {}
        if problems or form.preview or isinstance(read, tuple):
            tried = RejectedForm(posted, form, problems)
            return await self._review_page(
                request, person, review, tried, status=422 if problems and not form.preview else 200
            )
        seen = version(review)
        shown = replace(read, ui=first_value(posted, "ui") or "")
        decided = await self._web.store.write(
            lambda store: store.decide(
                review.id,
                shown,
                who=person.name,
                door="page",
                seen=seen,
                callers=person.callers,
                subject=person.subject,
            )
        )
        if decided is None:
            return self._missing(request, person)
        if isinstance(decided, VoteRefused):
            tried = RejectedForm(posted, form, {"": decided.why})
            status = 403 if decided.reason == "caller" else 409
            return await self._review_page(request, person, decided.review, tried, status=status)
        if isinstance(decided, Conflict):
            return await self._review_page(request, person, decided.review, status=409)
        return RedirectResponse(f"/reviews/{review.id}#standing", 303)

    async def picture(self, request: Request, person: Person) -> Response:
        """A picture of a review, by its number on the page."""
        review = await self.visible_review(request, person)
        found = (
            None if review is None else await to_thread.run_sync(render.picture_of, review, request.path_params["n"])
        )
        return self._missing(request, person) if found is None else found

    async def raw(self, request: Request, person: Person) -> Response:
        """The whole request as JSON, in plain text."""
        review = await self.visible_review(request, person)
        return self._missing(request, person) if review is None else await to_thread.run_sync(render.raw_of, review)

    async def visible_review(self, request: Request, person: Person) -> Review | None:
        """The review, if this user may see it, with its current state: it may just have expired."""
        review = await self._web.store.read(lambda store: store.get(request.path_params["id"]))
        if review is None or not person.sees(review, self._web.store.wall()):
            return None
        return expired(review, self._web.store.wall()) or review

    async def _review_page(
        self, request: Request, person: Person, review: Review, tried: RejectedForm | None = None, *, status: int = 200
    ) -> Response:
        events = await self._web.store.read(lambda store: store.history(review.id))
        left = await count_pending(self._web.store, person, review)
        # in a thread, because rendering a large review takes a tenth of a second
        values = await to_thread.run_sync(view, review, events, person, self._web.store.wall(), tried)
        answer = self._page(
            request,
            "review.html",
            person,
            status=status,
            late_by=status == 409 and review.state != "pending",
            left=left,
            **values,
        )
        if values["shows_ui"]:
            assert review.ui is not None
            answer.headers["content-security-policy"] = page_policy(self._web, request, review.id, review.ui)
        return answer

    def _page(self, request: Request, template: str, person: Person, *, status: int = 200, **values: Any) -> Response:
        return render.page(
            self._web,
            request,
            template,
            status=status,
            person=person,
            form_token=sign_in.form_token(self._web, request),
            **values,
        )

    def _missing(self, request: Request, person: Person) -> Response:
        return self._notice(
            request,
            person,
            404,
            "Review not found",
            "It does not exist, was deleted, or is not visible to you.",
        )

    def _notice(self, request: Request, person: Person, status: int, title: str, text: str) -> Response:
        return self._page(request, "notice.html", person, status=status, title=title, text=text)
