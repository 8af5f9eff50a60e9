"""Pure. JUnit XML, as the readers of Jenkins and GitLab accept it.

Jenkins shows a failure's message and its text. GitLab shows only the text, so the text begins with the message. Both
regard cases with equal suite, class and name as one case, so repeated names get a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final
from xml.etree import ElementTree as ET

from samplegate.printable import printable

MAX_CASES: Final = 1_000
MAX_TEXT: Final = 4_000  # characters of a message, and of details
MAX_NAME: Final = 300
MAX_BYTES: Final = 4 * 1024 * 1024
SHORT: Final = 200  # characters of each text in the second half of the file
UNNAMED: Final = "(unnamed)"
LEFT_OUT: Final = "cases left out"
"""Suite and class of the case that counts those left out."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test case. It passed if there is neither ``failure`` nor ``skipped``."""

    name: str
    classname: str
    seconds: float | None = None
    failure: str | None = None
    """What is wrong, in a line."""
    details: str = ""
    """Further lines on a failure."""
    skipped: str | None = None
    """Why the case has no result."""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases that belong together, such as those of a file. A suite without cases is left out."""

    name: str
    cases: tuple[Case, ...]


def junit_xml(suites: Iterable[Suite]) -> bytes:
    """The suites as an XML document of at most ``MAX_CASES`` cases and about ``MAX_BYTES``.

    Failed cases come first into these bounds. A last case tells how many others are left out, and fails if one of them
    failed. Unprintable characters are escaped, because XML allows few of them.
    """
    given = list(suites)
    kept = _kept(given)
    root = ET.Element("testsuites", name="samplegate")
    lost = Counter[bool]()
    for number, suite in enumerate(given):
        elements = [found for place in range(len(suite.cases)) if (found := kept.get((number, place))) is not None]
        lost.update(case.failure is not None for i, case in enumerate(suite.cases) if (number, i) not in kept)
        _add_suite(root, suite.name, elements)
    if lost:
        _add_suite(root, LEFT_OUT, [_element(_left_out(lost), MAX_TEXT)])
    _add_totals(root, list(root))
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _kept(suites: Sequence[Suite]) -> dict[tuple[int, int], ET.Element]:
    """The elements of the cases within the bounds, by the numbers of their suite and case: failed cases first."""
    places = sorted(
        ((number, place) for number, suite in enumerate(suites) for place in range(len(suite.cases))),
        key=lambda at: suites[at[0]].cases[at[1]].failure is None,
    )
    most = MAX_CASES if len(places) <= MAX_CASES else MAX_CASES - 1
    kept: dict[tuple[int, int], ET.Element] = {}
    names: set[tuple[str, str, str]] = set()
    size = 0
    for number, place in places[:most]:
        suite = _name(suites[number].name, MAX_NAME)
        for bound, room in ((MAX_TEXT, MAX_BYTES // 2), (SHORT, MAX_BYTES)):
            element = _element(suites[number].cases[place], bound)
            added = len(ET.tostring(element)) + 6 * len(suite) + SHORT  # a suite is counted with each of its cases
            if size + added <= room:
                break
        else:
            continue
        size += added
        suite_and_class, name = (suite, element.get("classname", "")), element.get("name", "")
        free = next(one for one in _variants(name) if (*suite_and_class, one) not in names)
        names.add((*suite_and_class, free))
        element.set("name", free)
        kept[number, place] = element
    return kept


def _variants(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name} #{number}" for number in count(2))


def _left_out(lost: Counter[bool]) -> Case:
    number = lost.total()
    name = f"{number} more case{'' if number == 1 else 's'}"
    failure = f"{lost[True]} of the {number} cases left out failed" if lost[True] else None
    return Case(name, LEFT_OUT, failure=failure)


def _element(case: Case, most: int) -> ET.Element:
    """A case with texts of at most ``most`` characters."""
    of_names = min(most, MAX_NAME)
    element = ET.Element("testcase", classname=_name(case.classname, of_names), name=_name(case.name, of_names))
    if case.seconds is not None:
        element.set("time", _time(_milliseconds(case.seconds)))
    if case.file is not None:
        element.set("file", _text(case.file, of_names))
        if case.line is not None:
            element.set("line", str(case.line))
    if case.failure is not None:
        message = _text(case.failure, most).strip() or "failed"
        # GitLab's reader gives meanings to some words here, such as "integer" and "file"
        failure = ET.SubElement(element, "failure", message=message, type="failure")
        details = _text(case.details, most, keep="\n\t")
        failure.text = f"{message}\n{details}" if details else message
    elif case.skipped is not None:
        reason = _text(case.skipped, most).strip() or "skipped"
        ET.SubElement(element, "skipped", message=reason).text = reason
    return element


def _add_suite(root: ET.Element, name: str, cases: Sequence[ET.Element]) -> None:
    if cases:
        suite = ET.SubElement(root, "testsuite", name=_name(name, MAX_NAME))
        suite.extend(cases)
        _add_totals(suite, cases)


def _add_totals(element: ET.Element, parts: Sequence[ET.Element]) -> None:
    """The sums over cases or suites, as attributes."""
    cases = list(element.iter("testcase"))
    element.set("tests", str(len(cases)))
    element.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    element.set("errors", "0")
    element.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    times = [float(time) for part in parts if (time := part.get("time")) is not None]
    if times:
        element.set("time", _time(round(1000 * sum(times))))


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds) if math.isfinite(seconds) and seconds > 0 else 0


def _time(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3f}"


def _name(text: str, most: int) -> str:
    return _text(text, most).strip() or UNNAMED


def _text(text: str, most: int, keep: str = "") -> str:
    shown = printable(text[: most + 1], keep=keep)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
