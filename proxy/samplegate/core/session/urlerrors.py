"""The third door: a call that a 2025-11-25 server fails with -32042 until somebody has opened its URLs (R44).

The error goes on as it came, or the call ends without the URLs.
"""

from __future__ import annotations

import msgspec

from samplegate.core.decisions import Answered, Reason, Unanswered, Withdrawn
from samplegate.core.eras import Era
from samplegate.core.frames import Frame
from samplegate.core.requests import Call, Origin
from samplegate.core.session import bounds, doors, shapes
from samplegate.core.session.inflight import Pending
from samplegate.core.session.rounds import Effects, Note, Open, Over, Release, Round, Settled, ToClient, Withdraw
from samplegate.core.session.routing import unmapped
from samplegate.core.session.state import State


class UrlErrors(msgspec.Struct, eq=False):
    """The -32042 errors of a session that are being decided."""

    state: State
    open: dict[str, tuple[Pending, bytes]] = msgspec.field(default_factory=dict)

    def arrive(self, pending: Pending, f: Frame) -> Effects | None:
        """The server fails a call; None if with any other error."""
        state = self.state
        calls: tuple[Call, ...] = () if pending.call is None else (pending.call,)
        era: Era = "modern" if pending.modern else "legacy"
        origin = Origin(state.server, pending.caller, era, pending.revision if pending.modern else state.revision, calls, pending.trace)
        items = doors.url_elicitations(f, origin, pending.offer if pending.modern else state.offered)
        if items is None:
            return None
        line = unmapped(pending, f).raw
        extra = len(line) + bounds.parsed(item.params for item in items.values())
        if (full := state.call_fault(extra)) is not None:
            state.inflight.remove(pending)
            return state.refusal(pending, full)
        state.inflight.resize(pending, extra)
        round = Round(
            state.new_round(),
            "url_error",
            origin,
            pending.client if pending.modern else state.client,
            items,
            asked=None,
            called=pending.started,
            call_ids=state.call_ids([pending]),
            session=state.token,
            arguments=pending.arguments,
        )
        self.open[round.id] = (pending, line)
        pending.round = round.id
        return [Open(round)]

    def settle(self, settled: Settled, round: str) -> Effects:
        """Every URL was left to the client: the error goes on as it came. Else the call ends, and the URLs stay here."""
        pending, line = self.open[round]
        out = self._settled(pending, line, settled, round)
        del self.open[round]  # not before: after a fault the round can still be settled otherwise
        self.state.inflight.remove(pending)
        return out

    def _settled(self, pending: Pending, line: bytes, settled: Settled, round: str) -> Effects:
        left = [release for release in settled.releases.values() if not _left_to_client(release)]
        if not left:
            return [ToClient(pending.lane, line, True)]
        blocking = next((release for release in left if not isinstance(release.outcome, Withdrawn)), None)
        if blocking is None:
            return [Over(pending.lane, pending.id)]
        if isinstance(blocking.outcome, Answered):
            blocking = Release(Unanswered(Reason.ERROR), blocking.decision_id)
            return [Note("round.faulty", {"round": round}), ToClient(pending.lane, _ended(pending, blocking), True)]
        return [ToClient(pending.lane, _ended(pending, blocking), True)]

    def cancelled(self, round: str) -> Effects | None:
        """The client takes the call back; None if the round is not one of these."""
        return None if self.open.pop(round, None) is None else [Withdraw(round)]

    def end(self) -> list[str]:
        """A side has gone for good: the rounds that were open."""
        rounds = list(self.open)
        self.open.clear()
        return rounds


def _left_to_client(release: Release) -> bool:
    return isinstance(release.outcome, Answered) and release.outcome.decided_by == "client"


def _ended(pending: Pending, release: Release) -> bytes:
    return shapes.ended_call(pending.id, pending.method, "modern" if pending.modern else "legacy", "elicitation", release)
