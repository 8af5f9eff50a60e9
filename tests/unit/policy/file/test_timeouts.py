"""How long reviewers have: by the peers' timeouts, by protocol version, and as text."""

from __future__ import annotations

import math
from typing import Any, Final

import pytest

from samplegate.durations import duration_text
from samplegate.policy.deadlines import MAX_TRIES
from samplegate.policy.file.timeouts import Wait, can_be_late, review_wait, waits
from samplegate.policy.schema import AllowRule, EscalateRule, Match, Peer, Policy, Reviewer, Rule, Server
from samplegate.protocol.requests import Origin

SAMPLING: Final = Match(kind="sampling")


def wait(rule: Rule, client: Peer | None = None, servers: dict[str, Server] | None = None, **reviewer: Any) -> Wait:
    policy = Policy(
        version=1, rules=[rule], reviewers={"ops": Reviewer(**reviewer)}, client=client or Peer(), servers=servers or {}
    )
    (found,) = waits(policy)
    return found


def escalate(**more: Any) -> EscalateRule:
    return EscalateRule(**{"name": "r", "reviewer": "ops", "match": SAMPLING, **more})


def test_in_the_legacy_eras_the_more_impatient_peer_counts_and_in_the_modern_one_the_client_comes_back() -> None:
    found = wait(escalate(), Peer(peer_timeout="100s"), timeout="1h")
    assert ((55.0, 55.0), 95.0 * MAX_TRIES, 95.0) == (found.legacy, found.modern, found.bridged)
    assert (3600.0, 86_400.0, "request") == (found.timeout, found.late, found.stage)


def test_nobody_has_longer_than_the_review_waits() -> None:
    found = wait(escalate(timeout="10s"), timeout="1h", late_verdict="0s")
    assert ((10.0, 10.0), 10.0, 10.0, None) == (found.legacy, found.modern, found.timeout, found.late)


def test_patient_peers_leave_a_reviewer_all_of_its_time() -> None:
    found = wait(
        escalate(match=Match(server="a")),
        Peer(peer_timeout="none"),
        {"a": Server(extends_on_progress=True)},
        timeout="1h",
    )
    assert ((3600.0, 3600.0), 3600.0) == (found.legacy, found.modern)


def test_servers_of_different_patience_make_a_span() -> None:
    servers = {
        "quick": Server(peer_timeout="20s"),
        "slow": Server(peer_timeout="10m"),
        "other": Server(peer_timeout="1s"),
    }
    found = wait(escalate(match=Match(server=["quick", "slow"])), Peer(peer_timeout="5m"), servers)
    assert (15.0, 295.0) == found.legacy
    assert (
        "has 15s to 4m55s to decide, or 15m if client and server both speak 2026-07-28 (the review itself expires"
        " after 15m); for 24h, a later" in str(found)
    )


@pytest.mark.parametrize(("era", "legacy", "modern"), [("legacy", (55.0, 55.0), None), ("modern", None, 550.0)])
def test_a_rule_for_one_era_has_the_time_of_that_era(
    era: Any, legacy: tuple[float, float] | None, modern: float | None
) -> None:
    found = wait(escalate(match=Match(era=era)))
    assert (legacy, modern) == (found.legacy, found.modern)


def test_an_answer_that_is_looked_at_is_told_beside_the_request() -> None:
    rule = escalate(review_answer="ops", timeout="5s")
    first, second = waits(
        Policy(
            version=1, rules=[rule, AllowRule(name="a")], reviewers={"ops": Reviewer(timeout="30s", late_verdict="0s")}
        )
    )
    assert ("request", 5.0) == (first.stage, first.timeout)
    assert ("answer", 30.0) == (second.stage, second.timeout)
    assert str(second).startswith(
        "rule 'r': reviewer ops has 30s to check the answer, minus the model's response time (the review itself"
        " expires"
        " after 30s)"
    )
    assert str(second).endswith("a later decision has no effect")


@pytest.mark.parametrize(("era", "waits"), [("legacy", 15.0), ("modern", 550.0)])
def test_one_request_has_the_time_of_its_own_server_and_era(era: Any, waits: float) -> None:
    policy = Policy(version=1, servers={"docs": Server(peer_timeout="20s")})
    origin = Origin("docs", "local", era, "")
    assert waits == review_wait(policy, origin, 900.0)


def test_a_second_look_is_put_off_as_a_request_is() -> None:
    found = wait(AllowRule(name="r", match=SAMPLING, review_answer="ops"), Peer(peer_timeout="100s"), timeout="1h")
    assert ((55.0, 55.0), 950.0, 95.0, 86_400.0) == (found.legacy, found.modern, found.bridged, found.late)
    modern = "or 15m50s if client and server both speak 2026-07-28"
    words = (
        f"has 55s to 1m35s to check the answer, minus the model's response time, {modern} (the review itself"
        " expires after"
        " 1h); for 24h, a later decision"
    )
    assert words in str(found)


@pytest.mark.parametrize(
    ("era", "timeout", "late"),
    [
        ("legacy", "56s", True),
        ("legacy", "55s", False),
        ("modern", "55s", False),
        ("modern", "56s", True),
        (None, "55s", False),
        (None, "1m", True),
    ],
)
def test_a_later_verdict_is_spoken_of_only_where_there_can_be_one(era: Any, timeout: str, late: bool) -> None:
    found = wait(escalate(match=Match(era=era)), timeout=timeout)
    assert (86_400.0 if late else None) == found.late
    assert late == ("later decision" in str(found))


@pytest.mark.parametrize(
    ("stage", "timeout", "patience", "late"),
    [
        ("request", 30.0, 55.0, False),
        ("answer", 30.0, 55.0, True),
        ("request", 30.0, 15.0, True),
        ("answer", 30.0, math.inf, False),
    ],
)
def test_a_model_takes_of_the_time_that_the_peers_have_for_its_answer(
    stage: Any, timeout: float, patience: float, late: bool
) -> None:
    assert late == can_be_late(stage, timeout, patience)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.5, "0.5s"),
        (55.0, "55s"),
        (60.0, "1m"),
        (550.0, "9m10s"),
        (900.0, "15m"),
        (86_400.0, "24h"),
        (3661.4, "1h1m1s"),
    ],
)
def test_a_time_is_said_as_a_policy_writes_it(seconds: float, expected: str) -> None:
    assert expected == duration_text(seconds)
