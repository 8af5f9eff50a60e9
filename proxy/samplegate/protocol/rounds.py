"""Pure. Rounds and effects: values that the session and the relay around it exchange.

A round is the set of requests that must be answered together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.protocol.frames import Frame
from samplegate.protocol.outcomes import CallDrawn, Outcome, Reason, SealedDecision
from samplegate.protocol.rawjson import Object
from samplegate.protocol.requests import SAMPLING, BadRequest, ClientCapabilities, Origin, Request, UiRef
from samplegate.protocol.task_state import Change, TaskRecord

PARKS: Final = 9
"""How often one client call may be answered with an ``input_required`` result if the wait could continue.

Clients give up a call after 10 such results (R66, T10), with or without questions. One is left for the server's last
question.
"""


Side: TypeAlias = Literal["client", "server"]
Door: TypeAlias = Literal["push", "input_required", "url_error", "unasked", "task", "tool_result"]
"""How a request arrived.

``unasked``: answers that a client sends before it was asked. Nothing is decided, but they are recorded before they are
passed on. ``tool_result``: a question in a tool's result (``tool_results.py``).
"""


class Item(msgspec.Struct, frozen=True):
    """A request of a round, as received; ``offered``: its kind, mode and sub-capability were declared to the server."""

    method: str
    params: bytes | None
    request: Request | BadRequest
    offered: bool
    answer: bytes | None = None
    """``unasked`` only: the client's answer."""
    refused: Reason | None = None
    """Set if the session refuses the request whatever the policy; the request is then only recorded."""
    ui: UiRef | None = None
    """The server's own UI for a form, if it may name one."""

    @property
    def kind(self) -> Literal["sampling", "elicitation"]:
        """The kind of the request."""
        return "sampling" if self.method == SAMPLING else "elicitation"


class Returned(msgspec.Struct, frozen=True):
    """A sealed round that the client's retry reopened, after the client was asked or the round was only put off."""

    replies: Mapping[str, bytes]
    """The client's results by key, as received, from this try or an earlier one."""
    seen: Mapping[str, SealedDecision]
    """The sealed decision of each key that the client was asked."""
    ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The decision_id of every request of the sealed round, by key; it stays the same at each return.
    """
    reviews: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """The reviews opened or joined earlier for a request, by its key, then as in ``SealedDecision``."""


class Round(msgspec.Struct, frozen=True):
    """Requests to be decided, acted on, recorded and released together."""

    id: str
    door: Door
    origin: Origin
    client: ClientCapabilities
    items: Mapping[str, Item]
    asked: float | None
    """When the server asked, if its timeout runs from its request (legacy era); None otherwise."""
    called: float | None
    """When the oldest client request came to which the round may belong; None with none in flight."""
    roots: frozenset[str] = frozenset()
    """Keys that are not requests of ours (roots/list): the client answers them, whatever the policy."""
    returned: Returned | None = None
    drawn: tuple[CallDrawn, ...] = ()
    """What the call had drawn on limits per call, at whatever gate, when it was sealed or stored."""
    server_has_token: bool = False
    """Whether the server gave a progress token."""
    client_has_token: bool = False
    """Whether the client gave a progress token for every call to which this round may belong."""
    call_ids: tuple[str, ...] = ()
    """Names of the client's calls to which the round may belong, the same for all rounds and retries of a call (R16).

    The session's name if none is in flight.
    """
    session: str = ""
    """The name of the session."""
    parks: int = 0
    """How often the round may still be put off.

    The client then gets only a sealed state, returns at once and waits on (T10).
    """
    arguments: bytes | None = None
    """The params of the client's call to which the round certainly belongs, raw JSON with ``_meta``.

    None if the call is unknown or too large to keep.
    """
    request_id: str | int | None = None
    """The JSON-RPC ID of a pushed request, as the server chose it."""
    until: float | None = None
    """The end of the ttl of the round's task, on the session's clock."""
    task: str | None = None
    """The ID of the round's task at its server."""
    detaches: bool = False
    """Whether its calls become tasks of the gate if it has to wait for a reviewer: the client then waits on."""
    own: str = ""
    """The ID of the gate's own task for which the gate carries the call on."""
    hold: float | None = None
    """Seconds to wait for a reviewer before the round is put off, if its call then becomes a task of the gate."""

    @property
    def is_joint(self) -> bool:
        """Whether a key without a form for its refusal ends the call or the task, and with it all other keys (R70)."""
        return self.door in ("input_required", "task")


class Release(msgspec.Struct, frozen=True):
    """The released result of one key: the outcome, its name in the decision log and its explanation."""

    outcome: Outcome
    decision_id: str
    explain: str = ""
    """Rule and reason; the server sees them only under `explain_to_server`."""


