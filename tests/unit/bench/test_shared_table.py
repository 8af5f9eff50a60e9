"""The rows of gates with a shared database: each goal is met or missed."""

from __future__ import annotations

from collections.abc import Sequence

from bench.row import Row
from bench.shared import table
from bench.shared.hot_account import Draws, HotAccount
from bench.shared.reviews import SharedReviews, Span
from bench.shared.samples import SharedSamples, Took


def brief(rows: Sequence[Row]) -> list[tuple[str, str, str, bool | None]]:
    return [(row.what, row.measured, row.beside, row.met) for row in rows]


def account(loaded: float, *, gates: int = 20, sqlite: Draws | None = None) -> HotAccount:
    """Figures of gates that need 3,880 draws a second."""
    batched, bare = Draws(17_557, 60.6, 359.7, 64.0, 0.0), Draws(2_301, 5.9, 39.7, 1.0, 0.0)
    return HotAccount(gates, 1 if sqlite else 1_000, batched, bare, sqlite, Draws(loaded, 120.6, 538.0, 13.4, 3_880))


def test_draws_on_one_account_have_rows() -> None:
    assert [
        (
            "20 gates draw on one account, as often as possible",
            "17,557 a second, p50 60.6 ms, p99 359.7 ms, 64.0 draws in a transaction",
            (
                "one statement for each draw: 2,301 a second, p50 5.9 ms, p99 39.7 ms; SQLite: 7,852 a second, p50"
                " 0.1 ms, p99 102.4 ms"
            ),
            None,
        ),
        (
            "20 gates draw on one account, 97 samples a second each",
            "3,719 a second, p50 120.6 ms, p99 538.0 ms, 13.4 draws in a transaction",
            "needed: 3,880 a second",
            True,
        ),
    ] == brief(table.hot_account(account(3_719, sqlite=Draws(7_852, 0.1, 102.4, 1.0, 0.0))))


def test_gates_that_do_not_draw_what_they_need_miss_the_goal() -> None:
    assert [None, False] == [row.met for row in table.hot_account(account(3_600))]
    (full, _) = table.hot_account(account(3_600, gates=1))
    assert "1 gate draws on 1,000 accounts, as often as possible" == full.what
    assert "SQLite" not in full.beside


def test_samples_have_rows_beside_sqlite_and_no_limits() -> None:
    found = SharedSamples(
        16,
        {
            "no limits": Took(1000, 2000, 0, 0),
            "SQLite": Took(1500, 1900, 510, -100),
            "log in a file": Took(4000, 5000, 3000, 3000),
            "PostgreSQL": Took(5000, 6000, 4100, 4200),
        },
    )
    assert [
        (
            "a sample with limits and decision log in PostgreSQL, 16 at a time",
            "p50 +4.1 ms, p99 +4.2 ms",
            "in SQLite p50 +0.5 ms, p99 -0.1 ms; no limits: p50 1.0 ms, p99 2.0 ms",
            None,
        ),
        ("the same with the decision log in a file", "p50 +3.0 ms, p99 +3.0 ms", "", None),
    ] == brief(table.samples(found))


def test_reviews_across_gates_have_rows_beside_one_gate() -> None:
    shared = SharedReviews("PostgreSQL", 30, Span(20, 40), Span(500, 1_020), Span(250, 1_001))
    alone = SharedReviews("SQLite", 30, Span(10, 20), Span(11, 21), Span(12, 22))
    assert [
        (
            "a request for review at one gate, until another gate lists it",
            "p50 20 ms, longest 40 ms",
            "one gate with SQLite: p50 10 ms, longest 20 ms",
            None,
        ),
        (
            "the same, until the other gate's event stream has it",
            "p50 500 ms, longest 1020 ms",
            "one gate with SQLite: p50 11 ms, longest 21 ms",
            True,
        ),
        (
            "a decision at the other gate, until the server has its answer",
            "p50 250 ms, longest 1001 ms",
            "one gate with SQLite: p50 12 ms, longest 22 ms",
            False,
        ),
    ] == brief(table.reviews([shared, alone]))
