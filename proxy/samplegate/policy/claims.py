"""Pure. Draws of a request on limits: the accounts, the maximum amounts and the actual ones. ``ledger.py`` has the
state of the accounts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import ROUND_FLOOR, Decimal
from itertools import product
from typing import Final, assert_never

import msgspec

from samplegate.policy.catalogue import Worst
from samplegate.policy.ledger import SCALE, Draw, LimitSpec, Quantity
from samplegate.policy.schema import By, Limit, Policy, seconds
from samplegate.protocol.requests import Origin

NONE: Final = "none"
"""The value in a key if there is no call or no model."""
MIN_STORED_PERIOD: Final = 3600.0  # seconds; a shorter bucket refills soon after a restart, so it needs no stored state
# accounts of one limit that one request may draw on: every candidate call is charged
MAX_ACCOUNTS: Final = 1000
MAX_VALUE: Final = 200  # bytes of a value in a key: clients choose the names of tools, and keys are stored
_HASHED: Final = "sha256:"
_QUANTITIES: Final[tuple[Quantity, ...]] = ("requests", "input_tokens", "output_tokens", "usd", "concurrent")


class Claimant(msgspec.Struct, frozen=True):
    """The origin of a draw, from which a limit's ``by`` and ``per: call`` take their values."""

    origin: Origin
    call_ids: tuple[str, ...]
    """The client's calls to which the request may belong. Each is charged; if none is in flight, the session's own name
    is used."""
    session: str
    rule: str
    model: str | None = None
    """The policy's name of the model; None if no model is called."""


def limit_specs(policy: Policy) -> Mapping[str, LimitSpec]:
    """The policy's limits by name, as LimitSpecs. The policy must have passed the loader."""
    shared = needs_state(policy)
    return {name: _limit_spec(name, limit, shared) for name, limit in policy.limits.items()}


def needs_state(policy: Policy) -> bool:
    """Whether limits must outlive the process: one in dollars, per run, or over an hour or more.

    If one must, all limits except those per call or process are shared, so that a request draws on one ledger.
    """
    return any(_must_last(limit) for limit in policy.limits.values() if _can_be_shared(limit))


def units(quantity: Quantity, amount: float) -> int:
    """An amount of the policy in units, rounded down. The arithmetic is exact, because the file has decimal numbers."""
    return int((Decimal(repr(amount)) * SCALE[quantity]).to_integral_value(ROUND_FLOOR))


def amounts(limit: Limit) -> dict[Quantity, float]:
    """The limited quantities with their amounts; exactly one in a loaded policy."""
    return {quantity: amount for quantity in _QUANTITIES if (amount := getattr(limit, quantity)) is not None}


def charges_of(
    limits: Iterable[str], specs: Mapping[str, LimitSpec], who: Claimant, worst: Worst | None
) -> tuple[Draw, ...] | str:
    """The maximum draws of a request on these limits. If they cannot be computed (an unknown price under a dollar
    limit), the reason as a sentence for the log.

    ``worst`` None: no model is called, so tokens and dollars are zero. Each candidate call and tool is charged.
    """
    draws: list[Draw] = []
    for name in dict.fromkeys(limits):
        limit = specs.get(name)
        if limit is None:
            return f"limit {name}: the policy has no limit with this name"
        amount = _amount(limit, worst)
        if amount is None:
            return (
                f"limit {name}: the price of model {who.model} is unknown; add `price: {{input: , output: }}`"
                " to the model"
            )
        keys = _keys(limit, who)
        if len(keys) > MAX_ACCOUNTS:
            return f"limit {name}: the request may belong to {len(keys)} calls and tools, more than {MAX_ACCOUNTS}"
        draws += [Draw(name, key, amount) for key in keys]
    return tuple(draws)


def actual_draws(draws: Iterable[Draw], specs: Mapping[str, LimitSpec], spent: Worst | None) -> tuple[Draw, ...]:
    """The same draws with the actual amounts. ``spent`` None: nothing was spent, so tokens and dollars are returned.
    Requests always stay drawn."""
    return tuple(_actual_draw(draw, specs.get(draw.limit), spent) for draw in draws)


def unreserved_draws(draws: Iterable[Draw], held: Iterable[Draw]) -> tuple[Draw, ...]:
    """The draws that a further try of a request must still reserve, in addition to ``held``.

    A retried request is still one request: it draws no second request or slot on an account that already has one. Each
    try reserves tokens and dollars anew, because each may spend them. So these must not be among ``held``.
    """
    has = {(draw.limit, draw.key) for draw in held}
    return tuple(draw for draw in draws if (draw.limit, draw.key) not in has)


