"""Deadlines of a round."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.policy.deadlines import Patience, give_up_time, max_hold, usable_time
from samplegate.policy.schema import Peer, Policy


def limit(
    client: dict[str, Any],
    server: dict[str, Any],
    asked: float | None = 0.0,
    called: float | None = 0.0,
    has_token: bool = True,
) -> float | None:
    return Patience(
        give_up_time(Peer(**server), asked, has_token=has_token),
        give_up_time(Peer(**client), called, has_token=has_token),
    ).limit(None, 10.0)


@pytest.mark.parametrize(
    ("left", "client", "server"),
    [
        (45.0, {}, {}),  # 60 s each by default, less 5, less the 10 that have passed
        (15.0, {"peer_timeout": "30s"}, {}),
        (5.0, {"peer_timeout": "30s"}, {"peer_timeout": "20s"}),
        (45.0, {"peer_timeout": "30s", "extends_on_progress": True}, {}),
        (None, {"peer_timeout": "none"}, {"peer_timeout": "none"}),
        (-7.0, {"peer_timeout": "4s"}, {}),
    ],
)
def test_the_tightest_peer_leaves_what_is_left(
    left: float | None, client: dict[str, Any], server: dict[str, Any]
) -> None:
    assert left == limit(client, server)


def test_progress_extends_no_patience_where_it_cannot_be_told() -> None:
    extends = {"peer_timeout": "30s", "extends_on_progress": True}
    assert (None, 15.0) == (limit(extends, extends), limit(extends, extends, has_token=False))


def test_the_rule_can_only_shorten_it() -> None:
    left = Patience(55.0, None)
    assert (3.0, 45.0) == (left.limit(3.0, 10.0), left.limit(300.0, 10.0))


def test_a_peer_whose_clock_does_not_run_sets_no_end() -> None:
    assert 35.0 == limit({}, {}, asked=None, called=-10.0)
    assert limit({}, {}, asked=None, called=None) is None


@pytest.mark.parametrize(("patience", "ours"), [(60.0, 55.0), (20.0, 15.0), (4.0, 3.0)])
def test_of_a_short_patience_a_quarter_is_kept_back_at_most(patience: float, ours: float) -> None:
    assert ours == usable_time(patience)


@pytest.mark.parametrize(
    ("seconds", "client", "has_token"),
    [
        (55.0, {}, False),
        (3.0, {"peer_timeout": "4s"}, False),
        (None, {"peer_timeout": "none"}, False),
        (55.0, {"extends_on_progress": True}, False),
        (None, {"extends_on_progress": True}, True),
    ],
)
def test_one_try_is_held_for_as_long_as_its_client_waits(
    seconds: float | None, client: dict[str, Any], has_token: bool
) -> None:
    assert seconds == max_hold(Policy(version=1, client=Peer(**client)), has_token=has_token)
