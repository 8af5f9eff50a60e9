"""Pure. Validation of a YAML tree against a msgspec type, with every problem reported at its node.

msgspec itself stops at the first problem and has no positions. A broken value is replaced by a harmless placeholder, so
that one fault does not hide another, and its path is in ``broken``. ``policy/file/checks.py`` checks the policy's
meaning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from collections.abc import Mapping as Mapping_
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import msgspec.structs
from msgspec import inspect

from samplegate.regex import searcher
from samplegate.yamlfile.tree import (
    MAX_BYTES,
    MAX_FAULTS,
    MAX_NODES,
    Broken,
    Fault,
    Mapping,
    Mark,
    Node,
    Path,
    PolicyError,
    Scalar,
    Sequence,
    Unreadable,
    compose,
    display_value,
    plain_value,
    problems,
    quoted,
    unquoted_value,
)

S = TypeVar("S", bound=msgspec.Struct)
_MISSING: Final = object()


def convert(root: Node, type: Type) -> tuple[Any, Validator]:
    """The plain value of a tree, with placeholders where it does not fit ``type``, and the walk with all its faults."""
    walk = Validator()
    value = walk.value(root, type, ())
    return value, walk


class Validator:
    """One validation pass over one tree."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.broken: set[Path] = set()

    def fault(self, mark: Mark, path: Path, what: str) -> None:
        self.broken.add(path)
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(Fault(mark, path, what))

    def value(self, node: Node, type: Type, path: Path) -> Any:
        """The value of ``node`` as ``type``, or a placeholder."""
        if isinstance(node, Broken):
            self.broken.add(path)
            return placeholder(type)
        kinds = members(type)
        match node:
            case Mapping():
                return self._mapping(node, kinds, path)
            case Sequence():
                return self._sequence(node, kinds, path)
            case Scalar():
                return self._scalar(node, kinds, path)

    def _mapping(self, node: Mapping, kinds: list[Type], path: Path) -> Any:
        structs = [m for m in kinds if isinstance(m, inspect.StructType)]
        if len(structs) > 1:
            return self._tagged(node, structs, path)
        if structs:
            return self._struct(node, structs[0], path)
        for member in kinds:
            if isinstance(member, inspect.DictType):
                return {
                    key: self.value(entry.node, member.value_type, (*path, key)) for key, entry in node.entries.items()
                }
            if isinstance(member, inspect.AnyType):
                return plain_value(node)
        return self._misfit(node.mark, f"expected {type_words(kinds)}, got a mapping", kinds, path)

    def _sequence(self, node: Sequence, kinds: list[Type], path: Path) -> Any:
        for member in kinds:
            if isinstance(member, inspect.ListType | inspect.VarTupleType):
                return [self.value(item, member.item_type, (*path, index)) for index, item in enumerate(node.items)]
            if isinstance(member, inspect.AnyType):
                return plain_value(node)
        return self._misfit(node.mark, f"expected {type_words(kinds)}, got a list", kinds, path)

    def _scalar(self, node: Scalar, kinds: list[Type], path: Path) -> Any:
        if node.value is None and not any(isinstance(m, inspect.AnyType) for m in kinds):
            what = f"expected {type_words(kinds)}, got nothing; set a value or remove the key"
            return self._misfit(node.mark, what, kinds, path)
        for member in kinds:
            if is_valid(node.value, member):
                why = pattern_error(node.value) if is_regex(member) else None
                if why is not None:
                    self.fault(node.mark, path, why)
                    return placeholder(member)
                return node.value
        if path == ("version",) and not isinstance(node.value, str):
            only = type_words(kinds)
            return self._misfit(node.mark, f"unsupported version {display_value(node, path)}; use {only}", kinds, path)
        what = f"{display_value(node, path)} is not {type_words(kinds)}{_remedy(node, kinds)}"
        return self._misfit(node.mark, what, kinds, path)

    def _misfit(self, mark: Mark, what: str, kinds: list[Type], path: Path) -> Any:
        self.fault(mark, path, what)
        return placeholder(kinds[0])

    def _tagged(self, node: Mapping, structs: list[inspect.StructType], path: Path) -> Any:
        field_name = structs[0].tag_field or ""
        tags = {str(struct.tag): struct for struct in structs}
        chosen = node.entries.get(field_name)
        tag = chosen.node.value if chosen is not None and isinstance(chosen.node, Scalar) else _MISSING
        if isinstance(tag, str) and tag in tags:
            return self._struct(node, tags[tag], path, structs)
        at = (*path, field_name)
        if chosen is None:
            self.fault(node.mark, at, f"the key is required; set it to one of {', '.join(tags)}")
        elif isinstance(chosen.node, Broken):
            self.broken.add(at)
        else:
            met = display_value(chosen.node, at) if isinstance(chosen.node, Scalar) else "this value"
            near = did_you_mean(str(tag), tags) if isinstance(tag, str) else ""
            self.fault(chosen.node.mark, at, f"{met} is not one of {', '.join(tags)}{near}")
        return self._any_of(node, structs, path)

    def _any_of(self, node: Mapping, structs: list[inspect.StructType], path: Path) -> dict[str, Any]:
        """Validate a mapping with a broken tag: its keys are checked against the fields of all candidate structs."""
        known = {f.encode_name: f for struct in reversed(structs) for f in struct.fields}
        shared = set.intersection(*({f.encode_name for f in struct.fields if f.required} for struct in structs))
        known = {
            name: field if name in shared else msgspec.structs.replace(field, required=False)
            for name, field in known.items()
        }
        stand_in = structs[-1]
        out = self._fields(node, _Keys(known, str(stand_in.tag_field)), path)
        kept = {f.encode_name for f in stand_in.fields}
        return {str(stand_in.tag_field): stand_in.tag, **{key: value for key, value in out.items() if key in kept}}

    def _struct(
        self, node: Mapping, struct: inspect.StructType, path: Path, siblings: Iterable[inspect.StructType] = ()
    ) -> dict[str, Any]:
        fields = {f.encode_name: f for f in struct.fields}
        others = {
            str(sibling.tag): {f.encode_name for f in sibling.fields} for sibling in siblings if sibling is not struct
        }
        out = self._fields(node, _Keys(fields, struct.tag_field, str(struct.tag), others), path)
        return out if struct.tag_field is None else {struct.tag_field: struct.tag, **out}

    def _fields(self, node: Mapping, keys: _Keys, path: Path) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, entry in node.entries.items():
            if key == keys.tag_field:
                continue
            known = keys.fields.get(key)
            if known is None:
                self.fault(entry.mark, (*path, key), keys.unknown(key))
                continue
            value = self.value(entry.node, known.type, (*path, key))
            if known.required or (*path, key) not in self.broken:
                out[key] = value
        for key, known in keys.fields.items():
            if known.required and key not in node.entries:
                self.fault(node.mark, (*path, key), f"the key is required; {required_key_remedy(key, known.type)}")
                out[key] = placeholder(known.type)
        return out


