"""Admission: reserves a decision's max cost on its limits before anything is done, and corrects it afterwards.

A ``Hold`` is the reservation of one request. If the request was not acted on, all of it is given back; if it was begun
but not settled, it stays charged at its max cost. The accounts are behind a port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import anyio
import msgspec

from samplegate.durations import duration_text
from samplegate.gate.ports import Ports, offload
from samplegate.policy import claims
from samplegate.policy.capabilities import can_forward
from samplegate.policy.catalogue import Worst
from samplegate.policy.claims import Claimant
from samplegate.policy.deadlines import FALLBACK_TIMEOUT, time_left
from samplegate.policy.decide import CompiledPolicy, after_refusal, draws_of
from samplegate.policy.decisions import Allowed, Decision, Escalated, Forwarded, Situation
from samplegate.policy.ledger import Draw, LimitSpec, Refused, Reserved
from samplegate.protocol.requests import Request
from samplegate.protocol.rounds import Note, Round

# seconds that a settlement may take while its request is being withdrawn; after that the max cost stays charged
SETTLING = 10.0


class Hold:
    """The reservation of one request: one part for the request (its count, its slot) and one for the model being
    tried."""

    def __init__(
        self,
        compiled: CompiledPolicy,
        ports: Ports,
        server: str,
        reserved: Reserved,
        slots: Slots | None = None,
        *,
        counted: bool = False,
    ) -> None:
        """``counted``: its call was put off, so it already counts as a request."""
        self._compiled, self._ports, self._server, self._counted = compiled, ports, server, counted
        self._begun = self._asked = False
        self.drawn: list[Draw] = []
        """What is settled so far."""
        self.replace(reserved, slots)

    def replace(self, reserved: Reserved, slots: Slots | None = None) -> None:
        """Replace the reservation that was given back."""
        lasting = [
            draw
            for draw in reserved.draws
            if self._compiled.limit_specs[draw.limit].quantity in ("requests", "concurrent")
        ]
        self.draws = reserved.draws
        self._request = msgspec.structs.replace(reserved, draws=tuple(lasting))
        self._try: Reserved | None = msgspec.structs.replace(
            reserved, draws=tuple(draw for draw in reserved.draws if draw not in lasting)
        )
        self._slots = slots
        self.closed = False

    @property
    def open_draws(self) -> tuple[Draw, ...]:
        """What is reserved and not settled."""
        return () if self.closed else (*self._request.draws, *(() if self._try is None else self._try.draws))

    def note_warnings(self, reserved: Reserved) -> None:
        """Note the limits that this reservation took past their ``warn_at``."""
        for name in reserved.warned:
            self._ports.note(Note("limit.warned", {"limit": name, "server": self._server}))

    def begin(self) -> None:
        """Count the request from here on, whatever its outcome."""
        self._begun = True

    def count_request(self) -> None:
        """Count the request, because a reviewer is asked. Its tokens and cost do not count yet."""
        self._asked = True

    def when_lost(self, lost: Callable[[], object]) -> None:
        """Call ``lost`` if the request loses its slot of a limit."""
        self._ports.when_lost(self._request, lost)

    async def next_try(self, decision: Decision, round: Round) -> tuple[str, str | None] | None:
        """Reserve the max cost of the decision's model. The part for the request is not drawn twice.

        If it cannot be reserved: the reason, and the limit without room.
        """
        draws = draws_of(self._compiled, decision, claimant(round))
        if isinstance(draws, str):
            return draws, None
        draws = claims.unreserved_draws(
            uncounted(self._compiled, draws) if self._counted else draws, self._request.draws
        )
        answer = await self._ports.reserve(draws, None)
        if isinstance(answer, Refused):
            return refusal_text(answer), answer.limit
        self._try = answer
        self.note_warnings(answer)
        return None

    async def settle_try(self, spent: Worst | None) -> None:
        """Settle the tried model at ``spent``; None if it cannot have cost anything."""
        reserved, self._try = self._try, None
        if reserved is not None and reserved.draws:
            await self._settle(reserved, claims.actual_draws(reserved.draws, self._compiled.limit_specs, spent))

    async def close(self) -> None:
        """End the reservation. Idempotent, and safe during a cancellation."""
        if self.closed:
            return
        self.closed = True
        request = (
            self._request if self._slots is None else self._slots.closed(self._request, self._compiled.limit_specs)
        )
        counts = self._begun or self._asked
        for reserved, stays in ((request, counts), *([] if self._try is None else [(self._try, self._begun)])):
            if reserved.draws:
                await self._settle(reserved, reserved.draws if stays else ())

    async def _settle(self, reserved: Reserved, actual: Sequence[Draw]) -> None:
        self.drawn += actual
        with anyio.move_on_after(SETTLING, shield=True):
            await self._ports.settle(reserved, actual)


class Slots:
    """The slots of requests that were reserved together.

    A store frees all slots of a reservation at once, so the last of the requests frees them.
    """

    def __init__(self, requests: int) -> None:
        self._open = requests
        self._kept: list[Draw] = []

    def closed(self, request: Reserved, specs: Mapping[str, LimitSpec]) -> Reserved:
        """The draws to settle when one of the requests ends."""
        self._open -= 1
        mine = [draw for draw in request.draws if specs[draw.limit].per == "slots"]
        rest = [draw for draw in request.draws if draw not in mine]
        self._kept += mine
        return msgspec.structs.replace(request, draws=tuple(rest if self._open else [*rest, *self._kept]))


class Admitted(msgspec.Struct, frozen=True):
    """The result of an admission: the decision to carry out, and its reservation."""

    decision: Decision
    hold: Hold | None = None
    refused_by: str | None = None
    """The last limit that had no room, if any."""
    tried: tuple[str, ...] = ()
    """Rules whose limits had no room, each with the reason (`on_limit: next`)."""
    waited: float = 0.0
    """Seconds of waiting for room."""


async def admit(
    compiled: CompiledPolicy,
    ports: Ports,
    round: Round,
    request: Request,
    decision: Decision,
    *,
    beside: Sequence[Hold] = (),
    counted: bool = False,
) -> Admitted:
    """Reserve on a decision's limits; if one has no room, continue as ``on_limit`` demands.

    ``beside`` are the reservations of the other requests of the round, none of them begun. A request that waits keeps
    nothing reserved, because two rounds could otherwise wait for each other. So they are given back and reserved again
    together with this one; if there is no room, they are ``closed``.
    ``counted``: the call was put off, and its first try already drew on the limits of requests.
    """
    who = claimant(round)
    situation = Situation(can_forward=can_forward(request, round.client))
    refused_by: str | None = None
    tried: list[str] = []
    started, waits = ports.clock(), False
    while decision.limits:
        draws = await offload(request.size, draws_of, compiled, decision, who)
        what = draws if isinstance(draws, str) else ""
        if not isinstance(draws, str):
            if counted:
                draws = uncounted(compiled, draws)
            if not draws:
                break
            wait = _max_wait(compiled, ports, round, decision) if decision.on_limit == "wait" else None
            waits = waits or wait is not None
            made = partial(Hold, compiled, ports, round.origin.server, counted=counted)
            answer = await _reserve(ports, made, draws, wait, [hold for hold in beside if not hold.closed])
            if isinstance(answer, Hold):
                return Admitted(decision, answer, refused_by, tuple(tried), ports.clock() - started if waits else 0.0)
            refused_by, what = answer.limit, refusal_text(answer)
        if decision.on_limit == "next":
            tried.append(f"{decision.rule}: {what}")
        counted = False  # another rule has limits of its own
        decision = await offload(request.size, after_refusal, compiled, request, situation, decision, what)
    return Admitted(decision, None, refused_by, tuple(tried))


def claimant(round: Round) -> Claimant:
    """The caller, call and session whose accounts the requests of a round draw on."""
    return Claimant(round.origin, round.call_ids, round.session, "")


def uncounted(compiled: CompiledPolicy, draws: Sequence[Draw]) -> tuple[Draw, ...]:
    """The draws without those that count requests."""
    return tuple(draw for draw in draws if compiled.limit_specs[draw.limit].quantity != "requests")


async def _reserve(
    ports: Ports, made: Callable[..., Hold], draws: Sequence[Draw], wait: float | None, beside: Sequence[Hold]
) -> Hold | Refused:
    answer = await ports.reserve(draws, None if beside else wait)
    if isinstance(answer, Reserved):
        return await _with_warnings(made(answer), answer)
    if not beside or wait is None or answer.why in ("never", "unavailable"):
        return answer
    for hold in beside:
        await hold.close()
    answer = await ports.reserve([draw for hold in beside for draw in hold.draws] + list(draws), wait)
    if isinstance(answer, Refused):
        return (
            msgspec.structs.replace(answer, detail=f"{answer.detail} (with the other requests of its round)")
            if answer.why == "never"
            else answer
        )
    slots = Slots(len(beside) + 1)
    for hold in beside:
        hold.replace(msgspec.structs.replace(answer, draws=hold.draws), slots)
    return await _with_warnings(made(msgspec.structs.replace(answer, draws=tuple(draws)), slots), answer)


async def _with_warnings(hold: Hold, reserved: Reserved) -> Hold:
    """The hold, after its warnings were noted. If that fails, nothing stays reserved."""
    try:
        hold.note_warnings(reserved)
    except BaseException:
        await hold.close()
        raise
    return hold


def _max_wait(compiled: CompiledPolicy, ports: Ports, round: Round, decision: Decision) -> float:
    """Seconds that a request may wait for room: the rule's timeout at most, and no longer than the peers wait."""
    rule = decision.act.timeout if isinstance(decision.act, Allowed | Forwarded | Escalated) else None
    seconds = time_left(compiled.policy, round, rule, ports.clock())
    return FALLBACK_TIMEOUT if seconds is None else max(seconds, 0.0)


def refusal_text(refused: Refused) -> str:
    """Why a limit had no room, for the operator."""
    again = "" if refused.retry_after is None else f"; retry in {duration_text(refused.retry_after)}"
    if refused.detail.startswith("limit "):
        return refused.detail + again
    said = {
        "full": f"limit {refused.limit} is reached",
        "never": f"limit {refused.limit} is smaller than this request's upper bound",
        "unavailable": f"limit {refused.limit} cannot be checked",
        "waiting": f"other requests are already waiting for limit {refused.limit}",
    }[refused.why]
    return said + (f": {refused.detail}" if refused.detail else "") + again
