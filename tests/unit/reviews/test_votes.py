"""Votes on a review that needs several approvals: whose count, what an edit voids, and what is refused."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from samplegate.policy.schema import EscalateRule, Policy, Reviewer, Webhook
from samplegate.reviews.create import gone
from samplegate.reviews.review import Conflict, Door, Edits, Review, Verdict, VoteRefused
from samplegate.reviews.votes import MAX_VOTES, approvers, by_program, progress, version, version_of, voted
from tests.fakes.stored_reviews import NO, NOW, YES, filled, form, review

FEWER: Final = Verdict(word="approve", edits=Edits(max_tokens=5))
OTHERS: Final = Verdict(word="approve", edits=Edits(max_tokens=6))
DECLINES: Final = Verdict(word="answer", result={"action": "decline"})


def vote(
    on: Review, verdict: Verdict, who: str = "anna", door: Door = "page", *, seen: str | None = None, **more: Any
) -> Review | Conflict | VoteRefused:
    return voted(on, verdict, who=who, door=door, seen=version(on) if seen is None else seen, now=NOW + 1, **more)


def after(on: Review, *votes: tuple[Verdict, str, Door]) -> Review:
    for verdict, who, door in votes:
        found = vote(on, verdict, who, door)
        assert isinstance(found, Review), found
        on = found
    return on


def refusal(found: object) -> str:
    assert isinstance(found, VoteRefused), found
    return found.reason


def test_the_second_person_decides() -> None:
    first = after(review(approvals=2), (YES, "anna", "page"))
    assert ("pending", "1 of 2 approvals: anna") == (first.state, progress(first))
    both = after(first, (YES, "ben", "api"))
    assert ("approved", YES, "anna, ben", NOW + 1) == (both.state, both.verdict, both.who, both.decided)
    assert [("anna", "page", True), ("ben", "api", True)] == [(one.by, one.how, one.proven) for one in both.votes]


def test_one_approval_needs_no_votes() -> None:
    done = after(review(), (YES, "anna", "page"))
    assert ("approved", (), "anna", "") == (done.state, done.votes, done.who, progress(done))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("anna", "page"), ("anna", "api")),
        (("anna", "page"), ("ANNA", "api")),
        (("hook", "webhook"), ("other hook", "webhook")),
        (("hook", "webhook"), ("callback", "callback")),
        (("hook", "webhook"), ("script", "command")),
        (("root", "cli"), ("another", "cli")),
        (("root", "cli"), ("hook", "webhook")),
        (("anna", "page"), ("anna", "webhook")),
        (("anna", "page"), ("anna", "cli")),
    ],
)
def test_a_second_approval_that_no_other_person_proves_does_not_count(
    first: tuple[str, Door], second: tuple[str, Door]
) -> None:
    pending = after(review(approvals=2), (YES, *first))
    assert "repeated" == refusal(vote(pending, YES, *second))


@pytest.mark.parametrize("door", ["webhook", "callback", "command", "cli"])
def test_a_program_and_a_person_are_two(door: Door) -> None:
    for votes in ([("hook", door), ("anna", "page")], [("anna", "page"), ("hook", door)]):
        done = after(review(approvals=2), *((YES, who, how) for who, how in votes))
        assert ("approved", False) == (done.state, by_program(done))


def test_a_name_that_a_person_proves_later_counts_once() -> None:
    """A webhook said that anna approves; then she does, by her token."""
    pending = after(review(approvals=2), (YES, "anna", "webhook"), (YES, "anna", "page"))
    assert ("pending", ("anna",)) == (pending.state, approvers(pending.votes))
    assert "repeated" == refusal(vote(pending, YES, "Anna", "api"))
    assert "approved" == after(pending, (YES, "hook", "webhook")).state


def test_programs_alone_never_reach_two() -> None:
    pending = after(review(approvals=2), (YES, "one", "webhook"))
    assert {"repeated"} == {refusal(vote(pending, YES, who, how)) for who in "ab" for how in ("callback", "command")}


@pytest.mark.parametrize("verdict", [NO, DECLINES], ids=["reject", "decline"])
def test_one_refusal_ends_the_review_whatever_it_has_seen(verdict: Verdict) -> None:
    pending = after(review(approvals=3), (YES, "anna", "page"), (FEWER, "ben", "page"))
    ended = vote(pending, verdict, "cleo", seen="sha256:d")
    assert isinstance(ended, Review)
    assert (verdict, "cleo", None) == (ended.verdict, ended.who, ended.proposal)
    assert ["approve", "approve", verdict.word if verdict is NO else "decline"] == [one.verdict for one in ended.votes]
    assert not by_program(ended)
    assert by_program(replace(ended, door="webhook"))


def test_an_edit_voids_the_approvals_before_it_and_is_the_first_of_its_own() -> None:
    edited = after(review(approvals=2), (YES, "anna", "page"), (FEWER, "ben", "page"))
    assert ("pending", ("ben",), FEWER) == (edited.state, approvers(edited.votes), edited.proposal)
    assert version(edited) != edited.digest
    done = after(edited, (FEWER, "anna", "page"))
    assert ("approved", FEWER, "ben, anna") == (done.state, done.verdict, done.who)
    assert [True, False, False] == [one.void for one in done.votes]


def test_an_edit_back_to_an_earlier_version_revives_nothing() -> None:
    back = after(review(approvals=2), (YES, "anna", "page"), (FEWER, "ben", "page"), (YES, "cleo", "page"))
    assert ("pending", ("cleo",), None) == (back.state, approvers(back.votes), back.proposal)
    assert version(back) == back.digest
    assert "approved" == after(back, (YES, "anna", "page")).state


def test_an_own_edit_is_an_edit_too() -> None:
    edited = after(review(approvals=2), (FEWER, "anna", "page"), (OTHERS, "anna", "page"))
    assert (("anna",), OTHERS) == (approvers(edited.votes), edited.proposal)


def test_an_approval_of_an_older_version_is_refused() -> None:
    edited = after(review(approvals=2), (YES, "anna", "page"), (FEWER, "ben", "page"))
    assert "stale" == refusal(vote(edited, YES, "cleo", seen=edited.digest))
    assert "stale" == refusal(vote(edited, FEWER, "cleo", seen=edited.digest))


def test_the_content_of_a_form_must_be_the_same_whatever_the_order_of_its_fields() -> None:
    first = after(form(approvals=2), (filled(user="root", password="x"), "anna", "page"))
    assert "answered" == after(first, (filled(password="x", user="root"), "ben", "page")).state
    other = after(first, (filled(user="root", password="y"), "ben", "page"))
    assert ("pending", ("ben",)) == (other.state, approvers(other.votes))


def test_a_version_survives_the_store() -> None:
    edits = Edits(temperature=1, messages=({"role": "user", "content": {"type": "text", "text": "\ud800 1.0"}},))
    said = Verdict(word="approve", edits=edits)
    again = msgspec.convert(msgspec.to_builtins(said), Verdict)
    assert version_of(review(), said) == version_of(review(), again)
    assert version_of(review(), said) != version_of(review(digest="sha256:e"), said)
    assert review().digest == version_of(review(), YES)


@pytest.mark.parametrize(
    ("caller", "who", "callers", "allowed"),
    [
        ("anna", "anna", (), False),
        ("jwt:anna", "anna", (), False),
        ("jwt:Anna", "anna", (), False),
        ("laptop-7", "anna", ("laptop-7",), False),
        ("jwt:a@example.org", "anna", ("a@example.org",), False),
        ("jwt:a@example.org", "anna", ("jwt:a@example.org",), False),
        ("ben", "anna", (), True),
        ("local", "anna", (), True),
        ("anna:jwt", "anna", (), True),
    ],
)
@pytest.mark.parametrize("approvals", [1, 2])
def test_the_caller_may_reject_but_not_approve(
    approvals: int, caller: str, who: str, callers: tuple[str, ...], allowed: bool
) -> None:
    asked = review(approvals=approvals, not_caller=True, caller=caller)
    approved = vote(asked, YES, who, callers=callers)
    assert allowed == isinstance(approved, Review)
    assert allowed or "caller" == refusal(approved)
    rejected = vote(asked, NO, who, callers=callers)
    assert isinstance(rejected, Review)
    assert "rejected" == rejected.state
    assert isinstance(vote(replace(asked, not_caller=False), YES, who, callers=callers), Review)


def test_a_program_that_names_the_caller_does_not_approve_either() -> None:
    assert "caller" == refusal(vote(review(approvals=2, not_caller=True, caller="anna"), YES, "anna", "webhook"))


def test_a_vote_that_comes_too_late_is_a_conflict() -> None:
    asked = review(approvals=2)
    late = voted(asked, YES, who="anna", door="page", seen=asked.digest, now=asked.expires)
    assert isinstance(late, Conflict)
    assert ("expired", None) == (late.review.state, late.review.proposal)


def test_an_endless_dispute_is_bounded() -> None:
    asked = review(approvals=2)
    for n in range(MAX_VOTES):
        asked = after(asked, (Verdict(word="approve", edits=Edits(max_tokens=n % 9 + 1)), "anna", "page"))
    assert "full" == refusal(vote(asked, YES, "ben"))
    assert isinstance(vote(asked, NO, "ben"), Review)


@pytest.mark.parametrize(
    ("reviewer", "asks"),
    [
        (Reviewer(), True),
        (Reviewer(timeout="1m", webhook=Webhook(url="https://x.example")), True),
        (Reviewer(approvals=2), False),
        (Reviewer(not_="caller"), False),
        (Reviewer(groups=["leads"]), False),
        (Reviewer(after="1m", also=["lead"]), False),
    ],
)
def test_a_reload_that_asks_for_other_approvals_withdraws_what_is_pending(reviewer: Reviewer, asks: bool) -> None:
    policy = Policy(
        version=1, rules=[EscalateRule(name="ask", reviewer="ops")], reviewers={"ops": reviewer, "lead": Reviewer()}
    )
    said = "the policy was reloaded, and reviewer 'ops' now asks for other approvals"
    assert (None if asks else said) == gone(policy, review())
