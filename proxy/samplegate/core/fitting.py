"""What a request needs of a model, and whether a model has it: images, audio, tools, room. Pure. Not which one is best: ``models.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from samplegate.core.bounds import most_tokens
from samplegate.core.catalogue import SCRIPTED, ModelFacts
from samplegate.core.costs import CHARACTERS_PER_TOKEN, Reading, reading
from samplegate.core.matching.facts import Facts
from samplegate.core.policy import Model, With

_PLAIN: Final = frozenset({"text"})
_NEEDED: Final = {"image": "image", "audio": "audio", "tool_use": "tools", "tool_result": "tools", "other": "other"}
"""What a model must take for a type of content; text and links to resources, which are told as text, need nothing."""
_CALLED: Final = {
    "image": "images",
    "audio": "audio",
    "tools": "tools",
    "sound": "audio within a tool's result",
    "blob": "binary resources",
    "other": "content of a kind that is not known here",
}
_SCRIPTED: Final = frozenset({"sound", "blob"})
"""What no provider is sent, and a script need not look at."""


class Asking:
    """What of a request matters for the choice, counted once and only if asked."""

    def __init__(self, facts: Facts) -> None:
        self.params: Mapping[str, Any] = facts.request.params
        self.size = facts.request.size
        self.needs = needs(facts)
        self._reading: Reading | None = None

    @property
    def reading(self) -> Reading:
        if self._reading is None:
            self._reading = reading(self.params)
        return self._reading

    def misfit(self, with_: With, model: Model, facts: ModelFacts) -> str | None:
        """Why a model cannot be asked this; None if it can as far as known."""
        if lacks := self.needs - taken(model, facts):
            return f"takes no {_listed(lacks, 'or')}"
        if facts.context is None:
            return None
        # `context` of the policy is for input and output together, the table's bound is for input alone
        answer = most_tokens(with_, model, facts, self.params["maxTokens"]) if model.context is not None else 0
        if self.size // CHARACTERS_PER_TOKEN + answer <= facts.context:
            return None  # a character takes a byte at least: no need to count
        tokens = self.reading.least
        if tokens + answer <= facts.context:
            return None
        with_answer = f" with the {answer} of the answer" if answer else ""
        return f"reads {facts.context} tokens, and this comes to more than {tokens + answer - 1}{with_answer}"


def needs(facts: Facts) -> frozenset[str]:
    """What a model must take besides text: ``image``, ``audio``, ``tools``; ``sound``, ``blob`` and ``other`` are what no provider is sent."""
    found: frozenset[str] = facts.content_types
    extras = frozenset() if found == _PLAIN else frozenset(_NEEDED[type_] for type_ in found if type_ in _NEEDED)
    if "tool_result" in found:
        extras |= frozenset(extra for block in facts.blocks if block["type"] == "tool_result" for extra in _within(block["content"]))
    params = facts.request.params
    if params.get("tools") and (params.get("toolChoice") or {}).get("mode") != "none":
        return extras | {"tools"}
    return extras


def _within(result: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The same of what is in a tool's result: a resource that is an image goes as one."""
    for block in result:
        resource = block.get("resource")
        if block["type"] == "audio":
            yield "sound"
        elif block["type"] == "resource" and isinstance(resource, dict) and not isinstance(resource.get("text"), str):
            yield "image" if str(resource.get("mimeType")).startswith("image/") else "blob"


def taken(model: Model, facts: ModelFacts) -> frozenset[str]:
    """What a model takes besides text."""
    return facts.accepts | _SCRIPTED if model.model == SCRIPTED else facts.accepts


def nobody(needs: frozenset[str], unfit: Mapping[str, str], takes: Mapping[str, frozenset[str]]) -> str:
    """What no model takes, with what each does take; ``unfit`` says why each does not fit."""
    if missing := needs.difference(*takes.values()):
        return f"no model takes {_listed(missing, 'or')} ({grouped({name: _told(extras) for name, extras in takes.items()})})"
    return f"no model fits ({grouped(unfit)})"


def _told(extras: frozenset[str]) -> str:
    shown = extras - _SCRIPTED
    return _listed(shown, "and", "text") if shown else "text only"


def _listed(extras: frozenset[str], last: str, *first: str) -> str:
    names = [*first, *(_CALLED[extra] for extra in sorted(extras, key=list(_CALLED).index))]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def grouped(said: Mapping[str, str]) -> str:
    """``cheap, smart: text only; local: text and tools``."""
    groups: dict[str, list[str]] = {}
    for name, what in said.items():
        groups.setdefault(what, []).append(name)
    return "; ".join(f"{', '.join(names)}: {what}" for what, names in groups.items())
