"""Pure. Model catalogue: accepted content, token limits and prices of each model, from the policy first, then from
litellm's table.

``sampler/litellm_prices.py`` reads the table, and this module merges it. An unknown value stays None. It never counts
as zero or as sufficient.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

from samplegate.policy.ledger import SCALE
from samplegate.policy.schema import Model, Price


class Tier(msgspec.Struct, frozen=True):
    """Other prices for requests with more than ``above`` input tokens."""

    above: int
    input: int
    output: int


class Rates(msgspec.Struct, frozen=True):
    """Prices per token in units of ``ledger.SCALE["usd"]`` (10**-12 dollars), rounded up."""

    input: int
    output: int
    audio: int | None = None
    """The price of an input token if the request contains audio; None: the same as ``input``."""
    request: int = 0
    """The price per request."""
    tiers: tuple[Tier, ...] = ()


class ModelFacts(msgspec.Struct, frozen=True):
    """Facts about one model."""

    rates: Rates | None = None
    """None: unknown."""
    context: int | None = None
    """Maximum input tokens; None: unknown, and not checked."""
    max_output: int | None = None
    accepts: frozenset[str] = frozenset()
    """``image``, ``audio``, ``tools``; every model accepts text."""


Catalogue: TypeAlias = Mapping[str, ModelFacts]
"""Model facts by the policy's model names."""


class Worst(msgspec.Struct, frozen=True):
    """Upper bounds of one model call."""

    input_tokens: int
    output_tokens: int
    usd: int | None
    """In units; None: the price is unknown."""


Table: TypeAlias = Mapping[str, Mapping[str, Any]]
"""litellm's entries by ``Model.model``, untyped, as in litellm's file."""

SCRIPTED: Final = "scripted"
MAX_TOKENS: Final = 2**31 - 1
"""The largest integer that every provider handles; token counts stop there."""

_TIER: Final = re.compile(r"(input|output)_cost_per_token_above_([0-9]{1,6})k_tokens")
_MILLIONTH: Final = SCALE["usd"] // 10**6
_UNCOUNTED: Final = frozenset({"citation_cost_per_token"})
"""Charges that depend on counts which the usage of an answer lacks: the price of such a model is unknown."""
_OWN_MACHINES: Final = frozenset({"ollama", "ollama_chat", "lemonade"})
"""Providers that are really free. Elsewhere a zero in the table often means that the price was never entered, also for
some of the most expensive models."""
_EVERYTHING: Final = frozenset({"image", "audio", "tools"})
_ABILITIES: Final = (
    ("image", "supports_vision"),
    ("audio", "supports_audio_input"),
    ("tools", "supports_function_calling"),
)


def catalogue_of(models: Sequence[Model], table: Table) -> Catalogue:
    """The facts of each model of a policy: the policy's values first, then the table's."""
    return {model.name: _facts(model, table.get(model.model)) for model in models}


def _facts(model: Model, entry: Mapping[str, Any] | None) -> ModelFacts:
    if model.model == SCRIPTED:
        rates = Rates(0, 0) if model.price is None else _configured_rates(model.price)
        return ModelFacts(
            rates, model.context, None, _EVERYTHING if model.accepts is None else frozenset(model.accepts)
        )
    entry = entry if isinstance(entry, Mapping) else {}
    context = _count(entry.get("max_input_tokens")) if model.context is None else model.context
    able = frozenset(extra for extra, key in _ABILITIES if entry.get(key) is True)
    return ModelFacts(
        _listed(entry, model) if model.price is None else _configured_rates(model.price),
        context,
        _count(entry.get("max_output_tokens")),
        able if model.accepts is None else frozenset(model.accepts),
    )


def _configured_rates(price: Price) -> Rates | None:
    """The policy's price, given in dollars per million tokens."""
    paid, written = _units(price.input, _MILLIONTH), _units(price.output, _MILLIONTH)
    return None if paid is None or written is None else Rates(paid, written)


