"""Pure. Regular expressions on RE2: search time is linear in the text for any expression. Our own constants use ``re``.

Finding all matches takes one search per match. If each search read to the end of the text, the total would be
quadratic. So a search sees a short stretch that grows until it contains a match, and all searches share one allowance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
import re2

Search: TypeAlias = Callable[[bytes], object]
"""Search for an expression anywhere in UTF-8 text; None if there is no match."""


MAX_MEMORY: Final = 8 * 1024 * 1024  # bytes, RE2's default; one expression takes up to a quarter of a second to compile
# an e-mail address needs a tenth of this; an expression that exceeds it is rejected within about a millisecond
PEER_MEMORY: Final = 64 * 1024

# ``\pL`` classes in a peer's expression: parsing each takes 0.1 to 0.4 ms, before the memory limit applies
MAX_CLASSES: Final = 8
_class: Final = re.compile(r"\\[pP]")


def searcher(pattern: str, *, max_memory: int = MAX_MEMORY) -> Search | str:
    """A search for the operator's ``pattern``, or the reason why RE2 rejects it. ``max_memory`` in bytes limits the
    compiled program and the time to compile it."""
    options = re2.Options()
    options.max_mem = max_memory
    options.log_errors = False  # RE2 would write to stderr
    options.never_capture = True
    try:
        search: Search = re2.compile(pattern, options).search
    except UnicodeEncodeError:
        return "it contains a lone surrogate"
    except re2.error as problem:
        said = problem.args[0] if problem.args else "it does not compile"
        return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return search


def any_of(patterns: Sequence[str]) -> Search | None:
    """One search that matches exactly the texts in which one of several expressions matches. Most texts match none.

    None if this would not help or could be wrong: an open ``\\Q`` would quote the expressions after it.
    """
    if len(patterns) < 2 or any("\\Q" in pattern for pattern in patterns):
        return None
    search = searcher("|".join(f"(?:{pattern})" for pattern in patterns))
    return None if isinstance(search, str) else search


@lru_cache(maxsize=64)  # two forms' worth: a form is checked before the decision, and again with its answer
def peer_searcher(pattern: str) -> Search | str:
    """A search for a peer's expression. It is compiled in the event loop, so only small ones are accepted, each
    once."""
    if len(_class.findall(pattern)) > MAX_CLASSES:
        return f"it names more than {MAX_CLASSES} character classes"
    return searcher(pattern, max_memory=PEER_MEMORY)


def utf8(text: str) -> bytes:
    """Text as UTF-8 for RE2. A lone surrogate, which JSON allows, becomes a question mark."""
    return text.encode("utf-8", "replace")


GROUP: Final = "secret"
"""A named group that restricts a match to the group's part."""

STRETCH: Final = 8 * 1024  # bytes; private keys have 2 to 4 KB, the longest in use 13 KB
# bytes that searches of one request may read beyond a few passes over each text: at most about a second
POOL: Final = 64 * 1024 * 1024
PASSES: Final = 4  # over each text that matches: doubling needs two to reach the end

_SENTINEL: Final = "samplegate-sentinel"

Span: TypeAlias = tuple[int, int]
"""Start and end, in bytes of the UTF-8 text."""


class Allowance:
    """Bytes that one request may still search."""

    def __init__(self, spare: int = POOL) -> None:
        self.spare = spare


class Finder(msgspec.Struct, frozen=True, eq=False):
    """Named expressions, with a filter that quickly rules out most of them for a text."""

    names: tuple[str, ...]
    expressions: tuple[Any, ...]
    quick: Any
    """An `re2.Filter` for the literals that the expressions need; None if it cannot be built."""

    def hits(self, text: bytes) -> Iterator[tuple[str, Any]]:
        """Name and expression of each that matches in the UTF-8 ``text``, in the order given."""
        which = range(len(self.names)) if self.quick is None else sorted(self.quick.Match(text, True) or ())
        for index in which:
            if index < len(self.names) and self.expressions[index].search(text) is not None:
                yield self.names[index], self.expressions[index]


def compiled(pattern: str) -> Any:
    """The compiled expression with its groups. Raises ``re2.error``, or UnicodeEncodeError for a lone surrogate."""
    return re2.compile(pattern, _options())


def _options() -> Any:
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    return options


def finder(patterns: Mapping[str, str]) -> Finder:
    """A finder for RE2 expressions by name. Raises ``re2.error`` if RE2 rejects one."""
    return Finder(tuple(patterns), tuple(compiled(pattern) for pattern in patterns.values()), _filter(patterns))


def _filter(patterns: Mapping[str, str]) -> Any:
    """One filter for the literals of all expressions. The sentinel proves that it works: a filter that ran out of
    memory would silently match nothing."""
    quick = re2.Filter()
    try:
        for pattern in (*patterns.values(), _SENTINEL):
            quick.Add(pattern, _options())
        quick.Compile()
    except re2.error:
        return None
    return quick if len(patterns) in (quick.Match(_SENTINEL.encode(), True) or ()) else None


def spans(expression: Any, text: bytes, allowance: Allowance) -> Iterator[Span]:
    """Every match of ``expression``, in order and without overlap; of an expression with the named group, its part.

    When the allowance is used up, the rest of the text is the last match, so that too much is found rather than too
    little.
    """
    left, at, size = PASSES * len(text), 0, STRETCH
    while at < len(text):
        end = min(at + size, len(text))
        left -= end - at
        if left < 0:
            allowance.spare += left
            left = 0
            if allowance.spare < 0:
                yield at, len(text)
                return
        match = next(expression.finditer(text, at, end), None)
        if end < len(text) and (match is None or match.end() == end):
            size *= 2  # no match yet, or the match may continue
            continue
        if match is None:
            return
        if match.end() > match.start():
            yield _part(match)
        at, size = max(match.end(), at + 1), STRETCH


def _part(match: Any) -> Span:
    if GROUP in match.re.groupindex:
        start, end = match.span(match.re.groupindex[GROUP])
        if 0 <= start < end:
            return start, end
    return match.span()  # type: ignore[no-any-return]


def merged_spans(found: list[tuple[Span, str]]) -> list[tuple[Span, str]]:
    """Matches in order. Overlapping ones are merged under the name of the earliest, and of those the longest."""
    whole: list[tuple[Span, str]] = []
    for (start, end), name in sorted(found, key=lambda each: (each[0][0], -each[0][1])):
        if whole and start < whole[-1][0][1]:
            (first, last), kept = whole[-1]
            whole[-1] = ((first, max(last, end)), kept)
        else:
            whole.append(((start, end), name))
    return whole
