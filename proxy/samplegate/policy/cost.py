"""Pure. Costs of a model call: the max cost before it, and the actual cost after it. ``claims.py`` has the limits.

The server chooses the input. So the bound assumes what tokenizers can do, not what they usually do: at most one token
per byte of UTF-8. Content other than text is counted as described at each constant. A model's ``margin`` covers
uncounted tokens, and the ledger books an overrun. A tool's schema counts with its references expanded, because some
providers get it that way: a dozen definitions that refer to each other twice expand to gigabytes. A schema larger than
``MAX_TOOL_CHARACTERS`` is not sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from samplegate.policy.catalogue import MAX_TOKENS, ModelFacts, Rates, Worst
from samplegate.policy.schema import Model

MAX_TOOL_CHARACTERS: Final = 400_000
"""Characters of all tools of a request: more is never sent."""
_CHAIN: Final = 48  # nested references; a schema with more is not sent either
_STEPS: Final = 20_000
"""References to follow in one schema, each to every definition of its name. A schema with more counts as
``MAX_TOOL_CHARACTERS``; real ones have hundreds."""
_AROUND: Final = 6  # the quotes, colon, comma and spaces of a member

_Use: TypeAlias = str | int
"""A use of a definition: by the last part of its reference, or by its number if it is nested in another one."""


class _Definitions(msgspec.Struct):
    """Definitions by number; the schema itself is 0. Each has its own size without nested ones, and its uses."""

    sizes: list[int]
    uses: list[list[_Use]]
    names: dict[str, list[int]]
    left: int = _STEPS


def expanded_size(schema: Mapping[str, Any]) -> int:
    """Maximum characters of the schema's JSON with references expanded. ``MAX_TOOL_CHARACTERS`` if larger, or if
    the references form a cycle."""
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
        return MAX_TOOL_CHARACTERS
    known[number] = MAX_TOOL_CHARACTERS  # a definition that is reached again on its own path is in a cycle
    size, itself = found.sizes[number], 0
    for use in found.uses[number]:
        targets = (use,) if isinstance(use, int) else found.names.get(use, ())
        found.left -= len(targets)
        if found.left < 0:
            return MAX_TOOL_CHARACTERS
        for target in targets:
            if target == number:
                itself += 1
            else:
                size += _total(found, target, known, depth + 1)
        if size >= MAX_TOOL_CHARACTERS:
            return MAX_TOOL_CHARACTERS
    # a recursive definition is expanded once within itself, no deeper
    known[number] = min(size * (1 + itself), MAX_TOOL_CHARACTERS)
    return known[number]


PER_BLOCK: Final = 16
"""Tokens that providers add per message, block or tool for roles, separators and names. Real ones add 3 to 12."""
FOR_TOOLS: Final = 600
"""Tokens of the instructions that providers add if a request has tools or tool uses: 200 to 530."""
BYTES_PER_AUDIO_TOKEN: Final = 16
"""Providers count 10 to 32 tokens per second. 32 times 16 bytes are 4 kbit/s, below every speech codec. A file of
silence can be smaller still; that is booked as an overrun."""
CHARACTERS_PER_TOKEN: Final = 8
"""Lower bound of a text's tokens: no language needs fewer than one token per eight characters; English needs one per
four or five."""
MAX_USD_UNITS: Final = 2**62
"""The largest amount in a ledger's integers: 4.6 million dollars."""

_MEDIA: Final = frozenset({"text", "image", "audio"})
_EMPTY: Final[Mapping[str, Any]] = {
    "messages": ({"role": "user", "content": {"type": "text", "text": ""}},),
    "maxTokens": 1,
}


class PromptCount(msgspec.Struct, frozen=True):
    """The content that a model would read of a request, counted independently of the model."""

    text: int
    """Maximum tokens without images and audio."""
    letters: int
    """Characters of the texts."""
    images: int
    audio: int
    """Maximum tokens."""

    @property
    def least(self) -> int:
        """Minimum tokens."""
        return self.letters // CHARACTERS_PER_TOKEN


def worst(model: Model, facts: ModelFacts, params: Mapping[str, Any]) -> Worst:
    """The upper bound for calling ``model`` with these params, which are already bounded (``prompt.bounded``)."""
    return worst_of(model, facts, reading(params), params["maxTokens"])


