"""Pure. Costs of a call: the max cost before it is made, and the actual cost after it. The limits that it draws on are
in ``claims.py``.

A server chooses what is read, so the bound is by what tokenizers can do, not by what they usually do: each writes at
most one token for a byte of UTF-8. What is not text is counted as said at each constant; a model's ``margin`` is for
what nobody counts, and an overrun is booked by the ledger. A tool's schema counts with its references expanded, as some
providers get it: a dozen definitions that refer to each other twice expand to gigabytes. A schema over ``MOST`` is not
sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from samplegate.policy.catalogue import MOST_TOKENS, ModelFacts, Rates, Worst
from samplegate.policy.schema import Model

MOST: Final = 400_000
"""Characters of all tools of a request: more is never sent."""
_CHAIN: Final = 48  # references within references; with more it is not sent either
_STEPS: Final = 20_000
"""References that are followed in one schema, each to every definition of its name: with more it counts as ``MOST``.
Real ones have hundreds."""
_AROUND: Final = 6  # the quotes, colon, comma and spaces of a member

_Use: TypeAlias = str | int
"""A definition that is referred to, by its last word, or that stands within another, by its number."""


class _Definitions(msgspec.Struct):
    """The schema itself is number 0; each definition has its own size, without those within it, and what it uses."""

    sizes: list[int]
    uses: list[list[_Use]]
    names: dict[str, list[int]]
    left: int = _STEPS


def grown(schema: Mapping[str, Any]) -> int:
    """Characters of its JSON at most; ``MOST`` where it is more, or definitions refer to each other in a circle."""
    found = _definitions(schema)
    return _total(found, 0, {}, 0)


def _definitions(schema: Mapping[str, Any]) -> _Definitions:
    found = _Definitions([0], [[]], {})
    todo: list[tuple[Any, int]] = [(schema, 0)]
    while todo:
        node, owner = todo.pop()
        if isinstance(node, Mapping):
            found.sizes[owner] += 2 + sum(len(key) + _AROUND for key in node)
            reference = node.get("$ref")
            if isinstance(reference, str):
                found.uses[owner].append(reference.rpartition("/")[2])
            for key, value in node.items():
                if key in ("$defs", "definitions") and isinstance(value, Mapping):
                    todo += [(target, _added(found, owner, name)) for name, target in value.items()]
                else:
                    todo.append((value, owner))
        elif isinstance(node, list):
            found.sizes[owner] += 2 + 2 * len(node)
            todo += [(item, owner) for item in node]
        else:
            found.sizes[owner] += len(msgspec.json.encode(node))
    return found


def _added(found: _Definitions, owner: int, name: str) -> int:
    number = len(found.sizes)
    found.sizes.append(len(name) + _AROUND)
    found.uses.append([])
    found.uses[owner].append(number)
    found.names.setdefault(name, []).append(number)
    return number


def _total(found: _Definitions, number: int, known: dict[int, int], depth: int) -> int:
    if number in known:
        return known[number]
    if depth > _CHAIN:
        return MOST
    known[number] = MOST  # what is met again on its own way goes in a circle
    size, itself = found.sizes[number], 0
    for use in found.uses[number]:
        targets = (use,) if isinstance(use, int) else found.names.get(use, ())
        found.left -= len(targets)
        if found.left < 0:
            return MOST
        for target in targets:
            if target == number:
                itself += 1
            else:
                size += _total(found, target, known, depth + 1)
        if size >= MOST:
            return MOST
    # a definition is written out within itself, but not within that again
    known[number] = min(size * (1 + itself), MOST)
    return known[number]


PER_BLOCK: Final = 16
"""Tokens that providers put around a message, a block or a tool: roles, separators, names. Real ones put 3 to 12."""
FOR_TOOLS: Final = 600
"""Tokens of the instructions that providers add where tools are offered, or were used before: 200 to 530."""
BYTES_PER_AUDIO_TOKEN: Final = 16
"""Providers count 10 to 32 tokens a second. 32 of 16 bytes are 4 kbit/s, below every codec for speech; a file that is
silence throughout can be smaller still, and is booked as an overrun."""
CHARACTERS_PER_TOKEN: Final = 8
"""For what a text comes to at least: no language takes fewer tokens than one for eight characters; English takes one
for four or five."""
MOST_UNITS: Final = 2**62
"""What a ledger's integers hold: 4.6 million dollars."""

_MEDIA: Final = frozenset({"text", "image", "audio"})
_EMPTY: Final[Mapping[str, Any]] = {
    "messages": ({"role": "user", "content": {"type": "text", "text": ""}},),
    "maxTokens": 1,
}


class PromptCount(msgspec.Struct, frozen=True):
    """What a model would read of a request, counted without knowing the model."""

    text: int
    """Tokens at most, without images and audio."""
    letters: int
    """Characters of its texts."""
    images: int
    audio: int
    """Tokens at most."""

    @property
    def least(self) -> int:
        """Tokens that it surely comes to."""
        return self.letters // CHARACTERS_PER_TOKEN


def worst(model: Model, facts: ModelFacts, params: Mapping[str, Any]) -> Worst:
    """The most that asking ``model`` these params may come to; they are within its bounds already
    (``prompt.bounded``)."""
    return worst_of(model, facts, reading(params), params["maxTokens"])


def worst_of(model: Model, facts: ModelFacts, read: PromptCount, output_tokens: int) -> Worst:
    """The same for what is counted already."""
    return _worst(facts, _input(model, facts, read), output_tokens, read.audio > 0)


