"""What a server's hints mean among an operator's models. Pure. They only order what a rule allows (R19, R21)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from samplegate.core.matching.conditions import globs, is_glob, shown
from samplegate.core.matching.facts import hint_names
from samplegate.core.policy import Model, Policy

MAX_HINTS: Final = 100
"""Of one request; real ones give one to three. All are compared with all keys of the policy's ``hints``, for each rule that allows."""
MAX_HINT: Final = 256
"""Characters; no model has so long a name."""
ALIKE: Final = "is part of its name"


def heard(params: Mapping[str, Any]) -> Iterator[str]:
    """The hints of a request that are looked at, in their order."""
    return (hint for hint in hint_names(params)[:MAX_HINTS] if len(hint) <= MAX_HINT)


def meaning(policy: Policy, models: Sequence[Model], hint: str) -> tuple[str, list[Model]]:
    """How a hint (lower case) means which of these models: a name, then the policy's ``hints`` in their order, then what is alike (T28)."""
    exact = [model for model in models if hint in _names(model)]
    if exact:
        return "is its name", exact
    for key, value in policy.hints.items():
        if _test(key)(hint):
            names = [value] if isinstance(value, str) else value
            meant = [model for name in dict.fromkeys(names) for model in models if model.name == name]
            if meant:
                return f"means {shown(key)} in the policy's hints", meant
    return ALIKE, [model for model in models if hint in model.name.lower() or hint in model.model.lower()]


def _names(model: Model) -> Iterator[str]:
    """A model's whole names: ours, litellm's, and litellm's without the provider."""
    yield model.name.lower()
    yield model.model.lower()
    yield model.model.lower().partition("/")[2]


@lru_cache(maxsize=1024)
def _test(key: str) -> Callable[[str], object]:
    """A key of ``hints`` with ``*``, ``?`` or ``[`` is a glob of the whole hint, any other a part of it; case does not count."""
    key = key.lower()
    if not key:
        return lambda hint: False
    return globs(key)[0] if is_glob(key) else lambda hint: key in hint
