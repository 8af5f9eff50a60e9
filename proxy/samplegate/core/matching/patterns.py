"""Regular expressions, always on RE2: linear in the text, whoever wrote the expression. Not for our own constants, which are ``re``'s."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import re2

Search: TypeAlias = Callable[[bytes], object]
"""Looks for the expression anywhere in UTF-8 text; None if it is not there."""


MAX_MEMORY: Final = 8 * 1024 * 1024  # bytes; RE2's own default, up to a quarter of a second for one expression
PEER_MEMORY: Final = 64 * 1024  # an e-mail address needs a tenth; whatever does not fit is refused within about a millisecond

MAX_CLASSES: Final = 8  # of a peer's ``\pL``: each takes 0.1 to 0.4 ms to read, before the memory bound is looked at
_class: Final = re.compile(r"\\[pP]")


def searcher(pattern: str, *, max_memory: int = MAX_MEMORY) -> Search | str:
    """A search for the operator's ``pattern``, or why RE2 does not take it. ``max_memory`` in bytes bounds its program and the time to build it."""
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
    """One search that finds something in exactly the texts in which one of several expressions does: most texts hold none of them.

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