class _Keys(msgspec.Struct, frozen=True):
    """The keys that a mapping may have: its fields, its tag's key and value, and the fields of each sibling struct by
    tag."""

    fields: Mapping_[str, inspect.Field]
    tag_field: str | None = None
    tag: str = ""
    others: Mapping_[str, set[str]] = msgspec.field(default_factory=dict)

    def unknown(self, key: str) -> str:
        """The message for an unknown key: the effect that has it, a similar key, or the list of valid keys."""
        owners = [tag for tag, names in self.others.items() if key in names]
        if owners:
            return (
                f"only {_listed(owners)} rules can have this key; this rule's effect is {self.tag}; remove the key or"
                " change the effect"
            )
        for name, known in self.fields.items():
            inner = [m for m in members(known.type) if isinstance(m, inspect.StructType)]
            if any(f.encode_name == key for struct in inner for f in struct.fields):
                return f"unknown key; did you mean {quoted(f'{name}.{key}')}?"
        choices = [*([self.tag_field] if self.tag_field else []), *self.fields]
        return "unknown key" + (did_you_mean(key, choices) or f"; the valid keys are {', '.join(choices)}")


def _listed(names: list[str]) -> str:
    """Names as in ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _remedy(node: Scalar, kinds: list[Type]) -> str:
    if not isinstance(node.value, str):
        return "; quote it" if any(is_valid(node.text, kind) for kind in kinds) else ""
    unquoted = unquoted_value(node.text)
    return "; remove the quotes" if any(is_valid(unquoted, kind) for kind in kinds) else suggestion(node, kinds)


def read(
    text: str, struct: type[S], *, file: str, max_bytes: int = MAX_BYTES, max_values: int = MAX_NODES
) -> tuple[S, Node]:
    """The struct of a file's text, with the text's tree; ``file`` is its name in messages. Raises PolicyError with
    every problem."""
    try:
        root, faults = compose(text, max_bytes=max_bytes, max_values=max_values)
    except Unreadable as broken:
        raise PolicyError(problems(file, [broken.fault])) from None
    value, walk = convert(root, type_of(struct))
    if faults := [*faults, *walk.faults]:
        raise PolicyError(problems(file, faults))
    return msgspec.convert(value, struct), root


@cache
def type_of(struct: type[msgspec.Struct]) -> Type:
    """The msgspec description of a struct, for ``convert``."""
    return inspect.type_info(struct)


__all__ = ["Type", "Validator", "convert", "did_you_mean", "read", "type_of"]


MAX_PATTERN: Final = 10_000  # RE2 is linear in the text, but its program grows with the pattern

Type: TypeAlias = inspect.Type
_WORDS: Final = {  # a pattern of the schema in words
    r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$": "a duration such as 500ms, 50s, 15m or 1h",
    r"^([0-9]+(\.[0-9]+)?(ms|s|m|h)|none)$": "a duration such as 60s or 15m, or none",
    r"^([0-9]+(\.[0-9]+)?(ms|s|m|h)|day|month|call|run|process)$": (
        "a duration such as 1m or 24h, or day, month, call, run or process"
    ),
}
_PLURAL: Final = {"a string": "strings", "a mapping": "mappings"}


def members(type: Type) -> list[Type]:
    """The types that a value may have. ``null`` is never one: a key without a value would silently mean "anything"."""
    if isinstance(type, inspect.UnionType):
        return [member for member in type.types if not isinstance(member, inspect.NoneType)]
    return members(type.type) if isinstance(type, inspect.Metadata) and not is_regex(type) else [type]


def bare(type: Type) -> Type:
    """The type without its metadata."""
    return type.type if isinstance(type, inspect.Metadata) else type


def is_regex(type: Type) -> bool:
    """Whether the type is text that must be an RE2 expression."""
    return isinstance(type, inspect.Metadata) and (type.extra_json_schema or {}).get("format") == "regex"


def is_valid(value: Any, type: Type) -> bool:
    """Whether a scalar has the type and is within its bounds. False for mapping and list types."""
    match bare(type):
        case inspect.StrType() as text:
            return (
                isinstance(value, str)
                and _within(len(value), text.min_length, text.max_length)
                and _matches(value, text.pattern)
            )
        case inspect.CustomType():  # such as a path: made from text later
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
    return (
        math.isfinite(value)
        and _within(value, type.ge, type.le)
        and (type.gt is None or value > type.gt)
        and (type.lt is None or value < type.lt)
    )


def _matches(value: str, pattern: str | None) -> bool:
    return pattern is None or (re.search(pattern, value) is not None and "\n" not in value)  # `$` accepts a line end


def pattern_error(value: object) -> str | None:
    """Why text is not a valid RE2 expression, None if it is."""
    if not isinstance(value, str):
        return None
    if len(value) > MAX_PATTERN:
        return f"the expression is longer than {MAX_PATTERN} characters; shorten it"
    found = searcher(value)
    return (
        f"{quoted(value)} is not a valid RE2 expression: {found}; `samplegate docs policies` says what RE2 does not"
        " support"
        if isinstance(found, str)
        else None
    )


def type_words(members: list[Type]) -> str:
    """The accepted values in words."""
    return " or ".join(dict.fromkeys(_words(member) for member in members))


def _words(type: Type) -> str:
    match bare(type):
        case inspect.StrType(pattern=str(pattern)):
            return _WORDS.get(pattern, f"a string that matches {pattern}")
        case inspect.StrType() | inspect.CustomType():
            return "an RE2 expression" if is_regex(type) else "a string"
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


def required_key_remedy(key: str, type: Type) -> str:
    """The remedy for a missing key."""
    match bare(type):
        case inspect.LiteralType(values=[only]):
            return f"add `{key}: {only}`"
        case _:
            return f"set it to {type_words(members(type))}"


def _bounds(number: inspect.IntType | inspect.FloatType) -> str:
    if number.ge is not None and number.le is not None:
        return f" from {number.ge:g} to {number.le:g}"
    parts = [
        f"{word} {bound:g}"
        for word, bound in (("at least", number.ge), ("above", number.gt), ("at most", number.le))
        if bound is not None
    ]
    return (" " if number.gt is not None else " of ") + " and ".join(parts) if parts else ""


def suggestion(node: Scalar, members: list[Type]) -> str:
    """A suggestion from the type's literals, worded by ``did_you_mean``."""
    choices = [str(v) for m in members if isinstance(bare(m), inspect.LiteralType) for v in bare(m).values]  # type: ignore[attr-defined]
    return did_you_mean(node.text, choices)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing."""
    import difflib

    plainly = {choice.lower().replace("-", "_"): choice for choice in choices}
    near = difflib.get_close_matches(word[:60].lower().replace("-", "_"), list(plainly), n=1)
    return f"; did you mean {quoted(plainly[near[0]])}?" if near else ""


def placeholder(type: Type) -> Any:
    """A harmless value of the type. Its path is in ``broken``, so that no check draws conclusions from it."""
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
