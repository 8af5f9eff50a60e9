"""Classification of exceptions of model calls into our failures, with our own messages. No text of an exception is
used, because providers echo keys.

Exceptions are recognised by name and status, so that tests need not import litellm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from samplegate.policy.prompt import Failure

MAX_RETRY_AFTER: Final = 86_400.0  # seconds; a longer Retry-After is ignored

_BY_NAME: Final[dict[str, Failure]] = {
    "TimeoutError": "timeout",
    "APITimeoutError": "timeout",
    "Timeout": "timeout",
    "ContentPolicyViolationError": "refused",
    "RejectedRequestError": "refused",
    "LiteLLMUnknownProvider": "unknown_model",
    "ContextWindowExceededError": "bad_request",
    "UnsupportedParamsError": "bad_request",
}
_BY_STATUS: Final[dict[int, Failure]] = {
    400: "bad_request",
    401: "bad_key",
    402: "bad_key",
    403: "bad_key",
    404: "unknown_model",
    408: "timeout",
    413: "bad_request",
    422: "bad_request",
    429: "rate_limited",
    502: "unreachable",
    503: "unreachable",
    504: "unreachable",
    529: "unreachable",
}
_TRANSPORT: Final = frozenset(
    {"TransportError", "ClientConnectionError", "ServerDisconnectedError", "ConnectionError", "gaierror", "SSLError"}
)
_UNREACHED: Final = frozenset(
    {"ConnectError", "ConnectTimeout", "ClientConnectorError", "ConnectionRefusedError", "gaierror"}
)
"""No connection was made, so nothing was sent."""
_REACHED: Final = frozenset(
    {"HTTPStatusError", "ServerDisconnectedError", "ReadError", "ReadTimeout", "WriteError", "RemoteProtocolError"}
)
_SENTENCES: Final[dict[Failure, str]] = {
    "bad_key": (
        "the provider rejected the API key; check api_key_env, api_key_file or the provider's own variable, and the"
        " account"
    ),
    "rate_limited": "the provider's rate limit is exceeded; wait, or raise the account's limits",
    "refused": "the provider refused to answer; the text may violate its content policy",
    "unreachable": "the provider cannot be reached; check api_base, the network and the provider's status",
    "unknown_model": "the provider does not know this model; check `model` (provider/name, as in litellm) and api_base",
    "bad_request": (
        "the provider rejected the request; it may be too long, or use a feature that the model does not support"
    ),
    "timeout": "the model did not answer in time; give the rule a longer timeout, or use a faster model",
    "empty": "the model's answer is empty; raise max_tokens if thinking uses them up",
    "error": "the provider failed; try again, or use another model",
}


class ProviderFault(NamedTuple):
    """A failure with its status (None without an answer) and the provider's Retry-After in seconds, if any."""

    failure: Failure
    status: int | None
    retry_after: float | None
    free: bool = False
    """Nothing can have been charged: the call was refused with a 4xx, or not sent at all."""


def sentence(model: str, failure: Failure, status: int | None = None, what: str | None = None) -> str:
    """The message of a failure. ``model`` is the policy's name; ``what`` replaces the failure's standard sentence."""
    tail = "" if status is None else f" (status {status})"
    return f"model {model}: {what or _SENTENCES.get(failure, _SENTENCES['error'])}{tail}"


def classify(error: BaseException, now: float = math.nan) -> ProviderFault:
    """Classify an exception. ``now`` is Unix seconds, for a Retry-After that is a date.

    litellm reports status 500 for many errors that were no answer, so the exception's causes are examined too.
    """
    while type(error).__name__ == "MidStreamFallbackError" and isinstance(
        behind := getattr(error, "original_exception", None), Exception
    ):
        error = behind
    chain = list(_causes(error))
    return _classified(error, chain, now)._replace(free=_is_free(chain))


def _classified(error: BaseException, chain: list[BaseException], now: float) -> ProviderFault:
    names = {kind.__name__ for cause in chain for kind in type(cause).__mro__}
    answered = "HTTPStatusError" in names or "APIStatusError" in {type(cause).__name__ for cause in chain[1:]}
    status = _status(error)
    known: list[Failure] = [_BY_NAME[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _BY_NAME]
    if known:
        return ProviderFault(known[0], status if answered else None, None)
    failure: Failure = "error" if status is None else _BY_STATUS.get(status, "bad_request" if status < 500 else "error")
    if status is not None and status < 500:
        return ProviderFault(failure, status, _retry_after(error, now))
    if not answered and any(_is_missing_key(cause) for cause in chain):
        return ProviderFault("bad_key", None, None)
    if not answered and names & _TRANSPORT:
        return ProviderFault("unreachable", None, None)
    if not answered:
        return ProviderFault("error", None, None)
    return ProviderFault(failure, status, _retry_after(error, now))


def _is_free(chain: list[BaseException]) -> bool:
    """Whether nothing can have been charged: no provider was reached, or all statuses are refusals.

    A timeout (408) or a closed connection (499) may come after the work.
    """
    names = {kind.__name__ for cause in chain for kind in type(cause).__mro__}
    if names & _UNREACHED and not names & _REACHED:
        return True
    statuses = [status for cause in chain if (status := _status(cause)) is not None]
    if any(_is_missing_key(cause) for cause in chain) and all(status < 500 or status == 500 for status in statuses):
        return not any(type(cause).__name__ in ("HTTPStatusError", "APIStatusError") for cause in chain)
    return bool(statuses) and all(400 <= status < 500 and status not in (408, 499) for status in statuses)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and its causes, outermost first. Bounded, because causes may form a cycle."""
    cause: BaseException | None = error
    for _ in range(16):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    # litellm uses 200 for some errors that it cannot parse
    return status if isinstance(status, int) and 400 <= status <= 599 else None


def _is_missing_key(cause: BaseException) -> bool:
    """Whether this is the openai package's plain OpenAIError, raised for a missing key before anything is sent."""
    return type(cause).__name__ == "OpenAIError" and type(cause).__module__.partition(".")[0] == "openai"


def _retry_after(error: BaseException, now: float) -> float | None:
    headers = (
        getattr(error, "litellm_response_headers", None)
        or getattr(getattr(error, "response", None), "headers", None)
        or {}
    )
    try:
        header = str(headers.get("retry-after", ""))[:64]
    except AttributeError:
        return None
    try:
        seconds: float | None = float(header)
    except ValueError:
        seconds = _seconds_until(header, now)
    return seconds if seconds is not None and 0 <= seconds <= MAX_RETRY_AFTER else None


def _seconds_until(date: str, now: float) -> float | None:
    """The seconds until an HTTP date; 0 if it is over."""
    try:
        moment = parsedate_to_datetime(date)
    except (TypeError, ValueError, OverflowError):
        return None
    stamp = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    return None if math.isnan(now) else max(stamp - now, 0.0)
