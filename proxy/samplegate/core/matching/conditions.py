"""The conditions of a rule one by one: the fact each reads, its test, and how to say that it did not hold. Not their combination (``match.py``)."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec

from samplegate.core.matching.facts import ABSENT, NO_CALL, UNKNOWN, Facts, Known
from samplegate.core.matching.patterns import Search, searcher
from samplegate.core.parsing.strictjson import named
from samplegate.core.policy import Match, Names, Range
from samplegate.urls import ascii_host

Holds: TypeAlias = bool | None
Test: TypeAlias = Callable[[Any], bool]

NO_CALL_NAME: Final = "none"
"""``tool: none``: no call is in flight. A tool that is really called so is met by ``tool: "[n]one"``."""

_SHOWN: Final = 400  # bytes of a text of which the first characters are shown


class Condition(msgspec.Struct, frozen=True):
    """One condition: which fact it reads, the test of it, and how to say that it did not hold."""

    name: str
    read: Callable[[Any], Any]
    test: Test
    wanted: str
    shown_by: Callable[[Any], Any] | None = None
    """Reads the value that a complaint shows, where that is not the fact."""

    def complaint(self, facts: Facts | Known) -> str:
        """Why it does not hold, with the value met, shortened."""
        value = self.read(facts)
        if value is UNKNOWN:
            return f"{self.name}: it is not known, or has more than one reading, and must be {self.wanted}"
        if value is ABSENT:
            return f"{self.name}: the request has none"
        return f"{self.name}: {shown(value if self.shown_by is None else self.shown_by(facts))} is not {self.wanted}"


def conditions(match: Match) -> Iterator[Condition]:
    """The conditions that a match gives, its ``not`` aside. Raises ValueError for an RE2 expression that does not compile."""
    for name, fact, build in _TABLE:
        wanted = getattr(match, name)
        if wanted is not None:
            test, said = build(wanted)
            yield Condition(name, attrgetter(fact), test, said)


def no_urls() -> Condition:
    """A rule takes ``mode: url`` only if it says so (policies/README.md, "Conditions")."""
    return Condition("mode", attrgetter("is_url"), lambda is_url: not is_url, "covered: a rule takes urls only if it says mode: url", lambda _: "url")


def web_only() -> Condition:
    """A rule that grants takes a URL that is not by http or https only if it names the scheme: ``javascript:`` and ``data:`` open no page."""
    return Condition("scheme", attrgetter("is_web"), bool, "covered: a rule that names no scheme takes http and https only", attrgetter("scheme"))


def shown(value: object) -> str:
    """A value for a person, on one line, shortened."""
    if isinstance(value, bytes):
        value = value[:_SHOWN].decode("utf-8", "replace")
    if isinstance(value, (tuple, frozenset)):
        items = sorted(value) if isinstance(value, frozenset) else value
        text = ", ".join(shown(item) for item in items[:5]) + (f" and {len(items) - 5} more" if len(items) > 5 else "")
        return f"[{text}]"
    if value is NO_CALL:
        return NO_CALL.value
    if isinstance(value, str):
        return named(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def listed(value: Any) -> list[Any]:
    """What one name, several or none stand for: a list."""
    return [] if value is None else value if isinstance(value, list) else [value]


Built: TypeAlias = tuple[Test, str]


def _one_of(wanted: Any) -> Built:
    names = listed(wanted)
    return frozenset(names).__contains__, _said(names)


def _same(wanted: Any) -> Built:
    return wanted.__eq__, shown(wanted)


def _said(names: list[Any]) -> str:
    return str(names[0]) if len(names) == 1 else "one of " + ", ".join(map(str, names[:8]))


def globs(names: Names) -> Built:
    """A test for one of several globs, case-sensitive."""
    plain = frozenset(name for name in listed(names) if not is_glob(name))
    patterns = [fnmatch.translate(name) for name in listed(names) if is_glob(name)]
    said = _said(listed(names))
    if not patterns:
        return plain.__contains__, said
    found = re.compile("|".join(patterns)).match
    return (lambda value: value in plain or found(value) is not None), said


def is_glob(name: str) -> bool:
    """Whether a name has a character that stands for others."""
    return any(character in name for character in "*?[")


def _folded(names: Names) -> Built:
    test, said = globs([name.lower() for name in listed(names)])
    return (lambda value: test(value.lower())), said


def _hosts(names: Names) -> Built:
    return globs([_host_glob(name) for name in listed(names)])


def _host_glob(name: str) -> str:
    """A host as the URL's comes: ASCII, lower case, an IPv6 address without its brackets."""
    if name.startswith("[") and name.endswith("]") and ":" in name:
        name = name[1:-1]
    return ".".join(label if label.isascii() else ascii_host(label) or label for label in name.lower().split("."))


def _hints(names: Names) -> Built:
    test, said = globs([name.lower() for name in listed(names)])
    return (lambda hints: any(map(test, hints))), f"a list with {said}"


def _tools(names: Names) -> Built:
    """``none`` is no tool's name here, and the absence of a call has no other name."""
    real = [name for name in listed(names) if name != NO_CALL_NAME]
    none = len(real) < len(listed(names))
    test, _ = globs(real)
    return (lambda value: none if value is NO_CALL else test(value)), _said(listed(names))


def _within(wanted: Range) -> Built:
    low, high = wanted.min, wanted.max
    said = " and ".join([f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None))
    return (lambda value: (low is None or value >= low) and (high is None or value <= high)), said or "a number"


def _every_in(wanted: list[str]) -> Built:
    return frozenset(wanted).issuperset, f"made of {', '.join(wanted)} alone"


def _exactly(wanted: list[str]) -> Built:
    return frozenset(wanted).__eq__, f"exactly {', '.join(wanted)}"


def _at_least(wanted: list[str]) -> Built:
    return frozenset(wanted).issubset, f"a form with {', '.join(wanted)}"


def _search(pattern: str) -> Search:
    search = searcher(pattern)
    if isinstance(search, str):
        raise ValueError(f"{shown(pattern)} is not an RE2 expression: {search}")
    return search


def _found(pattern: str) -> Built:
    search = _search(pattern)
    return (lambda texts: any(map(search, texts))), f"a place where {shown(pattern)} is found"


def _prompt(wanted: bool | str) -> Built:
    if isinstance(wanted, bool):
        return (lambda prompt: bool(prompt) is wanted), "there" if wanted else "empty"
    search = _search(wanted)
    return (lambda prompt: prompt != b"" and search(prompt) is not None), f"a place where {shown(wanted)} is found"


_TABLE: Final[tuple[tuple[str, str, Callable[[Any], Built]], ...]] = (
    ("kind", "kind", _one_of),
    ("mode", "mode", _one_of),
    ("era", "era", _one_of),
    ("server", "server", globs),
    ("caller", "caller", globs),
    ("method", "method", globs),
    ("tool", "tool", _tools),
    ("max_tokens", "max_tokens", _within),
    ("size", "size", _within),
    ("messages", "messages", _within),
    ("tools", "tools", _same),
    ("fields", "fields", _exactly),
    ("has", "fields", _at_least),
    ("content_types", "content_types", _every_in),
    ("host", "host", _hosts),
    ("scheme", "scheme", _folded),
    ("hint", "hints", _hints),
    ("field_types", "field_types", _every_in),
    ("field_names", "field_names", _found),
    ("system_prompt", "system_prompt", _prompt),
    ("text", "texts", _found),
)
"""Each condition: its name in the policy, the fact it reads, and how its test is built. The cheap ones stand first."""
