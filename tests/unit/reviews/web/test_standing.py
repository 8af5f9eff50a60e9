"""The state of a review as text for users."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.reviews.web.pages import request_summary, review_status
from tests.fakes.reviews import NOW, address, form, model_answer, review


@pytest.mark.parametrize(
    ("values", "phase"),
    [
        ({}, "waits"),
        ({"answers_until": NOW + 1}, "waits"),
        ({"answers_until": NOW}, "outlived"),
        ({"state": "approved", "decided": NOW, "used_by": "d2", "used": NOW}, "used"),
        ({"state": "approved", "decided": NOW, "waiter": "w", "held_until": NOW + 5}, "taken"),
        ({"state": "approved", "decided": NOW, "waiter": "w", "held_until": NOW - 5}, "kept"),
        ({"state": "answered", "decided": NOW - 3599}, "kept"),
        ({"state": "rejected", "decided": NOW - 3600}, "unused"),
        ({"state": "expired", "decided": NOW}, "expired"),
        ({"state": "withdrawn", "decided": NOW}, "withdrawn"),
    ],
)
def test_the_phase(values: dict[str, Any], phase: str) -> None:
    assert phase == review_status(review(**values), NOW).phase


def test_a_request_never_waits_longer_than_its_review() -> None:
    assert NOW + 900 == review_status(review(answers_until=NOW + 5_000), NOW).request_until


def test_what_is_asked_in_words() -> None:
    found = [
        request_summary(each)
        for each in (review(), model_answer(), address(), form(a="string"), form(a="string", b="string"), form())
    ]
    assert [
        "Sampling request from", "Model's answer for", "URL request from", "Form with 1 field from",
        "Form with 2 fields from", "Consent form from"
    ] == found  # fmt: skip
