"""Rows of the benchmarks of limits and reviews that gates share in a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.row import Row
from bench.shared.hot_account import SAMPLES, Draws, HotAccount
from bench.shared.reviews import SharedReviews, Span
from bench.shared.samples import SharedSamples, Took

MIN_LOAD_RATIO: Final = 0.95
"""Draws divided by those that the load needs."""
TOLD_GOAL: Final = 1.5  # seconds; the event stream looks once a second
RELEASED_GOAL: Final = 1.0  # seconds; a gate looks for decisions twice a second


def hot_account(found: HotAccount) -> Sequence[Row]:
    """Rows of as many draws as possible, and of a usual load."""
    accounts = "one account" if found.accounts == 1 else f"{found.accounts:,} accounts"
    gates = "1 gate draws" if found.gates == 1 else f"{found.gates} gates draw"
    beside = f"one statement for each draw: {_draws(found.bare)}"
    if found.sqlite is not None:
        beside += f"; SQLite: {_draws(found.sqlite)}"
    ratio = found.loaded.rate / found.loaded.needed
    return [
        Row(f"{gates} on {accounts}, as often as possible", _draws(found.batched), beside),
        Row(
            f"{gates} on {accounts}, {SAMPLES:.0f} samples a second each",
            _draws(found.loaded),
            f"needed: {found.loaded.needed:,.0f} a second",
            f"at least {MIN_LOAD_RATIO} x what is needed",
            ratio >= MIN_LOAD_RATIO,
        ),
    ]


def _draws(found: Draws) -> str:
    batch = f", {found.batch:.1f} draws in a transaction" if found.batch > 1 else ""
    return f"{found.rate:,.0f} a second, p50 {found.p50:.1f} ms, p99 {found.p99:.1f} ms{batch}"


def samples(found: SharedSamples) -> Sequence[Row]:
    """Rows of a sample with limits in PostgreSQL."""
    took = found.took
    alone = took["no limits"]
    beside = (
        f"in SQLite {_added(took['SQLite'])}; no limits: p50 {alone.p50 / 1000:.1f} ms, p99 {alone.p99 / 1000:.1f} ms"
    )
    what = f"a sample with limits and decision log in PostgreSQL, {found.at_once} at a time"
    return [
        Row(what, _added(took["PostgreSQL"]), beside),
        Row("the same with the decision log in a file", _added(took["log in a file"]), ""),
    ]


def _added(took: Took) -> str:
    return f"p50 {took.added_p50 / 1000:+.1f} ms, p99 {took.added_p99 / 1000:+.1f} ms"


def reviews(found: Sequence[SharedReviews]) -> Sequence[Row]:
    """Rows of reviews that one gate opens and another decides, beside those of one gate with SQLite."""
    shared, alone = ({one.place: one for one in found}[place] for place in ("PostgreSQL", "SQLite"))
    return [
        Row(
            "a request for review at one gate, until another gate lists it",
            _span(shared.listed),
            f"one gate with SQLite: {_span(alone.listed)}",
        ),
        Row(
            "the same, until the other gate's event stream has it",
            _span(shared.told),
            f"one gate with SQLite: {_span(alone.told)}",
            f"at most {TOLD_GOAL} s",
            shared.told.longest <= TOLD_GOAL * 1000,
        ),
        Row(
            "a decision at the other gate, until the server has its answer",
            _span(shared.released),
            f"one gate with SQLite: {_span(alone.released)}",
            f"at most {RELEASED_GOAL} s",
            shared.released.longest <= RELEASED_GOAL * 1000,
        ),
    ]


def _span(span: Span) -> str:
    return f"p50 {span.p50:.0f} ms, longest {span.longest:.0f} ms"
