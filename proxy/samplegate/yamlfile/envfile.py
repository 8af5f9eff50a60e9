"""Pure. Env files (``NAME=value`` lines) and ``${VAR}`` in texts of the policy.

The parser is not a shell: it expands nothing. All problems of a file are reported at once with their lines, and no
message contains a value. No function here reads the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

MAX_CHARACTERS: Final = 1024 * 1024

_line: Final = re.compile(r"[ \t]*(?:export[ \t]+)?([^=\s]+)[ \t]*=[ \t]*(.*)\Z", re.DOTALL)
_name: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_single: Final = re.compile(r"'([^']*)'[ \t]*(?:#.*)?\Z")
_double: Final = re.compile(r'"((?:[^"\\]|\\.)*)"[ \t]*(?:#.*)?\Z')
_comment: Final = re.compile(r"(?:\A|[ \t]+)#.*\Z")
_escapes: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


class EnvFileError(Exception):
    """An invalid env file. ``problems`` lists all problems with file and line."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class _InvalidLine(ValueError):
    pass


def parse(text: str, *, file: str) -> dict[str, str]:
    """The variables of a text of ``NAME=value`` lines; ``export``, comments and quotes work as in shells. Raises
    EnvFileError.

    An unquoted value is trimmed and ends at a ``#`` after a blank. Single quotes are literal. Double quotes support the
    escapes in ``_escapes``. ``$`` is literal.
    """
    if len(text) > MAX_CHARACTERS:
        raise EnvFileError([f"{file}: the file is larger than {MAX_CHARACTERS} characters; keep only variables in it"])
    found: dict[str, str] = {}
    lines: dict[str, int] = {}
    problems: list[str] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        try:
            variable = _variable(line.removesuffix("\r"))
            if variable is not None:
                name, value = variable
                if name in found:
                    raise _InvalidLine(f"duplicate variable {name}, first on line {lines[name]}; remove one")
                found[name], lines[name] = value, number
        except _InvalidLine as problem:
            problems.append(f"{file}:{number}: {problem}")
    if problems:
        raise EnvFileError(problems)
    return found


def _variable(line: str) -> tuple[str, str] | None:
    bare = line.strip(" \t")
    if not bare or bare.startswith("#"):
        return None
    parts = _line.match(line)
    if parts is None:
        raise _InvalidLine(
            "the line is not a variable; write NAME=value"
        )  # does not quote the line: it may be a pasted key
    if not _name.match(parts[1]):
        raise _InvalidLine("invalid variable name; use letters, digits and underscores, and no digit at the start")
    if "\0" in line:
        raise _InvalidLine(f"{parts[1]} contains a NUL character; remove it")
    return parts[1], _value(parts[1], parts[2])


def _value(name: str, text: str) -> str:
    if text[:1] not in ("'", '"'):
        return _comment.sub("", text).rstrip(" \t")
    quoted = _single.match(text) if text[0] == "'" else _double.match(text)
    if quoted is None:
        raise _InvalidLine(
            f"{name} has an unclosed quote, or text after its closing quote; write a line break as \\n in double quotes"
        )
    if text[0] == "'":
        return quoted[1]
    return re.sub(r"\\(.)", lambda escape: _escaped(name, escape[1]), quoted[1])


def _escaped(name: str, character: str) -> str:
    if character not in _escapes:
        raise _InvalidLine(f"{name} has an unknown escape sequence; write \\\\ for a backslash, or use single quotes")
    return _escapes[character]


_PLACE: Final = re.compile(r"\$\$(?=\{)|\$\{([^}]*)(\}?)")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def names(text: str) -> Iterator[str]:
    """The variables that a text refers to, in order, with repetitions. ``$${`` is a literal ``${``."""
    return (place[1] for place in _PLACE.finditer(text) if _is_variable(place))


def fault(text: str) -> str | None:
    """The problem with the first ``${`` that does not start a variable, None if there is none."""
    for place in _PLACE.finditer(text):
        if place[1] is not None and not _is_variable(place):
            return "`${` does not start a variable; write ${NAME} with letters, digits and _, or $${ for a literal ${"
    return None


def fill(text: str, environment: Mapping[str, str]) -> str:
    """The text with every variable replaced. Raises KeyError with the name of an unset one."""
    return _PLACE.sub(lambda place: environment[place[1]] if _is_variable(place) else _literal(place), text)


def _is_variable(place: re.Match[str]) -> bool:
    return place[1] is not None and place[2] == "}" and _NAME.match(place[1]) is not None


def _literal(place: re.Match[str]) -> str:
    return "$" if place[1] is None else place[0]
