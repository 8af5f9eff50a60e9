"""Pure. Votes on a review that needs the approval of several people.

The approvals are for one version of the content: the request as it is, or with the edits or the answer of one reviewer
(``Review.proposal``). An approval states the digest of the version that its reviewer saw. If it brings other content,
it is an edit: a new version, whose first approval it is. All earlier approvals are then void, even if another edit
restores their version. The first rejection ends the review; declining or dismissing a form or a URL is one, too.

A person is a proven name, whatever token it comes with. Two names that signed assertions gave to one subject are one
person, too, because emails change. Nobody proves the names that webhooks, callbacks, commands and
the command line give, so all of them together are at most one approval, and none under the name of a person who has
approved, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from samplegate.reviews.review import (
    PROGRAMS,
    Conflict,
    Door,
    Review,
    Verdict,
    Vote,
    VoteRefused,
    decided,
    ready_ui,
)

REFUSALS: Final = frozenset({"reject", "decline", "cancel"})
PROVEN: Final[frozenset[Door]] = frozenset({"page", "api"})
"""Doors where a token or a session proves the name."""
MAX_VOTES: Final = 50
STALE: Final = "somebody edited it meanwhile; read the review again, then decide"
OTHER_UI: Final = "the server's UI that was shown is not that of the review; read the review again, then decide"
OWN_CALL: Final = "you made the call, so another person must approve it; you may only reject it"
_JWT: Final = "jwt:"


def voted(
    review: Review,
    verdict: Verdict,
    *,
    who: str,
    door: Door,
    seen: str,
    callers: Collection[str] = (),
    subject: str = "",
    now: float,
) -> Review | Conflict | VoteRefused:
    """The review after a verdict: decided, or with one approval more.

    ``seen``: the digest of the version that the reviewer saw. ``callers``: the callers that are the same person.
    ``subject``: the person's ID, if an assertion identified them.
    """
    ended = decided(review, verdict, who=who, door=door, now=now)
    if isinstance(ended, Conflict):
        return ended
    if verdict.ui and ((shown := ready_ui(review)) is None or verdict.ui != shown.sha256):
        return VoteRefused(review, "stale", OTHER_UI)
    action = None if verdict.result is None else verdict.result.get("action")
    said = action if action in ("decline", "cancel") else verdict.word
    if said not in REFUSALS and is_caller(review, who, callers):
        return VoteRefused(review, "caller", OWN_CALL)
    if review.approvals == 1:
        return ended
    vote = Vote(
        by=who,
        how=door,
        verdict=said,
        at=now,
        digest=seen,
        proven=door in PROVEN,
        reason=verdict.reason,
        subject=subject,
        ui=verdict.ui,
    )
    if said in REFUSALS:
        return replace(ended, votes=(*review.votes, vote))
    if seen != version(review):
        return VoteRefused(review, "stale", STALE)
    wanted = version_of(review, verdict)
    earlier = review.votes if wanted == seen else tuple(_void(one) for one in review.votes)
    votes = (*earlier, replace(vote, digest=wanted))
    if len(votes) > MAX_VOTES:
        return VoteRefused(review, "full", f"it has {MAX_VOTES} votes already; reject it, or let it expire")
    if wanted == seen and len(approvers(votes)) == len(approvers(earlier)) and not _proves(vote, earlier):
        return VoteRefused(review, "repeated", _repeated(vote))
    if len(found := approvers(votes)) >= review.approvals:
        # one approver who was shown the UI binds the decision to it, even if the last approver was not
        ui = next((one.ui for one in votes if one.ui and not one.void), "")
        ended = decided(review, replace(verdict, ui=ui), who=", ".join(found), door=door, now=now)
        assert not isinstance(ended, Conflict)  # checked above
        return replace(ended, votes=votes)
    return replace(
        review, votes=votes, proposal=None if wanted == review.digest else replace(verdict, reason="", ui="")
    )


def deciders(review: Review, now: float) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The reviewers who may decide by now, each with the groups of whose people one must be (empty: any)."""
    yield review.reviewer, review.groups
    if review.also_from is not None and now >= review.also_from:
        yield from ((one.reviewer, one.groups) for one in review.also)


