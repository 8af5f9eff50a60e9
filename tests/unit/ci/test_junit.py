"""JUnit XML, read as Jenkins and GitLab do."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.ci.junit import LEFT_OUT, MAX_BYTES, MAX_CASES, MAX_NAME, MAX_TEXT, UNNAMED, Case, Suite, junit_xml
from samplegate.printable import printable

HOSTILE = st.lists(
    st.one_of(
        st.sampled_from(["]]>", "</testsuite>", "<!--", "&", "&#0;", '"', "\n", "\r", "\0", "\ufffe", "\udc80", " "]),
        st.text(st.characters(codec=None), max_size=3),
    ),
    max_size=8,
).map("".join)
SCHEMA = {
    "testsuites": ({"name", "tests", "failures", "errors", "skipped", "time"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped", "time"}, {"testcase"}),
    "testcase": ({"classname", "name", "time", "file", "line"}, {"failure", "skipped"}),
    "failure": ({"message", "type"}, set[str]()),
    "skipped": ({"message"}, set[str]()),
}
"""Attributes and children of each element, as in the schema of Jenkins' xUnit plugin."""


def read(document: bytes) -> ET.Element:
    """The document, checked for what both readers need."""
    assert document.startswith(b"<?xml version='1.0' encoding='utf-8'?>")
    root = ET.fromstring(document)
    assert "testsuites" == root.tag
    for element in root.iter():
        attributes, children = SCHEMA[element.tag]
        assert set(element.attrib) <= attributes
        assert {child.tag for child in element} <= children
        if element.tag in ("testsuites", "testsuite"):
            check_totals(element)
    keys = [
        (suite.get("name"), case.get("classname"), case.get("name"))
        for suite in root
        for case in suite.iter("testcase")
    ]
    assert len(set(keys)) == len(keys), "GitLab keeps one of two cases with the same names"
    assert all((element.text or "").strip() for element in (*root.iter("failure"), *root.iter("skipped"))), (
        "GitLab shows the text only"
    )
    return root


def check_totals(element: ET.Element) -> None:
    cases = list(element.iter("testcase"))
    assert cases or element.tag == "testsuites", "Jenkins drops a suite without cases"
    totals = {"tests": len(cases), "errors": 0}
    totals |= {"failures": len(list(element.iter("failure"))), "skipped": len(list(element.iter("skipped")))}
    assert totals == {name: int(element.get(name, "")) for name in totals}
    times = [float(time) for case in cases if (time := case.get("time")) is not None]
    assert (f"{sum(times):.3f}" if times else None) == element.get("time")


def test_suites_and_cases_have_their_attributes() -> None:
    cases = (
        Case("good", "ci_test", 0.0123, file="ci_test.yaml", line=2),
        Case("bad", "ci_test", 1, "effect: expected a, got b", "    rule x\n\ty", file="ci_test.yaml", line=7),
        Case("none", "ci_test", skipped="no tests"),
    )
    root = read(junit_xml([Suite("ci_test.yaml", cases), Suite("empty", ())]))
    (suite,) = root
    assert {
        "name": "ci_test.yaml",
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "time": "1.012",
    } == suite.attrib
    good, bad, none = suite
    assert {
        "classname": "ci_test",
        "name": "good",
        "time": "0.012",
        "file": "ci_test.yaml",
        "line": "2",
    } == good.attrib
    assert {"message": "effect: expected a, got b", "type": "failure"} == bad[0].attrib
    assert "effect: expected a, got b\n    rule x\n\ty" == bad[0].text
    assert ("no tests", "no tests", None) == (none[0].get("message"), none[0].text, none.get("time"))


def test_no_suites_are_a_document_too() -> None:
    assert "0" == read(junit_xml([])).get("tests")


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_zero(seconds: float) -> None:
    assert "0.000" == read(junit_xml([Suite("s", (Case("a", "b", seconds),))]))[0][0].get("time")


def test_empty_texts_have_a_name_that_readers_show() -> None:
    root = read(junit_xml([Suite("", (Case("", " ", failure=""), Case("", "", skipped="")))]))
    (suite,) = root
    assert UNNAMED == suite.get("name") == suite[0].get("name") == suite[0].get("classname")
    assert ("failed", "skipped") == (suite[0][0].text, suite[1][0].text)


def test_cases_with_the_same_names_are_numbered() -> None:
    names = ["a", "a", "a #2", "a", "x" * 1_000, "x" * 1_001]
    (suite,) = read(junit_xml([Suite("s", tuple(Case(name, "c") for name in names))]))
    assert ["a", "a #2", "a #2 #2", "a #3"] == [case.get("name") for case in suite[:4]]


@given(HOSTILE, HOSTILE, HOSTILE)
def test_whatever_the_texts_are_they_are_read_back_with_unprintable_characters_escaped(
    name: str, message: str, details: str
) -> None:
    (suite,) = read(junit_xml([Suite(name, (Case(name, name, failure=message, details=details, file=name),))]))
    (case,) = suite
    one_line = printable(name)
    assert {one_line.strip() or UNNAMED} == {suite.get("name"), case.get("name"), case.get("classname")}
    assert one_line == case.get("file")
    shown = printable(message).strip() or "failed"
    assert shown == case[0].get("message")
    text = printable(details, keep="\n\t")
    assert (f"{shown}\n{text}" if details else shown) == case[0].text


def many(number: int, failed: int, text: str = "x") -> tuple[Case, ...]:
    """Cases of which the last ``failed`` ones failed."""
    return tuple(
        Case(f"{text}{place}", text, 0.001, text if place >= number - failed else None, text) for place in range(number)
    )


def test_a_thousand_cases_are_all_listed() -> None:
    root = read(junit_xml([Suite("a", many(600, 1)), Suite("b", many(400, 1))]))
    assert [600, 400] == [len(suite) for suite in root]


def test_failed_cases_come_first_into_the_bound_and_stay_in_their_order() -> None:
    root = read(junit_xml([Suite("a", many(2_000, 3)), Suite("b", many(5, 5))]))
    assert [MAX_CASES - 9 + 3, 5, 1] == [len(suite) for suite in root]
    assert ["x0", "x1", "x1997", "x1998", "x1999"] == [root[0][i].get("name") for i in (0, 1, -3, -2, -1)]
    (last,) = root[-1]
    assert (LEFT_OUT, "1006 more cases", []) == (last.get("classname"), last.get("name"), list(last))


def test_the_last_case_fails_if_a_case_left_out_failed() -> None:
    root = read(junit_xml([Suite("a", many(3_000, 1_500))]))
    assert MAX_CASES == len(root[0]) + 1
    assert "501 of the 2001 cases left out failed" == root[-1][0][0].get("message")


@pytest.mark.cpu(2)
def test_texts_and_the_file_are_bounded() -> None:
    (suite,) = read(
        junit_xml([Suite("s", (Case("n" * 9_999, "c" * 9_999, failure="m" * 9_999, details="d" * 9_999),))])
    )
    (case,) = suite
    assert (MAX_NAME, MAX_NAME) == (len(case.get("name", "")), len(case.get("classname", "")))
    assert (MAX_TEXT, 2 * MAX_TEXT + 1) == (len(case[0].get("message", "")), len(case[0].text or ""))
    document = junit_xml([Suite('"' * 999 + str(number), many(1, 1, '"' * 5_000)) for number in range(1_100)])
    assert MAX_BYTES * 1.1 > len(document)
    root = read(document)
    assert 300 < len(root)
    assert LEFT_OUT == root[-1].get("name")
    assert root[-1].find("testcase/failure") is not None
