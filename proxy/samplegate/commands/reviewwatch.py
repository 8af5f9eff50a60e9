"""Reviews as they come and change, until interrupted. Only looks: a look at one number, and at what is new where it has grown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from samplegate.commands.files import complain
from samplegate.commands.reviewlist import as_json, line, today
from samplegate.commands.reviewtext import harmless
from samplegate.core.review.review import Event, Filter, Review
from samplegate.ports import Unavailable
from samplegate.store.reviews import Reviews

EVERY: Final = 0.5  # seconds between two looks
AT_A_TIME: Final = 200
_QUIET: Final = frozenset({"joined", "told", "untold"})
"""What happens to a review without changing it for people; --json has it all the same."""


def watch(store: Reviews, reviewer: str | None, *, json_lines: bool, pause: Callable[[float], Any] = time.sleep) -> None:
    """Say what waits, then what happens. Ends with KeyboardInterrupt; raises Unavailable where even the first look fails."""
    last = store.last_change()
    for text in _waiting(store, reviewer, json_lines):
        print(text, flush=True)
    lost = False
    while True:
        pause(EVERY)
        try:
            for number, news in _news(store, last, reviewer, json_lines):
                last = number
                if news is not None:
                    print(news, flush=True)
            lost = False
        except Unavailable as problem:
            if not lost:
                complain(f"{problem}; it is looked for again")
            lost = True


def _waiting(store: Reviews, reviewer: str | None, json_lines: bool) -> Iterator[str]:
    now = time.time()
    filter = Filter(states=("pending",), reviewers=None if reviewer is None else (reviewer,), limit=AT_A_TIME)
    for review in reversed(store.list(filter)):
        if today(review, now).state == "pending":
            yield _json(None, review, now) if json_lines else f"pending    {line(review, now)}"


def _news(store: Reviews, last: int, reviewer: str | None, json_lines: bool) -> Iterator[tuple[int, str | None]]:
    """The number of each new event, with what is said of it. A store that was replaced counts from the beginning again."""
    newest = store.last_change()
    if newest < last:
        yield newest, None
        return
    while newest > last:
        events = store.changes(last, AT_A_TIME)
        for event in events:
            yield event.number, _said(store.get(event.review), event, reviewer, json_lines)
        if not events:
            return
        last = events[-1].number


def _said(review: Review | None, event: Event, reviewer: str | None, json_lines: bool) -> str | None:
    if review is None or reviewer not in (None, review.reviewer) or (event.what in _QUIET and not json_lines):
        return None
    now = time.time()
    if json_lines:
        return _json(event, review, now)
    by = f"  by {harmless(event.who)} ({event.door})" if event.who else ""
    return f"{event.what:10} {line(review, now)}{by}"


def _json(event: Event | None, review: Review, now: float) -> str:
    happened = None if event is None else {"number": event.number, "what": event.what, "at": event.at, "who": event.who, "door": event.door}
    return json.dumps({"event": happened, "review": as_json(review, now)})
