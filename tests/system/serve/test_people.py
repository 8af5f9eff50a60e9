"""The person in the settings to whom a token belongs."""

from __future__ import annotations

import hashlib

import pytest
from msgspec.structs import replace

from samplegate.config.identities import PeopleSettings, PersonToken, approval_warnings, reviewer_warnings
from samplegate.policy.schema import Reviewer, Webhook
from samplegate.reviews.web.context import Person
from samplegate.runtime.review_page import People


def token(name: str, text: str, role: str = "reviewer", *reviewers: str) -> PersonToken:
    return PersonToken(name, role, hashlib.sha256(text.encode()).hexdigest(), reviewers or None)  # type: ignore[arg-type]


def test_a_person_is_known_by_each_of_their_tokens_and_by_its_hash() -> None:
    people = People(
        PeopleSettings(
            (
                token("ann", "one", "reviewer", "ops"),
                token("ann", "two", "reviewer", "ops"),
                token("ben", "three", "admin"),
            )
        )
    )
    ann = Person("ann", "reviewer", ("ops",))
    assert [ann, ann, Person("ben", "admin")] == [people.person(text) for text in ("one", "two", "three")]
    assert ann == people.known(hashlib.sha256(b"two").digest())


def test_nobody_is_known_by_anything_else() -> None:
    people = People(PeopleSettings((token("ann", "one"),)))
    assert [None] * 5 == [people.person(text) for text in ("", "One", "one ", "\x00", "\ud800")]
    assert [None] * 3 == [people.known(digest) for digest in (b"", bytes(32), b"one")]


def test_others_hold_from_the_next_question_on() -> None:
    people = People(PeopleSettings((token("ann", "one"),)))
    people.put(PeopleSettings((token("ben", "two"),)))
    assert (None, Person("ben", "reviewer")) == (people.person("one"), people.person("two"))


def test_what_does_not_go_together_with_the_policy_is_told() -> None:
    people = PeopleSettings((token("ann", "one", "reviewer", "ops", "opps"), token("ben", "two", "viewer")))
    assert [
        "people: opps is not a reviewer in the policy, so this has no effect",
        "people: no user may decide for the reviewer legal; only a webhook, a command or `samplegate reviews` can",
    ] == reviewer_warnings(people, {"ops", "legal"})
    assert [] == reviewer_warnings(PeopleSettings((token("ann", "one"),)), {"ops", "legal"})


def test_groups_and_callers_of_a_person_come_from_the_settings() -> None:
    ann = replace(token("ann", "one"), groups=("leads", "night"), callers=("laptop",))
    found = People(PeopleSettings((ann,))).person("one")
    assert Person("ann", "reviewer", None, frozenset({"leads", "night"}), frozenset({"laptop"})) == found


HOOK = Webhook(url="https://hooks.example.com/x", secret_env="S")
NEEDS = "people: the reviewer ops needs {} approvals, but {} may decide for it{}; add users, or lower approvals"
PROGRAM = ", and all programs together give one"
GROUPLESS = (
    "people: no user is in the groups of the reviewer ops (leads); only a webhook, a command or `samplegate reviews`"
    " can decide"
)
ANN, BEN = token("ann", "one", "reviewer", "ops"), token("ben", "two", "reviewer", "legal")
SHORT = [
    ((), Reviewer(), []),
    ((), Reviewer(approvals=2, webhook=HOOK), [NEEDS.format(2, "0 users", PROGRAM)]),
    ((ANN, replace(ANN, sha256="0")), Reviewer(approvals=2), [NEEDS.format(2, "1 user", "")]),
    ((ANN, BEN), Reviewer(approvals=2), [NEEDS.format(2, "1 user", "")]),
    ((ANN, BEN), Reviewer(approvals=2, after="1m", also=["legal"]), []),
    ((ANN,), Reviewer(approvals=2, command=["x"]), []),
    ((ANN,), Reviewer(approvals=2, webhook=HOOK), []),
    ((ANN,), Reviewer(approvals=2, webhook=replace(HOOK, format="slack")), [NEEDS.format(2, "1 user", "")]),
    ((ANN,), Reviewer(approvals=2, webhook=replace(HOOK, format="json", body={})), [NEEDS.format(2, "1 user", "")]),
    ((ANN, token("dora", "four", "admin")), Reviewer(approvals=2), []),
    ((ANN, token("cleo", "three", "viewer")), Reviewer(approvals=2), [NEEDS.format(2, "1 user", "")]),
    (
        (ANN,),
        Reviewer(groups=["leads"]),
        [GROUPLESS],
    ),
    ((replace(ANN, groups=("leads",)),), Reviewer(groups=["board", "leads"]), []),
]


@pytest.mark.parametrize(("people", "reviewer", "warnings"), SHORT)
def test_a_reviewer_who_needs_more_people_than_there_are_is_told(
    people: tuple[PersonToken, ...], reviewer: Reviewer, warnings: list[str]
) -> None:
    assert warnings == approval_warnings(PeopleSettings(people), {"ops": reviewer, "legal": Reviewer()})
