"""Reviews as a table for people or JSON for programs. Content is shown to whoever may read the store, and only its beginning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from samplegate.commands.reviewtext import harmless, short
from samplegate.core.review import states
from samplegate.core.review.review import Review
from samplegate.core.review.spans import span
from samplegate.core.review.telling import told
from samplegate.urls import shown_url

SHORT: Final = 11  # characters of an id: 8 random ones, of which no two people will see a pair
WIDEST: Final = 24
HEAD: Final = ("id", "age", "waits", "left", "reviewer", "server", "kind", "what")
"""``waits``: how long the request itself still does; ``left``: how long a verdict is taken, for the next same request then."""


def today(review: Review, now: float) -> Review:
    """As it stands now: the gate notes an end some moments later."""
    return states.expired(review, now) or review


def table(reviews: Sequence[Review], now: float) -> Iterator[str]:
    """A line for each under a head."""
    rows = [HEAD, *(_row(review, now) for review in reviews)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD) - 1)]
    for row in rows:
        yield "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]))


def line(review: Review, now: float) -> str:
    """One review, for `watch`."""
    id, age, _waits, *rest = _row(review, now)  # under no head, two times would be one too many
    return "  ".join((id, age, *rest))


def as_json(review: Review, now: float) -> dict[str, Any]:
    """What is told of it, without content."""
    return told(review, show="none", now=now, url=None)


def _row(review: Review, now: float) -> tuple[str, ...]:
    left = span(review.expires - now) if review.state == "pending" else review.state
    kind = {"form": "form", "url": "address"}.get(review.mode or "", "answer" if review.stage == "answer" else "sampling")
    names = (short(name, WIDEST) for name in (review.reviewer, review.server))
    return (harmless(review.id)[:SHORT], span(now - review.created), _waits(review, now), left, *names, kind, what(review))


def _waits(review: Review, now: float) -> str:
    until = review.expires if review.answers_until is None else min(review.answers_until, review.expires)
    return span(until - now) if review.state == "pending" and now < until else "-"


def what(review: Review) -> str:
    """What it is about, in a line."""
    tools = ", ".join(call.tool or call.method for call in review.calls)
    if review.mode == "url":
        text = f"opens {shown_url(str(review.params.get('url', ''))).host or 'no host that can be told'}"
    elif review.kind == "elicitation":
        text = str(review.params.get("message", ""))
    else:
        text = _text(review.answer if review.answer is not None else _last(review.params.get("messages")))
    return short(f"{tools}: {text}" if tools else text, 60)


def _last(messages: Any) -> Any:
    return messages[-1] if isinstance(messages, list) and messages else {}


def _text(message: Any) -> str:
    found = message.get("content") if isinstance(message, dict) else None
    for block in found if isinstance(found, list) else [found]:
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            return text
    return "no text"
