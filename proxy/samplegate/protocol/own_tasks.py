"""Pure. Tasks of the gate: a call whose request waits for a reviewer becomes a task, if its client declared the
extension.

The waiting round is sealed, as it would be for a client that retries its call. But its state is in the store, and the
gate retries the call itself: it reopens the round, waits for the verdict, gives the server the answers, and keeps the
result until the task's ttl is over. The client polls whatever gate it reaches. If the gate that works on a task ends,
the next one that is asked for the task goes on with it, if it has the key.

The server sees an ordinary call with retries, and no task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

from samplegate.protocol import frames, rawjson, results
from samplegate.protocol.frames import META, META_CAPABILITIES, TASKS_EXTENSION, Frame
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Effects, ForwardRound, Later, Note, Over, TaskStep, ToClient
from samplegate.protocol.seals import NONCE_BYTES
from samplegate.protocol.session_state import INTERNAL, PROGRESS, Pending, SessionState
from samplegate.protocol.task_state import (
    ACKNOWLEDGMENT,
    CANCEL,
    FOREVER,
    GET,
    INPUT_REQUIRED,
    MAX_TASK_BYTES,
    UNKNOWN,
    WORKING,
    Change,
    Found,
    OwnTask,
    TaskRecord,
    declared,
    ended,
    failure,
    method_of,
    timestamp,
    unchanged,
)

HOLD: Final = 2.0
"""Seconds that a call waits for a reviewer before it becomes a task."""
RENEW: Final = 20.0
"""Seconds between two renewals of the claim on a task."""
AGAIN: Final = 5.0
"""Seconds until a round that was put off, such as by a drain, is reopened."""
KEPT: Final = 3_600.0
"""Seconds for which a task is kept after the last moment at which its first review can end, or after its call was last
known to run."""
DAY: Final = 86_400.0
"""Seconds for which a task is kept that holds an open call."""
POLL: Final = 5_000  # milliseconds
MAX_RESULT: Final = 16 * 1024 * 1024
"""Bytes of a result that is kept."""
STORING: Final = "store"
"""The name of no round: the call waits for the store."""
FULL: Final = f"the requests and answers of the task use more than {MAX_TASK_BYTES // 2**20} MiB"

Reopen = Callable[[Pending, bytes, bytes | None, float], Effects]
Cancel = Callable[[Pending], Effects]


class OwnTasks:
    """The gate's own tasks of a session.

    ``reopen`` reopens a sealed round of an internal call, with the client's answers; ``cancel`` cancels such a call.
    """

    def __init__(self, state: SessionState, reopen: Reopen) -> None:
        self._state = state
        self._reopen = reopen
        self.cancel: Cancel = lambda _: []
        self.translate: Callable[[bytes], bytes] = lambda result: result
        """A result as a modern client gets it. Raises Malformed."""
        self.carries_on = True
        """Whether the server understands a retry: none of an older protocol version does."""
        self._steps: dict[str, Callable[[Found], Effects]] = {}
        self._running: dict[frames.FrameId, Pending] = {}
        """The internal calls, by the gate's id."""
        self._timers: dict[str, Callable[[], Effects]] = {}

    def takes(self, pending: Pending) -> bool:
        """Whether a call becomes a task if it has to wait for a reviewer."""
        return (
            self._state.tasks
            and self._state.policy.has_reviews
            and pending.client.tasks
            and pending.stream != INTERNAL
            and pending.call is not None
            and pending.call.method == "tools/call"
        )

    def runs(self, pending: Pending) -> bool:
        """Whether a call is one of the gate's, for a task."""
        return pending.id in self._running

    def is_own(self, id: str, caller: str) -> bool:
        """Whether an ID is that of a task of the gate, for this caller. Only a gate with the key can tell."""
        return self._state.keys.open(id, data=self._binding(caller)) is not None

    def _binding(self, caller: str) -> bytes:
        return msgspec.json.encode([self._state.server, caller, "task"])

    # -- from a call to a task
    # ------------------------------------------------------------------------------------------------------------------

    def create(self, pending: Pending, sealed: str, conclusion: ForwardRound) -> Effects:
        """Answer a call, whose round is put off, with a task."""
        assert pending.call is not None
        assert pending.params is not None
        id = self._new_id(pending.caller, hashlib.sha256(b"task" + conclusion.nonce).digest()[:NONCE_BYTES])
        params = rawjson.splice(pending.params, (META, META_CAPABILITIES, "extensions", TASKS_EXTENSION), None)
        params = rawjson.splice(params, (META, "progressToken"), None)  # the client's request is over
        record = self._record(pending, OwnTask(sealed), params.decode())

        def lives(now: float) -> float:
            return FOREVER if conclusion.expires is None else conclusion.expires - now + KEPT

        inflight = self._state.inflight
        inflight.add(pending)  # the client may still cancel it
        pending.round = STORING

        def then(found: Found) -> Effects:
            if inflight.asked.get((pending.stream, pending.id)) is not pending:
                return self._forget(id)
            inflight.remove(pending)
            if (fault := _fault(found, record)) is not None:
                note = Note("call.failed", {"server": self._state.server, "method": pending.method, "fault": fault})
                return [note, ToClient(pending.stream, frames.error(pending.id, results.INTERNAL, fault), True)]
            assert isinstance(found, TaskRecord)
            return [self._made(pending.stream, pending.id, found), *self._run(id, found)]

        return self._step(id, then, self._keep(id, lives), record)

    def detach(self, pending: Pending, nonce: bytes) -> Effects:
        """Answer the open call of a legacy server with a task. The gate holds the call, and keeps its result."""
        nonce = hashlib.sha256(nonce + str(pending.number).encode()).digest()[:NONCE_BYTES]  # one for each call
        record, id = self._record(pending, OwnTask("", held=True), None), self._new_id(pending.caller, nonce)
        inflight = self._state.inflight

        def then(found: Found) -> Effects:
            gone = inflight.numbered.get(pending.number) is not pending or pending.round is not None
            if gone or pending.own:  # answered or cancelled meanwhile, or a task for another of its requests
                return self._forget(id)
            if (fault := _fault(found, record)) is not None:  # the client waits on
                return [Note("call.failed", {"server": self._state.server, "method": pending.method, "fault": fault})]
            assert isinstance(found, TaskRecord)
            made = self._made(pending.stream, pending.id, found)
            inflight.adopt(pending, INTERNAL, self._state.new_id())
            pending.own = id
            self._running[pending.id] = pending
            return [made, *self.later(RENEW, lambda: self._renew(pending))]

        return self._step(id, then, self._keep(id, lambda _: DAY), record)

    def _forget(self, id: str) -> Effects:
        def forget(record: TaskRecord, now: float) -> bool:
            record.expires = now
            return True

        return self._step(id, lambda _: [], forget)

    def _new_id(self, caller: str, nonce: bytes) -> str:
        return self._state.keys.seal(b"", data=self._binding(caller), nonce=nonce)

    def _record(self, pending: Pending, own: OwnTask, params: str | None) -> TaskRecord:
        assert pending.call is not None
        return TaskRecord(
            str(self._state.new_id()),
            pending.identity,
            pending.call,
            pending.key,
            pending.revision,
            msgspec.structs.replace(pending.client, tasks=False),
            pending.offer,
            "{}",
            "{}",
            0.0,
            0.0,
            params,
            pending.trace,
            pending.ambient,
            own=own,
        )

    def _keep(self, id: str, lives: Callable[[float], float]) -> Change:
        """The change that makes a new record, which lives for so many seconds."""

        def keep(record: TaskRecord, now: float) -> bool:
            assert record.own is not None
            record.created, record.expires = now, now + min(lives(now), FOREVER)
            times = {"createdAt": timestamp(now), "lastUpdatedAt": timestamp(now)}
            ttl = int((record.expires - now) * 1000)
            record.task = rawjson.dump({"taskId": id, **times, "ttlMs": ttl, "pollIntervalMs": POLL}).decode()
            record.own.claim(self._state.token, now)
            return True

        return keep

    def _made(self, stream: int, id: frames.FrameId, record: TaskRecord) -> ToClient:
        made = _shown(record, "task", {"status": rawjson.dump(WORKING)})
        return ToClient(stream, frames.result(id, made), True)

    def _step(
        self, id: str, then: Callable[[Found], Effects], change: Change = unchanged, create: TaskRecord | None = None
    ) -> Effects:
        token = self._state.new_round()
        self._steps[token] = then
        return [TaskStep(token, id, change, create, own=True)]

    def stepped(self, token: str, found: Found) -> Effects | None:
        """Continue after a step; None if it is none of these."""
        then = self._steps.pop(token, None)
        return None if then is None else then(found)

    # -- carrying the call on
    # ------------------------------------------------------------------------------------------------------------------

    def _run(self, id: str, record: TaskRecord) -> Effects:
        """Reopen the round of a task that this session has claimed, in a call of the gate's own."""
        assert record.own is not None
        assert record.params is not None
        if not self.carries_on:
            return self._step(id, lambda _: [], self._unsupported)
        now = record.own.since - self._state.epoch
        own = self._state.new_id()
        pending = Pending(
            INTERNAL,
            own,
            own,
            record.call.method,
            now,
            record.call,
            None,
            record.params.encode(),
            True,
            record.revision,
            record.client,
            record.offer,
        )
        pending.identity, pending.trace, pending.ambient = record.identity, record.trace, record.ambient
        pending.own = id
        pending.size += len(pending.params or b"")
        self._running[own] = pending
        state = rawjson.dump(record.own.state)
        replies = {key: raw.encode() for key, raw in record.own.replies.items()}
        answers = rawjson.object_of(replies) if record.own.asks else None
        return [*self.later(RENEW, lambda: self._renew(pending)), *self._reopen(pending, state, answers, now)]

    def _unsupported(self, record: TaskRecord, now: float) -> bool:
        if record.carrier(self._state.token) is None:
            return False
        record.end(failure("the server no longer supports the protocol version of the call"), now)
        return True

    def sending(self, pending: Pending, retry: Callable[[], Effects]) -> Effects:
        """Retry a call of the gate, after the store has noted it: no other gate repeats what may be carried out."""
        pending.round = STORING

        def note(record: TaskRecord, now: float) -> bool:
            own = record.carrier(self._state.token)
            if own is not None:
                own.sent = True
                own.claim(own.owner, now)
            return own is not None

        def then(found: Found) -> Effects:
            if not self.runs(pending):
                return []
            if isinstance(found, str):
                return self.later(AGAIN, lambda: self.sending(pending, retry) if self.runs(pending) else [])
            if found is None or found.carrier(self._state.token) is None:
                return self._stop(pending)
            return retry()

        return self._step(pending.own, then, note)

    def cancelled(self, pending: Pending) -> Effects | None:
        """Handle the cancellation of a call that waits for the store; None for others."""
        return [] if pending.round == STORING else None

    def later(self, seconds: float, then: Callable[[], Effects]) -> Effects:
        """Call ``then`` after so many seconds."""
        token = self._state.new_round()
        self._timers[token] = then
        return [Later(seconds, token)]

    def due(self, token: str) -> Effects | None:
        """Handle a ``Later`` whose delay has elapsed; None if it is none of these."""
        then = self._timers.pop(token, None)
        return None if then is None else then()

    def _renew(self, pending: Pending) -> Effects:
        """Renew the claim while the call runs. A task that was cancelled at another gate ends its call here."""
        if not self.runs(pending):
            return []

        def renew(record: TaskRecord, now: float) -> bool:
            own = record.carrier(self._state.token)
            if own is not None:
                own.claim(own.owner, now)
                _extend(record, now)
            return own is not None

        def then(found: Found) -> Effects:
            if not self.runs(pending):
                return []
            if not isinstance(found, str) and (found is None or found.carrier(self._state.token) is None):
                return self._stop(pending)
            return self.later(RENEW, lambda: self._renew(pending))

        return self._step(pending.own, then, renew)

    def _stop(self, pending: Pending) -> Effects:
        self._running.pop(pending.id, None)
        return [effect for effect in self.cancel(pending) if not isinstance(effect, Over)]

    def captured(self, effects: Effects) -> Effects:
        """The effects, with the answers to the gate's own calls kept in their tasks instead of sent."""
        if not self._running:
            return effects
        out: Effects = []
        for effect in effects:
            if isinstance(effect, ToClient) and effect.stream == INTERNAL:
                f = effect.frame or frames.read(effect.line)
                pending = None if f.id is None or f.kind not in ("result", "error") else self._running.get(f.id)
                nobodys = f.method == PROGRESS or (self.carries_on and f.kind == "notification")
                if not nobodys:  # nobody waits on the line; the bridge distributes an older server's messages
                    out += [effect] if pending is None else self._finished(pending, f)
            elif isinstance(effect, Over) and effect.stream == INTERNAL and effect.id in self._running:
                pending = self._running[effect.id]
                out += self._finished(pending, frames.read(_withdrawn(pending)))
            else:
                out.append(effect)
        return out

    def _finished(self, pending: Pending, f: Frame) -> Effects:
        self._running.pop(pending.id, None)
        payload, fault = f.payload or b"{}", ""
        if f.kind == "result":
            try:
                payload = self.translate(payload)
            except Malformed as problem:
                fault = f"invalid response from the server: {problem.fault}"

        def end(record: TaskRecord, now: float) -> bool:
            if record.carrier(self._state.token) is None:
                return False
            if fault or len(payload) > MAX_RESULT:
                record.end(failure(fault or f"the result has more than {MAX_RESULT // 2**20} MiB"), now)
            elif f.kind == "result":
                record.end({"status": "completed", "result": msgspec.Raw(payload)}, now)
            else:
                record.end({"status": "failed", "error": msgspec.Raw(payload)}, now)
            return True

        return self._step(pending.own, self._unkept, end)

    def _unkept(self, found: Found) -> Effects:
        """A result that could not be kept is lost: the task is taken over, and its verdict is used up."""
        if not isinstance(found, str):
            return []
        return [Note("call.failed", {"server": self._state.server, "method": "tools/call", "fault": found})]

    def put_off(self, pending: Pending, sealed: str, asks: dict[str, bytes], expires: float | None) -> Effects:
        """Keep the state of a round of a task that was put off again, or that asks the client (``asks``). ``expires``:
        when the last of its reviews ends, in Unix seconds."""
        self._running.pop(pending.id, None)

        def keep(record: TaskRecord, now: float) -> bool:
            own = record.carrier(self._state.token)
            if own is None:
                return False
            if len(sealed) + sum(map(len, asks.values())) > MAX_TASK_BYTES:
                record.end(failure(FULL), now)
                return True
            own.state, own.sent = sealed, False
            own.asks, own.replies = {key: raw.decode() for key, raw in asks.items()}, {}
            own.give_up()
            _extend(record, now if expires is None else expires)
            return True

        def then(found: Found) -> Effects:
            return [] if asks else self.later(AGAIN, lambda: self._go_on(pending.own, pending.caller))

        return self._step(pending.own, then, keep)

    def _go_on(self, id: str, caller: str) -> Effects:
        claimed = _Claim(caller, self._state.token)
        return self._step(id, lambda found: self._claimed(id, found, claimed), claimed)

    def _claimed(self, id: str, found: Found, claimed: _Claim) -> Effects:
        return self._run(id, found) if isinstance(found, TaskRecord) and claimed.won else []

    # -- the client
    # ------------------------------------------------------------------------------------------------------------------

    def request(self, pending: Pending, id: str, f: Frame) -> Effects:
        """Answer a client's request about a task of the gate."""
        if f.method == GET:
            return self._get(pending, id)
        if f.method == CANCEL:
            return self._cancel(pending, id)
        return self._update(pending, id, f)

    def _get(self, pending: Pending, id: str) -> Effects:
        running = any(one.own == id for one in self._running.values())
        claimed = _Claim(pending.caller, self._state.token, running)

        def then(found: Found) -> Effects:
            if (refused := self._refused(pending, found)) is not None:
                return refused
            assert isinstance(found, TaskRecord)
            assert found.own is not None
            if found.ended:
                shown = ended(found, True)
            else:
                asked = {
                    key: raw.encode()
                    for key, raw in found.own.asks.items()
                    if key not in found.own.replies and declared(method_of(raw.encode()), raw.encode(), pending.client)
                }
                status = {"status": rawjson.dump(INPUT_REQUIRED), "inputRequests": rawjson.object_of(asked)}
                shown = _shown(found, "complete", status if asked else {"status": rawjson.dump(WORKING)})
            return [
                ToClient(pending.stream, frames.result(pending.id, shown), True),
                *self._claimed(id, found, claimed),
            ]

        return self._step(id, then, claimed)

    def _cancel(self, pending: Pending, id: str) -> Effects:
        def cancel(record: TaskRecord, now: float) -> bool:
            if record.caller != pending.caller or not record.is_open:
                return False
            record.end({"status": "cancelled"}, now)
            return True

        def then(found: Found) -> Effects:
            if (refused := self._refused(pending, found)) is not None:
                return refused
            running = [one for one in self._running.values() if one.own == id]
            stopped = [effect for one in running for effect in self._stop(one)]
            return [*stopped, ToClient(pending.stream, frames.result(pending.id, ACKNOWLEDGMENT), True)]

        return self._step(id, then, cancel)

    def _update(self, pending: Pending, id: str, f: Frame) -> Effects:
        raw = f.object.raw("inputResponses")
        try:
            given = None if raw is None else {key: bytes(one).decode() for key, one in rawjson.fields(raw).items()}
        except (Malformed, UnicodeDecodeError):
            given = None
        if given is None:
            why = "inputResponses is not an object"
            return [ToClient(pending.stream, frames.error(pending.id, results.BAD_PARAMS, why), True)]
        accepted = _Answers(pending.caller, self._state.token, given)

        def then(found: Found) -> Effects:
            if (refused := self._refused(pending, found)) is not None:
                return refused
            assert isinstance(found, TaskRecord)
            if accepted.full:
                return [ToClient(pending.stream, frames.error(pending.id, results.BAD_PARAMS, FULL), True)]
            out: Effects = [ToClient(pending.stream, frames.result(pending.id, ACKNOWLEDGMENT), True)]
            if accepted.complete:
                out += self._run(id, found)
            return out

        return self._step(id, then, accepted)

    def _refused(self, pending: Pending, found: Found) -> Effects | None:
        if isinstance(found, TaskRecord) and found.caller == pending.caller and found.own is not None:
            return None
        code, why = (results.INTERNAL, found) if isinstance(found, str) else (results.BAD_PARAMS, UNKNOWN)
        return [ToClient(pending.stream, frames.error(pending.id, code, why), True)]

    def leave(self) -> None:
        """Leave the calls that wait at the gate to the next process: a side has ended, but their state is kept."""
        for id, pending in list(self._running.items()):
            if pending.round is not None and not pending.detaches:
                del self._running[id]
                self._state.inflight.remove(pending)

    def end(self) -> None:
        """Clear the state after a side has ended for good."""
        for table in (self._steps, self._running, self._timers):
            table.clear()


