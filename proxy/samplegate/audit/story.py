"""Pure. The story of a decision: its records as read back, and a sentence for each reason and outcome.

A record has everything that was known when it was written. No policy is evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from samplegate.audit.record import RecordLine, read_line, without_contents
from samplegate.policy.decisions import NOT_CARRIED_OUT, TRIED, Shadow
from samplegate.protocol.outcomes import Reason

UNKNOWN: Final = "This version of samplegate does not know the reason."
INCOMPLETE: Final = (
    "An earlier version wrote this record: it does not tell why each rule did not match, or which session and settings"
    " asked. The explanation is incomplete."
)


class RecordedRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that did not decide, as recorded; or the number of rules that are not listed, by condition."""

    rule: str = ""
    condition: str = ""
    why: str = ""
    left_out: dict[str, int] = {}


class RecordedVote(msgspec.Struct, frozen=True):
    """A vote in a record."""

    by: str
    how: str
    verdict: str
    at: str = ""
    digest: str = ""
    proven: bool = False
    void: bool = False
    ui: str = ""
    """The SHA-256 of the server's own UI that this person was shown."""


class DecisionLine(RecordLine, frozen=True):
    """A record with the members that only its story needs."""

    settings_hash: str | None = None
    session: str | None = None
    round: str | None = None
    key: str | None = None
    rules: tuple[RecordedRule, ...] | None = None
    shadows: tuple[Shadow, ...] = ()
    changed: tuple[str, ...] = ()
    reserved_usd: float | None = None
    reviewed_by: str | None = None
    review_ui: str | None = None
    votes: tuple[RecordedVote, ...] = ()
    fits: bool | None = None
    policy_hash: str | None = None
    traceparent: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the record tells everything that this version records."""
        return self.settings_hash is not None


_DECODER: Final = msgspec.json.Decoder(DecisionLine)


def read_decision(line: bytes) -> RecordLine | str:
    """The record in a line as a ``DecisionLine``, without contents; or why the line has none."""
    found = read_line(line, _DECODER)
    return found if isinstance(found, str) else without_contents(found)


REASONS: Final[Mapping[Reason, str]] = {
    Reason.RULE: "A rule matched and was carried out.",
    Reason.NO_RULE: "No rule matched the request.",
    Reason.CANNOT: "A rule matched, but it could not be carried out.",
    Reason.NOT_OFFERED: (
        "The capability was not advertised to the server: the policy withholds it, or the client does not support it."
    ),
    Reason.MALFORMED: "The request does not follow the protocol. No rule was looked at.",
    Reason.TIMEOUT: "No answer came in time.",
    Reason.MODEL: "No model gave a usable answer.",
    Reason.CLIENT: "The client gave no usable answer.",
    Reason.LIMIT: "A limit had no room for the request, or could not be checked.",
    Reason.REVIEW: "No reviewer's decision could be used.",
    Reason.BRAKE: (
        "Loop detection stopped the server, because it asked too often or repeated itself. No rule was looked at."
    ),
    Reason.CONTENT: "The prompt or the answer contains a secret, or the answer is too large.",
    Reason.RECORDS: "The decision log could not be written, and nothing is released without a record.",
    Reason.ROUNDS: "The server made too many requests in one call. No rule was looked at.",
    Reason.ERROR: "An internal error in the gate. The gate's log has it under this ID.",
}
"""Why a request was denied or not answered. ``explanation`` has more precise sentences for some records."""


def explanation(line: DecisionLine) -> str:
    """Why the request has its outcome, in one or two sentences, without names from the record."""
    if line.revokes:
        return f"An earlier record named an answer, but it was not released. {_refused(line)}"
    match line.outcome:
        case "answered":
            return _answered(line)
        case "withdrawn":
            return "The request or its call was cancelled before anything was released."
        case "forwarded":
            if line.door == "url_error":
                return "A rule forwarded the request: the client got the server's error with the URL."
            if line.door == "tool_result":
                return "A rule forwarded the request: the client got the tool's result with the question."
            if line.door == "task":
                return (
                    "A rule forwarded the request, and the client was asked. No answer is recorded: the client has not"
                    " answered with `tasks/update`, or the task ended first."
                )
            return (
                "A rule forwarded the request, and the client was asked. No answer is recorded: the client has not"
                " retried its call, or the call ended first."
            )
        case "put_off":
            return (
                "A model has answered, but a reviewer has not yet decided on the answer. The client retries the call."
            )
        case _:
            return _refused(line)


def _answered(line: DecisionLine) -> str:
    if line.door == "unasked":
        return "The client answered before it was asked."
    if line.review is not None:
        if line.effect == "escalate" and line.votes:
            return "A rule escalated the request to a reviewer, and as many people approved it as the reviewer needs."
        if line.effect == "escalate":
            return "A rule escalated the request to a reviewer, who approved or answered it."
        return "A rule allowed the request, and a reviewer approved the model's answer."
    return {
        "allow": "A rule allowed the request, and a model answered.",
        "answer": "A rule answered the request with fixed content.",
        "forward": "A rule forwarded the request, and the client answered.",
    }.get(line.effect, REASONS[Reason.RULE])


def _refused(line: DecisionLine) -> str:
    found = next((text for (reason, holds, text) in _VARIANTS if reason == line.reason and holds(line)), None)
    if found is None:
        found = REASONS[Reason(line.reason)] if line.reason in set(Reason) else UNKNOWN
    return found


def _in_vain(line: DecisionLine) -> bool:
    """Whether rules matched, but a timeout or a limit ended them, or they could not be carried out."""
    whys = [rule.why for rule in line.rules or ()]
    return bool(line.tried) or any(why == TRIED or why.startswith(NOT_CARRIED_OUT) for why in whys)


_VARIANTS: Final[Sequence[tuple[Reason, Callable[[DecisionLine], bool], str]]] = (
    (Reason.RULE, lambda line: line.outcome == "denied", "A rule denies the request."),
    (Reason.NO_RULE, _in_vain, "The rules that matched gave no answer, and no later rule matched."),
    (Reason.LIMIT, lambda line: line.refused_by is not None, "A limit had no room for the request."),
    (
        Reason.TIMEOUT,
        lambda line: bool(line.votes) and line.review_door is None,
        "Not all of the approvals that the reviewer needs came in time.",
    ),
    (
        Reason.TIMEOUT,
        lambda line: line.review is not None and line.review_door is None,
        "The reviewer did not decide in time.",
    ),
    (Reason.TIMEOUT, lambda line: bool(line.attempts), "The model did not answer in time."),
    (Reason.TIMEOUT, lambda line: line.effect == "forward", "The client did not answer in time."),
    (Reason.REVIEW, lambda line: line.outcome == "denied", "A reviewer rejected the request."),
    (Reason.REVIEW, lambda line: line.review is None, "No reviewer could be asked."),
    (Reason.MODEL, lambda line: len(line.attempts) > 1, "None of the models gave a usable answer."),
    (Reason.CLIENT, lambda line: line.outcome == "denied", "The client refused the request."),
    (Reason.CLIENT, lambda line: line.fits is False, "The client's answer does not fit the request."),
)
"""Sentences for some records with a reason; the first that applies is used."""


def server_got(line: DecisionLine) -> str:
    """What the server got, as a noun phrase."""
    match line.outcome:
        case "withdrawn":
            return "nothing: the request was withdrawn"
        case _ if line.door == "tool_result":
            given = f"the reply {line.action} in the tool's result" if line.action else "the tool's result as it was"
            return f"nothing: the client got {given}"
        case "forwarded" if line.door == "url_error":
            return "nothing: the client got its error with the URL"
        case "forwarded":
            return "nothing yet: the client is being asked"
        case "put_off":
            return "nothing yet: the client retries the call"
        case "answered" if line.kind == "sampling":
            return "the answer"
        case "answered":
            return f"the reply {line.action}" if line.action else "the client's reply"
    if line.action:
        return f"the reply {line.action}, without content"
    if line.door == "push":
        own = line.reason == Reason.CLIENT and line.fits is None
        return "the client's own error" if own else "an error with the reason and this ID"
    what = "task" if line.door == "task" else "call"
    return f"no answer: its {what} ended with an error that has this ID"
