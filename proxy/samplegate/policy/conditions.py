"""Pure. Conditions of a rule: the fact that each one reads, its test, and its complaint if it does not hold.
``match.py`` combines them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from samplegate.policy import arguments
from samplegate.policy.facts import ABSENT, NO_CALL, UNKNOWN, Arguments, Claims, Facts, Known
from samplegate.policy.schema import ArgumentTest, Match, Names, Range, Wanted
from samplegate.protocol.strictjson import quoted_name
from samplegate.regex import Search, searcher, utf8
from samplegate.urls import ascii_host

Holds: TypeAlias = bool | None
Test: TypeAlias = Callable[[Any], Holds]
"""None: the value cannot be judged."""

NO_CALL_NAME: Final = "none"
"""``tool: none`` means that no call is in flight. A tool with this name is matched by ``tool: "[n]one"``."""

_SHOWN: Final = 400  # bytes of a text from which the shown characters are taken


class Condition(msgspec.Struct, frozen=True):
    """One condition: the fact that it reads, its test, and the clause for a value that fails it."""

    name: str
    read: Callable[[Any], Any]
    test: Test
    mismatch: str
    shown_by: Callable[[Any], Any] | None = None
    """Reads the value to show in a complaint, if it differs from the fact."""

    def complaint(self, facts: Facts | Known) -> str:
        """Why the condition does not hold, with the actual value, shortened."""
        value = self.read(facts)
        if value is UNKNOWN:
            return f"{self.name}: the value is unknown or ambiguous"
        if value is ABSENT or value is arguments.MISSING:
            return f"{self.name}: not set"
        return f"{self.name}: {short_value(value if self.shown_by is None else self.shown_by(facts))} {self.mismatch}"


def conditions(match: Match) -> Iterator[Condition]:
    """The conditions of a match, except its ``not``. Raises ValueError for an invalid RE2 expression."""
    for row in TABLE.values():
        wanted = getattr(match, row.name)
        if wanted is not None:
            test, mismatch = row.build(wanted)
            yield Condition(row.name, attrgetter(row.fact), test, mismatch)
    for path, wanted in (match.arguments or {}).items():
        test, mismatch = _comparison(wanted)
        yield Condition(f"arguments.{path}", _read_value("arguments", path, wanted), test, mismatch)
    for path, wanted in (match.claims or {}).items():
        test, mismatch = _comparison(wanted)
        yield Condition(f"claims.{path}", _read_value("claims", path, wanted), _of_any(test), mismatch)


def _comparison(wanted: Wanted) -> Built:
    return arguments.comparison(wanted, lambda names: globs(names)[0], _finds)


def _read_value(fact: Literal["arguments", "claims"], path: str, wanted: Wanted) -> Callable[[Any], Any]:
    names, source = arguments.path_of(path), attrgetter(fact)
    may_be_absent = isinstance(wanted, ArgumentTest) and wanted.absent

    def read(facts: Facts | Known) -> Any:
        values = source(facts)
        if not isinstance(values, (Arguments, Claims)):  # ABSENT without a call, or UNKNOWN
            return values
        found = values.at(names)
        return arguments.MISSING if found is ABSENT and may_be_absent else found

    return read


def _of_any(test: Test) -> Test:
    """The test of a value, or of a list: one item is enough."""

    def of_any(value: Any) -> Holds:
        if not isinstance(value, tuple):
            return test(value)
        results = [None if item is UNKNOWN else test(item) for item in value]
        return True if True in results else None if None in results else False

    return of_any


def _finds(pattern: str) -> Callable[[str], Holds]:
    search = _search(pattern)
    return lambda text: search(utf8(text)) is not None


def names(where: Callable[[Row], bool]) -> tuple[str, ...]:
    """Names of the conditions whose row satisfies ``where``, in the order of ``Match``."""
    return tuple(name for name in Match.__struct_fields__ if name in TABLE and where(TABLE[name]))


def absent(kind: Literal["sampling", "form", "url"]) -> dict[str, object]:
    """The facts that a kind of request never has, as ABSENT."""
    others = {"sampling", "form", "url"} - {kind} | ({"elicitation"} if kind == "sampling" else set())
    return {row.fact: ABSENT for row in TABLE.values() if row.kind in others}


class Row(NamedTuple):
    """A condition's properties, except for its fact (``facts.py``) and its description (``Match``)."""

    name: str
    fact: str
    """The attribute of ``Facts`` that has its value."""
    build: Callable[[Any], Built]
    """Builds its test, and the clause for a value that fails it."""
    kind: Literal["any", "sampling", "elicitation", "form", "url"] = "any"
    """The requests that have the value."""
    compared: Literal["equal", "names", "parts", "at_least"] = "equal"
    """The effect of additional list members. With ``names`` and ``parts``, more requests match; with ``parts``, a
    request has several values. With ``at_least``, fewer match."""
    doubtful: bool = False
    """Whether a request's value may be unknown."""
    logged: bool = False
    """Whether every record of the decision log has it, under the name of the fact."""

    @property
    def is_expression(self) -> bool:
        """Whether its value is, or may be, an RE2 expression."""
        return self.build in (_found, _prompt)

    @property
    def is_searched(self) -> bool:
        """Whether its expression is searched for in many texts of a request."""
        return self.build is _found