def worst_of(model: Model, facts: ModelFacts, read: PromptCount, output_tokens: int) -> Worst:
    """The same for a prompt that is already counted."""
    return _worst(facts, _input(model, facts, read), output_tokens, read.audio > 0)


MAX_REPORTED_TOKENS: Final = 1_000_000
"""Maximum tokens that a provider's usage may have for one answer, unless the request or the model has a higher bound. A
higher count is implausible and would block a bucket for years."""


def actual(
    model: Model, facts: ModelFacts, params: Mapping[str, Any], input_tokens: int | None, output_tokens: int | None
) -> Worst:
    """The actual cost by the provider's counts; a missing count is replaced by its upper bound."""
    read = reading(params)
    worst = _input(model, facts, read)
    most_read, most_written = (
        max(worst, facts.context or 0, MAX_REPORTED_TOKENS),
        max(params["maxTokens"], facts.max_output or 0, MAX_REPORTED_TOKENS),
    )
    tokens = worst if input_tokens is None else min(input_tokens, most_read)
    return _worst(
        facts,
        tokens,
        params["maxTokens"] if output_tokens is None else min(output_tokens, most_written),
        read.audio > 0,
    )


def least(model: Model, facts: ModelFacts) -> Worst:
    """The upper bound of the smallest possible request: a limit below it admits none."""
    return worst(model, facts, _EMPTY)


def _input(model: Model, facts: ModelFacts, read: PromptCount) -> int:
    tokens = math.ceil((read.text + read.images * model.image_tokens + read.audio) * model.margin)
    # with an api_base, a model of this name may read more than the table's limit
    known = model.context is not None or model.api_base is None
    return min(tokens, facts.context if known and facts.context is not None else MAX_TOKENS)


def _worst(facts: ModelFacts, input_tokens: int, output_tokens: int, audio: bool) -> Worst:
    usd = None if facts.rates is None else min(_price(facts.rates, input_tokens, output_tokens, audio), MAX_USD_UNITS)
    return Worst(input_tokens, output_tokens, usd)


def _price(rates: Rates, input_tokens: int, output_tokens: int, audio: bool) -> int:
    """The price by the most expensive tier that the input reaches. If the input has audio, all of it costs the audio
    price if that is higher."""
    paid, written = rates.input, rates.output
    for tier in rates.tiers:
        if input_tokens > tier.above:
            paid, written = max(paid, tier.input), max(written, tier.output)
    if audio and rates.audio is not None:
        paid = max(paid, rates.audio)
    return rates.request + input_tokens * paid + output_tokens * written


def reading(params: Mapping[str, Any]) -> PromptCount:
    """Count checked createMessage params."""
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
    """Accumulates counts. It is a class for speed: most requests are one text."""

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
        """Add a value's JSON in its longest usual form: with spaces after commas and colons, and non-ASCII characters
        escaped (at most three times as long)."""
        raw = msgspec.json.encode(value)
        size = len(raw) + raw.count(b",") + raw.count(b":")
        self.tokens += PER_BLOCK + (size if raw.isascii() else 3 * size)

    def tool(self, tool: Mapping[str, Any]) -> None:
        """Add a tool, with its references expanded. Once the expanded tools exceed the sendable size, each further one
        counts as ``MAX_TOOL_CHARACTERS``."""
        schema = tool["inputSchema"]
        raw = msgspec.json.encode(schema)
        self.json([tool["name"], tool.get("description"), schema])
        if b'"$ref"' in raw and len(raw) < MAX_TOOL_CHARACTERS:
            size = expanded_size(schema) if self.grown < MAX_TOOL_CHARACTERS else MAX_TOOL_CHARACTERS
            self.grown += size
            self.tokens += max(size - len(raw), 0) * (1 if raw.isascii() else 3)


def _holds_blob(block: Mapping[str, Any]) -> bool:
    """Whether a block is a binary embedded resource, which is sent as an image, if at all."""
    resource = block.get("resource")
    return isinstance(resource, dict) and "blob" in resource


def _decoded(data: str) -> int:
    """The maximum number of bytes that base64 text encodes."""
    return -(-len(data) * 3 // 4)
