"""Pure. Redaction of secrets in texts, by patterns in linear time. The detector's patterns are arguments.

It does not read images, audio and other binary data, decodes nothing (base64, escapes), and does not join texts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, TypeAlias

import msgspec

from samplegate.policy.schema import AllowRule, EscalateRule, Policy, Secrets
from samplegate.regex import Allowance, Finder, finder, merged_spans, spans, utf8

MAX_DEPTH: Final = 100  # requests have at most 64; deeper content is not passed on unread
REDACTED: Final = "[secret:"
"""The beginning of what replaces a secret; the pattern's name follows."""
UNREAD: Final = "unread"
"""The name under which content counts that is too deep to be read."""

_NO_TEXT: Final = frozenset({"modelPreferences", "includeContext", "toolChoice"})
"""Params that are settings and not read by the model."""

_KIND: Final = frozenset({"type", "role"})
_MEDIA: Final = _KIND | {"data"}
_BINARY: Final = frozenset({"blob"})


Reader: TypeAlias = Callable[[Any, int], Any]
"""Takes a value and its depth, and returns the value without its secrets."""


class Redactor(msgspec.Struct, frozen=True, eq=False):
    """Finds secrets. It stores nothing of the text."""

    finder: Finder


def redactor(policy: Policy, detectors: Mapping[str, str]) -> Redactor | None:
    """A redactor for the policy's own patterns and the detector's. A policy's pattern replaces the detector's of the
    same name.

    None if no rule of the policy looks for secrets. Raises ``re2.error`` for an invalid RE2 expression; the loader
    rejects those of a policy.
    """
    if not searches_secrets(policy):
        return None
    return of_patterns({**detectors, **policy.secrets})


def of_patterns(patterns: Mapping[str, str]) -> Redactor:
    """A redactor for RE2 expressions by name."""
    return Redactor(finder(patterns))


def searches_secrets(policy: Policy) -> bool:
    """Whether a rule of the policy looks for secrets. Otherwise the detector's patterns need not be read."""
    return any(isinstance(rule, AllowRule | EscalateRule) and is_enabled(rule.with_.secrets) for rule in policy.rules)


def is_enabled(secrets: Secrets | None) -> bool:
    """Whether a rule's settings look for secrets in the prompt or the answer."""
    return secrets is not None and (secrets.prompt, secrets.answer) != ("keep", "keep")


def clean_text(redactor: Redactor, text: str) -> str:
    """A text with its secrets redacted."""
    return _Work(redactor.finder).text(text)


def clean_value(redactor: Redactor, value: Any) -> Any:
    """A copy of decoded JSON with the secrets redacted in every text and every member's name."""
    match value:
        case str():
            return clean_text(redactor, value)
        case list():
            return [clean_value(redactor, each) for each in value]
        case dict():
            return {clean_text(redactor, name): clean_value(redactor, each) for name, each in value.items()}
        case _:
            return value


def clean_params(redactor: Redactor, params: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, int]]:
    """createMessage params with the secrets redacted in every text that a model would read, and the number of secrets
    by pattern.

    Nothing is changed in place: a value without secrets stays the same object.
    """
    work = _Work(redactor.finder)
    cleaned = work.record(
        params, 0, {"messages": work.records({"content": work.content}), "tools": work.records({})}, _NO_TEXT
    )
    return cleaned, dict(work.counts)


def clean_blocks(
    redactor: Redactor, blocks: tuple[Mapping[str, Any], ...]
) -> tuple[tuple[Mapping[str, Any], ...], Mapping[str, int]]:
    """The same for the content blocks of an answer."""
    work = _Work(redactor.finder)
    cleaned = tuple(work.block(block, 0) for block in blocks)
    return (cleaned if work.counts else blocks), dict(work.counts)


