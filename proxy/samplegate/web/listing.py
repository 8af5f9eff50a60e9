"""The lists: what waits, oldest first, and what was, newest first, both filtered and by pages. Reads the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args
from urllib.parse import urlencode

from msgspec.structs import replace

from samplegate.core.policy import Kind
from samplegate.core.review.review import Filter, Review, State
from samplegate.core.review.states import expired
from samplegate.ports import ReviewStore
from samplegate.web.about import about
from samplegate.web.context import Person
from samplegate.web.standing import asks, kind, standing

MAX_WAITING: Final = 100
PAGE: Final = 50
MAX_NAME: Final = 200  # characters of a reviewer's or server's name
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
STATES: Final[tuple[State, ...]] = get_args(State)


def reviewers_of(person: Person) -> tuple[str, ...] | None:
    """Whose reviews this person sees; None: all."""
    return None if person.role == "admin" else person.reviewers


async def waiting(store: ReviewStore, person: Person, asked: Mapping[str, str], now: float) -> dict[str, Any]:
    """The names of ``waiting.html``, in pages by ``asked["after"]``, the last of the page before."""
    chosen = _chosen(asked)
    after = asked["after"][:100]
    wanted = replace(_filter(chosen, person), states=("pending",), before=after or None, limit=MAX_WAITING + 1, oldest_first=True)
    found = await store.read(lambda store: store.list(wanted))
    more = len(found) > MAX_WAITING
    listed = [review for review in found[:MAX_WAITING] if expired(review, now) is None]
    return {
        "rows": [_row(review, now) for review in listed], "more": more, "chosen": chosen, "kinds": KINDS, "filtered": any(chosen.values()),
        "at": _at("/reviews", chosen, after=after), "later": _at("/reviews", chosen, after=found[MAX_WAITING - 1].id) if more else "",
        "oldest": _at("/reviews", chosen) if after else "",
    }  # fmt: skip


async def history(store: ReviewStore, person: Person, asked: Mapping[str, str], now: float) -> dict[str, Any]:
    """The names of ``history.html``. A filter that is none is taken for no filter."""
    chosen = _chosen(asked) | {"state": asked["state"] if asked["state"] in STATES else ""}
    states = tuple(state for state in STATES if state == chosen["state"])
    wanted = replace(_filter(chosen, person), states=states, before=asked["before"][:100] or None, limit=PAGE + 1)
    found = list(await store.read(lambda store: store.list(wanted)))
    return {
        "rows": [_row(expired(review, now) or review, now) for review in found[:PAGE]],
        "chosen": chosen, "states": STATES, "kinds": KINDS, "filtered": any(chosen.values()),
        "older": _at("/reviews/history", chosen, before=found[PAGE - 1].id) if len(found) > PAGE else "",
        "newest": _at("/reviews/history", chosen) if asked["before"] else "",
    }  # fmt: skip


def _chosen(asked: Mapping[str, str]) -> dict[str, str]:
    """The filters of both lists; "" for none."""
    names = {name: asked[name].strip()[:MAX_NAME] for name in ("reviewer", "server")}
    return {"kind": asked["kind"] if asked["kind"] in KINDS else "", **names}


def _filter(chosen: Mapping[str, str], person: Person) -> Filter:
    """Never more than this person may see, whoever is chosen."""
    own, reviewer = reviewers_of(person), chosen["reviewer"]
    reviewers = own if not reviewer else (reviewer,) if own is None or reviewer in own else ()
    return Filter(reviewers=reviewers, server=chosen["server"] or None, kind=next((kind for kind in KINDS if kind == chosen["kind"]), None))


def _at(path: str, chosen: Mapping[str, str], **more: str) -> str:
    query = urlencode({name: value for name, value in {**chosen, **more}.items() if value})
    return f"{path}?{query}" if query else path


def _row(review: Review, now: float) -> dict[str, Any]:
    return {"review": review, "asks": asks(review), "kind": kind(review), "standing": standing(review, now), "about": about(review)}
