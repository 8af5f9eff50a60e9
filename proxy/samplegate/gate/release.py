"""Recording and release of outcomes. A reviewer's verdict is marked as used between the two.

An outcome is recorded before it is released, and a verdict is used once. An outcome that cannot be recorded, or whose
verdict cannot be used, becomes Unanswered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio
import msgspec

from samplegate.audit.record import Done, Record, describe, detail_of
from samplegate.errors import Unavailable
from samplegate.gate.ports import offload
from samplegate.gate.request import PendingRequest, blocks
from samplegate.gate.review import use_verdicts, withdrawn_by_policy
from samplegate.protocol.outcomes import Answered, Denied, Reason, Unanswered, Withdrawn
from samplegate.protocol.requests import BadRequest
from samplegate.protocol.rounds import Release
from samplegate.reviews.review import DECIDED

# seconds that the records of a round may take; during a shutdown, the log gives up earlier
RECORDING: Final = 10.0


async def record(requests: Mapping[str, PendingRequest], done: Mapping[str, Done]) -> dict[str, Release]:
    """Record the outcomes of a round and return their releases.

    A withdrawal waits until the records are written. If the log does not answer in time, what is not recorded becomes
    Unanswered.
    """
    out: dict[str, Release] = {}
    with anyio.move_on_after(RECORDING, shield=True):
        for key, pending in requests.items():
            out[key] = await _record_one(pending, done.get(key))
    for key, pending in requests.items():
        out.setdefault(key, Release(_UNRECORDED, pending.decision_id))
    lost = await _use_verdicts(requests, done, out)
    with anyio.move_on_after(RECORDING, shield=True):
        for key in lost:
            out[key] = Release(_LOST, requests[key].decision_id)
            await _record_one(
                requests[key], msgspec.structs.replace(done[key], outcome=_LOST, message="", revokes=True)
            )
    return out


async def _use_verdicts(
    requests: Mapping[str, PendingRequest], done: Mapping[str, Done], out: Mapping[str, Release]
) -> list[str]:
    """Use the verdicts that were carried out. Returns the keys that are not released, because a verdict was lost."""
    spends = [
        key for key, one in done.items() if _uses_verdicts(one, requests[key]) and out[key].outcome is one.outcome
    ]
    released = [key for key in spends if isinstance(done[key].outcome, Answered | Denied)]
    if any(one.round.is_joint and blocks(one.item, out[key].outcome) for key, one in requests.items()):
        # the call ends: of the verdicts, the server gets only the one that ends it
        spends = [key for key in spends if not isinstance(done[key].outcome, Answered)]
    with anyio.CancelScope(shield=True):  # bounded by the store's own timeout; many callers wait for their turn
        if await use_verdicts([requests[key] for key in spends]):
            return [key for key in released if key not in spends]
    return released


async def _record_one(pending: PendingRequest, done: Done | None) -> Release:
    """Record one outcome before its release. If the record fails, the outcome is Unanswered."""
    done = (
        done
        if done is not None
        else Done(Withdrawn(), pending.decision, review=pending.verdict, reviewed=pending.reviewed)
    )
    ports, request = pending.ports, pending.item.request
    time, duration = ports.wall(), ports.clock() - pending.started
    release = Release(done.outcome, pending.decision_id, _explain(pending, done))
    size = 0 if isinstance(request, BadRequest) else request.size
    size += len(done.outcome.result) if isinstance(done.outcome, Answered) else 0
    try:
        described = await offload(size, _log_record, pending, done, time, duration)
        await ports.record(described)
    except Unavailable as problem:
        ports.log.error("record.failed", decision_id=pending.decision_id, **pending.span_ids, problem=str(problem))
    except Exception:
        ports.log.error("record.failed", decision_id=pending.decision_id, **pending.span_ids, exc_info=True)  # noqa: G201
    else:
        pending.recorded = described
        return release
    return release if isinstance(done.outcome, Withdrawn) else Release(_UNRECORDED, pending.decision_id)


def _log_record(pending: PendingRequest, done: Done, time: float, duration: float) -> Record:
    """The record of an outcome with its draws, attempts and cost. Secrets in its prompt are redacted by the policy's
    patterns."""
    attempts = tuple(pending.attempts)
    known = [attempt.usd for attempt in attempts if attempt.usd is not None]
    done = msgspec.structs.replace(
        done,
        attempts=attempts,
        usd=sum(known) if attempts and len(known) == len(attempts) else None,
        limits=done.decision.limits if pending.begun or done.handed_on_to_client else (),
        reserved_usd=pending.reserved_usd if attempts else None,
        refused_by=done.refused_by or pending.refused_by,
        tried=(*pending.tried, *done.tried),
        cleaned=None if isinstance(pending.item.request, BadRequest) else pending.params_to_record(),
    )
    hash = pending.policy_hash
    return describe(
        pending.round,
        pending.key,
        pending.item,
        pending.decision_id,
        done,
        policy_hash=hash,
        redactor=pending.compiled.redactor,
        looks_at=pending.compiled.identity_names,
        time=time,
        duration=duration,
        **pending.span_ids,
    )


def _explain(pending: PendingRequest, done: Done) -> str:
    if done.message:
        return done.message
    server = pending.compiled.policy.servers.get(pending.round.origin.server)
    if server is None or not server.explain_to_server:
        return ""
    said, rule = detail_of(done), done.decision.rule
    return said if rule is None or rule in said else f"rule {rule!r}" + (f": {said}" if said else "")


def in_force(pending: PendingRequest, done: Done) -> Done:
    """The outcome to release. A verdict's outcome becomes Unanswered if the policy in force no longer asks for the
    verdict."""
    if (
        not _uses_verdicts(done, pending)
        or not isinstance(done.outcome, Answered | Denied)
        or (changed := withdrawn_by_policy(pending)) is None
    ):
        return done
    return msgspec.structs.replace(done, outcome=Unanswered(Reason.REVIEW, detail=changed), message="")


def _uses_verdicts(done: Done, pending: PendingRequest) -> bool:
    """Whether this outcome uses up the held verdicts: it releases a verdict to the server, or a verdict is unfit."""
    if all(review.state not in DECIDED for review in pending.held):
        return False
    return (
        pending.unfit
        or isinstance(done.outcome, Answered)
        or (isinstance(done.outcome, Denied) and done.outcome.reason is Reason.REVIEW)
    )


_LOST: Final = Unanswered(Reason.REVIEW, detail="another request used the decision, or it could not be marked as used")
_UNRECORDED: Final = Unanswered(Reason.RECORDS, detail="the decision log could not be written")
