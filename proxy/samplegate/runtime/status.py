"""Status of this process: its sessions, calls and open requests, and what is used of its limits.

It is built on request, from what the process has anyway, in bounded time. Files that processes share are read in a
thread. Conversations of `run` and of `serve` are the same here.
"""

from __future__ import annotations

import heapq
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal

import anyio.to_thread
import msgspec

from samplegate import __version__
from samplegate.config.settings import ProcessSettings
from samplegate.durations import duration_text
from samplegate.errors import Unavailable
from samplegate.gate.request import PendingRequest
from samplegate.limits.balances import EXAMINED, Balance, Balances, key_values
from samplegate.limits.sqlite_ledger import read_balances
from samplegate.policy.deadlines import time_left
from samplegate.policy.ledger import SCALE, LimitSpec
from samplegate.postgres.driver import check_driver
from samplegate.postgres.url import is_database
from samplegate.postgres.url import shown as shown_url
from samplegate.protocol.frames import MODERN
from samplegate.protocol.requests import BadRequest
from samplegate.protocol.session_state import OpenCall
from samplegate.reviews.queues import PATIENCE, Queue, read_queues
from samplegate.runtime.process import ProcessContext
from samplegate.runtime.session_wiring import SessionWiring
from samplegate.status.snapshot import (
    MAX_LISTED,
    MAX_PROBLEM,
    CallStatus,
    GateStatus,
    LimitStatus,
    Listed,
    LogStatus,
    RequestStatus,
    ReviewerStatus,
    ReviewsStatus,
    ServerStatus,
    SessionStatus,
    listed,
    shown,
)

MAX_CALLS: Final = 20_000
"""Calls that are looked at. Calls of further sessions are only counted."""

INSTANCE: Final = secrets.token_hex(8)
"""The random name of this process."""


class Conversations(msgspec.Struct, frozen=True):
    """What all conversations of a process do now."""

    sessions: Listed[SessionStatus]
    calls: Listed[CallStatus]
    requests: Listed[RequestStatus]
    by_server: Mapping[str, ServerStatus]
    """Counts and protocol by server; the state is that of a server with these conversations."""


def conversations(wirings: Iterable[SessionWiring], now: float) -> Conversations:
    """The status of conversations at ``now``, by their clock: the oldest of each kind, and counts of all."""
    wirings = sorted(wirings, key=lambda wiring: wiring.began)
    calls: list[tuple[float, SessionWiring, OpenCall]] = []
    requests: list[tuple[SessionWiring, PendingRequest]] = []
    counts: dict[str, _Counts] = {}
    numbers: list[int] = []
    total_calls = examined = 0
    for wiring in wirings:
        number = len(wiring.state.inflight.asked)
        if examined < MAX_CALLS:
            open_calls = wiring.relay.session.open_calls()
            number = len(open_calls)
            examined += number
            # in a session, requests are kept in the order of their arrival
            calls += ((now if call.since is None else call.since, wiring, call) for call in open_calls[:MAX_LISTED])
        for round in wiring.rounds.values():
            requests += ((wiring, pending) for pending in round.values())
        numbers.append(number)
        total_calls += number
        count = counts.get(wiring.server)
        if count is None:
            count = counts[wiring.server] = _Counts()
        count.add(wiring, number)
    for wiring, _ in requests:
        counts[wiring.server].requests += 1
    oldest_calls = heapq.nsmallest(MAX_LISTED, calls, key=lambda each: each[0])
    oldest = heapq.nsmallest(MAX_LISTED, requests, key=lambda each: each[1].started)
    oldest_sessions = zip(wirings[:MAX_LISTED], numbers, strict=False)
    return Conversations(
        listed((_session(wiring, number, now) for wiring, number in oldest_sessions), len(wirings)),
        listed((_call(wiring, call, now) for _, wiring, call in oldest_calls), total_calls),
        listed((_request(wiring, one, now) for wiring, one in oldest), len(requests)),
        {name: count.status(name) for name, count in counts.items()},
    )


class _Counts:
    """What the conversations of one server do."""

    def __init__(self) -> None:
        self.sessions = self.calls = self.requests = 0
        self._ready = False
        self._protocols: set[str | None] = set()

    def add(self, wiring: SessionWiring, calls: int) -> None:
        self.sessions += 1
        self.calls += calls
        self._ready = self._ready or wiring.state.answered
        self._protocols.add(_protocol(wiring))

    def status(self, name: str) -> ServerStatus:
        known = self._protocols - {None}
        return ServerStatus(
            name=shown(name),
            state="ready" if self._ready else "starting",
            protocol=known.pop() if len(known) == 1 else None,
            sessions=self.sessions,
            calls=self.calls,
            requests=self.requests,
        )


