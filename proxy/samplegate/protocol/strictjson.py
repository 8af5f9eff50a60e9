"""Pure. JSON with a single reading: text that two parsers could read differently, or that could harm one, is refused.

This reader is for the few payloads that the policy decides. There, a duplicate member or a NaN would let the peer's
parser see something else than the policy did. ``frames.py`` leaves all other payloads raw.

Lenient parsers compare the names of members without case, width or underscores, and up to a NUL. Go, .NET and Jackson
fold case. pydantic accepts a field's own name beside its alias: ``input_responses`` for ``inputResponses``, ``meta``
for ``_meta``. Parsers in C end a name at a NUL. If one of them takes a member for another, the object has a second
reading.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, Final

MAX_BYTES: Final = 32 * 1024 * 1024  # some images or sounds, as base64; more is refused before it is decoded
MAX_DEPTH: Final = 64  # real requests nest below 10, generated schemas below 30
MAX_SURROGATES: Final = 100_000  # lone surrogates, which are replaced one by one
# bounds time and memory: three bytes of JSON can become a hundred of Python, and each value costs a microsecond
MAX_VALUES: Final = 100_000

_SHOWN: Final = 60  # characters of a name in a message

_plain: Final = re.compile(r"[A-Za-z0-9_-]{1,60}\Z")
_strings: Final = re.compile(rb'"[^"]*"')
_half: Final = re.compile("[\ud800-\udfff]")
_surrogate: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class JsonFault(ValueError):
    """A problem in a peer's JSON: the place and the problem, without content."""


def decode(text: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH, max_values: int = MAX_VALUES) -> Any:
    """The value of one JSON text (RFC 8259). Raises JsonFault for a second reading or a value out of bounds.

    Refused: duplicate members, NaN, infinities and numbers that overflow to them, whole numbers beyond 64 bits, bytes
    that are not UTF-8. A lone surrogate (a cut emoji) becomes U+FFFD, because a value that cannot be encoded could be
    neither matched, sampled nor recorded.
    """
    if len(text) > max_bytes:
        raise JsonFault(f"larger than {max_bytes} bytes")
    check_values(text, max_values)
    value = _load(text)
    if text.count(b"[") + text.count(b"{") > max_depth and _deeper(value, max_depth):
        raise JsonFault(f"nested deeper than {max_depth} levels")
    return _SurrogateReplacer().replaced(value) if _surrogate.search(text) else value


def check_values(text: bytes, most: int = MAX_VALUES) -> None:
    """Raises JsonFault for JSON with more than ``most`` values, without parsing it."""
    if separators(text) >= most:
        _count(text, most)


def quoted_name(name: str) -> str:
    """A peer's name for display: quoted, on one line, at most 60 characters, control and direction marks escaped."""
    text = repr(name[:_SHOWN])
    if len(text) <= _SHOWN:
        return text
    kept = name[: _SHOWN - 5]
    while len(text := repr(kept)) > _SHOWN - 3:
        kept = kept[:-1]
    return text[:-1] + "..." + text[-1]


def plain_name(name: str) -> str:
    """A peer's name for display, without quotes if it is plain."""
    return name if _plain.match(name) else quoted_name(name)


def separators(text: bytes) -> int:
    """An upper bound on the number of values in a JSON text; it is cheap because it includes separators in strings."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _count(text: bytes, most: int) -> None:
    """Raises JsonFault for too many values; separators inside strings, as in long prose, do not count."""
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"")  # in this order, so that only real quotes remain
    if bare.count(b'"') > 4 * most or separators(_strings.sub(b"", bare)) >= most:
        raise JsonFault(f"contains more than {most} values")


def _load(text: bytes) -> Any:
    try:
        return json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except UnicodeDecodeError:
        raise JsonFault("not valid UTF-8") from None
    except RecursionError:
        raise JsonFault("nested too deeply") from None
    except JsonFault:
        raise
    except ValueError:
        raise JsonFault("not valid JSON") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JsonFault("an object has a duplicate member")
    return found


def _constant(name: str) -> Any:
    raise JsonFault(f"contains {name}, which is not valid JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise JsonFault("contains a number that overflows to infinity")
    return value


def _whole(text: str) -> int:
    """Refuses more than 64 bits: peers' parsers disagree on such a value, and some cannot write it."""
    if len(text) > 20 or not -(1 << 63) <= (value := int(text)) < 1 << 64:
        raise JsonFault("contains an integer of more than 64 bits")
    return value


