"""Pure. A round: the requests that must be answered together, and what the session asks of the shell around it. Values
only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.protocol.frames import Frame
from samplegate.protocol.outcomes import Outcome, Reason
from samplegate.protocol.requests import BadRequest, ClientCapabilities, Origin, Request

PARKS: Final = 9
"""How often one call of a client may be answered with an ``input_required`` result where the wait could go on: clients
give the call up after 10 of them (R66, T10), whether they carry questions or not, and one is left for what the server
asks last."""


Side: TypeAlias = Literal["client", "server"]
Door: TypeAlias = Literal["push", "input_required", "url_error", "unasked"]
"""``unasked``: answers that a client sends before anybody asked it; nothing to decide, but on record before they go on.
"""


class Item(msgspec.Struct, frozen=True):
    """One request of a round as it came in, and whether its kind, mode and sub-capability were declared to the
    server."""

    method: str
    params: bytes | None
    request: Request | BadRequest
    offered: bool
    answer: bytes | None = None
    """``unasked`` only: what the client wrote."""
    refused: Reason | None = None
    """Set where the session takes it no further, whatever the policy: it is only to be recorded."""

    @property
    def kind(self) -> Literal["sampling", "elicitation"]:
        """What it asks for."""
        return "sampling" if self.method == SAMPLING else "elicitation"


class SealedDecision(msgspec.Struct, frozen=True):
    """What was decided about a key when the round was sealed: so that the return is recorded under the same name."""

    decision_id: str
    effect: str
    rule: str | None
    verify: bool = False
    timeout: float | None = None
    """Seconds that its rule gives the client."""
    late: bool = False
    """At the return: the client took longer than that."""
    reviews: Mapping[str, str] = {}
    """The reviews that were opened or joined for it, by stage and rule (``PendingRequest.reviews``)."""


class Returned(msgspec.Struct, frozen=True):
    """A sealed round that the client's retry reopened: after it was asked, or after the round was only put off."""

    replies: Mapping[str, bytes]
    """The client's results by key, as it wrote them, in this try or in one before."""
    seen: Mapping[str, SealedDecision]
    """By key that the client was asked."""
    ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The decision_id of every request of the sealed round, by key: it keeps its name however often it returns."""
    reviews: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """The reviews that were opened or joined for a request before, by its key, then as in ``Seen``."""


class Round(msgspec.Struct, frozen=True):
    """Requests to be decided, acted on, recorded and released together."""

    id: str
    door: Door
    origin: Origin
    client: ClientCapabilities
    items: Mapping[str, Item]
    asked: float | None
    """When the server asked, for a peer whose clock runs from its request (the legacy eras); None otherwise."""
    called: float | None
    """When the oldest client request that it may belong to came; None with none in flight."""
    roots: frozenset[str] = frozenset()
    """Keys that are no request of ours (roots/list): the client answers them, whatever the policy."""
    returned: Returned | None = None
    server_told: bool = False
    """Whether the server gave a token on which progress can be told to it."""
    client_told: bool = False
    """The same of the client, for every call that this may belong to."""
    call_ids: tuple[str, ...] = ()
    """Names of the client's calls that it may belong to, the same for all rounds and retries of a call (R16); with none
    in flight the session's."""
    session: str = ""
    """The name of the session."""
    parks: int = 0
    """How often it may still be put off: the client is then answered with a sealed state alone, comes back at once and
    waits on (T10)."""
    arguments: bytes | None = None
    """The params of the client's call that it surely belongs to, raw JSON with ``_meta``; None where that is not known,
    or too large to keep."""


class Release(msgspec.Struct, frozen=True):
    """What leaves the gate for one key: the outcome, its name in the decision log and who decided."""

    outcome: Outcome
    decision_id: str
    explain: str = ""
    """Rule and reason, said to the server only under `explain_to_server`."""


class Settled(msgspec.Struct, frozen=True):
    """The round is over."""

    releases: Mapping[str, Release]


class ForwardRound(msgspec.Struct, frozen=True):
    """Modern: the exchange ends and these keys go to the client; ``seen`` is sealed with what is left for the return.

    With no keys and no roots to ask, or where the round has returned before, nothing goes to the client: the round is
    only put off, which it must allow (``Round.parks``).
    """

    keys: frozenset[str]
    seen: Mapping[str, SealedDecision]
    """By key of every request; of keys that the client was asked before, what was sealed then stands."""
    policy_hash: str
    nonce: bytes


Conclusion: TypeAlias = Settled | ForwardRound


class ToClient(msgspec.Struct, frozen=True, eq=False):
    """Write one line to the client."""

    stream: int
    line: bytes
    last: bool = False
    """Whether it answers a request that came on this stream."""
    asks: str | int | None = None
    """The id of the request to the client that this is. It may go on any stream that the client reads: its sender waits
    for an answer."""
    takes_back: str | int | None = None
    """The id of the request to the client that this cancels."""
    frame: Frame | None = None
    """The line as it was read, where that is at hand: it need not be read again."""

    def __eq__(self, other: object) -> bool:
        return type(other) is ToClient and self._told == other._told

    def __hash__(self) -> int:
        return hash(self._told)

    @property
    def _told(self) -> tuple[object, ...]:
        return (self.stream, self.line, self.last, self.asks, self.takes_back)


class Over(msgspec.Struct, frozen=True):
    """A client's request that came on this stream is over without an answer: whoever cancelled it is owed none
    (R99)."""

    stream: int
    id: str | int | None = None
    """Which, where it was not the client who took it back."""


class ToServer(msgspec.Struct, frozen=True, eq=False):
    """Write one line to the server. ``stream`` is the number of the client's request that it is or belongs to, 0 where
    it belongs to none."""

    stream: int
    line: bytes
    frame: Frame | None = None
    """The line as it was read, where that is at hand: it need not be read again."""

    def __eq__(self, other: object) -> bool:
        return type(other) is ToServer and (self.stream, self.line) == (other.stream, other.line)

    def __hash__(self) -> int:
        return hash((self.stream, self.line))


class Open(msgspec.Struct, frozen=True):
    """Run a round."""

    round: Round


class Withdraw(msgspec.Struct, frozen=True):
    """Whoever asked or called took the round back: end its work, send nothing."""

    round: str


class ClientReply(msgspec.Struct, frozen=True):
    """The client answered a forwarded request. ``payload`` is its result or error as it stands."""

    round: str
    key: str
    ok: bool
    payload: bytes
    delivered: bool = True
    """False: the client was never reached, and the error is the gate's."""


class Later(msgspec.Struct, frozen=True):
    """Call ``due(token)`` after ``delay`` seconds."""

    delay: float
    token: str


class Close(msgspec.Struct, frozen=True):
    """Close a stream to the server: the stream of the request with this number (R99); with 0 all that leads to it."""

    stream: int


class Note(msgspec.Struct, frozen=True):
    """Something for the log and the counters: never content."""

    event: str
    fields: Mapping[str, Any] = msgspec.field(default_factory=dict)
    warn: bool = True


Effect: TypeAlias = ToClient | Over | ToServer | Open | Withdraw | ClientReply | Later | Close | Note
Effects: TypeAlias = list[Effect]

SAMPLING: Final = "sampling/createMessage"
ELICITATION: Final = "elicitation/create"
ROOTS: Final = "roots/list"
