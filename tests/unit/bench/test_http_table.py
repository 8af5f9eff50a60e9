"""The rows of the HTTP benchmark: each goal is met or missed, and which peers are shown beside the gate."""

from __future__ import annotations

import resource
from typing import NamedTuple

import pytest

from bench.overhttp import table
from bench.overhttp.calls import BASE, FORWARDING, HTTP, STDIO, Call, Found
from bench.overhttp.programs import FLOOR
from bench.overhttp.reloads import Reloads
from bench.overhttp.rounds import Rounds
from bench.overhttp.sessions import Idle, Latency, Sessions, open_files
from bench.row import Row
from tests.fakes.hostile_frames import TOLERATED
from tests.fakes.hostile_traffic import Stall
from tests.fakes.rounds import Tally


class Measured(NamedTuple):
    """The results of one run."""

    calls: Found
    sessions: list[Sessions]
    rounds: Rounds
    reloads: Reloads


def figures(*peers: Call, stdio: float = 180.0, errors: int = 0, lost: int = 0, taken: int = 10) -> Measured:
    """Figures in which the gate takes ``stdio`` microseconds in front of a stdio server, and four times the floor in
    front of an HTTP server."""
    ours = [
        Call(FLOOR, "legacy", 100, 200, 10_000, 50),
        Call(FORWARDING, "legacy", 300, 500, 3_000, 200),
        Call(STDIO, "legacy", stdio, 400, 1e6 / stdio, 120),
        Call(HTTP, "legacy", 400, 900, 2_500, None),
        Call(STDIO, "modern", stdio, 400, 1e6 / stdio, 130),
        Call(HTTP, "modern", 400, 900, 2_500, None),
    ]
    return Measured(
        Found([*ours, *peers], [("old", "modern", "400")], True),
        [
            Sessions("HTTP", 1000, 40.0, 0.0, 200, 4_000, 50_000, 90_000, errors),
            Sessions("stdio", 100, 60.0, 5120.0, 100, 3_000, 30_000, 60_000, 0),
        ],
        Rounds(10_000, lost, 10_000, 900),
        Reloads(10, taken, 20_000, 0, 120),
    )


def rows(found: Measured) -> list[Row]:
    """All rows."""
    idle = [row for one in found.sessions for row in table.sessions(one)]
    return [*table.calls(found.calls), *idle, table.rounds(found.rounds), table.reloads(found.reloads)]


def row(found: Measured, what: str, number: int = 0) -> Row:
    """The row whose description contains ``what``."""
    return [one for one in rows(found) if what in one.what][number]


def test_a_gate_within_twice_the_floor_and_before_every_peer_meets_its_goals() -> None:
    found = figures(Call("old", "legacy", 190, 300, 5_000, 700))
    assert row(found, "legacy, stdio behind, p50").met is True
    assert row(found, "the same, 32 at a time on one core").met is True
    assert "old 190 us, p99 300 us" in row(found, "legacy, stdio behind, p50").beside


def test_a_peer_that_is_faster_is_a_goal_missed() -> None:
    found = figures(Call("fast", "legacy", 170, 300, 9_000, 100))
    assert row(found, "legacy, stdio behind, p50").met is False
    assert row(found, "the same, 32 at a time on one core").met is False
    assert row(found, "modern, stdio behind, p50").met is True


def test_more_than_twice_the_floor_is_a_goal_missed() -> None:
    found = figures(stdio=210.0)
    assert row(found, "legacy, stdio behind, p50").met is False
    assert row(found, "the same, 32 at a time on one core").met is False
    assert "(2.10 x the floor)" in row(found, "legacy, stdio behind, p50").measured


def test_behind_http_the_gate_stands_beside_what_only_forwards() -> None:
    one = row(figures(), "legacy, HTTP behind, p50")
    assert (False, "400 us (4.00 x the floor), p99 900 us") == (one.met, one.measured)
    assert "forwarding 300 us" in one.beside


def test_a_peer_that_cannot_do_an_era_is_named_there() -> None:
    assert "old cannot" in row(figures(), "modern, stdio behind, p50").beside
    assert "old" not in row(figures(), "legacy, stdio behind, p50").beside


def test_a_peer_that_failed_among_its_laps_is_named_with_its_reason() -> None:
    found = figures()
    found.calls.failed.append(("old", "legacy", "the connection was lost"))
    assert "old failed: the connection was lost" in row(found, "legacy, stdio behind, p50").beside


