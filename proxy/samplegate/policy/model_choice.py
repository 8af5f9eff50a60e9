"""Pure. Model choice: the models that may answer a request, best first.

The order depends on the rule's list, the models' abilities, the server's hints and the weights. Hints only order the
models that a rule allows (R19, R21), and take precedence over weights. ``prompt.py`` builds the request to the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from samplegate.policy.catalogue import SCRIPTED, ModelFacts
from samplegate.policy.conditions import globs, is_glob, short_value
from samplegate.policy.cost import CHARACTERS_PER_TOKEN, PromptCount, reading, worst_of
from samplegate.policy.facts import Facts, hint_names
from samplegate.policy.prompt import BoundedPrompt, bounded, max_output_tokens
from samplegate.policy.schema import Model, ModelRule, Policy, Quality, Weights, With

if TYPE_CHECKING:
    from samplegate.policy.match import CompiledPolicy


QUALITIES: Final[tuple[Quality, ...]] = ("cost", "speed", "intelligence")
_ONE: Final[Mapping[str, Weights]] = {
    "cost": Weights(cost=1),
    "speed": Weights(speed=1),
    "intelligence": Weights(intelligence=1),
}


class Score(msgspec.Struct, frozen=True):
    """The score of one model among those that fit: 1 is the best, 0 the worst or unknown."""

    total: float
    cost: float
    speed: float
    intelligence: float
    usd: int | None = None
    """The request's max cost with this model, in units; None: unknown, or cost has no weight."""


def wanted(prefer: Quality | Weights | None, preferences: Mapping[str, Any] | None) -> tuple[Weights | None, str]:
    """The weights and their source: the rule's ``prefer``, else the server's priorities (R20). None if there are none;
    an absent priority counts as not given (R21)."""
    if prefer is not None:
        return (_ONE[prefer] if isinstance(prefer, str) else prefer), "the rule's prefer"
    if not preferences:
        return None, ""
    asked = {name: _priority(preferences.get(f"{name}Priority")) for name in QUALITIES}
    return (Weights(**asked) if any(asked.values()) else None), "the server's priorities"


