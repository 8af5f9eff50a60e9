"""How long a round may take."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.core.patience import Patience, within
from samplegate.core.policy import Peer, Policy, Server
from samplegate.core.requests import ClientCapabilities, Origin
from samplegate.core.rounds import Round


def round_(asked: float | None, called: float | None) -> Round:
    return Round("r", "push", 0, Origin("s", "local", "legacy", "2025-11-25"), ClientCapabilities(), {}, asked, called)


def limit(policy: Policy, asked: float | None = 0.0, called: float | None = 0.0, rule: float | None = None, now: float = 10.0) -> float | None:
    return Patience.of(policy, round_(asked, called)).limit(rule, now)


def policy(client: Any = None, server: Any = None) -> Policy:
    return Policy(version=1, client=Peer(**(client or {})), servers={"s": Server(**(server or {}))})


@pytest.mark.parametrize(
    ("left", "given"),
    [
        (45.0, {}),  # 60 s each by default, less 5, less the 10 that have passed
        (15.0, {"client": {"peer_timeout": "30s"}}),
        (5.0, {"client": {"peer_timeout": "30s"}, "server": {"peer_timeout": "20s"}}),
        (45.0, {"client": {"peer_timeout": "30s", "extends_on_progress": True}}),
        (None, {"client": {"peer_timeout": "none"}, "server": {"peer_timeout": "none"}}),
        (-7.0, {"client": {"peer_timeout": "4s"}}),
    ],
)
def test_the_tightest_peer_leaves_what_is_left(left: float | None, given: dict[str, Any]) -> None:
    assert left == limit(policy(**given))


def test_the_rule_can_only_shorten_it() -> None:
    assert 3.0 == limit(policy(), rule=3.0)
    assert 45.0 == limit(policy(), rule=300.0)


def test_a_peer_whose_clock_does_not_run_sets_no_end() -> None:
    assert 35.0 == limit(policy(), asked=None, called=-10.0)
    assert limit(policy(), asked=None, called=None) is None


@pytest.mark.parametrize(("patience", "ours"), [(60.0, 55.0), (20.0, 15.0), (4.0, 3.0)])
def test_of_a_short_patience_a_quarter_is_kept_back_at_most(patience: float, ours: float) -> None:
    assert ours == within(patience)
