"""Pure. Tool results that ask the user: ``metadata.elicitation`` of RICH elicitation.

Such a result is no request on the wire. The client shows the server's UI, and the user's answer stays with the client.
With ``ui_results: police``, the gate's rules decide the question first. The client then gets the answer in
``metadata.elicitationResult``, in place of the question. The server gets nothing. The place of the answer is our
interpretation: RICH describes the question only (``WebMCP-org/mcp-ui-webmcp``, ``ELICITATION_PROTOCOL.md``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from samplegate.protocol import rawjson, results, server_requests, strictjson
from samplegate.protocol.frames import Frame
from samplegate.protocol.outcomes import Answered, Withdrawn
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.requests import ELICITATION, BadRequest, Offer, Origin
from samplegate.protocol.rounds import Effects, Item, Note, Open, Over, Release, Round, Settled, ToClient, Withdraw
from samplegate.protocol.session_state import Pending, SessionState, parsed_size, with_client_id

METADATA: Final = "metadata"
QUESTION: Final = "elicitation"
ANSWER: Final = "elicitationResult"
MAX_RESULT: Final = 4 * 1024 * 1024
"""Bytes of a result that is kept while its question is decided; real ones have some KiB, or pictures."""
MAX_CONTENT: Final = 64
"""Parts of a result in which the UI is looked for."""
TOO_LARGE: Final = f"refused: the tool result asks the user, and is larger than {MAX_RESULT} bytes (ui_results: police)"

TASKS_RESULT: Final = "tasks/result"
_TOOLS_CALL: Final = "tools/call"
_RESULT: Final = "result"
_OF_RESULTS: Final = frozenset({METADATA})
_OF_METADATA: Final = frozenset({QUESTION, ANSWER})
_OF_QUESTIONS: Final = frozenset({"message", "requestedSchema", "ui", "mode"})
_FORMS: Final = Offer(form=True)
"""RICH has no negotiation: a question counts as a declared form, whatever the rules declare to the server."""


class HeldResult(msgspec.Struct, frozen=True):
    """A call whose result is held back, and the result under the client's id."""

    pending: Pending
    result: Frame


class ToolResults(msgspec.Struct, eq=False):
    """The tool results of a session whose question is being decided."""

    state: SessionState
    open: dict[str, HeldResult] = msgspec.field(default_factory=dict)

    def arrive(self, pending: Pending, f: Frame) -> Effects | None:
        """Open a round for the question in a tool's result; None for a result without one.

        Raises rawjson.Malformed if another parser could find another question.
        """
        state = self.state
        if pending.method != _TOOLS_CALL or not state.policy.polices_results(state.server):
            return None
        metadata = _asking(f.object)
        if metadata is None:
            return None
        if len(f.raw) > MAX_RESULT:
            state.inflight.remove(pending)
            return state.refusal(pending, TOO_LARGE)
        origin = state.origin(pending)
        item = _item(metadata, origin)
        extra = 2 * len(f.raw) + parsed_size([item.params])
        if (full := state.call_fault(extra - pending.extra)) is not None:
            state.inflight.remove(pending)
            return state.refusal(pending, full)
        state.inflight.resize(pending, extra)
        client = pending.client if pending.modern else state.client
        round = Round(
            state.new_round(),
            "tool_result",
            origin,
            msgspec.structs.replace(client, form=True),  # a client gets the question whatever it declared
            {server_requests.KEY: item},
            asked=None,
            called=None if pending.own else pending.started,
            client_has_token=pending.token is not None,
            call_ids=state.call_ids([pending]),
            session=state.token,
            arguments=pending.arguments,
        )
        self.open[round.id] = HeldResult(pending, with_client_id(pending, f))
        pending.round = round.id
        return [Open(round)]

    def of_task(self, f: Frame, method: str) -> tuple[Frame, Effects]:
        """The frame with the result of a task, whose question gets ``cancel``, and a note of that.

        No rule decides it: a client may read a task's result any number of times, and each would be another question.
        ``f`` is the response to ``method``, or a notification of a task. Raises Malformed.
        """
        if not self.state.policy.polices_results(self.state.server):
            return f, []
        is_result = method == TASKS_RESULT
        result = f.object if is_result else f.object.inner(_RESULT)
        metadata = None if result is None else _asking(result)
        if result is None or metadata is None:
            return f, []
        cancelled = _answered(result, metadata, b'{"action":"cancel"}')
        payload = cancelled if is_result else f.object.changed({_RESULT: bytes(cancelled.text)})
        fault = "a question in a task's result is not decided (ui_results: police)"
        return f.changed(payload=payload), [Note("question.refused", {"server": self.state.server, "fault": fault})]

    def settle(self, settled: Settled, round: str) -> Effects:
        """Pass the result on: as received if the client is to ask its user, otherwise with the answer."""
        held = self.open[round]
        out = _settled(held, settled.releases[server_requests.KEY])
        del self.open[round]  # only now: after a fault, the round can still be settled in another way
        self.state.inflight.remove(held.pending)
        return out

    def pending(self, round: str) -> Pending | None:
        """The call of a round; None if the round is not one of these."""
        held = self.open.get(round)
        return None if held is None else held.pending

    def resource(self, round: str, uri: str) -> rawjson.Object | None:
        """The resource with this URI in a held result, as a result of ``resources/read``; None without exactly one."""
        held = self.open.get(round)
        try:
            found = [] if held is None else list(_embedded(held.result.object, uri))
        except Malformed:
            return None
        return rawjson.read(rawjson.object_of({"contents": b"[%s]" % found[0]})) if len(found) == 1 else None

    def cancelled(self, round: str) -> Effects | None:
        """Withdraw the round of a cancelled call; None if the round is not one of these."""
        return None if self.open.pop(round, None) is None else [Withdraw(round)]

    def end(self) -> list[str]:
        """Clear the state after a side has ended for good, and return the rounds that were open."""
        rounds = list(self.open)
        self.open.clear()
        return rounds