def test_an_earlier_version_stands_beside_each_call() -> None:
    found = figures(
        Call(BASE[STDIO], "legacy", 200, 300, 6_000, 100), Call(BASE[HTTP], "modern", 370, 800, 2_000, None)
    )
    found.calls.failed.append((BASE[STDIO], "modern", "it ended"))
    assert [
        ("legacy, stdio behind, p50, beside the earlier version", "0.90 x (180 us)", "200 us", True),
        (
            "legacy, stdio behind, 32 at a time, beside the earlier version",
            "1.08 x (5,556 a second)",
            "6,000 a second",
            False,
        ),
        ("modern, stdio behind, beside the earlier version", "", "failed: it ended", None),
        ("modern, HTTP behind, p50, beside the earlier version", "1.08 x (400 us)", "370 us", False),
        (
            "modern, HTTP behind, 32 at a time, beside the earlier version",
            "0.80 x (2,500 a second)",
            "2,000 a second",
            True,
        ),
    ] == [(one.what, one.measured, one.beside, one.met) for one in rows(found) if "earlier version" in one.what]
    assert "base" not in row(found, "legacy, stdio behind, p50").beside


def test_sessions_rounds_and_reloads_have_rows() -> None:
    assert {
        "1,000 legacy sessions, HTTP behind, idle": ("40 KiB each, with its connection", "", None),
        "200 of them calling at once": ("4,000 calls a second, p50 50 ms, p99 90 ms, 0 errors", "", True),
        "100 legacy sessions, stdio behind, idle": (
            "60 KiB each, with its connection",
            "the server's process 5.0 MiB",
            None,
        ),
        "100 of them calling at once": ("3,000 calls a second, p50 30 ms, p99 60 ms, 0 errors", "", True),
        "10,000 sampling rounds answered by `scripted`, modern": ("0 lost, 10,000 on record, 900 a second", "", True),
        "10 reloads of the policy under 32 callers": (
            "0 of 20,000 calls failed, 10 reloads taken, the slowest call 120 ms",
            "",
            True,
        ),
    } == {one.what: (one.measured, one.beside, one.met) for one in rows(figures())[8:]}


def idle(*, p99: float = 1500.0, errors: int = 0, opening: float = 3.0) -> Idle:
    """Figures beside a gate without idle sessions, whose p99 is 1000 us."""
    alone = Latency(500, 1000)
    return Idle(5000, 60.0, Latency(550, p99), alone, Latency(600, 900), alone, errors, opening, 2.0)


def test_idle_sessions_have_rows_of_their_memory_and_of_what_others_notice() -> None:
    assert {
        "5,000 legacy sessions, HTTP behind, idle": ("60 KiB each, with its connection", "", None),
        "calls of other sessions meanwhile, 1 at a time, p99": (
            "1500 us (1.50 x), p50 550 us, 0 errors",
            "without idle sessions 1000 us, p50 500 us",
            True,
        ),
        "calls of other sessions meanwhile, 16 at a time, p99": (
            "900 us (0.90 x), p50 600 us, 0 errors",
            "without idle sessions 1000 us, p50 500 us",
            True,
        ),
        "one more session is opened meanwhile, p50": ("3.0 ms (1.50 x)", "without idle sessions 2.0 ms", True),
    } == {one.what: (one.measured, one.beside, one.met) for one in table.idle(idle())}


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (idle(p99=2001.0), [False, True, True]),
        (idle(errors=1), [False, False, True]),
        (idle(opening=4.1), [True, True, False]),
    ],
)
def test_idle_sessions_that_others_notice_are_missed(found: Idle, met: list[bool]) -> None:
    assert met == [one.met for one in table.idle(found)[1:]]


def test_open_files_are_permitted_as_far_as_the_system_does() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open_files(before[0]):
        assert before == resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY:
        with open_files(before[1]):
            assert (before[1], before[1]) == resource.getrlimit(resource.RLIMIT_NOFILE)
        with pytest.raises(RuntimeError, match=r"the system permits [\d,]+; raise the hard limit \(ulimit -Hn\)"):
            open_files(before[1] + 1).__enter__()
    assert before == resource.getrlimit(resource.RLIMIT_NOFILE)


def test_an_error_a_lost_round_and_a_reload_that_was_not_taken_are_missed() -> None:
    found = figures(errors=1, lost=1, taken=9)
    assert [False, True, False, False] == [one.met for one in rows(found)[8:] if one.met is not None]


def test_a_lost_call_misses_the_goal_of_rounds() -> None:
    good = Tally(rounds=2, answered=10, requests=6)
    assert ("0 requests lost, 20 calls answered", True) == (
        table.five([good, good]).measured,
        table.five([good, good]).met,
    )
    bad = Tally(rounds=2, answered=9, lost=1, requests=6)
    assert ("1 requests lost, 19 calls answered", False) == (
        table.five([good, bad]).measured,
        table.five([good, bad]).met,
    )


def test_the_longest_stall_is_named_and_cpu_time_decides() -> None:
    found = table.stalls([Stall("spaces", 250.0, 300.0), Stall("members", 80.0, 900.0, TOLERATED)])
    assert ("250 ms of CPU time (spaces, 16 MiB); 900 ms of wall time (members, 8 MiB)", True) == (
        found.measured,
        found.met,
    )
    assert table.stalls([Stall("spaces", 251.0, 260.0)]).met is False