def _protocol(wiring: SessionWiring) -> str | None:
    """The protocol version that is spoken with the server."""
    return wiring.state.revision or (MODERN[0] if wiring.state.answered else None)


def _session(wiring: SessionWiring, calls: int, now: float) -> SessionStatus:
    return SessionStatus(
        id=wiring.state.token,
        server=shown(wiring.server),
        caller=shown(wiring.state.caller),
        client=shown(wiring.state.client_name) or None,
        protocol=_protocol(wiring),
        age=max(0.0, now - wiring.began),
        calls=calls,
        requests=sum(len(round) for round in wiring.rounds.values()),
    )


def _call(wiring: SessionWiring, call: OpenCall, now: float) -> CallStatus:
    return CallStatus(
        server=shown(wiring.server),
        caller=shown(wiring.state.caller_on(call.stream) if call.caller is None else call.caller),
        session=wiring.state.token,
        method=shown(call.method),
        tool=None if call.tool is None else shown(call.tool),
        age=None if call.since is None else max(0.0, now - call.since),
    )


def _request(wiring: SessionWiring, pending: PendingRequest, now: float) -> RequestStatus:
    round, decision, wait = pending.round, pending.acting or pending.decision, pending.wait
    tools = ", ".join(call.tool or call.method for call in round.origin.calls[:20])
    ends = (
        [] if isinstance(pending.item.request, BadRequest) else [time_left(pending.compiled.policy, round, None, now)]
    )
    ends.append(None if wait is None or wait.until is None else wait.until - now)
    return RequestStatus(
        decision_id=pending.decision_id,
        server=shown(wiring.server),
        caller=shown(round.origin.caller),
        session=wiring.state.token,
        tool=shown(tools) or None,
        kind=pending.item.kind,
        rule=None if decision.rule is None else shown(decision.rule),
        effect=decision.effect,
        waits_for="gate" if wait is None else wait.what,
        name=None if wait is None or not wait.name else shown(wait.name),
        age=max(0.0, now - pending.started),
        expires_in=min((end for end in ends if end is not None), default=None),
    )


# -- limits
# ----------------------------------------------------------------------------------------------------------------------


def limit_rows(
    found: Balances,
    specs: Mapping[str, LimitSpec],
    now: float,
    waiting: Mapping[tuple[str, str], int] | None = None,
) -> Listed[LimitStatus]:
    """Accounts as rows, the fullest first, and a row for each limit of which nothing is used."""
    waiting = {} if waiting is None else waiting
    ids = {spec.name: identity for identity, spec in specs.items()}
    rows = [_row(one, now, waiting.get((ids.get(one.spec.name, ""), one.key), 0)) for one in found.fullest]
    used = {one.spec.name for one in found.fullest}
    unused = [Balance(spec, True, "", 0, None) for spec in specs.values() if spec.name not in used]
    rows += [_row(one, now, _waiting_at(ids[one.spec.name], waiting)) for one in unused]
    return listed(rows, found.total + len(unused))


def _waiting_at(identity: str, waiting: Mapping[tuple[str, str], int]) -> int:
    return sum(number for (limit, _), number in waiting.items() if limit == identity)


def _row(one: Balance, now: float, waiting: int) -> LimitStatus:
    spec, unit = one.spec, SCALE[one.spec.quantity]
    return LimitStatus(
        limit=shown(spec.name),
        quantity=spec.quantity,
        per=_period(spec),
        key={shown(name): shown(value) for name, value in (key_values(spec, one.key) if one.key else {}).items()},
        max=spec.max_units / unit if one.known else None,
        used=one.drawn / unit,
        left=max(0, spec.max_units - one.drawn) / unit if one.known else None,
        resets_in=None if one.refilled is None else max(0.0, one.refilled - now),
        waiting=waiting,
        shared=spec.shared,
    )


def _period(spec: LimitSpec) -> str:
    match spec.per:
        case "bucket":
            return duration_text(spec.period)
        case "slots":
            return "concurrent"
        case _:
            return spec.per