def names_call(match: Match) -> bool:
    """Whether the match has a tool or method anywhere, also under ``not``."""
    return (
        match.tool is not None
        or match.method is not None
        or match.arguments is not None
        or (match.not_ is not None and names_call(match.not_))
    )


def names_arguments(match: Match) -> bool:
    """Whether the match has arguments anywhere, also under ``not``."""
    return match.arguments is not None or (match.not_ is not None and names_arguments(match.not_))


def names_identity(match: Match) -> bool:
    """Whether the match has groups or claims anywhere, also under ``not``."""
    return (
        match.groups is not None or match.claims is not None or (match.not_ is not None and names_identity(match.not_))
    )


class IdentityNames(NamedTuple):
    """What rules name of a caller's identity."""

    groups: bool = False
    claims: tuple[str, ...] = ()
    """Paths, each once."""


def identity_names(matches: Iterable[Match]) -> IdentityNames:
    """What matches name of a caller's identity, also under ``not``."""
    every = [part for match in matches for part in _with_inner(match)]
    paths = dict.fromkeys(path for part in every for path in part.claims or ())
    return IdentityNames(any(part.groups is not None for part in every), tuple(paths))


def _with_inner(match: Match) -> Iterator[Match]:
    yield match
    if match.not_ is not None:
        yield from _with_inner(match.not_)


def no_urls() -> Condition:
    """A rule matches URLs only if it has ``mode: url`` (policies/conditions.md, "Conditions")."""
    return Condition(
        "mode",
        attrgetter("is_url"),
        lambda is_url: not is_url,
        "needs a rule with `mode: url`",
        lambda _: "url",
    )


def web_only() -> Condition:
    """A rule that grants matches a URL with a scheme other than http and https only if it names the scheme.
    ``javascript:`` and ``data:`` open no page."""
    return Condition(
        "scheme",
        attrgetter("is_web"),
        bool,
        "needs a rule that names the scheme; other rules match only http and https",
        attrgetter("scheme"),
    )


