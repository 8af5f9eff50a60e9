"""`samplegate reviews`: look at what waits for people, and decide it, in whatever process the request waits. Needs the store, and no listener.

What is shown is shown to whoever may read the store's file; there are no roles here. Nothing of it is logged.
"""

from __future__ import annotations

import argparse
import getpass
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from samplegate.commands import FAILED, OK, UNREADABLE
from samplegate.commands import reviewsaid as saying
from samplegate.commands.files import Unreadable, complain
from samplegate.commands.reviewlist import as_json, table, today, what
from samplegate.commands.reviewplace import meant, store
from samplegate.commands.reviewshow import history, lines
from samplegate.commands.reviewtext import harmless, moment
from samplegate.core.review.review import Filter, Review, Verdict
from samplegate.core.review.spans import span
from samplegate.core.review.states import Conflict
from samplegate.core.review.telling import told, withdrawn_for
from samplegate.core.review.verdicts import read
from samplegate.ports import Unavailable
from samplegate.store.reviews import Reviews

MOST_NAME: Final = 100
NOTHING: Final = "nothing is pending"


def command(args: argparse.Namespace) -> int:
    """Do one of them: 1 if it was refused or came too late, 2 if there is no such review or store."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode is no reason to show nothing
    try:
        kept = store(args)
        try:
            return _COMMANDS[args.what](args, kept)
        finally:
            kept.close()
    except (Unreadable, Unavailable) as problem:
        complain(str(problem))
        return UNREADABLE


def _list(args: argparse.Namespace, kept: Reviews) -> int:
    if not kept.database.exists():
        print("[]" if args.json else NOTHING)
        return OK
    now = time.time()
    states = () if args.all else tuple(args.state_of or ("pending",))
    reviewers = None if args.reviewer is None else (args.reviewer,)
    oldest_first = states == ("pending",)
    wanted = Filter(states=states, reviewers=reviewers, server=args.server, limit=args.limit + 1, oldest_first=oldest_first)
    found = list(islice(_standing(kept, wanted, now), args.limit + 1))
    shown = found[: args.limit]
    if args.json:
        print(json.dumps([as_json(review, now) for review in shown], indent=2))
        return OK
    print("\n".join(table(shown, now)) if shown else NOTHING if oldest_first else "no reviews found")
    if len(found) > args.limit:
        print(f"these are the {'oldest' if oldest_first else 'newest'} {args.limit}; --limit shows more")
    return OK


def _standing(kept: Reviews, wanted: Filter, now: float) -> Iterator[Review]:
    """Those that still stand so now, a page of the store after the other: what has run out since nobody noted it hides nothing behind it."""
    while found := kept.list(wanted):
        yield from (review for review in (today(each, now) for each in found) if not wanted.states or review.state in wanted.states)
        if len(found) < wanted.limit:
            return
        wanted = replace(wanted, before=found[-1].id)


def _show(args: argparse.Namespace, kept: Reviews) -> int:
    now = time.time()
    review = today(meant(kept, args.id), now)
    if args.json:
        print(json.dumps(told(review, show="full", now=now, url=None), indent=2))
    else:
        print("\n".join([*lines(review, now), *history(kept.history(review.id))]))
    return OK


def _watch(args: argparse.Namespace, kept: Reviews) -> int:
    from samplegate.commands.reviewwatch import watch

    watch(kept, args.reviewer, json_lines=args.json)
    return OK


def _approve(args: argparse.Namespace, kept: Reviews) -> int:
    return _decide(args, kept, meant(kept, args.id), lambda _: saying.approval(args))


def _reject(args: argparse.Namespace, kept: Reviews) -> int:
    return _decide(args, kept, meant(kept, args.id), lambda _: saying.rejection(args))


def _answer(args: argparse.Namespace, kept: Reviews) -> int:
    return _decide(args, kept, meant(kept, args.id), lambda review: saying.answer(args, review))


def _decide(args: argparse.Namespace, kept: Reviews, review: Review, given: Callable[[Review], dict[str, Any]]) -> int:
    """Say it of what is in the store now, or of the digest that was seen before; what an id stands for never changes."""
    verdict = read({**given(review), "digest": args.digest or review.digest}, review, digest="needed")
    if not isinstance(verdict, Verdict):
        for problem in verdict:
            complain(f"{review.id}: {harmless(str(problem))}")
        return FAILED
    now = time.time()
    outcome = kept.decide(review.id, verdict, who=_who(args), door="cli", now=now)
    if outcome is None:
        raise Unreadable(f"reviews: {review.id} is gone; it ended before")
    if isinstance(outcome, Conflict):
        why = withdrawn_for(kept.history(review.id))
        complain(f"{review.id}: {_lost(outcome.review)}{f' ({harmless(why)})' if why else ''}")
        return FAILED
    print(f"{outcome.state} {outcome.id}: {harmless(outcome.server)}, {what(outcome)}")
    print(_follows(outcome, now))
    return OK


def _who(args: argparse.Namespace) -> str:
    """As whom it is recorded; nothing depends on it."""
    name = args.as_ or os.environ.get("USER") or _account()
    return harmless(name[:MOST_NAME])


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "somebody"


def _lost(review: Review) -> str:
    when = "" if review.decided is None else f" at {moment(review.decided)}"
    by = f" by {harmless(review.who)} ({review.door})" if review.who else ""
    return f"was {review.state}{by}{when} already; nothing has changed"


def _follows(review: Review, now: float) -> str:
    if review.waiter is not None and now < review.held_until:
        return "the request that waits gets it now"
    if not review.late:
        return "nobody waits for it any more, and late verdicts are good for nothing here"
    return f"nobody waits for it now: the next same request gets it, once, within {span(review.late)}"


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace, Reviews], int]]] = {
    "list": _list,
    "show": _show,
    "watch": _watch,
    "approve": _approve,
    "reject": _reject,
    "answer": _answer,
}
