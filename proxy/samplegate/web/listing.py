"""The lists: what waits, oldest first, and what was, newest first and by pages. Reads the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args
from urllib.parse import urlencode

from samplegate.core.policy import Kind
from samplegate.core.review.review import Filter, Review, State
from samplegate.core.review.states import expired
from samplegate.ports import ReviewStore
from samplegate.web.context import Person
from samplegate.web.standing import asks, kind, standing

MAX_WAITING: Final = 100
PAGE: Final = 50
KINDS: Final = get_args(Kind)
STATES: Final = get_args(State)


def reviewers_of(person: Person) -> tuple[str, ...] | None:
    """Whose reviews this person sees; None: all."""
    return None if person.role == "admin" else person.reviewers


async def waiting(store: ReviewStore, person: Person, now: float) -> dict[str, Any]:
    """The names of ``waiting.html``."""
    found = await store.list(Filter(states=("pending",), reviewers=reviewers_of(person), limit=MAX_WAITING + 1, oldest_first=True))
    more = len(found) > MAX_WAITING
    listed = [review for review in found[:MAX_WAITING] if expired(review, now) is None]
    return {"rows": [_row(review, now) for review in listed], "more": more, "most": MAX_WAITING}


async def history(store: ReviewStore, person: Person, asked: Mapping[str, str], now: float) -> dict[str, Any]:
    """The names of ``history.html``. A filter that is none is taken for no filter."""
    state = asked["state"] if asked["state"] in STATES else ""
    kind_ = asked["kind"] if asked["kind"] in KINDS else ""
    reviewer, server = asked["reviewer"].strip()[:200], asked["server"].strip()[:200]
    own = reviewers_of(person)
    reviewers = own if not reviewer else (reviewer,) if own is None or reviewer in own else ()
    wanted = Filter(
        states=(state,) if state else (), reviewers=reviewers, server=server or None, kind=kind_ or None,  # type: ignore[arg-type]
        before=asked["before"][:100] or None, limit=PAGE + 1,
    )  # fmt: skip
    found = list(await store.list(wanted))
    chosen = {name: value for name, value in (("state", state), ("kind", kind_), ("reviewer", reviewer), ("server", server)) if value}
    older = "?" + urlencode({**chosen, "before": found[PAGE - 1].id}) if len(found) > PAGE else ""
    rows = [_row(expired(review, now) or review, now) for review in found[:PAGE]]
    return {
        "rows": rows, "chosen": {"state": state, "kind": kind_, "reviewer": reviewer, "server": server}, "older": older,
        "newest": "?" + urlencode(chosen) if asked["before"] else "", "states": STATES, "kinds": KINDS, "filtered": bool(chosen),
    }  # fmt: skip


def _row(review: Review, now: float) -> dict[str, Any]:
    return {"review": review, "asks": asks(review), "kind": kind(review), "standing": standing(review, now)}
