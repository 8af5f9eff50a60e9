"""Pure. What the gate keeps of a server's task: the call that created it, and the state of each request in it.

A task belongs to the caller whose call created it. Its requests are known by their keys, which are unique for the life
of the task. Each key is decided once: a key is claimed before it is decided, and a claim lasts while the process that
made it renews it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.protocol import rawjson, strictjson
from samplegate.protocol.identity import Identity
from samplegate.protocol.outcomes import CallDrawn, SealedDecision
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.requests import ELICITATION, ROOTS, SAMPLING, Call, ClientCapabilities, Offer

MAX_ID: Final = 1024  # characters of a task's ID; real ones have 36
MAX_TASK_KEYS: Final = 256
"""Requests in the life of one task; real ones have one to three."""
MAX_TASK_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the keys, the open requests and the unconfirmed answers of one task."""
MAX_MEMBER: Final = 256
"""Bytes of a time or a number of a task that is kept."""
CLAIM: Final = 60.0
"""Seconds for which a claim lasts unless it is renewed: after a kill, another process continues this much later."""
FOREVER: Final = 7 * 86_400.0
"""Seconds for which the gate keeps a task that has no ttl, or a longer one, after it was last asked about."""

WORKING: Final = "working"
INPUT_REQUIRED: Final = "input_required"
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
GET: Final = "tasks/get"
UPDATE: Final = "tasks/update"
CANCEL: Final = "tasks/cancel"
ACKNOWLEDGMENT: Final = b'{"resultType":"complete"}'
"""The result of an update or a cancellation."""
UNKNOWN: Final = "unknown task"

KeyState: TypeAlias = Literal["deciding", "shown", "answering", "answered", "done"]