def version(review: Review) -> str:
    """The digest of the content that the next approval of a pending review is for."""
    return version_of(review, review.proposal)


def version_of(review: Review, verdict: Verdict | None) -> str:
    """The digest of the content that this verdict approves: the review's own, without edits or an answer."""
    if verdict is None or (verdict.edits is None and verdict.result is None):
        return review.digest
    content = {"review": review.digest, "verdict": verdict.word, "edits": verdict.edits, "result": verdict.result}
    text = json.dumps(
        _canonical(msgspec.to_builtins(content)), sort_keys=True, separators=(",", ":"), ensure_ascii=True
    )
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def is_older(review: Review, digest: object) -> bool:
    """Whether this is the digest of an earlier version."""
    known = {review.digest, *(vote.digest for vote in review.votes)}
    return isinstance(digest, str) and digest in known and digest != version(review)


def approvers(votes: Collection[Vote]) -> tuple[str, ...]:
    """The names whose approvals count, in the order of their first one; "" stands for a program without a name."""
    counted = [vote for vote in votes if vote.verdict not in REFUSALS and not vote.void]
    proven = [vote for vote in counted if vote.proven]
    people = {vote.by.casefold(): next(one.by for one in proven if _is_same(one, vote)) for vote in reversed(proven)}
    found: dict[str, str] = {}
    for vote in counted:
        name = vote.by.casefold()
        if name in people:
            found.setdefault(f"person {people[name].casefold()}", people[name])
        else:
            found.setdefault("unproven", vote.by)
    return tuple(found.values())


def is_caller(review: Review, name: str, callers: Collection[str] = ()) -> bool:
    """Whether the request's call is by the person of this name, or by one of ``callers``, and the review excludes
    that."""
    if not review.not_caller:
        return False
    own = {review.caller.casefold(), review.caller.removeprefix(_JWT).casefold()}
    return not own.isdisjoint({name.casefold(), *(caller.casefold() for caller in callers)})


def by_program(review: Review) -> bool:
    """Whether no person is known to stand behind the verdict."""
    if review.votes and review.votes[-1].verdict not in REFUSALS:
        return all(vote.how in PROGRAMS for vote in review.votes if not vote.void)
    return review.door in PROGRAMS


def progress(review: Review) -> str:
    """The approvals so far: ``1 of 2 approvals: anna``; "" if one is enough."""
    if review.approvals == 1:
        return ""
    names = approvers(review.votes)
    listed = ", ".join(name or "a program" for name in names)
    return f"{len(names)} of {review.approvals} approvals{f': {listed}' if names else ''}"


def vote_text(review: Review) -> str:
    """The newest vote on a review that is still pending, as a clause."""
    edited = len(review.votes) > 1 and all(vote.void for vote in review.votes[:-1])
    return f"{'edited, so earlier approvals are void; ' if edited else ''}{progress(review)}"


def _void(vote: Vote) -> Vote:
    return replace(vote, void=True)


def _proves(vote: Vote, earlier: Collection[Vote]) -> bool:
    """Whether a person confirms what was said in their name, which changes nothing in the count."""
    return vote.proven and not any(_is_same(one, vote) for one in earlier if one.proven and not one.void)


def _is_same(one: Vote, other: Vote) -> bool:
    """Whether two proven votes are of one person."""
    return one.by.casefold() == other.by.casefold() or (one.subject != "" and one.subject == other.subject)


def _repeated(vote: Vote) -> str:
    if vote.proven:
        return f"{vote.by} has approved it already, so another person must approve it"
    return (
        "an approval without a proven name counts already, or one by the same name; another person must approve it on"
        " the page or through the API"
    )


def _canonical(value: Any) -> Any:
    """The value with equal numbers written the same way: a store may return 1.0 for 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _canonical(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    return value
