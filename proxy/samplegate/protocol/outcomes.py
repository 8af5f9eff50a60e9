"""Pure. Outcomes of a request: answered, denied, not answered or withdrawn, with the reason and who decided. Also the
decision about a request whose outcome comes later."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec


class Reason(StrEnum):
    """Class of the reason for an outcome: shown to the server and used as a label of metrics."""

    RULE = "rule"  # a rule matched and was carried out
    NO_RULE = "no_rule"  # no rule matched
    CANNOT = "cannot"  # the rule's effect could not be carried out (its `otherwise`)
    NOT_OFFERED = "not_offered"  # a kind, mode or sub-capability that the policy withholds from the server
    MALFORMED = "malformed"
    TIMEOUT = "timeout"
    MODEL = "model"  # the model failed or refused
    CLIENT = "client"  # the client answered with an error or with an unfit answer
    LIMIT = "limit"  # a limit is used up, or could not be checked
    REVIEW = "review"  # a reviewer refused it, or no reviewer could be asked because the store or the reviewer is gone
    BRAKE = "brake"  # loop detection stopped the server
    CONTENT = "content"  # the answer contains a secret, or is too large
    RECORDS = "records"  # the decision log could not be written
    ROUNDS = "rounds"  # the server asked again too often
    ERROR = "error"  # an internal error of the gate


DecidedBy: TypeAlias = Literal["policy", "human", "client", "timeout"]


class Answered(msgspec.Struct, frozen=True):
    """An answer; ``result`` is its JSON, already in the shape of the negotiated revision."""

    result: bytes
    decided_by: DecidedBy


class Denied(msgspec.Struct, frozen=True):
    """A refusal by a rule, a reviewer or the client; ``action`` answers an elicitation."""

    reason: Reason
    action: Literal["cancel", "decline"] = "cancel"
    error: bytes | None = None
    """The client's own error object, released verbatim (R118)."""
    detail: str = ""
    decided_by: DecidedBy = "policy"
    code: int = -1
    """The error's code: -1, or -32602 for an undeclared request, for which an elicitation gets the error too (R31)."""


class Unanswered(msgspec.Struct, frozen=True):
    """No answer: sampling gets an error, an elicitation `cancel`, never accept."""

    reason: Reason
    error: bytes | None = None
    detail: str = ""
    code: int = -1
    """The error's code: -1, or -32602 for an undeclared or malformed request (R8, R12, R31)."""


class Withdrawn(msgspec.Struct, frozen=True):
    """The request or its call was cancelled: nothing is sent."""


Outcome: TypeAlias = Answered | Denied | Unanswered | Withdrawn


class CallDrawn(msgspec.Struct, frozen=True, array_like=True):
    """What a call has drawn on a limit per call, in units."""

    limit: str
    key: str
    units: int


class SealedDecision(msgspec.Struct, frozen=True):
    """The decision for a key when its round was sealed, so that its return is recorded under the same name."""

    decision_id: str
    effect: str
    rule: str | None
    verify: bool = False
    timeout: float | None = None
    """The client's timeout from the rule, in seconds."""
    late: bool = False
    """Set at the return: the client took longer than ``timeout``."""
    reviews: Mapping[str, str] = {}
    """The reviews opened or joined for the key, by stage and rule (``PendingRequest.reviews``)."""
