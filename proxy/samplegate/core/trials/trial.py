"""Cases of a ``*_test.yaml`` put to a policy: what came of each, and what differs from the expected. Not the file (``cases.py``), no output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec

from samplegate.core.cases import Case, Expect, Moment, Placed
from samplegate.core.decide import Rulebook, compile_policy
from samplegate.core.decisions import Step
from samplegate.core.ledger import SCALE
from samplegate.core.policy import Policy, seconds
from samplegate.core.trials.comparing import Mismatch, Object, differences, same, seen
from samplegate.core.trials.play import Came, Play, Scenery, Walk, scenery
from samplegate.core.trials.suite import START
from samplegate.core.trials.verdicts import Judged
from samplegate.core.trials.wire import wire

__all__ = ["Mismatch", "Trial", "Walk", "run", "same", "wire"]


class Trial(msgspec.Struct, frozen=True):
    """What came of one case: it passed if nothing differs."""

    case: Case
    line: int
    mismatches: tuple[Mismatch, ...]
    steps: tuple[Step, ...]
    """The rules that were looked at, in the first step that was not as expected, else in the last; none of a malformed request."""
    detail: str
    came: Came | None = None
    """What came of that step's request."""
    walks: tuple[Walk, ...] = ()
    """Every way that its requests went along the rules, each once."""


def run(cases: Sequence[Placed], policy: Policy | Rulebook) -> Iterator[Trial]:
    """Every case in its order, each with limits that nobody has drawn on. ``${VAR}`` is what the case says, whatever the policy was compiled with."""
    book = policy if isinstance(policy, Rulebook) else compile_policy(policy, {})
    for placed in cases:
        yield _try(placed, book)


class _Told(msgspec.Struct):
    """What is kept of a case while it is played."""

    mismatches: list[Mismatch]
    walks: dict[tuple[int, int, int, str, int], Walk]
    came: Came | None = None
    settled: bool = False
    """Whether ``came`` is the one to tell."""


def _try(placed: Placed, book: Rulebook) -> Trial:
    told, play = _Told([], {}), Play(book)
    start = datetime.fromisoformat(placed.case.start or START).timestamp()
    at = 0.0
    for moment in placed.moments:
        at = at if moment.step.at is None else seconds(moment.step.at)
        scene = scenery(moment.step, replace(book, environment=moment.step.environment or {}))
        _play(told, play, scene, moment, start + at)
    came = told.came
    steps, detail = ((), "") if came is None else (came.steps, came.decision.detail)
    return Trial(placed.case, placed.line, tuple(told.mismatches), steps, detail, came, tuple(told.walks.values()))


def _play(told: _Told, play: Play, scene: Scenery, moment: Moment, now: float) -> None:
    """One step, as often as it is to be repeated: the first time that it is not as expected is told, and each differing way along the rules kept."""
    expect, last = moment.step.expect, moment.step.repeat
    found: list[Mismatch] = []
    for turn in range(1, last + 1):
        came = play.ask(scene, now)
        for walk in came.walks:
            told.walks.setdefault((moment.line, walk.first, walk.looked, walk.end, walk.place), walk)
        if not told.settled:
            told.came = came
        if expect is not None and not found:
            wanted = expect if turn == last else msgspec.structs.replace(expect, limits=None)
            found = [*_misread(scene, came), *differences(wanted, _got(play, scene, came, wanted, now))]
            told.settled = told.settled or bool(found)
            told.mismatches += [msgspec.structs.replace(one, where=_where(moment, turn)) for one in found]


def _misread(scene: Scenery, came: Came) -> Iterator[Mismatch]:
    """A verdict that is none on what was asked, or that nobody was asked for."""
    if isinstance(came.judged, str):
        yield Mismatch("verdict", msgspec.to_builtins(scene.asked.verdict), came.judged)


def _by_verdict(judged: Judged) -> Object:
    return {"outcome": judged.outcome, "reason": judged.reason.value, "content": judged.content, "as": judged.as_}


def _where(moment: Moment, turn: int) -> str:
    """``steps.1, line 14, request 3 of 10``; empty for a case without steps."""
    if not moment.place:
        return ""
    return f"{moment.place}, line {moment.line}" + (f", request {turn} of {moment.step.repeat}" if moment.step.repeat > 1 else "")


def _got(play: Play, scene: Scenery, came: Came, expect: Expect, now: float) -> Object:
    """What came of it, by the names of ``Expect``; what is drawn on limits only where ``expect`` asks for it."""
    judged = {} if not isinstance(came.judged, Judged) else _by_verdict(came.judged)
    return {
        **seen(came.decision),
        **judged,
        "wire": came.wire,
        "limit": came.limit,
        "waits": came.waits,
        "cost": None if came.cost is None else came.cost / SCALE["usd"],
        "limits": {name: play.drawn(name, scene, came, now) for name in expect.limits or ()},
    }
