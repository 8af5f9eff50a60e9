"""Exceptions of a model call, told apart. The real ones come in ``test_worker.py``; these are the shapes that an endpoint cannot be made to show."""

from __future__ import annotations

import pytest

from samplegate.core.samples import Failure
from samplegate.sampler.faults import Fault, classify, sentence


class APIError(Exception):
    def __init__(self, status: object, headers: object = None) -> None:
        super().__init__("sk-secret")
        self.status_code = status
        self.litellm_response_headers = headers


class Timeout(APIError):
    pass


class ContentPolicyViolationError(APIError):
    pass


class HTTPStatusError(Exception):
    pass


def behind(outer: BaseException, *causes: BaseException) -> BaseException:
    """``outer``, raised because of the causes, outermost first."""
    last = outer
    for cause in causes:
        last.__cause__ = cause
        last = cause
    return outer


@pytest.mark.parametrize(
    ("error", "failure", "status"),
    [
        (TimeoutError(), "timeout", None),
        (Timeout(408), "timeout", None),
        (ContentPolicyViolationError(400), "refused", None),
        (APIError(418), "bad_request", 418),
        (APIError("500"), "error", None),
        (APIError(7), "error", None),
        (APIError(500), "error", None),
        (KeyError("sk-secret"), "error", None),
        (behind(APIError(500), ConnectionRefusedError()), "unreachable", None),
        (behind(APIError(503), HTTPStatusError()), "unreachable", 503),
        (behind(APIError(500), HTTPStatusError()), "error", 500),
        (behind(APIError(599), HTTPStatusError()), "error", 599),
    ],
)
def test_errors_are_told_apart_by_type_status_and_cause(error: BaseException, failure: Failure, status: int | None) -> None:
    assert Fault(failure, status, None) == classify(error)


def test_a_ring_of_causes_ends() -> None:
    one, other = APIError(500), APIError(500)
    one.__cause__, other.__cause__ = other, one

    assert "error" == classify(one).failure


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "Wed, 21 Oct 2026"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        (5, None),
        ({}, None),
    ],
)
def test_retry_after_is_seconds_within_a_day_or_nothing(headers: object, seconds: float | None) -> None:
    assert seconds == classify(APIError(429, headers)).retry_after


def test_a_sentence_names_the_model_and_the_status_and_no_text_of_the_exception() -> None:
    fault = classify(APIError(429))
    message = sentence("smart", fault.failure, fault.status)

    assert "model smart: its provider asks to slow down; wait, or raise the limits of the account (status 429)" == message
