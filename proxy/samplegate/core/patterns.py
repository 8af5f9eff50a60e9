"""Regular expressions, always on RE2: linear in the text, whoever wrote the expression. Not for our own constants, which are ``re``'s."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import re2

Search: TypeAlias = Callable[[bytes], object]
"""Looks for the expression anywhere in UTF-8 text; None if it is not there."""


def searcher(pattern: str) -> Search | str:
    """A search for ``pattern``, or why RE2 does not take it."""
    options = re2.Options()
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


def utf8(text: str) -> bytes:
    """A text as RE2 reads it; a lone surrogate, which JSON allows, becomes a question mark."""
    return text.encode("utf-8", "replace")
