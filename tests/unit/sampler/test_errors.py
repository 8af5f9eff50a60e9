"""Classification of exceptions from a model call. ``test_worker.py`` has the real ones; these are forms that a test
endpoint cannot provoke."""

from __future__ import annotations

import pytest

from samplegate.policy.prompt import Failure
from samplegate.sampler.worker.errors import ProviderFault, classify, sentence


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


class MidStreamFallbackError(APIError):
    def __init__(self, original: BaseException | None) -> None:
        super().__init__(500)
        self.original_exception = original


NOW = 1_792_567_652.0  # Wed, 21 Oct 2026 07:27:32 GMT


def behind(outer: BaseException, *causes: BaseException) -> BaseException:
    """``outer``, raised from the causes, outermost first."""
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
        (APIError(200), "error", None),
        (APIError(500), "error", None),
        (KeyError("sk-secret"), "error", None),
        (behind(APIError(500), ConnectionRefusedError()), "unreachable", None),
        (behind(APIError(503), HTTPStatusError()), "unreachable", 503),
        (behind(APIError(500), HTTPStatusError()), "error", 500),
        (behind(APIError(599), HTTPStatusError()), "error", 599),
    ],
)
def test_errors_are_told_apart_by_type_status_and_cause(
    error: BaseException, failure: Failure, status: int | None
) -> None:
    assert (failure, status, None) == classify(error)[:3]


def test_a_ring_of_causes_ends() -> None:
    one, other = APIError(500), APIError(500)
    one.__cause__, other.__cause__ = other, one

    assert "error" == classify(one).failure


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, 28.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT"}, 0.0),
        ({"retry-after": "Thu, 22 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 99999999 07:28:00 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        (5, None),
        ({}, None),
    ],
)
def test_retry_after_is_seconds_within_a_day_or_nothing(headers: object, seconds: float | None) -> None:
    assert seconds == classify(APIError(429, headers), NOW).retry_after


@pytest.mark.parametrize(
    ("error", "free"),
    [
        (APIError(401), True),
        (APIError(429), True),
        (APIError(404), True),
        (APIError(408), False),
        (APIError(499), False),
        (APIError(500), False),
        (TimeoutError(), False),
        (ConnectionRefusedError(), True),
        (behind(APIError(500), ConnectionRefusedError()), True),
        (behind(APIError(503), HTTPStatusError()), False),
        (behind(APIError(503), behind(HTTPStatusError(), ConnectionRefusedError())), False),
        (ConnectionResetError(), False),
        (behind(APIError(400), APIError(500)), False),
        (MidStreamFallbackError(APIError(429)), True),
        (MidStreamFallbackError(APIError(503)), False),
        (MidStreamFallbackError(None), False),
    ],
)
def test_only_a_refusal_and_what_reached_nobody_is_free(error: BaseException, free: bool) -> None:
    assert free is classify(error).free


def test_a_wrapped_error_is_told_by_what_is_in_it() -> None:
    assert ProviderFault("rate_limited", 429, 3.0, True) == classify(
        MidStreamFallbackError(APIError(429, {"retry-after": "3"}))
    )


def test_a_sentence_names_the_model_and_the_status_and_no_text_of_the_exception() -> None:
    fault = classify(APIError(429))
    message = sentence("smart", fault.failure, fault.status)

    assert (
        "model smart: the provider's rate limit is exceeded; wait, or raise the account's limits (status 429)"
        == message
    )