def _asking(result: rawjson.Object) -> rawjson.Object | None:
    """``metadata`` of a result that asks the user, or that already has an answer; None for every other result.

    Raises Malformed for a member that another parser could read as one of these.
    """
    if (name := strictjson.resembling(result.members, _OF_RESULTS)) is not None:
        raise Malformed(f"{name[:20]!r} in result resembles {METADATA!r}")
    metadata = result.inner(METADATA)
    if metadata is None:
        return None
    if (name := strictjson.resembling(metadata.members, _OF_METADATA)) is not None:
        raise Malformed(f"{name[:20]!r} in the result's metadata could be read as another member")
    return metadata if any(metadata.raw(name) not in (None, b"null") for name in _OF_METADATA) else None


def _embedded(result: rawjson.Object, uri: str) -> Iterator[bytes]:
    """The embedded resources with this URI, raw JSON. Raises Malformed."""
    content = result.raw("content")
    for raw in [] if content is None else rawjson.elements(content, MAX_CONTENT):
        resource = rawjson.read(raw).raw("resource")
        if resource is not None and rawjson.string(rawjson.lookup(bytes(resource), "uri")) == uri:
            yield bytes(resource)


def _item(metadata: rawjson.Object, origin: Origin) -> Item:
    """The question as a request for a form."""
    if metadata.raw(ANSWER) not in (None, b"null"):
        return _malformed(f"metadata.{ANSWER}: only the gate sets this member")
    try:
        question = metadata.inner(QUESTION)
    except Malformed as problem:
        return _malformed(f"metadata.{QUESTION}: {problem.fault}")
    if question is None:
        return _malformed(f"metadata.{QUESTION}: must be an object")
    if (name := strictjson.resembling(question.members, _OF_QUESTIONS)) is not None:
        return _malformed(f"metadata.{QUESTION}: {strictjson.quoted_name(name)} could be read as another member")
    if "mode" not in question.members:
        question = question.changed({"mode": b'"form"'})
    elif rawjson.string(question.raw("mode")) != "form":
        return _malformed(f"metadata.{QUESTION}.mode: must be form")
    return server_requests.item(ELICITATION, bytes(question.text), origin, _FORMS)


def _malformed(fault: str) -> Item:
    return Item(ELICITATION, None, BadRequest(results.BAD_PARAMS, fault), offered=True)


def _settled(held: HeldResult, release: Release) -> Effects:
    pending, result, outcome = held.pending, held.result, release.outcome
    if isinstance(outcome, Withdrawn):
        return [Over(pending.stream, pending.id)]
    if not (isinstance(outcome, Answered) and outcome.decided_by == "client"):
        metadata = result.object.inner(METADATA)
        assert metadata is not None
        result = result.changed(payload=_answered(result.object, metadata, results.in_tool_result(outcome)))
    return [ToClient(pending.stream, result.raw, True, frame=result)]


def _answered(result: rawjson.Object, metadata: rawjson.Object, answer: bytes) -> rawjson.Object:
    return result.changed({METADATA: bytes(metadata.changed({QUESTION: None, ANSWER: answer}).text)})
