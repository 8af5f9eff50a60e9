"""Pure. What is known of each model: what it takes, how much, and what it costs. From the policy first, then from
litellm's table. Reads no file.

``sampler/litellm_prices.py`` reads the table; this merges. What nobody knows stays unknown (None), which is never taken
as zero or as enough.
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
    """Other prices for a request whose input is longer than ``above`` tokens."""

    above: int
    input: int
    output: int


class Rates(msgspec.Struct, frozen=True):
    """Prices of one token in units of ``ledger.SCALE["usd"]`` (10**-12 dollars), rounded up."""

    input: int
    output: int
    audio: int | None = None
    """Of an input token where the request holds audio; None: as ``input``."""
    request: int = 0
    """Of a request as such."""
    tiers: tuple[Tier, ...] = ()


class ModelFacts(msgspec.Struct, frozen=True):
    """One model."""

    rates: Rates | None = None
    """None: unknown."""
    context: int | None = None
    """Tokens it reads at most; None: unknown, and not checked."""
    max_output: int | None = None
    accepts: frozenset[str] = frozenset()
    """``image``, ``audio``, ``tools``; text always."""


Catalogue: TypeAlias = Mapping[str, ModelFacts]
"""By our names."""


class Worst(msgspec.Struct, frozen=True):
    """The most that one call of a model may come to."""

    input_tokens: int
    output_tokens: int
    usd: int | None
    """In units; None: the price is unknown."""


Table: TypeAlias = Mapping[str, Mapping[str, Any]]
"""litellm's entries, by what the policy's models are called for litellm (``Model.model``): untyped, as they stand in
its file."""

SCRIPTED: Final = "scripted"
MOST_TOKENS: Final = 2**31 - 1
"""What every provider's integers hold; nothing counts beyond."""

_TIER: Final = re.compile(r"(input|output)_cost_per_token_above_([0-9]{1,6})k_tokens")
_MILLIONTH: Final = SCALE["usd"] // 10**6
_UNCOUNTED: Final = frozenset({"citation_cost_per_token"})
"""Charges by what no count in an answer's usage tells: the price of such a model is unknown."""
_OWN_MACHINES: Final = frozenset({"ollama", "ollama_chat", "lemonade"})
"""What costs nothing there. Elsewhere the table's zero often is a model whose price nobody has entered, also some of
the dearest."""
_EVERYTHING: Final = frozenset({"image", "audio", "tools"})
_ABILITIES: Final = (
    ("image", "supports_vision"),
    ("audio", "supports_audio_input"),
    ("tools", "supports_function_calling"),
)


def known(models: Sequence[Model], table: Table) -> Catalogue:
    """What is known of each model of a policy: its own words first, then the table's."""
    return {model.name: _facts(model, table.get(model.model)) for model in models}


def _facts(model: Model, entry: Mapping[str, Any] | None) -> ModelFacts:
    if model.model == SCRIPTED:
        rates = Rates(0, 0) if model.price is None else _stated(model.price)
        return ModelFacts(
            rates, model.context, None, _EVERYTHING if model.accepts is None else frozenset(model.accepts)
        )
    entry = entry if isinstance(entry, Mapping) else {}
    context = _count(entry.get("max_input_tokens")) if model.context is None else model.context
    able = frozenset(extra for extra, key in _ABILITIES if entry.get(key) is True)
    return ModelFacts(
        _listed(entry, model) if model.price is None else _stated(model.price),
        context,
        _count(entry.get("max_output_tokens")),
        able if model.accepts is None else frozenset(model.accepts),
    )


def _stated(price: Price) -> Rates | None:
    """The policy's price, in dollars for a million tokens."""
    paid, written = _units(price.input, _MILLIONTH), _units(price.output, _MILLIONTH)
    return None if paid is None or written is None else Rates(paid, written)


def _listed(entry: Mapping[str, Any], model: Model) -> Rates | None:
    """The table's price, in dollars a token. Half a price, or a charge that cannot be told beforehand, is none.

    The prices of batches, of other speeds and of caches are not looked at: the gate asks for none of these, and a cache
    that a provider fills unasked makes a request cheaper, never dearer.
    """
    pairs = _pairs(entry)
    extra = _request(entry, model)
    if pairs is None or extra is None or not _UNCOUNTED.isdisjoint(entry):
        return None
    (_, paid, written), *above = pairs
    if not (paid and written) and str(entry.get("litellm_provider")) not in _OWN_MACHINES:
        return None
    image = _units(entry.get("input_cost_per_image", 0))
    if image is None or image > paid * model.image_tokens:  # a charge for each image that its tokens do not cover
        return None
    rates = Rates(paid, written, None, extra, tuple(Tier(*pair) for pair in above))
    if "input_cost_per_audio_token" not in entry:
        return rates
    audio = _units(entry["input_cost_per_audio_token"])
    return None if audio is None else msgspec.structs.replace(rates, audio=audio)


def _pairs(entry: Mapping[str, Any]) -> list[tuple[int, int, int]] | None:
    """Above how many tokens of input which prices of an input and an output token hold, from 0 up."""
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
        paid, written = _dearest(prices, "input_cost_per_token", "input_cost_per_image_token"), _written(prices)
        if paid is None or written is None:
            return None
        pairs.append((above, paid, written))
    return pairs


def _start(tier: Any) -> int:
    """Where an entry of ``tiered_pricing`` begins; -1 for what is none."""
    span = tier.get("range") if isinstance(tier, Mapping) else None
    start = span[0] if isinstance(span, list) and span else None
    return int(start) if _is_number(start) and 0 <= start <= MOST_TOKENS else -1


def _written(prices: Mapping[str, Any]) -> int | None:
    """The tokens of reasoning are output as well, and may cost more."""
    return _dearest(prices, "output_cost_per_token", "output_cost_per_reasoning_token")


def _dearest(prices: Mapping[str, Any], needed: str, *others: str) -> int | None:
    found = [_units(prices.get(needed)), *(_units(prices[name]) for name in others if name in prices)]
    amounts = [amount for amount in found if amount is not None]
    return max(amounts) if len(amounts) == len(found) else None


def _request(entry: Mapping[str, Any], model: Model) -> int | None:
    """The price of a request as such, with that of the search which some models make unasked."""
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
    """Dollars in units, rounded up; None for what is no price. What is not zero does not become it."""
    if not _is_number(dollars) or not 0 <= dollars <= 1e6:
        return None
    # a price such as 2.5e-07 is no binary number: its product is a hair off the whole one that is meant
    return max(math.ceil(round(dollars * scale, 3)), 1 if dollars else 0)


def _count(tokens: Any) -> int | None:
    return min(int(tokens), MOST_TOKENS) if _is_number(tokens) and tokens >= 1 else None


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
