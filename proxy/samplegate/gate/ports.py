"""The gate's ports: plain callables through which it reaches the world. Also ``offload``, a thread for long
computations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar

import msgspec

from samplegate.audit.record import Record
from samplegate.errors import Log
from samplegate.policy.decide import CompiledPolicy
from samplegate.policy.decisions import Decision
from samplegate.policy.ledger import Draw, Refused, Reserved
from samplegate.policy.prompt import SampleRequest, SampleResult
from samplegate.policy.schema import Model, Stage
from samplegate.protocol.outcomes import CallDrawn, Outcome
from samplegate.protocol.requests import Request
from samplegate.protocol.rounds import ClientReply, Note, Round
from samplegate.protocol.ui_resources import UiResource
from samplegate.reviews.review import Review, ReviewUi

P = ParamSpec("P")
T = TypeVar("T")

Replay: TypeAlias = Callable[[Request, Mapping[str, Any]], Awaitable[Mapping[str, Any] | str]]


async def nothing_drawn(_drawn: Sequence[CallDrawn]) -> None:
    """Restore nothing: without limits, a call has drawn nothing elsewhere."""


class RequestSpan(Protocol):
    """The span of a request in a trace. No method raises."""

    trace_id: str
    span_id: str
    traceparent: str
    """Its context in W3C's form."""

    def model_call(self, name: str, model: Model, params: Mapping[str, Any]) -> ModelSpan | None:
        """Start the span of a model call with these createMessage params. ``name`` is the policy's name of the
        model."""
        ...

    def ask_reviewer(self, review: Review, *, opened: bool) -> None:
        """Note the review that the request waits for; ``opened``: the request opened it."""
        ...

    def use_verdict(self, review: Review) -> None:
        """Link to the request that opened the review."""
        ...

    def end(self, decision: Decision, record: Record | None, outcome: Outcome | None, kind: str) -> None:
        """End the span. ``record``: as written to the decision log, if it was. ``outcome``: as released; None if the
        client is to retry."""
        ...


class ModelSpan(Protocol):
    """The span of a model call. No method raises."""

    def end(self, answer: SampleResult | None) -> None:
        """End the span with the model's answer; None if the call was cancelled."""
        ...


class Ports(msgspec.Struct, frozen=True):
    """The gate's dependencies. Each is a plain callable, so that a fake takes a few lines."""

    sample: Callable[[SampleRequest, Callable[[int], None], RequestSpan | None], Awaitable[SampleResult]]
    """Ask one model once. The second argument is called with the number of tokens so far, from the first token on and a
    few times a second at most. The third is the span of the request, if it has one."""
    reserve: Callable[[Sequence[Draw], float | None], Awaitable[Reserved | Refused]]
    """Charge all of the draws, or none. If seconds are given, it waits that long for room, first come, first served. It
    never raises."""
    settle: Callable[[Reserved, Sequence[Draw]], Awaitable[None]]
    """Correct a reservation to its actual draws (a missing draw is zero) and free its slots. It never raises: if it
    fails, the max cost stays charged."""
    progress: Callable[[str, int], None]
    """Report a model's tokens so far for a round's id, to peers that gave a progress token."""
    ask_client: Callable[[Round], Awaitable[ClientReply]]
    """Forward a pushed request. It returns the client's reply, or is cancelled."""
    record: Callable[[Record], Awaitable[None]]
    """Raises Unavailable if the record could not be made durable."""
    note: Callable[[Note], None]
    """Report an event to the log and the counters; never message content."""
    clock: Callable[[], float]
    """Monotonic seconds, the same clock as the session's."""
    wall: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    log: Log
    in_force: Callable[[], CompiledPolicy] | None = None
    """The policy in force now. A round runs under the one that it began with."""
    realm: str = ""
    """Tells servers of the same name apart if they share a store, such as wrapped servers without a configured name."""
    call_drawn: Callable[[Collection[tuple[str, str]]], tuple[CallDrawn, ...]] = lambda _accounts: ()
    """What is drawn now on limits per call among these accounts (limit and key)."""
    restore_drawn: Callable[[Sequence[CallDrawn]], Awaitable[None]] = nothing_drawn
    """Raise accounts of limits per call to what the call had drawn at another gate. It never raises."""
    when_lost: Callable[[Reserved, Callable[[], object]], None] = lambda _reserved, _lost: None
    """Call a function if the slots of a reservation are lost before it is settled, because the shared database cannot
    be reached. The request must then end at once."""
    replay: Replay | None = None
    """Answer a request that a rule forwards, in place of the client, from a cassette; the params are as recorded. It
    returns the result, or the reason for none. None: the client is asked."""
    wait_long: Callable[[str, bytes], None] | None = None
    """Tell that a round whose calls become tasks waits for a reviewer, by the round's id, with 12 random bytes."""
    pay: Callable[[Round, str, tuple[CallDrawn, ...]], Awaitable[None]] | None = None
    """Note that a model is about to be asked for a request of a task, so that no process asks again after a kill, and
    what the request draws on limits per call, at its max cost. Raises Unavailable."""
    read_ui: Callable[[str, str, tuple[str, ...]], Awaitable[UiResource]] | None = None
    """Read a server's own UI, by the round's id, the URI, and the origins at which it may be a URL. Raises Unavailable
    with the reason, without content. None: no page shows one."""
    reviews: ReviewPort | None = None
    """None without a store for reviews: escalated requests are then Unanswered."""
    trace: Callable[[Round, str, str], RequestSpan | None] | None = None
    """Start the span of a request of a round, by its key, with its decision_id; None if it is not sampled. It never
    raises. None: traces are off."""