def size_of(blocks: Sequence[Mapping[str, Any]]) -> int:
    """Bytes of an answer's content blocks as compact JSON in UTF-8, without the brackets and commas between blocks."""
    return sum(
        len(json.dumps(block, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
        for block in blocks
    )


class _Work:
    """One pass over the texts of one request or answer, which copies what it changes and counts secrets."""

    def __init__(self, finder: Finder) -> None:
        self.counts: Counter[str] = Counter()
        self._finder = finder
        self._allowance = Allowance()

    def text(self, text: str) -> str:
        raw = utf8(text)
        found = [
            (place, name)
            for name, expression in self._finder.hits(raw)
            for place in spans(expression, raw, self._allowance)
        ]
        if not found:
            return text
        pieces, at = [], 0
        for (start, end), name in merged_spans(found):
            self.counts[name] += 1
            pieces += [raw[at:start], b"%s%s]" % (REDACTED.encode(), name.encode())]
            at = end
        return b"".join([*pieces, raw[at:]]).decode("utf-8", "replace")

    def value(self, value: Any, depth: int) -> Any:
        """Redact every text in any JSON value, including the names of members."""
        if isinstance(value, str):
            return self.text(value)
        if not isinstance(value, (Mapping, list, tuple)):
            return value
        if depth >= MAX_DEPTH:
            self.counts[UNREAD] += 1
            return f"{REDACTED}{UNREAD}]"
        if isinstance(value, Mapping):
            return self.mapping(value, depth)
        return self._list(value, [self.value(each, depth + 1) for each in value])

    def mapping(self, value: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        """Redact a mapping with free names."""
        found = self.counts.total()
        cleaned: dict[str, Any] = {}
        for key, each in value.items():
            cleaned[self._name(key, cleaned, value)] = self.value(each, depth + 1)
        return value if self.counts.total() == found else cleaned

    def _name(self, key: str, cleaned: Mapping[str, Any], value: Mapping[str, Any]) -> str:
        """Redact a name. Two names that differed only in their secrets stay different."""
        name = free = self.text(key)
        while free != key and (free in cleaned or free in value):
            free = f"{name}#{len(cleaned)}" if free == name else f"{free}#"
        return free

    def record(
        self, value: Mapping[str, Any], depth: int, inner: Mapping[str, Reader], kept: Set[str] = _KIND
    ) -> Mapping[str, Any]:
        """Redact a mapping with the protocol's names. ``inner`` has readers for some members; members in ``kept`` are
        not text."""
        found = self.counts.total()
        cleaned = {
            key: (
                each
                if key in kept and (isinstance(each, str) or kept is _NO_TEXT)
                else inner.get(key, self.value)(each, depth + 1)
            )
            for key, each in value.items()
        }
        return value if self.counts.total() == found else cleaned

    def records(self, inner: Mapping[str, Reader]) -> Reader:
        """A reader for a list of such mappings."""

        def one(value: Any, depth: int) -> Any:
            return self.record(value, depth, inner) if isinstance(value, Mapping) else self.value(value, depth)

        def several(value: Any, depth: int) -> Any:
            return (
                self._list(value, [one(each, depth + 1) for each in value])
                if isinstance(value, (list, tuple))
                else one(value, depth)
            )

        return several

    def content(self, value: Any, depth: int) -> Any:
        """Redact the content of a message or of a tool's result: a block, or a list of blocks."""
        if not isinstance(value, (Mapping, list, tuple)) or depth >= MAX_DEPTH:
            return self.value(value, depth)
        if isinstance(value, Mapping):
            return self.block(value, depth)
        return self._list(value, [self.content(each, depth + 1) for each in value])

    def block(self, block: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        """Redact a content block. Only here binary data is excepted, because a tool's input may look like an image
        without being one."""
        match block.get("type"):
            case "image" | "audio":
                return self.record(block, depth, {}, _MEDIA)
            case "tool_result":
                return self.record(block, depth, {"content": self.content})
            case "resource":
                return self.record(block, depth, {"resource": self._resource})
            case _:
                return self.record(block, depth, {})

    def _resource(self, value: Any, depth: int) -> Any:
        return self.record(value, depth, {}, _BINARY) if isinstance(value, Mapping) else self.value(value, depth)

    @staticmethod
    def _list(before: Any, after: list[Any]) -> Any:
        return before if all(new is old for new, old in zip(after, before, strict=True)) else after
