"""Reviews as database rows: anything a server sends is read back unchanged."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.reviews import sql_schema
from samplegate.reviews.review import EditBounds, Edits, Verdict
from tests.fakes.review_store import TimedReviews
from tests.fakes.stored_reviews import NOW, review

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_the_same_again(value: Any) -> None:
    again = sql_schema.json_value(sql_schema.json_text(value))
    assert (value, repr(value)) == (again, repr(again))


def test_what_is_no_number_stays_none() -> None:
    assert math.isnan(sql_schema.json_value(sql_schema.json_text({"a": math.nan}))["a"])


@pytest.mark.parametrize(
    "odd", ["\ud83d", "a\0b", "\u202e", {"\udfff": 1}, [2**80, 1e308, -0.0], math.inf, {"a": [[[[]]]]}]
)
def test_odd_bodies_and_verdicts_survive_the_database(tmp_path: Path, odd: Any) -> None:
    store = TimedReviews(f"sqlite:{tmp_path / 'r.db'}")
    bounds = EditBounds(models=("a", "b"), max_tokens={"a": 10}, temperature_max=1.5)
    one = review(params={"x": odd}, arguments=odd, answer={"content": odd}, bounds=bounds, why="no \ud800")
    verdict = Verdict(
        word="approve", edits=Edits(messages=({"role": "user", "x": odd},), max_tokens=3), reason="\udfff"
    )
    assert store.open(one, announce=False, most=9)
    assert one == store.get("rv_a")
    store.at(NOW).decide("rv_a", verdict, who="ann\ud800", door="page")
    found = store.get("rv_a")
    assert found is not None
    assert (verdict, "ann?") == (found.verdict, found.who)
    store.close()
