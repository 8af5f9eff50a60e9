"""Everything that the page of one review shows, as values for its template. Reads the review, decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from samplegate.core.matching.forms import NotFlat, read_form
from samplegate.core.review.review import Event, Review
from samplegate.core.review.telling import withdrawn_for
from samplegate.urls import shown_url
from samplegate.web import fields, forms
from samplegate.web.blocks import Reader
from samplegate.web.context import Person
from samplegate.web.editors import answers, editors
from samplegate.web.lines import lines
from samplegate.web.outcome import changes, outcome, sent
from samplegate.web.standing import asks, kind, standing
from samplegate.web.texts import Shown, Space
from samplegate.web.typed import Posted, first
from samplegate.web.wrong import at, summary

MAX_TOOLS: Final = 100
_APART: Final = frozenset({"messages", "systemPrompt", "maxTokens", "temperature", "tools"})
"""The params of a sampling request that have a place of their own on the page."""


class Try(msgspec.Struct, frozen=True):
    """A form that was posted and decided nothing: what was typed comes back with what is wrong, or with what it would come to."""

    posted: Posted
    said: forms.Said
    problems: Mapping[str, str]
    """By path, as ``verdicts.Problem`` has them."""


def view(review: Review, events: Sequence[Event], person: Person, now: float, tried: Try | None = None) -> dict[str, Any]:
    """The names of ``review.html``."""
    space = Space()
    reader = Reader(space)
    problems = {} if tried is None else tried.problems
    posted = None if tried is None else tried.posted
    shows = tried is not None and tried.said.preview
    values: dict[str, Any] = {
        "review": review, "standing": standing(review, now), "asks": asks(review), "kind": kind(review), "lines": lines(events),
        "withdrawn_for": withdrawn_for(events),
        "decides": person.decides(review) and review.state == "pending", "problems": problems,
        "touched": "untouched" if tried is None else tried.said.typed.touched, "preview": shows,
        "tried": tried is not None, "changes": () if tried is None else changes(review, tried.said.typed),
        "sent": sent(tried.said.verdict) if tried is not None and shows and not problems else "",
        "arguments": None if review.arguments is None else space.json(review.arguments),
    }  # fmt: skip
    values |= _sampling(review, space, reader) if review.kind == "sampling" else _elicitation(review, problems, posted)
    values["typed"] = _Typed(posted)
    values["summary"] = summary(problems, review.kind, values["entries"])
    by_field = at(problems, review.kind)
    values["problem_at"] = lambda name: by_field.get(name, "")
    values["outcome"] = outcome(review, space)
    values["message"] = space.text(str(review.params.get("message", "")), rendered=False) if review.kind == "elicitation" else None
    values["raw"] = space.json(review.params)
    return values | {"left_out": space.left_out, "unread": reader.left_out}


class _Typed:
    """What stands in a field: what was typed, else what the template says."""

    def __init__(self, posted: Posted | None) -> None:
        self._posted = posted

    def __call__(self, name: str, otherwise: object = "") -> str:
        found = None if self._posted is None else first(self._posted, name)
        return found if found is not None else "" if otherwise is None else str(otherwise)


def _sampling(review: Review, space: Space, reader: Reader) -> dict[str, Any]:
    params, answer = review.params, review.answer
    apart = _APART | {each.param for each in review.unsent}
    system, others = params.get("systemPrompt"), {name: value for name, value in params.items() if name not in apart}
    # in the order of the page, for what comes first has room first
    released = () if answer is None else reader.content(answer.get("content"))
    about = None if answer is None else space.json({name: value for name, value in answer.items() if name not in ("content", "role")})
    return {
        "answer": released, "about": about,
        "system": space.text(system) if isinstance(system, str) and system else None,
        "messages": reader.messages(params),
        "tools": _tools(params, space),
        "others": space.json(others) if others else None,
        "unsent": tuple((each, space.json(each.value)) for each in review.unsent),
        "editors": editors(review), "answers": answers(review), "entries": (),
    }  # fmt: skip


def _tools(params: Mapping[str, Any], space: Space) -> tuple[tuple[str, Shown], ...]:
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
    if not fields.drawable(form):
        return base | {"as_json": True}
    by_name = {path.removeprefix("content."): what for path, what in problems.items() if path.startswith("content.")}
    return base | {"entries": fields.entries(form, posted, by_name)}
