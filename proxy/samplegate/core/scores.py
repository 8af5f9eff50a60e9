"""Weighted scores of models: who wants what, and how well each model does it beside the others. Pure. Not the hints, which rank above (R19)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from samplegate.core.policy import Model, Quality, Weights

QUALITIES: Final[tuple[Quality, ...]] = ("cost", "speed", "intelligence")
_ONE: Final[Mapping[str, Weights]] = {"cost": Weights(cost=1), "speed": Weights(speed=1), "intelligence": Weights(intelligence=1)}


class Score(msgspec.Struct, frozen=True):
    """Of one model beside the others that fit: 1 is the best of them, 0 the last or unknown."""

    total: float
    cost: float
    speed: float
    intelligence: float
    usd: int | None = None
    """What the request costs at worst, in units; None: unknown, or not asked."""


def wanted(prefer: Quality | Weights | None, preferences: Mapping[str, Any] | None) -> tuple[Weights | None, str]:
    """What counts and who says so; None where nothing does: the rule's ``prefer``, else the server's priorities (R20, absent is unsaid: R21)."""
    if prefer is not None:
        return (_ONE[prefer] if isinstance(prefer, str) else prefer), "the rule's prefer"
    if not preferences:
        return None, ""
    asked = {name: _priority(preferences.get(f"{name}Priority")) for name in QUALITIES}
    return (Weights(**asked) if any(asked.values()) else None), "the server's priorities"


def _priority(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1 else 0.0


def rank(models: Sequence[Model], weights: Weights, usd: Mapping[str, int | None]) -> Mapping[str, Score]:
    """The score of each, by our names. ``usd`` is what the request costs at worst by each; needed only where cost counts."""
    parts = {
        "cost": _spread([None if (cost := usd.get(model.name)) is None else -cost for model in models]),
        "speed": _spread([model.speed for model in models]),
        "intelligence": _spread([model.intelligence for model in models]),
    }
    whole = math.fsum(getattr(weights, name) for name in QUALITIES) or 1.0
    scores: dict[str, Score] = {}
    for index, model in enumerate(models):
        part = {name: parts[name][index] for name in QUALITIES}
        total = math.fsum(getattr(weights, name) * part[name] for name in QUALITIES) / whole
        scores[model.name] = Score(round(total, 9), **part, usd=usd.get(model.name))  # rounded: a tie is the list's to decide
    return scores


def _spread(values: Sequence[float | None]) -> list[float]:
    """The values from 0 for the least to 1 for the most; 1 for all that are the same. What is unknown is 0: nobody is preferred for it."""
    known = [value for value in values if value is not None]
    if not known:
        return [0.0] * len(values)
    low, high = min(known), max(known)
    return [0.0 if value is None else 1.0 if high == low else (value - low) / (high - low) for value in values]