def _listed(entry: Mapping[str, Any], model: Model) -> Rates | None:
    """The table's price, given in dollars per token. None if it is incomplete or has a charge that cannot be computed
    in advance.

    Prices of batches, other speeds and caches do not matter. The gate requests none of these, and a cache that a
    provider fills on its own only makes a request cheaper.
    """
    pairs = _pairs(entry)
    extra = _request(entry, model)
    if pairs is None or extra is None or not _UNCOUNTED.isdisjoint(entry):
        return None
    (_, paid, written), *above = pairs
    if not (paid and written) and str(entry.get("litellm_provider")) not in _OWN_MACHINES:
        return None
    image = _units(entry.get("input_cost_per_image", 0))
    if image is None or image > paid * model.image_tokens:  # a charge per image that its tokens do not cover
        return None
    rates = Rates(paid, written, None, extra, tuple(Tier(*pair) for pair in above))
    if "input_cost_per_audio_token" not in entry:
        return rates
    audio = _units(entry["input_cost_per_audio_token"])
    return None if audio is None else msgspec.structs.replace(rates, audio=audio)


def _pairs(entry: Mapping[str, Any]) -> list[tuple[int, int, int]] | None:
    """Tiers, sorted: the number of input tokens above which a tier starts (from 0), its input and its output price."""
    bounds: dict[int, Mapping[str, Any]] = {0: entry}
    if isinstance(tiers := entry.get("tiered_pricing"), list):
        bounds = {_start(tier): tier for tier in tiers}
    if 0 not in bounds or -1 in bounds:
        return None
    for key in entry:
        if (found := _TIER.fullmatch(key)) is not None:
            side, above = found[1], int(found[2]) * 1000
            bounds[above] = {**bounds.get(above, {}), f"{side}_cost_per_token": entry[key]}
    pairs: list[tuple[int, int, int]] = []
    for above in sorted(bounds):
        prices = {**entry, **bounds[above]} if above else bounds[above]
        paid, written = _highest_price(prices, "input_cost_per_token", "input_cost_per_image_token"), _written(prices)
        if paid is None or written is None:
            return None
        pairs.append((above, paid, written))
    return pairs


def _start(tier: Any) -> int:
    """The start of an entry of ``tiered_pricing``; -1 if the entry is invalid."""
    span = tier.get("range") if isinstance(tier, Mapping) else None
    start = span[0] if isinstance(span, list) and span else None
    return int(start) if _is_number(start) and 0 <= start <= MAX_TOKENS else -1


def _written(prices: Mapping[str, Any]) -> int | None:
    """The output price. Reasoning tokens are output too and may cost more."""
    return _highest_price(prices, "output_cost_per_token", "output_cost_per_reasoning_token")


def _highest_price(prices: Mapping[str, Any], needed: str, *others: str) -> int | None:
    found = [_units(prices.get(needed)), *(_units(prices[name]) for name in others if name in prices)]
    amounts = [amount for amount in found if amount is not None]
    return max(amounts) if len(amounts) == len(found) else None


def _request(entry: Mapping[str, Any], model: Model) -> int | None:
    """The price per request, including the web search that some models make on their own."""
    charges = [entry.get("input_cost_per_request", 0)]
    if entry.get("litellm_provider") == "perplexity" or "search" in model.model:
        searches = entry.get("search_context_cost_per_query", {})
        charges += (
            [max(searches.values(), key=lambda cost: cost if _is_number(cost) else math.inf)]
            if isinstance(searches, Mapping) and searches
            else []
        )
    amounts = [_units(charge) for charge in charges]
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)


def _units(dollars: Any, scale: int = SCALE["usd"]) -> int | None:
    """Dollars in units, rounded up; None for an invalid price. A price above zero never becomes zero."""
    if not _is_number(dollars) or not 0 <= dollars <= 1e6:
        return None
    # a price such as 2.5e-07 is not exact in binary: its product is slightly off the intended whole number
    return max(math.ceil(round(dollars * scale, 3)), 1 if dollars else 0)


def _count(tokens: Any) -> int | None:
    return min(int(tokens), MAX_TOKENS) if _is_number(tokens) and tokens >= 1 else None


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