MOST_REPORTED: Final = 1_000_000
"""Tokens that a provider can report for one answer, where neither the request nor the model's own bounds come to more:
a count beyond that is no count, and would close a bucket for years."""


def actual(
    model: Model, facts: ModelFacts, params: Mapping[str, Any], input_tokens: int | None, output_tokens: int | None
) -> Worst:
    """What it came to by the provider's counts; a count that is missing is taken at its worst."""
    read = reading(params)
    worst = _input(model, facts, read)
    most_read, most_written = (
        max(worst, facts.context or 0, MOST_REPORTED),
        max(params["maxTokens"], facts.max_output or 0, MOST_REPORTED),
    )
    tokens = worst if input_tokens is None else min(input_tokens, most_read)
    return _worst(
        facts,
        tokens,
        params["maxTokens"] if output_tokens is None else min(output_tokens, most_written),
        read.audio > 0,
    )


def least(model: Model, facts: ModelFacts) -> Worst:
    """The worst of the smallest request there is: a limit below it lets none through."""
    return worst(model, facts, _EMPTY)


def _input(model: Model, facts: ModelFacts, read: PromptCount) -> int:
    tokens = math.ceil((read.text + read.images * model.image_tokens + read.audio) * model.margin)
    # what runs elsewhere under a name may read more than the table's
    known = model.context is not None or model.api_base is None
    return min(tokens, facts.context if known and facts.context is not None else MOST_TOKENS)


def _worst(facts: ModelFacts, input_tokens: int, output_tokens: int, audio: bool) -> Worst:
    usd = None if facts.rates is None else min(_price(facts.rates, input_tokens, output_tokens, audio), MOST_UNITS)
    return Worst(input_tokens, output_tokens, usd)


def _price(rates: Rates, input_tokens: int, output_tokens: int, audio: bool) -> int:
    """By the dearest tier that so much input reaches; with audio in it, all of the input is charged as audio if that is
    dearer."""
    paid, written = rates.input, rates.output
    for tier in rates.tiers:
        if input_tokens > tier.above:
            paid, written = max(paid, tier.input), max(written, tier.output)
    if audio and rates.audio is not None:
        paid = max(paid, rates.audio)
    return rates.request + input_tokens * paid + output_tokens * written


def reading(params: Mapping[str, Any]) -> PromptCount:
    """What a model would read of createMessage params, checked ones."""
    counter = _Counter()
    if prompt := params.get("systemPrompt"):
        counter.text(prompt)
    for message in params["messages"]:
        content = message["content"]
        counter.tokens += PER_BLOCK
        counter.blocks(content if isinstance(content, list) else (content,))
    if tools := params.get("tools"):
        counter.tokens += FOR_TOOLS
        for tool in tools:
            counter.tool(tool)
    elif counter.uses:
        counter.tokens += FOR_TOOLS
    return PromptCount(counter.tokens, counter.letters, counter.images, -(-counter.audio // BYTES_PER_AUDIO_TOKEN))


class _Counter:
    """Adds up. A class because that is faster: most requests are one text."""

    __slots__ = ("audio", "grown", "images", "letters", "tokens", "uses")

    def __init__(self) -> None:
        self.tokens = self.letters = self.images = self.audio = self.uses = self.grown = 0

    def blocks(self, blocks: Sequence[Mapping[str, Any]]) -> None:
        for block in blocks:
            type_ = block["type"]
            if type_ == "text":
                self.text(block["text"])
            elif type_ == "image":
                self.images += 1
                self.tokens += PER_BLOCK
            elif type_ == "audio":
                self.audio += _decoded(block["data"])
                self.tokens += PER_BLOCK
            elif type_ == "tool_result":
                inner = block["content"]
                self.blocks([part for part in inner if part["type"] in _MEDIA])
                rest = [part for part in inner if part["type"] not in _MEDIA]
                self.images += sum(map(_holds_blob, rest))
                self.json([block["toolUseId"], block.get("structuredContent"), *rest])
            else:
                self.uses += type_ == "tool_use"
                self.json(block)

    def text(self, text: str) -> None:
        size = len(text)
        self.letters += size
        self.tokens += PER_BLOCK + (size if text.isascii() else len(text.encode("utf-8", "surrogatepass")))

    def json(self, value: Any) -> None:
        """Its text in the longest of the usual ways: a space behind commas and colons, and what is not ASCII escaped
        (at most thrice as long)."""
        raw = msgspec.json.encode(value)
        size = len(raw) + raw.count(b",") + raw.count(b":")
        self.tokens += PER_BLOCK + (size if raw.isascii() else 3 * size)

    def tool(self, tool: Mapping[str, Any]) -> None:
        """With its references written out, where it has some. Once all of them are more than is ever sent, each counts
        as the most."""
        schema = tool["inputSchema"]
        raw = msgspec.json.encode(schema)
        self.json([tool["name"], tool.get("description"), schema])
        if b'"$ref"' in raw and len(raw) < MOST:
            size = grown(schema) if self.grown < MOST else MOST
            self.grown += size
            self.tokens += max(size - len(raw), 0) * (1 if raw.isascii() else 3)


def _holds_blob(block: Mapping[str, Any]) -> bool:
    """Whether it is an embedded resource that is no text: it goes as an image, if at all."""
    resource = block.get("resource")
    return isinstance(resource, dict) and "blob" in resource


def _decoded(data: str) -> int:
    """The bytes that base64 stands for, at most."""
    return -(-len(data) * 3 // 4)