class ReviewPort(Protocol):
    """The gate's port to human review: asks a reviewer and waits. A returned review is ours until it is used or given
    back."""

    async def find(self, lookup: str, *, stage: Stage, until: float | None = 0.0, own: str = "") -> Review | None:
        """An earlier verdict on the same request, or a pending review of it that no request waits for.

        ``until``: when this request gives up (Unix seconds); None: not before the review is over. ``own``: as in
        ``ReviewTransactions.seek``. Raises Unavailable.
        """
        ...

    async def open(self, review: Review, *, announce: bool, also: Sequence[str] = ()) -> Review:
        """Open a review and return it with its id and times. ``announce``: there is a webhook or a command. ``also``:
        the other reviewers who have one. Raises Unavailable."""
        ...

    async def wait(
        self, review: Review, seconds: float, *, comes_back: bool = False, gone: Callable[[], str | None] = lambda: None
    ) -> Review:
        """Wait at most ``seconds`` for a verdict or the end of the review, and return its state. A cancellation
        withdraws the review. Raises Unavailable.

        ``comes_back``: the server or its client retries later, so the wait does not delay the shutdown. ``gone``: why
        the policy in force no longer asks for the review, or None; it is called after each reload.
        """
        ...

    async def use(self, spent: Sequence[tuple[Review, str]]) -> bool:
        """Mark the verdicts as used under these decision_ids, all or none. Each can be used once: False if one was used
        before. Raises Unavailable."""
        ...

    async def show_ui(self, review: Review, ui: ReviewUi, body: bytes, kept_by: str = "") -> Review | None:
        """Show the server's own UI on the page of a pending review, or that it could not be read. None: the review has
        ended, and nothing changes. ``kept_by``: another review that has the bytes. Raises Unavailable."""
        ...

    async def supersede(self, id: str, why: str, *, waiter: str | None = None, now: str = "") -> bool:
        """End a review in favor of another one: withdraw it if it is pending. One that another request than ``waiter``
        has is left to it.

        False, so that no other one opens: it has ended without a verdict, its verdict was used, or another request has
        it with the UI that the server has ``now`` (a lookup). Raises Unavailable.
        """
        ...

    async def give_back(self, review: Review) -> None:
        """Give up a review or its unused verdict, so that the next identical request may use it. Never raises."""
        ...


IN_PLACE: Final = 64 * 1024
"""Bytes of input up to which a computation runs in place: it takes a few milliseconds, less than a thread switch on a
busy machine."""


async def offload(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function, in a thread if it reads more than ``IN_PLACE`` bytes of a peer (``size``). A cancellation waits
    for the thread, so nothing is half done."""
    if size <= IN_PLACE:
        return function(*args, **kwargs)
    from anyio import to_thread  # imported here because commands import this module

    return await to_thread.run_sync(lambda: function(*args, **kwargs))