class Settled(msgspec.Struct, frozen=True):
    """Conclusion of a round with an outcome for every key."""

    releases: Mapping[str, Release]
    drawn: tuple[CallDrawn, ...] = ()
    """What the round has drawn on limits per call, for a round of a server's task."""


class ForwardRound(msgspec.Struct, frozen=True):
    """Modern: the exchange ends and these keys go to the client; ``seen`` is sealed for the return with the other keys.

    If there are no keys and no roots to ask, or the round has returned before, nothing goes to the client. The round is
    then only put off, which must be allowed (``Round.parks``).
    """

    keys: frozenset[str]
    seen: Mapping[str, SealedDecision]
    """By key of every request. For keys that the client was asked before, the earlier sealed decision stays valid."""
    policy_hash: str
    nonce: bytes
    drawn: tuple[CallDrawn, ...] = ()
    """What the call has drawn on limits per call; for a round of a server's task, what the round has drawn."""
    expires: float | None = None
    """When the last of its reviews ends, in Unix seconds."""


Conclusion: TypeAlias = Settled | ForwardRound


class ToClient(msgspec.Struct, frozen=True, eq=False):
    """Write one line to the client."""

    stream: int
    line: bytes
    last: bool = False
    """Whether the line answers a request that came on this stream."""
    asks: str | int | None = None
    """The id of the request to the client in this line.

    The line may go on any stream that the client reads, because its sender waits for an answer.
    """
    cancels: str | int | None = None
    """The id of the request to the client that this line cancels."""
    frame: Frame | None = None
    """The parsed line, if at hand, so that it need not be read again."""

    def __eq__(self, other: object) -> bool:
        return type(other) is ToClient and self._compared == other._compared

    def __hash__(self) -> int:
        return hash(self._compared)

    @property
    def _compared(self) -> tuple[object, ...]:
        return (self.stream, self.line, self.last, self.asks, self.cancels)


class Over(msgspec.Struct, frozen=True):
    """A client's request on this stream ended without an answer, because a cancelled request gets none (R99)."""

    stream: int
    id: str | int | None = None
    """The request's id, if the client did not cancel it."""


class ToServer(msgspec.Struct, frozen=True, eq=False):
    """Write one line to the server. ``stream`` is the number of the client's request for it, or 0."""

    stream: int
    line: bytes
    frame: Frame | None = None
    """The parsed line, if at hand, so that it need not be read again."""

    def __eq__(self, other: object) -> bool:
        return type(other) is ToServer and (self.stream, self.line) == (other.stream, other.line)

    def __hash__(self) -> int:
        return hash((self.stream, self.line))


class Open(msgspec.Struct, frozen=True):
    """Run a round."""

    round: Round


class Withdraw(msgspec.Struct, frozen=True):
    """End the work of a round and send nothing, because its sender or caller cancelled it."""

    round: str


class ClientReply(msgspec.Struct, frozen=True):
    """The client's answer to a forwarded request; ``payload`` is its result or error as received."""

    round: str
    key: str
    ok: bool
    payload: bytes
    delivered: bool = True
    """False: the request never reached the client, and the error is the gate's."""


class Later(msgspec.Struct, frozen=True):
    """Call ``due(token)`` after ``delay`` seconds."""

    delay: float
    token: str


class TaskStep(msgspec.Struct, frozen=True):
    """Read or change the record of a task, then call ``task_stepped(token, record)``. Steps are done in order."""

    token: str
    id: str
    """The task's ID at its server."""
    change: Change
    create: TaskRecord | None = None
    """The record of a new task, which is changed before it is stored. A task that exists stays as it is."""
    own: bool = False
    """Whether it is a task of the gate."""


class ResourceRead(msgspec.Struct, frozen=True, eq=False):
    """The answer to a ``resources/read`` of the gate's own (``ui_resources.py``)."""

    token: str
    result: Object | None
    """None: the read failed."""
    fault: str
    """Why, without content."""


class Close(msgspec.Struct, frozen=True):
    """Close the server's stream of the request with this number (R99); 0 closes all streams to the server."""

    stream: int


class Note(msgspec.Struct, frozen=True):
    """An event for the log and the counters, without content."""

    event: str
    fields: Mapping[str, Any] = msgspec.field(default_factory=dict)
    warn: bool = True


Effect: TypeAlias = (
    ToClient | Over | ToServer | Open | Withdraw | ClientReply | Later | TaskStep | ResourceRead | Close | Note
)
Effects: TypeAlias = list[Effect]