def bounded(text: str, max_bytes: int) -> str:
    """The text if it has at most ``max_bytes`` bytes in UTF-8, else its hash. Text with lone surrogates, which no file
    accepts, and text that looks like a hash are hashed too."""
    raw = text.encode("utf-8", "surrogatepass")
    if (
        len(raw) <= max_bytes
        and not text.startswith(_HASHED)
        and not any("\ud800" <= character <= "\udfff" for character in text)
    ):
        return text
    return _HASHED + hashlib.sha256(raw).hexdigest()


def _limit_spec(name: str, limit: Limit, shared: bool) -> LimitSpec:
    ((quantity, amount),) = amounts(limit).items()
    max_units = units(quantity, amount)
    by: tuple[str, ...] = tuple(limit.by)
    match limit.per:
        case None:
            return LimitSpec(name, quantity, max_units, "slots", by=by, shared=shared)
        case "day" | "month" as window:
            return LimitSpec(
                name, quantity, max_units, window, tz=limit.tz or "UTC", by=by, warn_at=limit.warn_at, shared=shared
            )
        case "call" | "process" as kind:
            return LimitSpec(name, quantity, max_units, kind, by=by, warn_at=limit.warn_at)
        case "run":
            return LimitSpec(name, quantity, max_units, "run", by=by, warn_at=limit.warn_at, shared=shared)
        case span:
            return LimitSpec(
                name, quantity, max_units, "bucket", seconds(span), by=by, warn_at=limit.warn_at, shared=shared
            )


def _can_be_shared(limit: Limit) -> bool:
    return limit.per not in ("call", "process")


def _must_last(limit: Limit) -> bool:
    if limit.usd is not None or limit.per in ("day", "month", "run"):
        return True
    return limit.per is not None and seconds(limit.per) >= MIN_STORED_PERIOD


def _is_a_count(limit: LimitSpec | None) -> bool:
    return limit is not None and limit.quantity in ("requests", "concurrent")


def _amount(limit: LimitSpec, worst: Worst | None) -> int | None:
    """The amount of a draw in units; None: the price is unknown."""
    if _is_a_count(limit):
        return SCALE[limit.quantity]
    return 0 if worst is None else _quantity_of(limit.quantity, worst)


def _quantity_of(quantity: Quantity, worst: Worst) -> int | None:
    match quantity:
        case "input_tokens":
            return worst.input_tokens * SCALE[quantity]
        case "output_tokens":
            return worst.output_tokens * SCALE[quantity]
        case "usd":
            return worst.usd
        case "requests" | "concurrent":
            raise ValueError(f"{quantity} is counted, not measured")
    assert_never(quantity)


def _actual_draw(draw: Draw, limit: LimitSpec | None, spent: Worst | None) -> Draw:
    if limit is None or _is_a_count(limit):
        return draw
    amount = 0 if spent is None else _quantity_of(limit.quantity, spent)
    # None: unknown after all, so the reserved amount stays
    return draw if amount is None else msgspec.structs.replace(draw, amount=amount)


def _keys(limit: LimitSpec, who: Claimant) -> list[str]:
    """The keys of the accounts: one, or one for each candidate call and tool."""
    calls = list(dict.fromkeys(who.call_ids)) if limit.per == "call" else [""]
    tools = _tools(who.origin) if "tool" in limit.by else [""]
    if len(calls) * len(tools) > MAX_ACCOUNTS:
        return [""] * (len(calls) * len(tools))
    pairs = product(tools, calls)
    return [
        _key([_value(name, who, tool) for name in limit.by] + ([call] if limit.per == "call" else []))
        for tool, call in pairs
    ]


def _tools(origin: Origin) -> list[str]:
    """The possible values of `by: [tool]`: the tool, or the method of a call without a tool."""
    return list(dict.fromkeys(_calls(origin))) or [NONE]


def _calls(origin: Origin) -> Iterator[str]:
    for call in origin.calls:
        yield call.method if call.tool is None else call.tool


def _value(name: By | str, who: Claimant, tool: str) -> str:
    match name:
        case "server":
            return who.origin.server
        case "caller":
            return who.origin.caller
        case "tool":
            return tool
        case "model":
            return who.model or NONE
        case "rule":
            return who.rule
        case _:
            return who.session


def _key(values: list[str]) -> str:
    return json.dumps([bounded(value, MAX_VALUE) for value in values], separators=(",", ":"))
