"""`samplegate reviews` for a review that needs several approvals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from samplegate.reviews.review import Also, Edits, Verdict
from samplegate.reviews.votes import version
from tests.fakes.review_store import TimedReviews
from tests.fakes.reviews import NOW, review
from tests.fakes.shell import Run

ID = "rv_" + "a" * 24


@pytest.fixture
def store(
    tmp_path: Path, empty_store: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[TimedReviews]:
    kept = TimedReviews(empty_store(tmp_path))
    also = {"also": (Also("lead"),), "also_from": NOW + 600}
    asked = review(id=ID, created=NOW, approvals=2, not_caller=True, groups=("leads",), caller="bob", **also)
    assert kept.at(NOW).open(asked, announce=False, most=9)
    monkeypatch.setattr("time.time", lambda: NOW + 120)
    monkeypatch.setenv("SAMPLEGATE_STATE", str(tmp_path))
    monkeypatch.setenv("USER", "ann")
    yield kept
    kept.close()


def test_one_approval_on_the_command_line_needs_a_person_beside_it(store: TimedReviews, run: Run) -> None:
    first = run("reviews", "approve", ID)
    assert (0, f"pending {ID}") == (first.code, first.out.partition(":")[0])
    assert "1 of 2 approvals: ann" == first.out.splitlines()[-1]
    again = run("reviews", "approve", ID, "--as", "ben")
    assert (1, "") == (again.code, again.out)
    assert "another person must approve it on the page or through the API" in again.err
    assert store.decide(ID, Verdict(word="approve"), who="cleo", door="page")
    assert "approved" == store.get(ID).state  # type: ignore[union-attr]


def test_the_caller_is_refused(store: TimedReviews, run: Run) -> None:
    refused = run("reviews", "approve", ID, "--as", "bob")
    assert (1, True) == (refused.code, "you made the call" in refused.err)
    assert 0 == run("reviews", "reject", ID, "--as", "bob").code


def test_edited_content_is_approved_by_its_digest(store: TimedReviews, run: Run) -> None:
    edited = store.decide(ID, Verdict(word="approve", edits=Edits(max_tokens=7)), who="ben", door="page")
    refused = run("reviews", "approve", ID)
    assert (1, True) == (refused.code, "somebody edited it" in refused.err)
    shown = run("reviews", "show", ID).out
    digest = version(edited)  # type: ignore[arg-type]
    for line in (
        "approvals  1 of 2 approvals: ben",
        "vote       approve by ben (page) at",
        "excluded   approvals by the caller, bob",
        "groups     leads",
        "also       lead, from",
        f"digest     {digest}",
        "approved by one of several people by ben (page): 1 of 2 approvals: ben",
        "maxTokens",
    ):
        assert line in shown
    assert 0 == run("reviews", "approve", ID, "--digest", digest).code
    done = store.get(ID)
    assert done is not None
    assert ("approved", "ben, ann", 7) == (done.state, done.who, done.verdict.edits.max_tokens)  # type: ignore[union-attr]
    assert "approve by ann (cli, unproved name) at" in run("reviews", "show", ID).out
