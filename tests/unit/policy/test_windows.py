"""Days and months in any time zone. test_ledger.py tests how a ledger uses them."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.ledger import Window, window_end, window_start, zone

ZONES: Final = (
    "UTC",
    "Europe/Berlin",
    "America/Havana",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
)


def test_utc_needs_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samplegate.policy.ledger.ZoneInfo", None)
    assert 1_779_926_400.0 == window_start("day", "UTC", 1_780_000_000.0)


@pytest.mark.parametrize("name", ["Nowhere/Town", "Europe", "", "../etc/passwd", "/etc/localtime", "a\0b", "ü" * 400])
def test_a_name_that_is_no_zone_is_a_value_error(name: str) -> None:
    with pytest.raises(ValueError):
        zone(name)


@pytest.mark.parametrize(
    ("tz", "noon", "hours", "begins"),
    [
        ("America/Sao_Paulo", (2018, 11, 4, 12), 23, "2018-11-04T01:00:00-02:00"),
        ("America/Havana", (2026, 11, 1, 12), 25, "2026-11-01T00:00:00-04:00"),
        ("Pacific/Apia", (2011, 12, 29, 12), 24, "2011-12-29T00:00:00-10:00"),
        ("Pacific/Apia", (2011, 12, 31, 12), 24, "2011-12-31T00:00:00+14:00"),
    ],
    ids=["no midnight", "two midnights", "before a day that was left out", "after it"],
)
def test_a_day_begins_with_its_first_second_whatever_that_is_called(
    tz: str, noon: tuple[int, int, int, int], hours: int, begins: str
) -> None:
    here = datetime(*noon, tzinfo=ZoneInfo(tz)).timestamp()
    assert begins == datetime.fromtimestamp(window_start("day", tz, here), ZoneInfo(tz)).isoformat()
    assert hours * 3600 == window_end("day", tz, here) - window_start("day", tz, here)


@given(st.sampled_from(ZONES), st.sampled_from(["day", "month"]), st.floats(1_000_000_000, 2_500_000_000))
def test_every_moment_is_in_one_window_and_windows_follow_one_another(tz: str, window: Window, now: float) -> None:
    begin, end = window_start(window, tz, now), window_end(window, tz, now)
    assert begin <= now < end
    assert (begin, end) == (window_start(window, tz, begin), window_end(window, tz, begin))
    assert end == window_start(window, tz, end)
    assert begin == window_start(window, tz, max(begin, end - 1.0))


def test_clocks_set_back_over_midnight_do_not_bring_yesterday_back() -> None:
    """At 00:01 the clock is set back to 23:01."""
    midnight = datetime(2010, 11, 7, tzinfo=ZoneInfo("America/St_Johns")).timestamp()
    assert (
        midnight
        == window_start("day", "America/St_Johns", midnight + 30)
        == window_start("day", "America/St_Johns", midnight + 120)
    )
