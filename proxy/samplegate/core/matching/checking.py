"""Content against a flat schema, by jsonschema. Not an importer of it: the import costs start-up time and waits for the first check.

The schema comes from a peer, so: no reference is ever followed (the registry is closed, R17), patterns run on RE2 (R33), and the four
formats of R32 are checked here, because jsonschema leaves most of them unchecked (T15).
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from samplegate.core.matching.forms import Form
from samplegate.core.matching.patterns import peer_searcher, utf8
from samplegate.core.parsing.strictjson import named

MAX_SEARCHED: Final = 32 * 1024
"""Characters of a text that is held against a pattern; a longer one does not fit. RE2 takes up to 3 microseconds for each in so little memory."""

_email: Final = re.compile(r"[^@\s\x00-\x1f]{1,64}@[^@\s\x00-\x1f]{1,255}\Z")
_date: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_moment: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}):([0-9]{2})(?:\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})\Z")
_uri: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*\Z")
_bad_escape: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def is_email(text: str) -> bool:
    """Something on either side of one @: more would refuse addresses that work."""
    return _email.match(text) is not None


def is_date(text: str) -> bool:
    """A full-date of RFC 3339."""
    return _date.match(text) is not None and _parses(dt.date.fromisoformat, text)


def is_moment(text: str) -> bool:
    """A date-time of RFC 3339; a leap second counts."""
    found = _moment.match(text)
    if found is None or int(found[3]) > 60:
        return False
    zone = "+00:00" if found[4] in "Zz" else found[4]
    return _parses(dt.datetime.fromisoformat, f"{found[1]}T{found[2]}:{min(int(found[3]), 59):02}{zone}")


def _parses(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def is_uri(text: str) -> bool:
    """An absolute URI of RFC 3986, in characters; a web address must have a host."""
    if _uri.match(text) is None or _bad_escape.search(text):
        return False
    return not text.lower().startswith(("http:", "https:")) or ("://" in text and text.partition("://")[2][:1] not in ("", "/", "?", "#"))


FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {"email": is_email, "uri": is_uri, "date": is_date, "date-time": is_moment}


@lru_cache(maxsize=1)
def _checker() -> Callable[[Any], Any]:
    """The validator class with our keywords, formats and closed registry, as a function of the schema."""
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.validators import extend
    from referencing import Registry

    formats = FormatChecker(formats=())
    for name, good in FORMATS.items():
        formats.checks(name)(lambda value, good=good: not isinstance(value, str) or good(value))
    keywords = {"pattern": _pattern, "anyOf": _choice, "oneOf": _choice, "enum": _among, "items": _items, "uniqueItems": _unique}
    validator: Any = extend(Draft202012Validator, keywords)  # type: ignore[no-untyped-call]
    return lambda schema: validator(schema, registry=Registry(), format_checker=formats)


def _pattern(validator: Any, wanted: str, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, str) or not _within(schema, "minLength", len(instance), "maxLength"):
        return  # a wrong length is an error of its own, and needs no search
    search = peer_searcher(wanted)
    if len(instance) > MAX_SEARCHED or isinstance(search, str) or search(utf8(instance)) is None:
        yield _error("pattern")


def _choice(validator: Any, wanted: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    # of a form's thousands of choices only those with this very value are looked into: a list of all of them would take minutes
    if not _takes(validator, [each for each in wanted if each.get("const") == instance], instance, "oneOf" in schema):
        yield _error("choice")


def _among(validator: Any, wanted: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, str) or instance not in wanted:
        yield _error("enum")


def _items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """The items of a list of choices, by a table of the choices: there may be tens of thousands of items and of choices."""
    if not isinstance(instance, list) or not _within(schema, "minItems", len(instance), "maxItems"):
        return  # a wrong type or count is an error of its own
    keyword = next(name for name in ("enum", "anyOf", "oneOf") if name in wanted)
    table: defaultdict[str, list[Any]] = defaultdict(list)
    for each in wanted[keyword]:
        table[each if keyword == "enum" else each["const"]].append(each)
    known: dict[str, bool] = {}
    for index, item in enumerate(instance):
        if not isinstance(item, str) or wanted.get("type", "string") != "string":
            yield from validator.descend(item, wanted, path=index)
            continue
        if item not in known:
            same = table.get(item, [])
            known[item] = bool(same) if keyword == "enum" else _takes(validator, same, item, keyword == "oneOf")
        if not known[item]:
            yield _error("choice", validator=keyword, validator_value=wanted[keyword], path=(index,))


def _unique(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[Any]:
    if wanted and isinstance(instance, list) and len(set(instance)) < len(instance):
        yield _error("uniqueItems")


def _takes(validator: Any, same: list[Any], instance: Any, once: bool) -> bool:
    """Whether one of the choices with this very value takes it; with ``once``, exactly one."""
    plain: int = sum(each.get("type", "string") == "string" for each in same) if isinstance(instance, str) else 0
    if plain == len(same) or (plain and not once):
        return plain == 1 if once else plain > 0
    taken: int = sum(validator.evolve(schema=each).is_valid(instance) for each in same)
    return taken == 1 if once else taken > 0


def _error(what: str, **more: Any) -> Any:
    from jsonschema import ValidationError

    return ValidationError(what, **more)


def _within(schema: Mapping[str, Any], least: str, count: int, most: str) -> bool:
    return schema.get(least, 0) <= count <= schema.get(most, math.inf)  # type: ignore[no-any-return]


def check(form: Form, content: Mapping[str, Any]) -> str | None:
    """Why ``content`` does not fit the form (R34, R36), None if it does. Names the field and the keyword, never a value."""
    for name, value in content.items():
        if not is_value(value):
            return f"{named(name)} is not a text, a number, true, false or a list of texts"
    try:
        error = next(errors(form, content), None)
    except Exception as problem:  # the schema is a peer's: what cannot be checked does not fit, whatever jsonschema stumbled over
        return f"it could not be checked ({type(problem).__name__})"
    if error is None:
        return None
    if error.validator == "required":
        return "a required field is missing"
    place = named(str(error.absolute_path[0])) if error.absolute_path else ""
    return f"{place} does not fit its {error.validator}" if place else f"it does not fit its {error.validator}"


def errors(form: Form, content: Mapping[str, Any]) -> Iterator[Any]:
    """jsonschema's errors: each has ``absolute_path``, ``validator`` (the keyword) and ``validator_value``. May raise whatever jsonschema does."""
    return iter(_checker()(form.schema).iter_errors(content))


def is_value(value: Any) -> bool:
    """Whether a form can bring it at all (R34): a text, a finite number, true, false or a list of texts."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, (str, int)) or (isinstance(value, list) and all(isinstance(item, str) for item in value))
