"""Pure. Regular expressions, always on RE2: linear in the text, whoever wrote the expression. For our own constants
there is ``re``.

To find every place takes a search for each, and one that looks ahead to the end of the text each time would make that a
square. So a search is given a short stretch, which grows until something is found in it, and all of them draw on one
allowance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
import re2

Search: TypeAlias = Callable[[bytes], object]
"""Looks for the expression anywhere in UTF-8 text; None if it is not there."""


MAX_MEMORY: Final = 8 * 1024 * 1024  # bytes; RE2's own default, up to a quarter of a second for one expression
# an e-mail address needs a tenth; whatever does not fit is refused within about a millisecond
PEER_MEMORY: Final = 64 * 1024

MAX_CLASSES: Final = 8  # of a peer's ``\pL``: each takes 0.1 to 0.4 ms to read, before the memory bound is looked at
_class: Final = re.compile(r"\\[pP]")


def searcher(pattern: str, *, max_memory: int = MAX_MEMORY) -> Search | str:
    """A search for the operator's ``pattern``, or why RE2 does not take it. ``max_memory`` in bytes bounds its program
    and the time to build it."""
    options = re2.Options()
    options.max_mem = max_memory
    options.log_errors = False  # it would write to stderr by itself
    options.never_capture = True
    try:
        search: Search = re2.compile(pattern, options).search
    except UnicodeEncodeError:
        return "it holds a character that is half of one"
    except re2.error as problem:
        said = problem.args[0] if problem.args else "it does not compile"
        return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return search


def any_of(patterns: Sequence[str]) -> Search | None:
    """One search that finds something in exactly the texts in which one of several expressions does: most texts hold
    none of them.

    None where that is no gain, or not sure: an open ``\\Q`` would quote what stands behind it.
    """
    if len(patterns) < 2 or any("\\Q" in pattern for pattern in patterns):
        return None
    search = searcher("|".join(f"(?:{pattern})" for pattern in patterns))
    return None if isinstance(search, str) else search


@lru_cache(maxsize=64)  # two forms' worth: a form is read to decide about it and again to check what came back
def peer_searcher(pattern: str) -> Search | str:
    """The same for an expression that a peer wrote, compiled in the event loop: small ones only, and each once."""
    if len(_class.findall(pattern)) > MAX_CLASSES:
        return f"it names more than {MAX_CLASSES} classes of characters"
    return searcher(pattern, max_memory=PEER_MEMORY)


def utf8(text: str) -> bytes:
    """A text as RE2 reads it; a lone surrogate, which JSON allows, becomes a question mark."""
    return text.encode("utf-8", "replace")


GROUP: Final = "secret"
"""The named group that narrows a find to a part of the match."""

STRETCH: Final = 8 * 1024  # bytes; the longest private keys in use take 13 KB, most 2 to 4
# bytes that may be searched for the places, beyond a few passes over each text: at most about a second
POOL: Final = 64 * 1024 * 1024
PASSES: Final = 4  # over each text that holds something: doubling takes two to the end of it

_SENTINEL: Final = "samplegate-sentinel"

Span: TypeAlias = tuple[int, int]
"""From and to, in bytes of the UTF-8 text."""


class Allowance:
    """How many bytes may still be searched on behalf of one request."""

    def __init__(self, spare: int = POOL) -> None:
        self.spare = spare


class Finder(msgspec.Struct, frozen=True, eq=False):
    """Expressions, by name, and what tells quickly which of them cannot be in a text."""

    names: tuple[str, ...]
    expressions: tuple[Any, ...]
    quick: Any
    """An `re2.Filter`, which looks for the literals that the expressions need; None where it cannot be built."""

    def hits(self, text: bytes) -> Iterator[tuple[str, Any]]:
        """Name and expression of those that are somewhere in the UTF-8 ``text``, in the order they were given."""
        which = range(len(self.names)) if self.quick is None else sorted(self.quick.Match(text, True) or ())
        for index in which:
            if index < len(self.names) and self.expressions[index].search(text) is not None:
                yield self.names[index], self.expressions[index]


def compiled(pattern: str) -> Any:
    """The expression with its groups. Raises ``re2.error``, or UnicodeEncodeError for half a character."""
    return re2.compile(pattern, _options())


def _options() -> Any:
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    return options


def finder(patterns: Mapping[str, str]) -> Finder:
    """For RE2 expressions by name. One that RE2 does not take raises ``re2.error``."""
    return Finder(tuple(patterns), tuple(compiled(pattern) for pattern in patterns.values()), _filter(patterns))


def _filter(patterns: Mapping[str, str]) -> Any:
    """One pass for the literals of all. The sentinel's own shows whether it works: a filter out of memory would find
    nothing and not say so."""
    quick = re2.Filter()
    try:
        for pattern in (*patterns.values(), _SENTINEL):
            quick.Add(pattern, _options())
        quick.Compile()
    except re2.error:
        return None
    return quick if len(patterns) in (quick.Match(_SENTINEL.encode(), True) or ()) else None


def places(expression: Any, text: bytes, allowance: Allowance) -> Iterator[Span]:
    """Every place of ``expression``, in order and apart from one another; of those with the named group, only that
    part.

    Where the allowance is used up, all that is left of the text is the last place: rather too much than too little.
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
            size *= 2  # nothing yet, or it may go on
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


def merged(found: list[tuple[Span, str]]) -> list[tuple[Span, str]]:
    """Places in order; those that overlap become one, named for the one that begins first, and of those the longest."""
    whole: list[tuple[Span, str]] = []
    for (start, end), name in sorted(found, key=lambda each: (each[0][0], -each[0][1])):
        if whole and start < whole[-1][0][1]:
            (first, last), kept = whole[-1]
            whole[-1] = ((first, max(last, end)), kept)
        else:
            whole.append(((start, end), name))
    return whole