def shared_balances(
    state: Path, database: str | None, specs: Mapping[str, LimitSpec], now: float, most: int, *, others: bool = False
) -> tuple[Balances, float]:
    """The balances of shared limits in a state folder or the shared database (``read_balances``), and the time there.
    Raises Unavailable."""
    if database is None:
        return read_balances(state, specs, now, most, others=others), now
    check_driver()
    from samplegate.limits import postgres_ledger

    return postgres_ledger.read_balances(database, specs, most, PATIENCE, others=others)


def state_limits(
    state: Path, database: str | None, now: float, known: Collection[tuple[str, str, str]]
) -> Listed[LimitStatus]:
    """What is used of the shared limits in a state folder or a database except ``known`` (name, quantity and period),
    without their maxima. Raises Unavailable."""
    # all accounts and slots that it looks at
    found, now = shared_balances(state, database, {}, now, 2 * EXAMINED, others=True)
    rows = [_row(one, now, 0) for one in found.fullest]
    others = [row for row in rows if (row.limit, row.quantity, row.per) not in known]
    return listed(others[:MAX_LISTED], len(others))


def state_reviews(store: str, now: float) -> ReviewsStatus:
    """The pending reviews of a store. Never raises."""
    place = shown(shown_url(store) if is_database(store) else store)
    try:
        queues, now = read_queues(store, now)
    except Unavailable as problem:
        return ReviewsStatus(store=place, problem=shown(str(problem), MAX_PROBLEM))
    return ReviewsStatus(store=place, reviewers=tuple(_reviewer(queue, now) for queue in queues[:MAX_LISTED]))


def _reviewer(queue: Queue, now: float) -> ReviewerStatus:
    return ReviewerStatus(
        reviewer=shown(queue.reviewer),
        pending=queue.pending,
        oldest_age=max(0.0, now - queue.oldest),
        next_expires_in=max(0.0, queue.next_expiry - now),
    )


# -- the process
# ----------------------------------------------------------------------------------------------------------------------


class StatusSource:
    """The status of one process. ``started`` is in Unix seconds."""

    def __init__(
        self,
        command: Literal["run", "serve"],
        context: ProcessContext,
        settings: ProcessSettings,
        *,
        policy: Path,
        started: float,
        servers: Callable[[Conversations], Iterable[ServerStatus]] | None = None,
    ) -> None:
        self._command: Literal["run", "serve"] = command
        self._context = context
        self._settings = settings
        self._policy = policy
        self._started = started
        self._servers = servers

    async def __call__(self) -> GateStatus:
        """The status now. Never raises for a file that cannot be read: that is among its problems."""
        context, settings, now = self._context, self._settings, time.time()
        found = conversations(
            (each for each in context.conversations if isinstance(each, SessionWiring)), time.monotonic()
        )
        specs = dict(context.admission.specs_in_force)
        own, waiting = context.admission.own(MAX_LISTED) or Balances(), context.admission.waiting()
        shared = {identity: spec for identity, spec in specs.items() if spec.shared}
        problems = [shown(problem, MAX_PROBLEM) for problem in context.database_problems]
        if shared:
            try:
                ask = partial(shared_balances, context.state, context.database, shared, now, MAX_LISTED)
                read, there = await anyio.to_thread.run_sync(ask)
            except Unavailable as problem:
                read, there = Balances(), now
                problems.append(shown(str(problem), MAX_PROBLEM))
            fullest = sorted((*own.fullest, *read.fullest), key=lambda one: -one.fill)
            own, now = Balances(tuple(fullest), own.total + read.total), there
        reviews = None
        if context.rules.policy.policy.reviewers:
            reviews = await anyio.to_thread.run_sync(partial(state_reviews, settings.reviews, now))
        servers = found.by_server.values() if self._servers is None else self._servers(found)
        log = context.decisions
        return GateStatus(
            command=self._command,
            instance=INSTANCE,
            pid=os.getpid(),
            version=__version__,
            uptime=max(0.0, now - self._started),
            state="" if context.state == Path() else str(context.state.absolute()),
            policy=str(self._policy.absolute()),
            policy_hash=context.rules.hash,
            settings_hash=context.settings_hash,
            run=context.run or None,
            problems=tuple(problems),
            servers=listed(servers),
            sessions=found.sessions,
            calls=found.calls,
            requests=found.requests,
            limits=limit_rows(own, specs, now, waiting),
            reviews=reviews,
            workers=context.rules.models.workers,
            decision_log=LogStatus(path=log.place(now), waiting=log.waiting, problem=log.problem()),
        )
