"""Pure. Outcomes of a request: answered, denied, not answered or withdrawn, with the reason and who decided."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec


class Reason(StrEnum):
    """Why, in one word of a finite set: told to the server, a label in metrics."""

    RULE = "rule"  # a rule took it and could be carried out
    NO_RULE = "no_rule"  # no rule matched
    CANNOT = "cannot"  # the rule's effect could not be carried out (its `otherwise`)
    NOT_OFFERED = "not_offered"  # a kind, mode or sub-capability that the policy withholds from the server
    MALFORMED = "malformed"
    TIMEOUT = "timeout"
    MODEL = "model"  # the model failed or refused
    CLIENT = "client"  # the client answered with an error, or with something that does not fit
    LIMIT = "limit"  # a limit is used up, or could not be asked
    REVIEW = "review"  # a person refused it, or nobody could be asked: the store or the reviewer is gone
    BRAKE = "brake"  # the server asked in circles
    CONTENT = "content"  # the answer holds a secret, or is too large
    RECORDS = "records"  # the decision log could not be written
    ROUNDS = "rounds"  # the server asked again too often
    ERROR = "error"  # a fault of the gate's own


DecidedBy: TypeAlias = Literal["policy", "human", "client", "timeout"]


class Answered(msgspec.Struct, frozen=True):
    """``result`` is the JSON of the result to release, already in the shape of the negotiated revision."""

    result: bytes
    decided_by: DecidedBy


class Denied(msgspec.Struct, frozen=True):
    """Refused by a rule or by whoever was asked. ``action``: what an elicitation is answered."""

    reason: Reason
    action: Literal["cancel", "decline"] = "cancel"
    error: bytes | None = None
    """The client's own error object, released verbatim (R118)."""
    detail: str = ""
    decided_by: DecidedBy = "policy"
    code: int = -1
    """The error's code: -1, or -32602 for what was not declared; then an elicitation gets the error too (R31)."""


class Unanswered(msgspec.Struct, frozen=True):
    """Nobody answered: sampling gets an error, an elicitation `cancel`, never accept."""

    reason: Reason
    error: bytes | None = None
    detail: str = ""
    code: int = -1
    """The error's code: -1, or -32602 for what was not declared or is malformed (R8, R12, R31)."""


class Withdrawn(msgspec.Struct, frozen=True):
    """Whoever asked or called took it back: nothing is sent."""


Outcome: TypeAlias = Answered | Denied | Unanswered | Withdrawn