def short_value(value: object) -> str:
    """A value for messages: on one line, shortened."""
    if isinstance(value, bytes):
        value = value[:_SHOWN].decode("utf-8", "replace")
    if isinstance(value, (tuple, frozenset)):
        items = sorted(value) if isinstance(value, frozenset) else value
        text = ", ".join(short_value(item) for item in items[:5]) + (
            f" and {len(items) - 5} more" if len(items) > 5 else ""
        )
        return f"[{text}]"
    if value is NO_CALL or value is UNKNOWN:
        return str(value.value)
    if isinstance(value, str):
        return quoted_name(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def listed(value: Any) -> list[Any]:
    """A setting of one name, several or none, as a list."""
    return [] if value is None else value if isinstance(value, list) else [value]


Built: TypeAlias = tuple[Test, str]
"""A test, and the clause for a value that fails it, such as ``is not docs``."""


def _one_of(wanted: Any) -> Built:
    names = listed(wanted)
    return frozenset(names).__contains__, _is_not(names)


def _same(wanted: Any) -> Built:
    return wanted.__eq__, f"is not {short_value(wanted)}"


def _is_not(names: list[Any]) -> str:
    return f"is not {_any_of(names)}"


def _any_of(names: list[Any]) -> str:
    return str(names[0]) if len(names) == 1 else "one of " + ", ".join(map(str, names[:8]))


def globs(names: Names) -> Built:
    """A case-sensitive test for one of several globs."""
    plain = frozenset(name for name in listed(names) if not is_glob(name))
    patterns = [fnmatch.translate(name) for name in listed(names) if is_glob(name)]
    mismatch = _is_not(listed(names))
    if not patterns:
        return plain.__contains__, mismatch
    found = re.compile("|".join(patterns)).match
    return (lambda value: value in plain or found(value) is not None), mismatch


def is_glob(name: str) -> bool:
    """Whether a name contains a wildcard."""
    return any(character in name for character in "*?[")


def _folded(names: Names) -> Built:
    test, mismatch = globs([name.lower() for name in listed(names)])
    return (lambda value: test(value.lower())), mismatch


def _hosts(names: Names) -> Built:
    return globs([_host_glob(name) for name in listed(names)])


def _host_glob(name: str) -> str:
    """A host glob in the form of a URL's host: ASCII, lower case, an IPv6 address without brackets."""
    if name.startswith("[") and name.endswith("]") and ":" in name:
        name = name[1:-1]
    return ".".join(label if label.isascii() else ascii_host(label) or label for label in name.lower().split("."))


def _hints(names: Names) -> Built:
    wanted = [name.lower() for name in listed(names)]
    test, _ = globs(wanted)
    return (lambda hints: any(map(test, hints))), f"does not include {_any_of(wanted)}"


def _any_glob(names: Names) -> Built:
    test, _ = globs(names)
    return (lambda values: any(map(test, values))), f"does not include {_any_of(listed(names))}"


def _tools(names: Names) -> Built:
    """``none`` stands for "no call in flight" here, not for a tool of that name."""
    real = [name for name in listed(names) if name != NO_CALL_NAME]
    none = len(real) < len(listed(names))
    test, _ = globs(real)
    return (lambda value: none if value is NO_CALL else test(value)), _is_not(listed(names))


def _within(wanted: Range) -> Built:
    low, high = wanted.min, wanted.max
    if low is not None and high is not None:
        mismatch = f"is not between {low} and {high}"
    elif low is not None:
        mismatch = f"is less than {low}"
    else:
        mismatch = "is not a number" if high is None else f"is more than {high}"
    return (lambda value: (low is None or value >= low) and (high is None or value <= high)), mismatch


def _every_in(wanted: list[str]) -> Built:
    return frozenset(wanted).issuperset, f"has types other than {', '.join(wanted)}"


def _exactly(wanted: list[str]) -> Built:
    return frozenset(wanted).__eq__, f"is not exactly {', '.join(wanted)}"


def _at_least(wanted: list[str]) -> Built:
    return frozenset(wanted).issubset, f"does not include all of {', '.join(wanted)}"


def _search(pattern: str) -> Search:
    search = searcher(pattern)
    if isinstance(search, str):
        raise ValueError(f"{short_value(pattern)} is not a valid RE2 expression: {search}")
    return search


def _found(pattern: str) -> Built:
    search = _search(pattern)
    return (lambda texts: any(map(search, texts))), f"does not match {short_value(pattern)}"


def _prompt(wanted: bool | str) -> Built:
    if isinstance(wanted, bool):
        return (lambda prompt: bool(prompt) is wanted), "is empty" if wanted else "is not empty"
    search = _search(wanted)
    return (lambda prompt: prompt != b"" and search(prompt) is not None), f"does not match {short_value(wanted)}"


def _table(*rows: Row) -> dict[str, Row]:
    return {row.name: row for row in rows}


TABLE: Final = _table(
    Row("kind", "kind", _one_of, logged=True),
    Row("mode", "mode", _one_of, "elicitation", "names"),
    Row("era", "era", _one_of, logged=True),
    Row("server", "server", globs, "any", "names", logged=True),
    Row("caller", "caller", globs, "any", "names", logged=True),
    Row("groups", "groups", _any_glob, "any", "names", doubtful=True),
    Row("method", "method", globs, "any", "names"),
    Row("tool", "tool", _tools, "any", "names"),
    Row("max_tokens", "max_tokens", _within, "sampling"),
    Row("size", "size", _within),
    Row("messages", "messages", _within, "sampling"),
    Row("tools", "tools", _same, "sampling"),
    Row("fields", "fields", _exactly, "form", doubtful=True),
    Row("has", "fields", _at_least, "form", "at_least", doubtful=True),
    Row("content_types", "content_types", _every_in, "sampling", "parts"),
    Row("host", "host", _hosts, "url", "names", doubtful=True),
    Row("scheme", "scheme", _folded, "url", "names", doubtful=True),
    Row("hint", "hints", _hints, "sampling", "names"),
    Row("field_types", "field_types", _every_in, "form", "parts", doubtful=True),
    Row("field_names", "field_names", _found, "form", doubtful=True),
    Row("system_prompt", "system_prompt", _prompt, "sampling"),
    Row("text", "texts", _found),
)
"""Every condition by its name in the policy. They are tested in this order, so cheap ones come first."""
