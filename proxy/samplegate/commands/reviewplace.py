"""Which store of reviews a command means, and which review in it. Not what is done with it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from samplegate.commands.files import Unreadable
from samplegate.core.matching.conditions import shown
from samplegate.core.review.review import Review
from samplegate.settings.definition import SETTINGS
from samplegate.settings.gathering import NO_STATE, gather
from samplegate.settings.serving import SERVE_SETTINGS
from samplegate.store.reviews import Reviews

FILE: Final = "reviews.db"  # in the state folder, as for the gate itself
MOST_MEANT: Final = 5


def store(args: argparse.Namespace) -> Reviews:
    """The store of the line, the variables or the settings file, which may be that of `run` or of `serve`. It must be there. Raises Unreadable."""
    problems: list[str] = []
    found = gather({**SERVE_SETTINGS, **SETTINGS}, os.environ, args.settings, {"state": args.state, "store": args.store}, problems)
    if "store" not in found.values and found.values["state"] == Path():
        problems.append(NO_STATE)
    if problems:
        raise Unreadable("\nsamplegate: ".join(problems))
    return Reviews(found.values.get("store") or f"sqlite:{found.values['state'] / FILE}", make=False)


def meant(kept: Reviews, typed: str) -> Review:
    """The review of an id, or of a beginning that no other has, with or without its ``rv_``. Raises Unreadable, Unavailable."""
    for begin in (typed, f"rv_{typed}"):
        ids = [begin] if kept.get(begin) is not None else kept.starting(begin, MOST_MEANT + 1)
        if len(ids) > 1:
            raise Unreadable(
                f"reviews: {shown(typed)} begins {', '.join(ids[:MOST_MEANT])}{' and more' if len(ids) > MOST_MEANT else ''}; type more of it"
            )
        if ids and (found := kept.get(ids[0])) is not None:
            return found
    raise Unreadable(f"reviews: there is no review {shown(typed)}; see samplegate reviews list --all")