def _priority(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1 else 0.0


def rank(models: Sequence[Model], weights: Weights, usd: Mapping[str, int | None]) -> Mapping[str, Score]:
    """The score of each model by name. ``usd`` is the request's max cost with each model; needed only if cost has a
    weight."""
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
        # rounded, so that the list decides a tie
        scores[model.name] = Score(round(total, 9), **part, usd=usd.get(model.name))
    return scores


def _spread(values: Sequence[float | None]) -> list[float]:
    """The values scaled from 0 for the lowest to 1 for the highest; 1 for all if they are equal. An unknown value is 0,
    so that it gives no advantage."""
    known = [value for value in values if value is not None]
    if not known:
        return [0.0] * len(values)
    low, high = min(known), max(known)
    return [0.0 if value is None else 1.0 if high == low else (value - low) / (high - low) for value in values]


MAX_HINTS: Final = 100
"""Hints of one request to consider; real ones have one to three. Each is compared with every key of the policy's
``hints``, for each allow rule."""
MAX_HINT: Final = 256
"""Maximum characters of a hint; no model has such a long name."""
ALIKE: Final = "is part of its name"


def requested_hints(params: Mapping[str, Any]) -> Iterator[str]:
    """The hints of a request to consider, in order."""
    return (hint for hint in hint_names(params)[:MAX_HINTS] if len(hint) <= MAX_HINT)


def resolve_hint(policy: Policy, models: Sequence[Model], hint: str) -> tuple[str, list[Model]]:
    """The models that a hint (in lower case) means, and why: by their names, then by the policy's ``hints`` in order,
    then by similarity (T28)."""
    exact = [model for model in models if hint in _names(model)]
    if exact:
        return "is its name", exact
    for key, value in policy.hints.items():
        if _test(key)(hint):
            names = [value] if isinstance(value, str) else value
            meant = [model for name in dict.fromkeys(names) for model in models if model.name == name]
            if meant:
                return f"matches {short_value(key)} in the policy's hints", meant
    return ALIKE, [model for model in models if hint in model.name.lower() or hint in model.model.lower()]


def _names(model: Model) -> Iterator[str]:
    """A model's full names: the policy's, litellm's, and litellm's without the provider."""
    yield model.name.lower()
    yield model.model.lower()
    yield model.model.lower().partition("/")[2]


@lru_cache(maxsize=1024)
def _test(key: str) -> Callable[[str], object]:
    """The test for a key of ``hints``. A key with ``*``, ``?`` or ``[`` is a glob of the whole hint, any other a
    substring. Case is ignored."""
    key = key.lower()
    if not key:
        return lambda hint: False
    return globs(key)[0] if is_glob(key) else lambda hint: key in hint


_PLAIN: Final = frozenset({"text"})
_NEEDED: Final = {"image": "image", "audio": "audio", "tool_use": "tools", "tool_result": "tools", "other": "other"}
"""The ability that a content type requires. Text needs none, nor do resource links, which are sent as text."""
_CALLED: Final = {
    "image": "images",
    "audio": "audio",
    "tools": "tools",
    "sound": "audio in a tool's result",
    "blob": "binary resources",
    "other": "content of an unknown type",
}
_SCRIPTED: Final = frozenset({"sound", "blob"})
"""Content that no provider gets and that a script need not read."""


class RequestTraits:
    """Traits of a request that matter for the choice, counted once and only when needed."""

    def __init__(self, facts: Facts) -> None:
        self.params: Mapping[str, Any] = facts.request.params
        self.size = facts.request.size
        self.needs = needs(facts)
        self._reading: PromptCount | None = None

    @property
    def reading(self) -> PromptCount:
        if self._reading is None:
            self._reading = reading(self.params)
        return self._reading

    def misfit(self, with_: With, model: Model, facts: ModelFacts) -> str | None:
        """Why a model cannot answer the request; None if it can, as far as known."""
        if lacks := self.needs - accepted_content(model, facts):
            return f"does not accept {_listed(lacks, 'or')}"
        if facts.context is None:
            return None
        # the policy's `context` covers input and output together, the table's limit only the input
        answer = max_output_tokens(with_, model, facts, self.params["maxTokens"]) if model.context is not None else 0
        if self.size // CHARACTERS_PER_TOKEN + answer <= facts.context:
            return None  # a character has at least one byte: no need to count
        tokens = self.reading.least
        if tokens + answer <= facts.context:
            return None
        with_answer = f", including {answer} for the answer" if answer else ""
        return f"accepts {facts.context} tokens, but the request has more than {tokens + answer - 1}{with_answer}"


def needs(facts: Facts) -> frozenset[str]:
    """The abilities that a request requires besides text: ``image``, ``audio``, ``tools``. ``sound``, ``blob`` and
    ``other`` stand for content that no provider gets."""
    found: frozenset[str] = facts.content_types
    extras = frozenset() if found == _PLAIN else frozenset(_NEEDED[type_] for type_ in found if type_ in _NEEDED)
    if "tool_result" in found:
        extras |= frozenset(
            extra for block in facts.blocks if block["type"] == "tool_result" for extra in _within(block["content"])
        )
    params = facts.request.params
    if params.get("tools") and (params.get("toolChoice") or {}).get("mode") != "none":
        return extras | {"tools"}
    return extras


def _within(result: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The same for the content of a tool's result: an image resource is sent as an image."""
    for block in result:
        resource = block.get("resource")
        if block["type"] == "audio":
            yield "sound"
        elif block["type"] == "resource" and isinstance(resource, dict) and not isinstance(resource.get("text"), str):
            yield "image" if str(resource.get("mimeType")).startswith("image/") else "blob"


def accepted_content(model: Model, facts: ModelFacts) -> frozenset[str]:
    """The abilities of a model besides text."""
    return facts.accepts | _SCRIPTED if model.model == SCRIPTED else facts.accepts


def no_model_reason(needs: frozenset[str], unfit: Mapping[str, str], takes: Mapping[str, frozenset[str]]) -> str:
    """The message when no model fits: the missing ability, or each model's reason from ``unfit``."""
    if missing := needs.difference(*takes.values()):
        return (
            f"no model accepts {_listed(missing, 'or')}"
            f" ({grouped({name: _content_text(extras) for name, extras in takes.items()})})"
        )
    return f"no model fits ({grouped(unfit)})"


def _content_text(extras: frozenset[str]) -> str:
    shown = extras - _SCRIPTED
    return _listed(shown, "and", "text") if shown else "text only"


def _listed(extras: frozenset[str], last: str, *first: str) -> str:
    names = [*first, *(_CALLED[extra] for extra in sorted(extras, key=list(_CALLED).index))]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def grouped(said: Mapping[str, str]) -> str:
    """Names grouped by their text: ``cheap, smart: text only; local: text and tools``."""
    groups: dict[str, list[str]] = {}
    for name, what in said.items():
        groups.setdefault(what, []).append(name)
    return "; ".join(f"{', '.join(names)}: {what}" for what, names in groups.items())


__all__ = ["BoundedPrompt", "ModelChoice", "Score", "bounded", "candidates", "choose"]

_UNKNOWN: Final = ModelFacts()


class ModelChoice(msgspec.Struct, frozen=True):
    """The models that may answer, best first. If there are none, ``why`` has the reason."""

    models: tuple[Model, ...]
    why: str
    scores: Mapping[str, Score] = {}
    """By model name; empty without weights."""
    unfit: Mapping[str, str] = {}
    """The rule's models that do not fit, with the reason."""


def choose(compiled: CompiledPolicy, rule: ModelRule, facts: Facts) -> ModelChoice:
    """The rule's models (R21) that fit the request, ordered by the hints (R19), then by the weights (R20), else as
    listed."""
    allowed = candidates(compiled.policy, rule)
    if not allowed:
        return ModelChoice((), "the policy has no model for the rule")
    request = RequestTraits(facts)
    unfit = {
        model.name: why
        for model in allowed
        if (why := request.misfit(rule.with_, model, _facts(compiled, model))) is not None
    }
    fitting = [model for model in allowed if model.name not in unfit] if unfit else allowed
    if not fitting:
        takes = {model.name: accepted_content(model, _facts(compiled, model)) for model in allowed}
        return ModelChoice((), no_model_reason(request.needs, unfit, takes), unfit=unfit)
    if len(fitting) == 1:
        return ModelChoice(tuple(fitting), _only(rule, unfit), unfit=unfit)
    weights, whose = wanted(rule.with_.prefer, facts.request.params.get("modelPreferences"))
    scores = {} if weights is None else _scores(compiled, rule, request, fitting, weights)
    ordered, why = _ordered(compiled.policy, fitting, scores, facts.request.params)
    if not why and weights is not None:
        why = _by_weights(ordered, scores, weights, whose)
    why = why or _first(rule, unfit)
    return ModelChoice(tuple(ordered if rule.with_.fallback else ordered[:1]), why, scores, unfit)


def candidates(policy: Policy, rule: ModelRule) -> list[Model]:
    """The models that a rule allows, in its order."""
    by_name = {model.name: model for model in policy.models}
    names = dict.fromkeys(rule.with_.models or by_name)
    return [by_name[name] for name in names if name in by_name]


def _facts(compiled: CompiledPolicy, model: Model) -> ModelFacts:
    return compiled.catalogue.get(model.name, _UNKNOWN)


def _scores(
    compiled: CompiledPolicy, rule: ModelRule, request: RequestTraits, fitting: Sequence[Model], weights: Weights
) -> Mapping[str, Score]:
    usd: dict[str, int | None] = {}
    if weights.cost:
        for model in fitting:
            facts = _facts(compiled, model)
            usd[model.name] = worst_of(
                model, facts, request.reading, max_output_tokens(rule.with_, model, facts, request.params["maxTokens"])
            ).usd
    return rank(fitting, weights, usd)


def _ordered(
    policy: Policy, fitting: Sequence[Model], scores: Mapping[str, Score], params: Mapping[str, Any]
) -> tuple[list[Model], str]:
    """All models: those of the first hint, then those of the next, then the rest. Also why the first hint with a match
    matched, "" if none did."""
    # if cost has a weight, a model with an unknown price follows the most expensive one
    rest = (
        sorted(fitting, key=lambda model: (-scores[model.name].total, scores[model.name].usd is None))
        if scores
        else list(fitting)
    )
    ordered: list[Model] = []
    why = ""
    for hint in requested_hints(params):
        said, meant = resolve_hint(policy, rest, hint.lower())
        if meant:
            why = why or f"hint {short_value(hint)} {said}{_among(meant, scores, said)}"
            ordered += meant
            rest = [model for model in rest if model not in meant]
            if not rest:
                break
    return ordered + rest, why


def _among(meant: Sequence[Model], scores: Mapping[str, Score], said: str) -> str:
    """A note that scores chose among the models of one hint. A list in the policy's hints has its own order."""
    return (
        f"; the best of {len(meant)} by score, {scores[meant[0].name].total:.2f}"
        if scores and len(meant) > 1 and said == ALIKE
        else ""
    )


def _by_weights(ordered: Sequence[Model], scores: Mapping[str, Score], weights: Weights, whose: str) -> str:
    """Why the first model is first, in numbers."""
    counted = ", ".join(f"{name} {weight:g}" for name in QUALITIES if (weight := getattr(weights, name)))
    first, second = (scores[model.name] for model in ordered[:2])
    unpriced = [model.name for model in ordered if weights.cost and scores[model.name].usd is None]
    said = f"; unknown price: {', '.join(unpriced)}" if unpriced else ""
    return f"score {first.total:.2f} by {whose} ({counted}), ahead of {ordered[1].name} with {second.total:.2f}{said}"


def _first(rule: ModelRule, unfit: Mapping[str, str]) -> str:
    return f"first in {_whose(rule)}{_left_out(unfit)}"


def _only(rule: ModelRule, unfit: Mapping[str, str]) -> str:
    return f"the only model in {_whose(rule)}{_left_out(unfit)}"


def _whose(rule: ModelRule) -> str:
    return "the rule's list" if rule.with_.models else "the policy's list"


def _left_out(unfit: Mapping[str, str]) -> str:
    return f" that fits ({grouped(unfit)})" if unfit else ""