def _deeper(value: Any, limit: int) -> bool:
    """Whether containers nest more than ``limit`` levels; level by level, so that no depth costs stack."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
    return bool(level)


class _SurrogateReplacer:
    """Replaces the lone surrogates of one decoded text, in place, and counts them."""

    def __init__(self) -> None:
        self._left = MAX_SURROGATES

    def replaced(self, value: Any) -> Any:
        """The value without lone surrogates. Raises JsonFault for too many, or if two members become the same."""
        root = [value]
        todo: list[Any] = [root]
        while todo:
            node = todo.pop()
            if isinstance(node, dict):
                if not all(map(str.isascii, node)):
                    pairs = [(self._text(name), each) for name, each in node.items()]
                    node.clear()
                    node.update(_object(pairs))
                places: Iterable[tuple[Any, Any]] = node.items()
            else:
                places = enumerate(node)
            for place, each in places:
                if isinstance(each, str):
                    if not each.isascii():
                        node[place] = self._text(each)
                elif isinstance(each, (dict, list)):
                    todo.append(each)
        return root[0]

    def _text(self, text: str) -> str:
        # lone halves are what UTF-8 cannot encode, three bytes each
        broken = (len(text.encode("utf-8", "surrogatepass")) - len(text.encode("utf-8", "ignore"))) // 3
        self._left -= broken
        if self._left < 0:
            raise JsonFault(f"contains more than {MAX_SURROGATES} lone surrogates")
        return _half.sub("\ufffd", text) if broken else text


_LONGEST: Final = 100  # characters that are compared; the longest name of the protocol has 43
MAX_FOLDED: Final = 1024
"""Characters in the non-ASCII names of one object.

Folding one can cost two microseconds, and the protocol's names are ASCII.
"""


def second_reading(names: Collection[str], known: frozenset[str]) -> str | None:
    """The first of ``names`` that a lenient parser confuses with one of ``known`` or another of ``names``, or None.

    ``names`` are those of one object, bounded by ``rawjson``. The first name beyond MAX_FOLDED counts as a second
    reading, because it is not compared.
    """
    found = resembling(names, known)
    if found is not None or len(names) < 2:
        return found
    seen: set[str] = set()
    room = MAX_FOLDED
    for name in names:
        if not name.isascii():
            room -= len(name)
            if room < 0:
                return name
        folded = fold(name)
        if folded in seen:
            return name
        seen.add(folded)
    return None


def resembling(names: Collection[str], known: frozenset[str]) -> str | None:
    """The first of ``names`` outside ``known`` that a lenient parser reads as one of ``known``; None if absent.

    ``known`` are names of the protocol. They are ASCII, and their folded forms are cached.
    """
    return next((name for name in names if resembles(name, known)), None)


def resembling_field(names: Collection[str], fields: frozenset[str]) -> str | None:
    """The first of ``names`` that a lenient parser reads as one of a peer's ``fields``, such as those of a form."""
    loose = frozenset(map(_loosely, fields))
    return next((name for name in names if name not in fields and _loosely(name) in loose), None)


def resembles(name: str, known: frozenset[str]) -> bool:
    """Whether ``name`` is outside ``known`` but a lenient parser reads it as one of these."""
    return (
        name not in known
        and (name.isascii() or all(map(_is_ascii, name[:_LONGEST])))
        and _loosely(name) in _loose(known)
    )


def fold(name: str) -> str:
    """A name without case and width, up to a NUL; a name longer than any of the protocol's is cut."""
    if name.isascii():
        return name.partition("\0")[0].lower()
    wide = unicodedata.normalize("NFKC", name[:_LONGEST]).partition("\0")[0]
    # upper case first: Java and others read a dotless i as an i; a dotted capital leaves its dot above
    return unicodedata.normalize("NFKC", wide.upper().casefold()).replace("\u0307", "")


def _loosely(name: str) -> str:
    """A folded name without underscores."""
    return name.lower() if name.isascii() and name.isalnum() else fold(name).replace("_", "")


@lru_cache(maxsize=8192)
def _is_ascii(letter: str) -> bool:
    """Whether a letter folds to ASCII: a name folds to ASCII only if each of its letters does."""
    return fold(letter).isascii()


@lru_cache(maxsize=64)
def _loose(known: frozenset[str]) -> frozenset[str]:
    return frozenset(map(_loosely, known))
