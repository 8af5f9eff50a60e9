"""What one value may be by its msgspec type: whether it fits, how to say what would, and what stands in for it. Not a walk over a tree."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from msgspec import inspect

from samplegate.core.matching.regex import searcher
from samplegate.core.policyfile.tree import Scalar, quoted

MAX_PATTERN: Final = 10_000  # RE2 is linear in the text, yet its program grows with the pattern

Type: TypeAlias = inspect.Type
_WORDS: Final = {  # what a pattern of the schema means to a reader
    r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$": "a duration such as 500ms, 50s, 15m or 1h",
    r"^([0-9]+(\.[0-9]+)?(ms|s|m|h)|none)$": "a duration such as 60s or 15m, or none",
    r"^([0-9]+(\.[0-9]+)?(ms|s|m|h)|day|month|call|process)$": "a duration such as 1m or 24h, or day, month, call or process",
}
_PLURAL: Final = {"text": "texts", "a mapping": "mappings"}


def members(type: Type) -> list[Type]:
    """What a value may be; ``null`` is never one of them: a key that says nothing would mean 'anything' without a word."""
    if isinstance(type, inspect.UnionType):
        return [member for member in type.types if not isinstance(member, inspect.NoneType)]
    return members(type.type) if isinstance(type, inspect.Metadata) and not is_regex(type) else [type]


def bare(type: Type) -> Type:
    """The type without the metadata around it."""
    return type.type if isinstance(type, inspect.Metadata) else type


def is_regex(type: Type) -> bool:
    """Whether it is text that must be an RE2 expression."""
    return isinstance(type, inspect.Metadata) and (type.extra_json_schema or {}).get("format") == "regex"


def fits(value: Any, type: Type) -> bool:
    """Whether a scalar is of the type and within its bounds; a mapping or a list never is."""
    match bare(type):
        case inspect.StrType() as text:
            return isinstance(value, str) and _within(len(value), text.min_length, text.max_length) and _matches(value, text.pattern)
        case inspect.CustomType():  # a path, for one: made of text behind the walk
            return isinstance(value, str)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType() as number:
            return isinstance(value, int) and not isinstance(value, bool) and _bounded(value, number)
        case inspect.FloatType() as number:
            return isinstance(value, (int, float)) and not isinstance(value, bool) and _bounded(value, number)
        case inspect.LiteralType() as literal:
            return any(value == choice and value.__class__ is choice.__class__ for choice in literal.values)
        case inspect.AnyType():
            return True
        case _:
            return False


def _within(size: float, least: float | None, most: float | None) -> bool:
    return (least is None or size >= least) and (most is None or size <= most)


def _bounded(value: float, type: inspect.IntType | inspect.FloatType) -> bool:
    return math.isfinite(value) and _within(value, type.ge, type.le) and (type.gt is None or value > type.gt) and (type.lt is None or value < type.lt)


def _matches(value: str, pattern: str | None) -> bool:
    return pattern is None or (re.search(pattern, value) is not None and "\n" not in value)  # `$` lets a line end pass


def bad_pattern(value: object) -> str | None:
    """Why text is no RE2 expression, None if it is one."""
    if not isinstance(value, str):
        return None
    if len(value) > MAX_PATTERN:
        return f"the expression is longer than {MAX_PATTERN} characters; shorten it"
    found = searcher(value)
    return f"{quoted(value)} is not an RE2 expression: {found}; see policies/README.md for what RE2 leaves out" if isinstance(found, str) else None


def described(members: list[Type]) -> str:
    """What a value may be, in words for a person."""
    return " or ".join(dict.fromkeys(_words(member) for member in members))


def _words(type: Type) -> str:
    match bare(type):
        case inspect.StrType(pattern=str(pattern)):
            return _WORDS.get(pattern, f"text that matches {pattern}")
        case inspect.StrType() | inspect.CustomType():
            return "an RE2 expression" if is_regex(type) else "text"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() as number:
            return "a whole number" + _bounds(number)
        case inspect.FloatType() as number:
            return "a number" + _bounds(number)
        case inspect.LiteralType(values=values):
            return ("one of " if len(values) > 1 else "") + ", ".join(str(value) for value in values)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return f"a list of {_PLURAL.get(_words(item), _words(item)).removeprefix('one of ')}"
        case inspect.StructType(fields=fields) if len(fields) <= 3:
            return f"a mapping with {', '.join(field.encode_name for field in fields)}"
        case _:
            return "a mapping"


def asked(key: str, type: Type) -> str:
    """What to do about a key that is missing."""
    match bare(type):
        case inspect.LiteralType(values=[only]):
            return f"add `{key}: {only}`"
        case _:
            return f"give {described(members(type))}"


def _bounds(number: inspect.IntType | inspect.FloatType) -> str:
    parts = [
        f"{word} {bound:g}" for word, bound in (("of at least", number.ge), ("above", number.gt), ("of at most", number.le)) if bound is not None
    ]
    return " " + " and ".join(parts) if parts else ""


def nearest(node: Scalar, members: list[Type]) -> str:
    """The one of the type's words that was probably meant, as ``did_you_mean`` says it."""
    choices = [str(v) for m in members if isinstance(bare(m), inspect.LiteralType) for v in bare(m).values]  # type: ignore[attr-defined]
    return did_you_mean(node.text, choices)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing."""
    import difflib

    plainly = {choice.lower().replace("-", "_"): choice for choice in choices}
    near = difflib.get_close_matches(word[:60].lower().replace("-", "_"), list(plainly), n=1)
    return f"; did you mean {quoted(plainly[near[0]])}?" if near else ""


def placeholder(type: Type) -> Any:
    """Something of the type that harms nothing; its place is in ``broken``, so nothing is concluded from it."""
    first = members(type)[0]
    match bare(first):
        case inspect.StrType(pattern=pattern):
            return "" if pattern is None else "1s"
        case inspect.BoolType():
            return False
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.ListType():
            return []
        case inspect.DictType():
            return {}
        case inspect.StructType() as struct:
            tag = {struct.tag_field: struct.tag} if struct.tag_field is not None else {}
            return {**tag, **{f.encode_name: placeholder(f.type) for f in struct.fields if f.required}}
        case _:
            return None