class Claimed(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one session at a time works on."""

    owner: str = ""
    """The session that has claimed it."""
    since: float = 0.0
    """When it was claimed or the claim was renewed, in Unix seconds."""

    @property
    def until(self) -> float:
        """The end of the claim. Zero or less: nobody has claimed it."""
        return self.since + CLAIM if self.since else 0.0

    def claim(self, owner: str, now: float) -> None:
        """Claim it for a session, until the claim is renewed or expires."""
        self.owner, self.since = owner, now

    def give_up(self) -> None:
        """End the claim at once."""
        self.since = 0.0


class TaskKey(Claimed, omit_defaults=True):
    """One request of a task.

    ``deciding``: the gate works on it. ``shown``: the client has to answer it. ``answering``: the client's answer is
    being checked. ``answered``: the server has to confirm ``response``. ``done``: nothing is left to do.
    """

    digest: str
    state: KeyState = "deciding"
    paid: bool = False
    """Whether a model was asked. The answer is lost if the process ends, and no model is asked again."""
    reserved: tuple[CallDrawn, ...] = ()
    """What it draws on limits per call at most, until it is known what the model has used."""
    entry: str = ""
    """The request as the client sees it, raw JSON, while the client has to answer."""
    decision: SealedDecision | None = None
    deadline: float | None = None
    """The end of the rule's timeout for the client, in Unix seconds."""
    response: str = ""
    """The answer for the server, raw JSON, until it is confirmed."""

    @property
    def is_settled(self) -> bool:
        """Whether the server has its answer, or will get it."""
        return self.state in ("answered", "done")


class OwnTask(Claimed, omit_defaults=True):
    """What a task of the gate waits for. ``state``: the sealed round, as a ``requestState``."""

    state: str
    held: bool = False
    """Whether one gate holds the open call at a legacy server. If that gate ends, nobody can carry the call on."""
    sent: bool = False
    """Whether, since ``state`` was sealed, a model was asked or the call went to the server. If the gate ends, nobody
    repeats that."""
    asks: dict[str, str] = {}
    """The requests that the client has to answer, raw JSON by key."""
    replies: dict[str, str] = {}
    """The client's answers so far, raw JSON by key."""

    @property
    def waits_for_client(self) -> bool:
        """Whether some request has no answer of the client yet."""
        return self.asks.keys() != self.replies.keys()


class TaskRecord(msgspec.Struct, omit_defaults=True):
    """A task of a server or of the gate, as it is stored."""

    token: str
    """A unique name for the task, which its ID is not."""
    identity: Identity
    """The caller of the call, with what its token said."""
    call: Call
    name: str
    """The name of the call for limits per call."""
    revision: str
    client: ClientCapabilities
    offer: Offer
    meta: str
    """``_meta`` of the call as the server saw it, raw JSON: the envelope of the gate's own requests."""
    task: str
    """The server's members of the task when it was created (ID, times), raw JSON."""
    created: float
    """Unix seconds, as all times here."""
    expires: float
    params: str | None = None
    """The params of the call, raw JSON; None if they are too large to keep."""
    trace: str = ""
    ambient: str = ""
    keys: dict[str, TaskKey] = {}
    drawn: tuple[CallDrawn, ...] = ()
    """What the task's requests have drawn on limits per call, at whatever gate, without ``TaskKey.reserved``."""
    ended: str = ""
    """The end that the gate gave the task, as members in raw JSON. It counts, whatever the server says later."""
    cancelled: bool = False
    """Whether the client has cancelled the task."""
    over: bool = False
    """Whether the server has ended the task."""
    own: OwnTask | None = None
    """Set for a task of the gate."""

    @property
    def caller(self) -> str:
        """The name of the caller, to whom the task belongs."""
        return self.identity.name

    @property
    def is_open(self) -> bool:
        """Whether the gate still decides requests of the task."""
        return not (self.ended or self.cancelled or self.over)

    def carrier(self, owner: str) -> OwnTask | None:
        """The open task of the gate, if this session carries it on."""
        return self.own if self.is_open and self.own is not None and self.own.owner == owner else None

    def keep(self, ttl: float | None, now: float) -> None:
        """Keep the task until its ttl, in seconds from its creation, is over; without one, ``FOREVER`` from now."""
        self.expires = now + FOREVER if ttl is None else min(self.created + ttl, now + FOREVER)

    def draw(self, drawn: tuple[CallDrawn, ...]) -> None:
        """Add what requests of the task have drawn on limits per call."""
        self.drawn = _sums((*self.drawn, *drawn))

    def drawn_for(self, owner: str) -> tuple[CallDrawn, ...]:
        """What the call has drawn, for this session, whose own reservations are in its accounts already."""
        others = (one.reserved for one in self.keys.values() if one.owner != owner)
        return _sums((*self.drawn, *(drawn for reserved in others for drawn in reserved)))

    def end(self, members: Mapping[str, Any], now: float) -> None:
        """End the task with these members, such as a status and a result."""
        self.ended = rawjson.dump({"lastUpdatedAt": timestamp(now), **members}).decode()
        self.clear()

    def clear(self) -> None:
        """Forget what only an open task needs."""
        self.keys, self.params = {}, None
        self.own = None if self.own is None else OwnTask("")

    def size(self) -> int:
        """Bytes of what is kept for its requests."""
        return sum(len(key) + len(one.entry) + len(one.response) for key, one in self.keys.items())


def _sums(drawn: Iterable[CallDrawn]) -> tuple[CallDrawn, ...]:
    """The sum for each account."""
    units = Counter[tuple[str, str]]()
    for one in drawn:
        units[one.limit, one.key] += one.units
    return tuple(CallDrawn(limit, key, amount) for (limit, key), amount in units.items())


Change: TypeAlias = Callable[[TaskRecord, float], bool]
"""Changes a record in place, at this time in Unix seconds. Returns whether to write it."""


Found: TypeAlias = TaskRecord | str | None
"""The record of a task; None if there is none, or why the store could not be asked."""


def unchanged(_record: TaskRecord, _now: float) -> bool:
    """Only read the record."""
    return False


def lasting(ttl: float | None) -> Change:
    """Keep the record as long as its server says now. A difference that does not matter is not written."""

    def change(record: TaskRecord, now: float) -> bool:
        before = record.expires
        record.keep(ttl, now)
        return abs(record.expires - before) > (3600.0 if record.expires == now + FOREVER else 1.0)

    return change


def timestamp(wall: float) -> str:
    """Unix seconds as ISO 8601."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_OF_TASKS: Final = frozenset(
    {"resultType", "taskId", "status", "inputRequests", "requestState", "result", "error", "ttlMs", "_meta"}
)
_STATUSES: Final = TERMINAL | {WORKING, INPUT_REQUIRED}
_OF_ENTRIES: Final = frozenset({"method", "params"})
METHODS: Final = frozenset({SAMPLING, ELICITATION, ROOTS})


class Snapshot(msgspec.Struct, frozen=True):
    """A server's account of a task: the result of ``tasks/get``, or the params of a notification."""

    object: rawjson.Object
    id: str
    status: str
    ttl: float | None
    """Seconds; None if unlimited."""
    entries: Mapping[str, bytes]
    """The outstanding requests by key, raw JSON."""
    digests: Mapping[str, str]
    methods: Mapping[str, str]


def snapshot(found: rawjson.Object, most: int) -> Snapshot:
    """Read a task with at most ``most`` requests. Raises Malformed where parsers could read it differently."""
    members = found.members
    if (name := strictjson.second_reading(members, _OF_TASKS)) is not None:
        raise Malformed(f"{name[:20]!r} in a task resembles a protocol member")
    id, status = rawjson.string(found.raw("taskId")), rawjson.string(found.raw("status"))
    if id is None or not 0 < len(id) <= MAX_ID or "\0" in id:
        raise Malformed("a task has no valid taskId")
    if status is None or status not in _STATUSES:
        raise Malformed("a task has an unknown status")
    if "requestState" in members:
        raise Malformed("a task has a requestState")
    if status != INPUT_REQUIRED and "inputRequests" in members:
        raise Malformed("a task asks for input, but its status is not input_required")
    entries = _entries(found, most) if status == INPUT_REQUIRED else {}
    try:
        digests = {key: digest(raw) for key, raw in entries.items()}
    except (strictjson.JsonFault, RecursionError) as fault:
        raise Malformed(f"a request of a task is not plain JSON: {fault}") from None
    methods = {key: method_of(raw) for key, raw in entries.items()}
    return Snapshot(found, id, status, _ttl(found), entries, digests, methods)


def _entries(found: rawjson.Object, most: int) -> dict[str, bytes]:
    asked = found.raw("inputRequests")
    if asked is None or asked == b"null":
        return {}
    inner = found.inner("inputRequests")
    if inner is None:
        raise Malformed("inputRequests is not an object")
    if len(inner.members) > most:
        raise Malformed(f"inputRequests has {len(inner.members)} entries, more than {most}")
    try:
        strictjson.check_values(bytes(asked))
    except strictjson.JsonFault as fault:
        raise Malformed(f"inputRequests is too large: {fault}") from None
    return {key: bytes(raw) for key, raw in inner.members.items()}


def method_of(raw: bytes) -> str:
    """The method of a request. Raises Malformed for one that is not sampling, elicitation or roots."""
    if raw[:1] != b"{":
        raise Malformed("an entry of inputRequests is not an object")
    entry = rawjson.read(raw)
    if strictjson.second_reading(entry.members, _OF_ENTRIES) is not None:
        raise Malformed("an entry of inputRequests has a member that resembles a protocol member")
    method = rawjson.string(entry.raw("method"))
    if method not in METHODS:
        raise Malformed("an entry of inputRequests is not a sampling, elicitation or roots request")
    return method


def _ttl(found: rawjson.Object) -> float | None:
    """The ttl in seconds, or None. A value that is not a number of milliseconds counts as none."""
    raw = found.raw("ttlMs")
    try:
        value = None if raw is None or raw == b"null" else float(raw)
    except ValueError:
        return None
    return value / 1000 if value is not None and 0 <= value < 1e15 else None


def digest(entry: bytes) -> str:
    """SHA-256 of a request as canonical JSON: servers may write the same request with another order of members.

    Raises JsonFault and RecursionError.
    """
    decoded = strictjson.decode(entry, max_bytes=len(entry))
    return hashlib.sha256(json.dumps(decoded, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Claims(msgspec.Struct):
    """A snapshot's requests, claimed for a session as a change of the record: each only once, in any process."""

    seen: Snapshot
    owner: str
    running: frozenset[str] = frozenset()
    """Keys on which the session still works. Its claims may have expired: the machine slept, or the store failed."""
    new: list[str] = []
    """Claimed here: nobody works on them."""
    again: list[str] = []
    """Of ``new``, those for which a process that has ended asked a model."""
    unconfirmed: list[str] = []
    """Answers that the server has not confirmed, to be sent again."""
    fault: str = ""
    """Why the gate ended the task."""

    def __call__(self, record: TaskRecord, now: float) -> bool:
        """See ``Change``."""
        self.new, self.again, self.unconfirmed, self.fault = [], [], [], ""
        if not record.is_open:
            return False
        if self.seen.status in TERMINAL:
            record.over = True
            record.clear()
            return True
        record.keep(self.seen.ttl, now)
        for key, found in self.seen.digests.items():
            known = record.keys.get(key)
            if known is None:
                self._claim_new(record, key, found, now)
            elif known.digest != found:
                self.fault = "the server changed a request under the same key"
            elif now >= known.until:
                self._continue(record, key, known, now)
        if record.size() > MAX_TASK_BYTES:
            self.fault = f"the server's open requests use more than {MAX_TASK_BYTES // 2**20} MiB"
        if self.fault:
            self.new, self.again, self.unconfirmed = [], [], []
            record.end(failure(self.fault), now)
        return True

    def _claim_new(self, record: TaskRecord, key: str, found: str, now: float) -> None:
        if len(record.keys) >= MAX_TASK_KEYS:
            self.fault = f"the server sent more than {MAX_TASK_KEYS} requests in one task"
            return
        made = record.keys[key] = TaskKey(found)
        if self.seen.methods[key] == ROOTS:  # not a request of ours: the client answers it, whatever the policy
            made.state, made.entry = "shown", self.seen.entries[key].decode()
            return
        made.claim(self.owner, now)
        self.new.append(key)

    def _continue(self, record: TaskRecord, key: str, known: TaskKey, now: float) -> None:
        """Continue with a key whose process has not renewed its claim."""
        if known.owner == self.owner and key in self.running:
            known.claim(self.owner, now)
        elif known.state == "deciding":
            known.claim(self.owner, now)
            self.new.append(key)
            if known.paid:
                self.again.append(key)
                record.draw(known.reserved)
                known.reserved = ()
        elif known.state == "answering":  # the client's answer is lost, and it has not been confirmed to the client
            known.state = "shown"
        elif known.state == "answered":
            known.claim(self.owner, now)
            self.unconfirmed.append(key)


def paying(key: str, owner: str, drawn: tuple[CallDrawn, ...] = ()) -> Change:
    """The change that notes that a model is about to be asked for a request, and what that draws on limits per call at
    most. It raises LostClaim."""

    def change(record: TaskRecord, now: float) -> bool:
        one = record.keys.get(key)
        if not record.is_open or one is None or one.owner != owner:
            raise LostClaim("the task has ended, or another process has taken over its request")
        one.paid, one.reserved = True, drawn
        one.claim(owner, now)
        return True

    return change


def spending(owner: str) -> Change:
    """The change that notes that a model is about to be asked for a task of the gate. It raises LostClaim."""

    def change(record: TaskRecord, now: float) -> bool:
        own = record.carrier(owner)
        if own is None:
            raise LostClaim("the task has ended, or another process has taken it over")
        own.sent = True
        own.claim(owner, now)
        return True

    return change


class LostClaim(Exception):
    """A process may no longer work on a request of a task."""


def failure(why: str) -> dict[str, Any]:
    """The members of a task that ends because of its server's error."""
    return {"status": "failed", "statusMessage": why, "error": {"code": -32603, "message": f"refused: {why}"}}


def view(record: TaskRecord, seen: Snapshot, client: ClientCapabilities) -> rawjson.Object:
    """The task as the client sees it: with the requests that it has to answer, else ``working``.

    A request of a kind that this client did not declare is not shown: clients fail at one.
    """
    if record.ended:
        return rawjson.read(ended(record, seen.object.raw("resultType") is not None))
    if seen.status != INPUT_REQUIRED:
        return seen.object
    shown = {
        key: record.keys[key].entry.encode()
        for key in seen.entries
        if record.is_open and key in record.keys and record.keys[key].state == "shown"
        if declared(seen.methods[key], seen.entries[key], client)
    }
    if shown.keys() == seen.entries.keys() and all(seen.entries[key] == raw for key, raw in shown.items()):
        return seen.object
    if not shown:
        return seen.object.changed({"status": rawjson.dump(WORKING), "inputRequests": None})
    return seen.object.changed({"inputRequests": rawjson.object_of(shown)})


def declared(method: str, raw: bytes, client: ClientCapabilities) -> bool:
    """Whether a client declared the kind of a request, and its mode."""
    if method == ROOTS:
        return client.roots
    if method == SAMPLING:
        return client.sampling
    return client.url if rawjson.string(rawjson.lookup(raw, "params", "mode")) == "url" else client.form


def ended(record: TaskRecord, is_result: bool) -> bytes:
    """A task that the gate has ended, as a result (``resultType: complete``) or as a notification's params."""
    members = rawjson.fields(record.task.encode())
    members.update(rawjson.fields(record.ended.encode()))
    found = {name: bytes(raw) for name, raw in members.items() if name not in ("resultType", "_meta")}
    return rawjson.object_of({"resultType": b'"complete"', **found} if is_result else found)


def kept_members(found: rawjson.Object) -> str:
    """The members of a created task that stay the same, raw JSON."""
    names = ("taskId", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs")
    kept = {name: bytes(found.members[name]) for name in names if name in found.members}
    short = {name: raw for name, raw in kept.items() if name == "taskId" or len(raw) <= MAX_MEMBER}
    return rawjson.object_of(short).decode()
