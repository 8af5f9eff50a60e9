"""A verdict that came as an answer, by webhook or command, and its way into the store. Fails closed: what does not read changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from samplegate.core.parsing import strictjson
from samplegate.core.review import verdicts
from samplegate.core.review.review import Review, Verdict
from samplegate.core.review.states import Conflict
from samplegate.ports import Log, ReviewStore

AnswerDoor: TypeAlias = Literal["webhook", "command"]
_PLACES: Final = frozenset({"verdict", "digest", "edits", "action", "content", "reason", "tell_server"})
MOST_BY: Final = 100  # characters of a name


def read(raw: bytes, review: Review) -> tuple[Verdict, str] | tuple[verdicts.Problem, ...]:
    """The verdict and who it says that it is by ("" for nobody), or all that is wrong with it. ``by`` is the answer's own word, unproved."""
    try:
        found: Any = strictjson.decode(raw, max_bytes=verdicts.MOST_BYTES, max_depth=verdicts.MAX_DEPTH)
    except strictjson.Fault as fault:
        return (verdicts.Problem("", str(fault)),)
    by = found.get("by") if isinstance(found, dict) else None
    given: bytes | Mapping[str, Any] = {name: value for name, value in found.items() if name != "by"} if isinstance(by, str) else raw
    verdict = verdicts.read(given, review, digest="optional")  # the answer to a message is about what the message showed
    return (verdict, _name(by) if isinstance(by, str) else "") if isinstance(verdict, Verdict) else verdict


def _name(text: str) -> str:
    return "".join(c for c in text[: 4 * MOST_BY] if c.isprintable()).strip()[:MOST_BY]


def _place(problem: verdicts.Problem) -> str:
    """Where a problem is, in our words only: a form's names of fields are content, and an unknown name is anybody's."""
    name = problem.path.partition(".")[0]
    return name if name in _PLACES else "elsewhere" if name else "the whole of it"


async def give(store: ReviewStore, log: Log, review: Review, raw: bytes, *, door: AnswerDoor, now: float) -> str | None:
    """Give it to the store. What came of it in a few words; None: it does not read, which the log says. Raises Unavailable."""
    match read(raw, review):
        case (Verdict() as verdict, str(by)):
            pass
        case problems:
            places = sorted({_place(problem) for problem in problems})
            log.warning("review.verdict_unread", review=review.id, reviewer=review.reviewer, door=door, problems=len(problems), places=places)
            return None
    done = await store.write(lambda store: store.decide(review.id, verdict, who=by or review.reviewer, door=door, now=now))
    if isinstance(done, Conflict):
        log.info("review.verdict_late", review=review.id, reviewer=review.reviewer, door=door, state=done.review.state)
        return f"{verdict.word}, too late: {done.review.state}"
    return verdict.word if done is not None else "the review is not there any more"