def _extend(record: TaskRecord, until: float) -> None:
    """Let a task live on after its call, or the review of a later round, was still under way at this time."""
    expires = min(until + KEPT, record.created + FOREVER)
    if expires > record.expires:
        record.expires = expires
        ttl = rawjson.dump(int((expires - record.created) * 1000))
        record.task = rawjson.splice(record.task.encode(), ("ttlMs",), ttl).decode()


class _Claim(msgspec.Struct):
    """Claims a task on which nobody works, as a change of its record."""

    caller: str
    owner: str
    running: bool = False
    """Whether the session itself works on it. Its claim may have expired: the machine slept, or the store failed."""
    won: bool = False

    def __call__(self, record: TaskRecord, now: float) -> bool:
        own = record.own
        self.won = False
        if record.caller != self.caller or not record.is_open or own is None or now < own.until:
            return False
        if self.running and own.owner == self.owner:
            own.claim(self.owner, now)
            return True
        if own.held or own.sent:  # the call may have been carried out or paid for, so it is never repeated
            record.end(failure("the gate that carried the call out has ended"), now)
            return True
        self.won = not own.waits_for_client
        if self.won:
            own.claim(self.owner, now)
        return self.won


class _Answers(msgspec.Struct):
    """Accepts a client's answers to what a task asked it, each once. When all are there, the task is claimed."""

    caller: str
    owner: str
    given: dict[str, str]
    complete: bool = False
    full: bool = False

    def __call__(self, record: TaskRecord, now: float) -> bool:
        own, self.complete, self.full = record.own, False, False
        if record.caller != self.caller or not record.is_open or own is None:
            return False
        new = {key: raw for key, raw in self.given.items() if key in own.asks and key not in own.replies}
        kept = [own.state, *own.asks.values(), *own.replies.values(), *new.values()]
        self.full = sum(map(len, kept)) > MAX_TASK_BYTES
        if self.full:
            return False
        own.replies.update(new)
        self.complete = bool(new) and not own.waits_for_client
        if self.complete:
            own.claim(self.owner, now)
        return bool(new)


def _fault(found: Found, record: TaskRecord) -> str | None:
    """Why a record was not stored; None if it was."""
    if isinstance(found, TaskRecord):
        return None if found.token == record.token else "the ID of the task is in use"
    return found or UNKNOWN


def _shown(record: TaskRecord, kind: str, more: dict[str, bytes]) -> bytes:
    members = {name: bytes(raw) for name, raw in rawjson.fields(record.task.encode()).items()}
    return rawjson.object_of({"resultType": rawjson.dump(kind), **members, **more})


def _withdrawn(pending: Pending) -> bytes:
    return frames.error(pending.id, results.INTERNAL, "the call was withdrawn")
