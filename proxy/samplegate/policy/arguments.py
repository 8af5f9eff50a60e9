"""Pure. Conditions on the arguments of a call: paths, and the comparison of a value. ``facts.Arguments`` reads it.

A value of another type than the wanted one cannot be judged: the condition neither holds nor fails, so that a rule with
it grants nothing, and denies.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from samplegate.policy.schema import ArgumentTest, Plain, Wanted
from samplegate.protocol.strictjson import quoted_name

Compared: TypeAlias = bool | None
"""None: the value cannot be judged."""


ARGUMENT: Final = "arguments."
DEFAULT: Final = "default"


def source_of(value: object) -> str | None:
    """Where a value of an answer comes from: ``{from: arguments.PATH}`` or ``{from: default}``; None for any other
    value."""
    return value["from"] if isinstance(value, dict) and value.keys() == {"from"} else None


def source_fault(source: object) -> str | None:
    """Why a value is no source, None if it is one."""
    if not isinstance(source, str) or not (source == DEFAULT or source.startswith(ARGUMENT)):
        return "`from` is neither arguments.NAME nor default; write for example {from: arguments.reason}"
    try:
        if source != DEFAULT:
            path_of(source.removeprefix(ARGUMENT))
    except ValueError as problem:
        return str(problem)
    return None


class Missing(Enum):
    """No argument, for a condition that permits that."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
MAX_PATH: Final = 32
"""Names in the path of an argument."""
MAX_FILE_PATH: Final = 4096
"""Characters in the path of a file: PATH_MAX of Linux."""


def path_of(text: str) -> tuple[str, ...]:
    """The names of a dotted path; ``\\.`` is a dot within a name, ``\\\\`` a backslash. Raises ValueError."""
    names, name = [], ""
    escaped = False
    for character in text:
        if escaped:
            if character not in ".\\":
                raise ValueError(r"a backslash must be followed by a dot or a backslash")
            name, escaped = name + character, False
        elif character == "\\":
            escaped = True
        elif character == ".":
            names.append(name)
            name = ""
        else:
            name += character
    names.append(name)
    if escaped:
        raise ValueError(r"a backslash must be followed by a dot or a backslash")
    if not all(names):
        raise ValueError("a name in the path is empty; write a dot within a name as \\.")
    if len(names) > MAX_PATH:
        raise ValueError(f"the path has more than {MAX_PATH} names")
    return tuple(names)


def comparison(
    wanted: Wanted,
    globs: Callable[[list[str]], Callable[[str], Compared]],
    search: Callable[[str], Callable[[str], Compared]],
) -> tuple[Callable[[Any], Compared], str]:
    """The test of a value, and the clause for a value that fails it. ``globs`` and ``search`` compile globs and
    expressions. Raises ValueError for an invalid expression."""
    if not isinstance(wanted, ArgumentTest):
        return _one_of(wanted if isinstance(wanted, list) else [wanted], globs)
    tests: list[Callable[[Any], Compared]] = []
    clauses: list[str] = []
    if wanted.min is not None or wanted.max is not None:
        tests.append(_range(wanted.min, wanted.max))
        clauses.append(_between(wanted.min, wanted.max))
    if wanted.matches is not None:
        found = search(wanted.matches)
        tests.append(lambda value: found(value) if isinstance(value, str) else None)
        clauses.append(f"does not match {quoted_name(wanted.matches)}")
    if wanted.under is not None:
        folders = [wanted.under] if isinstance(wanted.under, str) else wanted.under
        tests.append(lambda value: is_under(value, folders) if isinstance(value, str) else None)
        clauses.append(f"is not under {' or '.join(folders)}")
    if not tests:  # only ``absent``
        return (lambda value: value is MISSING), "is given"

    def test(value: Any) -> Compared:
        if value is MISSING:
            return True
        results = [one(value) for one in tests]
        return False if False in results else None if None in results else True

    return test, " or ".join(clauses)


def _one_of(
    wanted: Sequence[Plain], globs: Callable[[list[str]], Callable[[str], Compared]]
) -> tuple[Callable[[Any], Compared], str]:
    flags = {one for one in wanted if isinstance(one, bool)}
    numbers = [one for one in wanted if isinstance(one, (int, float)) and not isinstance(one, bool)]
    texts = [one for one in wanted if isinstance(one, str)]
    matches = globs(texts)

    def test(value: Any) -> Compared:
        if isinstance(value, bool):
            return value in flags if flags else None
        if isinstance(value, str):
            return matches(value) if texts else None
        return value in numbers if numbers else None

    return test, f"is not {shown(wanted)}"


def shown(wanted: Sequence[Plain]) -> str:
    """Values for messages."""
    texts = [json.dumps(one) if isinstance(one, (bool, str)) else str(one) for one in wanted[:8]]
    return texts[0] if len(wanted) == 1 else f"one of {', '.join(texts)}"


def _range(low: float | None, high: float | None) -> Callable[[Any], Compared]:
    def test(value: Any) -> Compared:
        if isinstance(value, (str, bool)):
            return None
        return (low is None or value >= low) and (high is None or value <= high)

    return test


def _between(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"is not between {low} and {high}"
    return f"is less than {low}" if high is None else f"is more than {high}"


def is_under(value: str, folders: Sequence[str]) -> Compared:
    """Whether a path is one of these folders or below it; None if it cannot be judged: it is not an absolute POSIX path
    in its only spelling (``path_fault``)."""
    if path_fault(value) is not None:
        return None
    return any(value == folder or value.startswith(folder.rstrip("/") + "/") for folder in folders)


def path_fault(value: str) -> str | None:
    """Why a path has other spellings or readings; None if it is absolute, and normal to any POSIX program."""
    if len(value) > MAX_FILE_PATH:
        return f"is longer than {MAX_FILE_PATH} characters"
    if not value.startswith("/"):
        return "is not an absolute path"
    if value == "/":
        return None
    if any(segment in ("", ".", "..") for segment in value[1:].split("/")):
        return "has an empty segment, `.` or `..`"
    if _odd.search(value) or any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        return "has a backslash, `%` or a control character"
    if not value.isascii() and _reads_as_other(value):
        return "has a character that some programs read as `.`, `/`, `%` or a backslash"
    return None


_odd: Final = re.compile(r"[\\%\x00-\x1f\x7f]")


def _reads_as_other(value: str) -> bool:
    """Whether compatibility forms (UAX 15) of its characters are among those that separate and escape, as with the
    fullwidth full stop."""
    return any(
        set(unicodedata.normalize("NFKC", character)) & set("./\\%") for character in value if not character.isascii()
    )
