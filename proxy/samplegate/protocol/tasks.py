"""Pure. Tasks of modern servers (the extension ``io.modelcontextprotocol/tasks``): how requests in them are decided.

A task is remembered with the call that created it. What the server says of a task, in a result of ``tasks/get`` or in a
notification, passes with its requests replaced: new ones are decided together, in a round, before the client sees any.
Answers of the gate go to the server in a ``tasks/update`` of its own. The client sees those requests that it has to
answer, and its ``tasks/update`` is accepted for these alone.

Tasks outlive a connection. So their records are in a store, which the relay asks (``TaskStep``), one step after the
other. For the extension, see github.com/modelcontextprotocol/ext-tasks, ``specification/draft/tasks.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from samplegate.protocol import frames, rawjson, results, server_requests, strictjson
from samplegate.protocol.frames import META, TASKS_EXTENSION, Frame
from samplegate.protocol.identity import LOCAL, Identity
from samplegate.protocol.outcomes import CallDrawn, Reason, SealedDecision
from samplegate.protocol.own_tasks import OwnTasks
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.requests import ROOTS, Origin
from samplegate.protocol.rounds import (
    Close,
    Effects,
    ForwardRound,
    Note,
    Open,
    Release,
    Returned,
    Round,
    Settled,
    TaskStep,
    ToClient,
    Withdraw,
)
from samplegate.protocol.session_state import (
    ENTRY,
    INTERNAL,
    LISTEN,
    MAX_KEPT,
    Pending,
    Routes,
    SessionState,
    parsed_size,
    to_float,
    with_client_id,
)
from samplegate.protocol.task_state import (
    ACKNOWLEDGMENT,
    CANCEL,
    GET,
    INPUT_REQUIRED,
    MAX_ID,
    METHODS,
    TERMINAL,
    UNKNOWN,
    UPDATE,
    Change,
    Claims,
    Found,
    Snapshot,
    TaskRecord,
    ended,
    kept_members,
    lasting,
    snapshot,
    unchanged,
    view,
)

MISSING_CAPABILITY: Final = -32021
REQUESTS: Final = frozenset({GET, UPDATE, CANCEL})
NOTIFICATIONS: Final = frozenset({"notifications/tasks", "notifications/tasks/status"})
"""The name in the extension's text, and the one that the C# SDK sends."""
MAX_SUBSCRIBED: Final = 100
"""Tasks in one ``subscriptions/listen``."""
MAX_LATEST: Final = 256
"""Notifications of tasks that are kept, because their requests may be shown later."""
MAX_LATEST_BYTES: Final = 64 * 1024
"""Bytes of one of these."""
MAX_OWN: Final = 256
"""Requests of the gate's own that a server may leave unanswered. Beyond that, the gate no longer waits for the oldest.
"""
TRIES: Final = 12
"""Tries to keep the answers of a round in a store that fails."""
TRY_AGAIN: Final = 5.0  # seconds between them
RENEW: Final = 4  # beats of a round (of 5 s) between two renewals of its claims
_OF_PARAMS: Final = frozenset({"taskId", "inputResponses", META})
_SUBSCRIBED: Final = frozenset({"taskIds"})
_OF_ERRORS: Final = frozenset({"code", "message", "data"})
_REQUIRED: Final = rawjson.dump({"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}})

Continuation: TypeAlias = Callable[[Found], Effects]


class TaskRound(msgspec.Struct, eq=False):
    """A round of a task. ``update`` is the client's ``tasks/update`` that it checks; None if it decides requests."""

    id: str
    caller: str
    round: Round
    entries: Mapping[str, bytes]
    update: Pending | None = None
    beats: int = 0
    size: int = 0
    """Bytes counted for the round, among those of pushed requests: the server chooses how much it asks."""
    meta: bytes = b"{}"
    """``_meta`` of the call that created the task, raw JSON."""
    identity: Identity = LOCAL


class Tasks:
    """The tasks of a session's callers."""

    def __init__(self, state: SessionState, routes: Routes, own: OwnTasks) -> None:
        """``own``: the tasks of the gate."""
        self._state = state
        self._gate = own
        self._routes = routes
        self.open: dict[str, TaskRound] = {}
        self._steps: dict[str, Continuation] = {}
        self._own: dict[tuple[str, str], Pending] = {}
        """The gate's own requests that the server has not answered, by method and task."""
        self._latest: dict[tuple[int, str], Frame] = {}
        """The last notification of a task on a listen, by the listen's number."""

    # -- steps
    # ------------------------------------------------------------------------------------------------------------------

    def _step(
        self, id: str, then: Continuation, change: Change = unchanged, create: TaskRecord | None = None
    ) -> Effects:
        token = self._state.new_round()
        self._steps[token] = then
        return [TaskStep(token, id, change, create)]

    def stepped(self, token: str, found: Found) -> Effects:
        """Continue after a step with its record. ``found`` is the reason if the store could not be asked."""
        if (own := self._gate.stepped(token, found)) is not None:
            return own
        then = self._steps.pop(token, None)
        return [] if then is None else then(found)

    def _held(
        self,
        pending: Pending,
        id: str,
        then: Continuation,
        change: Change = unchanged,
        create: TaskRecord | None = None,
        *,
        goes_on: bool = False,
    ) -> Effects:
        """A step for a client's request, which waits for it unless it is cancelled. ``goes_on``: what the step has
        changed counts even then, so ``then`` is called. It must look whether the client still waits (``_waits``).
        """

        def resume(found: Found) -> Effects:
            if pending.round == token:
                pending.round = None
            elif not goes_on:
                return []
            return then(found)

        effects = self._step(id, resume, change, create)
        token = next(effect.token for effect in effects if isinstance(effect, TaskStep))
        pending.round = token
        return effects

    def _waits(self, pending: Pending) -> bool:
        """Whether the client still waits for the answer to its request."""
        return self._state.inflight.asked.get((pending.stream, pending.id)) is pending

    def _own_record(self, found: Found, caller: str) -> TaskRecord | None:
        return found if isinstance(found, TaskRecord) and found.caller == caller else None

    # -- the call that becomes a task
    # ------------------------------------------------------------------------------------------------------------------

    def created(self, pending: Pending, f: Frame) -> Effects | str:
        """Remember a task before the client learns of it; the reason if the call may not become one."""
        state = self._state
        if not (state.tasks and pending.client.tasks):
            return "the server turned the call into a task, but tasks were not offered: the client declared none here"
        if pending.call is None or pending.call.method != "tools/call":
            return "the server turned a request into a task that is not a tools/call"
        made = _account(f.object, 0)
        pending.key = pending.key or state.new_round()
        params = None if pending.params is None or len(pending.params) > MAX_KEPT else pending.params
        try:
            text, meta = None if params is None else params.decode(), _envelope(pending.params)
        except UnicodeDecodeError:
            return "the params of a call that becomes a task are not UTF-8"
        if len(meta) > MAX_KEPT:
            return "the _meta of a call that becomes a task is too large"
        record = TaskRecord(
            str(state.new_id()),
            pending.identity,
            pending.call,
            pending.key,
            pending.revision,
            pending.client,
            pending.offer,
            meta,
            kept_members(f.object),
            0.0,
            0.0,
            text,
            pending.trace,
            pending.ambient,
        )

        def keep(record: TaskRecord, now: float) -> bool:
            record.created = now
            record.keep(made.ttl, now)
            record.over = made.status in TERMINAL
            return True

        def then(found: Found) -> Effects:
            waits = self._waits(pending)
            if isinstance(found, TaskRecord) and found.token != record.token:  # that task goes on
                return self._fail(pending, "the server uses the ID of another task") if waits else []
            if not waits or not isinstance(found, TaskRecord):  # nobody learns of the task
                failed = self._fail(pending, found or UNKNOWN) if waits and not isinstance(found, TaskRecord) else []
                return [*self._cancel_at_server(record, made.id), *failed]
            state.inflight.remove(pending)
            line = with_client_id(pending, f)
            return [ToClient(pending.stream, line.raw, True, frame=line)]

        pending.task = made.id
        return self._held(pending, made.id, then, keep, record, goes_on=True)

    def _fail(self, pending: Pending, fault: str) -> Effects:
        self._state.inflight.remove(pending)
        return [
            Note("call.failed", {"server": self._state.server, "method": pending.method, "fault": fault}),
            ToClient(pending.stream, frames.error(pending.id, results.INTERNAL, f"refused: {fault}"), True),
        ]

    # -- the client's requests
    # ------------------------------------------------------------------------------------------------------------------

    def request(
        self, pending: Pending, f: Frame, params: rawjson.Object | None = None, *, passes: bool = True
    ) -> Effects:
        """Handle a client's request of the extension. ``params`` are those for the server, if they differ. ``passes``:
        whether the server may have tasks; otherwise there are only those of the gate."""
        if not self._state.tasks or f.method not in REQUESTS:
            why = f"method not found: {f.method[:100]}"
            why = why if self._state.tasks else f"{why} (tasks are not relayed)"
            return [ToClient(pending.stream, frames.error(pending.id, results.METHOD_NOT_FOUND, why), True)]
        if not pending.client.tasks:
            return [self._undeclared(pending)]
        if (name := strictjson.second_reading(f.object.members, _OF_PARAMS)) is not None:
            raise Malformed(f"{name[:20]!r} in params resembles a protocol member")
        id = rawjson.string(f.object.raw("taskId"))
        if id is None or not 0 < len(id) <= MAX_ID or "\0" in id:
            return [self._unknown(pending)]
        if self._gate.is_own(id, pending.caller):
            return self._gate.request(pending, id, f)
        return self._about_servers_task(pending, id, f, params) if passes else [self._unknown(pending)]

    def _about_servers_task(self, pending: Pending, id: str, f: Frame, params: rawjson.Object | None) -> Effects:
        pending.task = id
        pending.size += len(f.raw)
        if (full := self._state.call_fault(pending.size)) is not None:
            return self._state.refusal(pending, full)
        client_id, pending.wire_id = pending.wire_id, self._state.new_id()  # the server has not seen it yet
        self._state.enter(pending)
        if f.method == UPDATE:
            return self._update(pending, id, f)

        def then(found: Found) -> Effects:
            record, waits = self._own_record(found, pending.caller), self._waits(pending)
            if waits:
                self._state.inflight.remove(pending)
            if record is None:
                return [self._unanswerable(pending, found)] if waits else []
            if record.ended:
                line = ended(record, True) if f.method == GET else ACKNOWLEDGMENT
                return [ToClient(pending.stream, frames.result(pending.id, line), True)] if waits else []
            withdrawn = self._withdraw(id, pending.caller) if f.method == CANCEL else []
            if not waits:
                return [*withdrawn, *self._cancel_at_server(record, id)]
            pending.wire_id = client_id
            return [*withdrawn, *self._state.send(pending, f, params)]

        cancels = f.method == CANCEL
        return self._held(pending, id, then, _cancelled if cancels else unchanged, goes_on=cancels)

    def _undeclared(self, pending: Pending) -> ToClient:
        line = frames.error(pending.id, MISSING_CAPABILITY, "Missing required client capability", _REQUIRED)
        return ToClient(pending.stream, line, True)

    def _unknown(self, pending: Pending) -> ToClient:
        return ToClient(pending.stream, frames.error(pending.id, results.BAD_PARAMS, UNKNOWN), True)

    def _unanswerable(self, pending: Pending, found: Found) -> ToClient:
        """The error if there is no record: another caller's task is as unknown as one that does not exist."""
        if not isinstance(found, str):
            return self._unknown(pending)
        return ToClient(pending.stream, frames.error(pending.id, results.INTERNAL, found), True)

    def _withdraw(self, id: str, caller: str) -> Effects:
        """Withdraw the rounds of a task that its client has cancelled, or that has ended."""
        gone = [name for name, one in self.open.items() if (one.id, one.caller) == (id, caller)]
        out: Effects = []
        for name in gone:
            update = self.open[name].update
            self._close(name)
            out.append(Withdraw(name))
            if update is not None:
                out += self._acknowledge(update)
        return out

    def _close(self, round: str) -> None:
        closed = self.open.pop(round, None)
        if closed is not None:
            self._state.pushed -= closed.size

    def _acknowledge(self, update: Pending) -> Effects:
        if not self._waits(update):
            return []
        self._state.inflight.remove(update)
        return [ToClient(update.stream, frames.result(update.id, ACKNOWLEDGMENT), True)]

    def subscribe(self, pending: Pending, f: Frame, params: rawjson.Object | None) -> Effects | None:
        """Handle a listen that names tasks: only the caller's own are passed on. None if it names none."""
        asked = f.object.inner("notifications")
        if asked is None:
            return None
        if (name := strictjson.resembling(asked.members, _SUBSCRIBED)) is not None:
            raise Malformed(f"{name[:20]!r} in notifications resembles a protocol member")
        raw = asked.raw("taskIds")
        if raw is None or raw == b"null" or not self._state.tasks:
            return None if raw is None else self._state.send(pending, f, _without_tasks(params or f.object, asked))
        if not pending.client.tasks:
            return [self._undeclared(pending)]
        ids = [rawjson.string(one) for one in rawjson.elements(raw, MAX_SUBSCRIBED)]
        if not all(id is not None and len(id) <= MAX_ID for id in ids):
            raise Malformed("taskIds is not a list of IDs")
        pending.size += len(f.raw)
        if (full := self._state.call_fault(pending.size)) is not None:
            return self._state.refusal(pending, full)
        client_id, pending.wire_id = pending.wire_id, self._state.new_id()
        self._state.enter(pending)
        # the gate notifies of none of its own tasks: its clients poll
        left = [id for id in ids if id is not None and not self._gate.is_own(id, pending.caller)]
        own = list[str]()

        def next_id(found: Found) -> Effects:
            if isinstance(found, str):
                self._state.inflight.remove(pending)
                return [self._unanswerable(pending, found)]
            id = left.pop(0)
            if self._own_record(found, pending.caller) is not None:
                own.append(id)
            if left:
                return self._held(pending, left[0], next_id)
            self._state.inflight.remove(pending)
            pending.wire_id = client_id
            kept = asked.changed({"taskIds": rawjson.dump(own)})
            return self._state.send(pending, f, (params or f.object).changed({"notifications": bytes(kept.text)}))

        if not left:
            self._state.inflight.remove(pending)
            pending.wire_id = client_id
            return self._state.send(pending, f, params)
        return self._held(pending, left[0], next_id)

    # -- the client's answers
    # ------------------------------------------------------------------------------------------------------------------

    def _update(self, pending: Pending, id: str, f: Frame) -> Effects:
        """Accept the client's answers to requests that it was shown, each once. Others are dropped (T3)."""
        raw = f.object.raw("inputResponses")
        if raw is None or raw[:1] != b"{":
            self._state.inflight.remove(pending)
            why = "inputResponses is not an object"
            return [ToClient(pending.stream, frames.error(pending.id, results.BAD_PARAMS, why), True)]
        given = {key: bytes(one) for key, one in rawjson.fields(raw).items()}
        accepted: list[str] = []

        def accept(record: TaskRecord, now: float) -> bool:
            accepted.clear()
            if record.caller == pending.caller and record.is_open:
                for key in given.keys() & record.keys.keys():
                    one = record.keys[key]
                    if one.state == "shown":
                        one.state = "answering"
                        one.claim(self._state.token, now)
                        accepted.append(key)
            return bool(accepted)

        def then(found: Found) -> Effects:
            record = self._own_record(found, pending.caller)
            if record is None:
                if not self._waits(pending):
                    return []
                self._state.inflight.remove(pending)
                return [self._unanswerable(pending, found)]
            dropped = len(given) - len(accepted)
            note = Note("answers.unsolicited", {"server": self._state.server, "method": UPDATE, "count": dropped})
            notes: Effects = [note] if dropped and record.is_open else []
            if not accepted:
                return [*notes, *self._acknowledge(pending)]
            entries = {key: record.keys[key].entry.encode() for key in accepted}
            replies = {key: given[key] for key in accepted}
            return [*notes, *self._open(record, id, entries, replies=replies, update=pending)]

        return self._held(pending, id, then, accept, goes_on=True)

    # -- what the server says of a task
    # ------------------------------------------------------------------------------------------------------------------

    def answered(self, pending: Pending, f: Frame) -> Effects | None:
        """Handle the server's answer to a client's request of the extension; None if it passes on."""
        if pending.task is None or f.kind != "result":
            return None
        if pending.method != GET:
            if server_requests.result_type(f.object) in (INPUT_REQUIRED, "task"):
                raise Malformed("it is not an acknowledgment")
            return None
        seen = _account(f.object, server_requests.MAX_KEYS)
        if rawjson.string(f.object.raw("resultType")) not in (None, "complete") or seen.id != pending.task:
            raise Malformed("it is not the task that was asked for")
        if seen.status not in TERMINAL and seen.status != INPUT_REQUIRED:
            self._state.inflight.remove(pending)
            line = with_client_id(pending, f)
            kept = self._step(seen.id, lambda _: [], lasting(seen.ttl))
            return [ToClient(pending.stream, line.raw, True, frame=line), *kept]
        claims = self._claims(seen, pending.caller)

        def then(found: Found) -> Effects:
            record, waits = self._own_record(found, pending.caller), self._waits(pending)
            if waits:
                self._state.inflight.remove(pending)
            if record is None:
                return [self._unanswerable(pending, found)] if waits else []
            if not waits:
                return self._claimed(record, claims)
            shown = view(record, seen, pending.client)
            line = with_client_id(pending, f if shown is seen.object else f.changed(payload=shown))
            return [ToClient(pending.stream, line.raw, True, frame=line), *self._claimed(record, claims)]

        return self._held(pending, seen.id, then, claims, goes_on=True)

    def notified(self, stream: int, f: Frame) -> Effects:
        """Handle a server's notification of a task, which passes only on a listen of the task's caller."""
        listen = self._routes.listen_of(stream, f)
        if not self._state.tasks or listen is None or listen.method != LISTEN or not listen.client.tasks:
            return [Note("frame.refused", {"side": "server", "fault": "tasks were not offered to the server"})]  # R108
        seen = _account(_bare(f.object), server_requests.MAX_KEYS)
        claims = self._claims(seen, listen.caller)
        size = ENTRY + len(f.raw)
        if (full := self._state.push_fault(size)) is not None:  # the client can poll
            return [Note("frame.refused", {"side": "server", "fault": full})]
        self._state.pushed += size

        def then(found: Found) -> Effects:
            self._state.pushed -= size
            record = self._own_record(found, listen.caller)
            if record is None:
                note = {"server": self._state.server, "method": f.method[:100]}
                return [Note("notification.unattributed", note, warn=False)]
            self._keep_latest(listen, seen, f)
            return [*self._notify(listen, record, seen, f), *self._claimed(record, claims)]

        return self._step(seen.id, then, claims)

    def _claims(self, seen: Snapshot, caller: str) -> Claims:
        own = (one.entries for one in self.open.values() if (one.id, one.caller) == (seen.id, caller))
        return Claims(seen, self._state.token, frozenset(key for entries in own for key in entries))

    def _keep_latest(self, listen: Pending, seen: Snapshot, f: Frame) -> None:
        self._latest.pop((listen.number, seen.id), None)
        if seen.status == INPUT_REQUIRED and len(f.raw) <= MAX_LATEST_BYTES:
            self._latest[listen.number, seen.id] = f
            while len(self._latest) > MAX_LATEST:
                del self._latest[next(iter(self._latest))]

    def _notify(self, listen: Pending, record: TaskRecord, seen: Snapshot, f: Frame) -> Effects:
        if self._state.inflight.numbered.get(listen.number) is not listen:
            return []
        shown = view(record, seen, listen.client)
        if shown is seen.object:
            return self._routes.on_listen(listen, f)
        meta = f.object.raw(META)
        members = {name: bytes(raw) for name, raw in shown.members.items()}
        params = rawjson.object_of(members if meta is None else {META: bytes(meta), **members})
        return self._routes.on_listen(listen, frames.read(frames.notification(f.method, params)))

    def _notify_again(self, record: TaskRecord, id: str) -> Effects:
        """Tell the listens of a task that more of its requests are shown, or that it has ended."""
        out: Effects = []
        for (number, named), f in list(self._latest.items()):
            listen = self._state.inflight.numbered.get(number)
            if listen is None:
                del self._latest[number, named]
            elif named == id and listen.caller == record.caller:
                out += self._notify(listen, record, snapshot(_bare(f.object), server_requests.MAX_KEYS), f)
        return out

    def _claimed(self, record: TaskRecord, claims: Claims) -> Effects:
        """Decide the requests that were claimed, send answers again, or end the task at the server."""
        id = claims.seen.id
        effects: Effects = []
        if claims.fault:
            note = {"server": self._state.server, "method": record.call.method, "fault": claims.fault}
            return [Note("call.failed", note), *self._end(record, id)]
        if claims.seen.status in TERMINAL:
            return self._withdraw(id, record.caller)
        if claims.unconfirmed:
            effects += self._send_answers(record, id, claims.unconfirmed)
        if claims.new:
            entries = {key: claims.seen.entries[key] for key in claims.new}
            effects += self._open(record, id, entries, lost=frozenset(claims.again))
        return effects

    # -- rounds
    # ------------------------------------------------------------------------------------------------------------------

    def _open(
        self,
        record: TaskRecord,
        id: str,
        entries: Mapping[str, bytes],
        *,
        lost: frozenset[str] = frozenset(),
        replies: Mapping[str, bytes] | None = None,
        update: Pending | None = None,
        ids: Mapping[str, str] | None = None,
    ) -> Effects:
        """Open a round. ``lost``: keys whose model was asked by a process that has ended. ``replies`` are the client's
        answers of ``update``. ``ids``: the decision_ids of keys that remain after others were shown."""
        state = self._state
        params = None if record.params is None else record.params.encode()
        origin = Origin(
            state.server,
            record.caller,
            "modern",
            record.revision,
            (record.call,),
            record.trace,
            record.ambient,
            ((params,),),
            (record.identity,),
        )
        items, roots = {}, list[str]()
        for key, raw in entries.items():
            entry = rawjson.read(raw)
            method = rawjson.string(entry.raw("method")) or ""
            if method == ROOTS:
                roots.append(key)
                continue
            assert method in METHODS
            item = server_requests.item(method, entry.raw("params"), origin, record.offer)
            items[key] = msgspec.structs.replace(item, refused=Reason.ERROR) if key in lost else item
        returned = None
        if replies is not None:
            returned = _returned(record, items, replies, self._late_keys(record))
        elif ids is not None:
            returned = Returned({}, {}, dict(ids))
        round = Round(
            state.new_round(),
            "task",
            origin,
            record.client,
            items,
            asked=None,
            called=None,
            roots=frozenset(roots),
            returned=returned,
            drawn=record.drawn_for(state.token),
            call_ids=(record.name,),
            session=state.token,
            arguments=params,
            until=record.expires - state.epoch,
            task=id,
        )
        size = ENTRY + len(params or b"") + parsed_size(item.params for item in items.values())
        if update is None and (full := state.push_fault(size)) is not None:  # tried again once the claims have expired
            return [Note("call.failed", {"server": state.server, "method": record.call.method, "fault": full})]
        state.pushed += size
        meta, identity = record.meta.encode(), record.identity
        self.open[round.id] = TaskRound(
            id, record.caller, round, entries, update, size=size, meta=meta, identity=identity
        )
        if update is not None:
            update.round = round.id
        return [Open(round)]

    def _late_keys(self, record: TaskRecord) -> frozenset[str]:
        """The keys whose answers came after the rule's timeout: they were claimed when they were accepted."""
        return frozenset(
            key
            for key, one in record.keys.items()
            if one.state == "answering" and one.deadline is not None and one.since > one.deadline
        )

    def hand_on(self, conclusion: ForwardRound, round: str) -> Effects:
        """Show the client the requests that it has to answer, and go on with the others in a round of their own."""
        task = self.open[round]
        seen, keys = conclusion.seen, conclusion.keys
        cut = self._state.policy.cuts_ui(self._state.server)

        def show(record: TaskRecord, now: float) -> bool:
            for key in keys:
                one = record.keys.get(key)
                if record.is_open and one is not None and one.owner == self._state.token and one.state == "deciding":
                    decision = seen[key]
                    shown = server_requests.entry_for_client(task.entries[key], record.client, cut=cut)
                    one.state, one.entry = "shown", shown.decode()
                    one.give_up()
                    one.decision = decision
                    one.deadline = None if decision.timeout is None else now + decision.timeout
            record.draw(conclusion.drawn)
            return True

        rest = {key: raw for key, raw in task.entries.items() if key not in keys}
        ids = {key: one.decision_id for key, one in seen.items() if key in rest}

        def then(found: Found) -> Effects:
            self._close(round)
            record = self._own_record(found, task.caller)
            if record is None or not record.is_open:
                return []
            opened = self._open(record, task.id, rest, ids=ids) if rest else []
            return [*self._notify_again(record, task.id), *opened]

        return self._step(task.id, then, show)

    def settle(self, settled: Settled, round: str) -> Effects:
        """Give the server the answers of a round; end the task if one of them has no form (R70)."""
        return self._settle(settled, round, TRIES) if round in self.open else []

    def _settle(self, settled: Settled, round: str, tries: int) -> Effects:
        task = self.open[round]
        answers = None if results.is_withdrawn(settled) else results.responses(task.round, settled)
        keep = _Outcomes(frozenset(task.entries), self._state.token, answers, settled.drawn)

        def again() -> Effects:
            return self._settle(settled, round, tries - 1) if round in self.open else []

        def then(found: Found) -> Effects:
            # a model's answer has been paid for; a client's update can be repeated
            if isinstance(found, str) and tries > 1 and task.update is None:
                return self._gate.later(TRY_AGAIN, again)
            self._close(round)
            record = self._own_record(found, task.caller)
            if record is None:
                fault = found if isinstance(found, str) else UNKNOWN
                if task.update is not None and self._waits(task.update):
                    return self._fail(task.update, fault)
                return [Note("call.failed", {"server": self._state.server, "method": UPDATE, "fault": fault})]
            out = [] if task.update is None else self._acknowledge(task.update)
            if record.ended:
                return [*(self._end(record, task.id) if keep.kept else []), *out]
            sends = keep.kept and isinstance(answers, dict)
            return [*(self._send_answers(record, task.id, list(task.entries)) if sends else []), *out]

        return self._step(task.id, then, keep)

    def _end(self, record: TaskRecord, id: str) -> Effects:
        return [
            *self._withdraw(id, record.caller),
            *self._cancel_at_server(record, id),
            *self._notify_again(record, id),
        ]

    def renewed(self, round: str) -> Effects:
        """Renew the claims of a round that still runs."""
        task = self.open.get(round)
        if task is None:
            return []
        task.beats += 1
        if task.beats % RENEW:
            return []

        def renew(record: TaskRecord, now: float) -> bool:
            for key in task.entries:
                one = record.keys.get(key)
                if one is not None and one.owner == self._state.token:
                    one.claim(self._state.token, now)
            return True

        return self._step(task.id, lambda _: [], renew)

    # -- the gate's own requests
    # ------------------------------------------------------------------------------------------------------------------

    def _send_answers(self, record: TaskRecord, id: str, keys: list[str]) -> Effects:
        answers = {
            key: record.keys[key].response.encode()
            for key in keys
            if key in record.keys and record.keys[key].state == "answered"
        }
        if not answers:
            return []
        return self._ask_server(UPDATE, record, id, {"inputResponses": rawjson.object_of(answers)}, tuple(answers))

    def _cancel_at_server(self, record: TaskRecord, id: str) -> Effects:
        return self._ask_server(CANCEL, record, id, {}, ())

    def _ask_server(
        self, method: str, record: TaskRecord, id: str, more: Mapping[str, bytes], keys: tuple[str, ...]
    ) -> Effects:
        state = self._state
        own = state.new_id()
        pending = Pending(INTERNAL, own, own, method, 0.0, modern=True, revision=record.revision, client=record.client)
        pending.task, pending.identity, pending.answers = id, record.identity, keys
        params = rawjson.object_of({"taskId": rawjson.dump(id), **more, META: record.meta.encode()})
        name = f"{method} {sorted(keys)}", id
        over = [name] if name in self._own else []
        if not over and len(self._own) >= MAX_OWN:
            over = [next(iter(self._own))]
        out: Effects = [effect for one in over for effect in self._give_up(one)]
        self._own[name] = pending
        line = frames.request(own, method, params)
        pending.size += len(line)
        state.enter(pending)
        return [*out, state.to_server(pending, line)]

    def _give_up(self, name: tuple[str, str]) -> Effects:
        """Stop waiting for the server to confirm a request. An update is sent again with a later snapshot."""
        pending = self._own.pop(name)
        self._state.abandon(pending)
        return [Close(pending.number)] if self._state.streams else []

    def confirmed(self, pending: Pending, f: Frame) -> Effects:
        """Handle the server's answer to a request of the gate's own."""
        self.forget(pending)
        if f.kind == "error":
            fields = {"server": self._state.server, "method": pending.method, "fault": f"error {f.code}"}
            return [Note("call.failed", fields)]
        if not pending.answers or pending.task is None:
            return []

        def done(record: TaskRecord, _now: float) -> bool:
            for key in pending.answers:
                one = record.keys.get(key)
                if one is not None and one.state == "answered":
                    one.state, one.response = "done", ""
            return True

        return self._step(pending.task, lambda _: [], done)

    # -- ends
    # ------------------------------------------------------------------------------------------------------------------

    def cancelled(self, pending: Pending) -> Effects | None:
        """Forget a client's request that waits for the store or for its round; None if it waits for something else.

        The client's answers in it have been accepted, so their round goes on.
        """
        if pending.round not in self._steps and pending.round not in self.open:
            return None
        pending.round = None
        return []

    def is_own(self, pending: Pending) -> bool:
        """Whether a request is the gate's own: what concerns it is not for the client."""
        return pending.task is not None and pending.stream == INTERNAL

    def forget(self, pending: Pending) -> None:
        """Forget a request of the gate's own that has its answer, or one that cannot be read."""
        self._state.inflight.remove(pending)
        self._own = {name: one for name, one in self._own.items() if one is not pending}

    def end(self) -> list[str]:
        """Clear the state after a side has ended for good, and return the rounds that were open."""
        rounds = list(self.open)
        for table in (self.open, self._steps, self._own, self._latest):
            table.clear()
        return rounds


class _Outcomes(msgspec.Struct):
    """Keeps the answers of a round, or the refusal that ends the task, as a change of its record. Without answers, the
    round was withdrawn, and its keys are decided when they are seen again."""

    keys: frozenset[str]
    owner: str
    answers: Mapping[str, bytes] | tuple[str, Release] | None
    drawn: tuple[CallDrawn, ...]
    kept: bool = False

    def __call__(self, record: TaskRecord, now: float) -> bool:
        found = [record.keys.get(key) for key in self.keys]
        own = [one for one in found if one is not None and one.owner == self.owner and not one.is_settled]
        self.kept = record.is_open and len(own) == len(self.keys)
        if not self.kept:
            return False
        record.draw(self.drawn)
        for one in own:
            one.reserved = ()
        if self.answers is None:
            for one in own:
                one.give_up()
        elif isinstance(self.answers, tuple):
            record.end({"status": "completed", "result": results.refused_call("modern", *self.answers)}, now)
        else:
            for key, raw in self.answers.items():
                one = record.keys[key]
                one.state, one.response, one.entry, one.decision = "answered", raw.decode(), "", None
                one.claim(self.owner, now)
        return True


def _cancelled(record: TaskRecord, _now: float) -> bool:
    if record.is_open:
        record.cancelled = True
    return True


def _without_tasks(params: rawjson.Object, asked: rawjson.Object) -> rawjson.Object:
    return params.changed({"notifications": bytes(asked.changed({"taskIds": None}).text)})


def _account(found: rawjson.Object, most: int) -> Snapshot:
    """A snapshot. Raises Malformed if the end in it asks for something: clients may take it for the call's end."""
    seen = snapshot(found, most)
    result, error = found.inner("result"), found.inner("error")
    if result is not None and server_requests.result_type(result) in (INPUT_REQUIRED, "task"):
        raise Malformed("the result in a task is not the end of its call")
    if error is not None:
        if strictjson.second_reading(error.members, _OF_ERRORS) is not None:
            raise Malformed("the error in a task has a member that resembles a protocol member")
        code = error.raw("code")
        if code is not None and to_float(code) in (None, server_requests.URL_ELICITATION_REQUIRED):
            raise Malformed("the error in a task asks for a URL elicitation, or has no number as its code")
    return seen


def _bare(params: rawjson.Object) -> rawjson.Object:
    """A notification's params as a task: without ``_meta``."""
    return params.changed({META: None}) if META in params.members else params


def _envelope(params: bytes | None) -> str:
    """``_meta`` of a call for other requests: without what belongs to that call alone."""
    meta = None if params is None else rawjson.read(params).inner(META)
    if meta is None:
        return "{}"
    kept = {name: bytes(raw) for name, raw in meta.members.items() if name.startswith("io.modelcontextprotocol/")}
    return rawjson.object_of(kept).decode()


def _returned(
    record: TaskRecord, items: Mapping[str, object], replies: Mapping[str, bytes], late: frozenset[str]
) -> Returned:
    seen: dict[str, SealedDecision] = {}
    for key in items:
        decision = record.keys[key].decision
        if decision is not None:
            seen[key] = msgspec.structs.replace(decision, late=key in late)
    return Returned(replies, seen, {key: one.decision_id for key, one in seen.items()})
