"""What a policy means to each server that it names: which servers, callers and eras there are, put together where they are the same.

Not the derivation of what is declared: that is ``core/capabilities.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from samplegate.core.capabilities import Asker, Coverage, describe_offer, first_to_forward_forms
from samplegate.core.decide import Rulebook
from samplegate.core.eras import LEGACY, MODERN, Era
from samplegate.core.matching.conditions import globs, is_glob
from samplegate.core.policy import Match, Names, Policy

ANY: Final = "any server"
OTHERS: Final = "any other server"
LOCAL: Final = "local"

_ERAS: Final[tuple[tuple[Era, str], ...]] = (("legacy", LEGACY[-1]), ("modern", MODERN[-1]))


@dataclass(frozen=True, slots=True)
class Offered:
    """Servers to which a policy means the same, and what; ``str()`` names them."""

    who: tuple[str, ...]
    requests: tuple[Coverage, ...]

    def __str__(self) -> str:
        return ", ".join(self.who)


def offers(book: Rulebook) -> list[Offered]:
    """For every server the policy names, and for any other; another caller or era only where it makes a difference."""
    groups: dict[tuple[Coverage, ...], list[str]] = {}
    for label, server in _servers(book.policy):
        usual, _ = _eras(book, server, LOCAL)
        groups.setdefault(usual, []).append(label)
        for caller in _callers(book.policy):
            legacy, modern = _eras(book, server, caller)
            called = label if caller == LOCAL else f"{label} for caller {caller}"
            if legacy != usual:
                groups.setdefault(legacy, []).append(called)
            if modern != legacy:
                groups.setdefault(modern, []).append(f"{called} in the modern era")
    return [Offered(tuple(who), requests) for requests, who in groups.items()]


def forwards_forms_first(book: Rulebook) -> list[str]:
    """The rules that forward forms before any other rule takes them, for any server and caller."""
    askers = (Asker(server, caller, era, None) for _, server in _servers(book.policy) for caller in _callers(book.policy) for era, _ in _ERAS)
    return list(dict.fromkeys(rule for who in askers if (rule := first_to_forward_forms(book, who)) is not None))


def _eras(book: Rulebook, server: str, caller: str) -> tuple[tuple[Coverage, ...], ...]:
    return tuple(describe_offer(book, server=server, caller=caller, era=era, revision=revision) for era, revision in _ERAS)


def _servers(policy: Policy) -> Iterator[tuple[str, str]]:
    """Each server as it is called in the policy, with a name that stands for it."""
    named = dict.fromkeys([*policy.servers, *(name for rule in policy.rules for name in _names(rule.match, "server"))])
    for name in named:
        if (example := _example(name)) is not None:
            yield f"server {name}", example
    yield OTHERS if named else ANY, next(name for name in ("default", *(f"default{number}" for number in range(len(named) + 1))) if name not in named)


def _callers(policy: Policy) -> list[str]:
    names = [LOCAL, *(name for rule in policy.rules for name in _names(rule.match, "caller"))]
    return list(dict.fromkeys(example for name in names if (example := _example(name)) is not None))


def _names(match: Match, condition: str) -> Iterator[str]:
    names: Names | None = getattr(match, condition)
    yield from [names] if isinstance(names, str) else names or []
    if match.not_ is not None:
        yield from _names(match.not_, condition)


def _example(name: str) -> str | None:
    """A name that a glob takes, None where none comes to mind; a plain name is its own."""
    if not is_glob(name):
        return name
    example = re.sub(r"\[([^]!])[^]]*\]", r"\1", name).replace("*", "x").replace("?", "x")
    return example if globs(name)[0](example) else None
