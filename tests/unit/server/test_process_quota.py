"""Quota of processes, in total and per caller."""

from __future__ import annotations

from samplegate.server.servers import ProcessQuota


def test_no_more_than_there_are() -> None:
    places = ProcessQuota(2)
    assert [True, True, False] == [places.take("local") for _ in range(3)]
    places.give_back("local")
    assert places.take("local")


def test_one_of_several_callers_leaves_a_quarter_to_the_others() -> None:
    places = ProcessQuota(8)
    assert 6 == sum(places.take("ada") for _ in range(8))
    assert [True, True, False] == [places.take("bob") for _ in range(3)]
    places.give_back("ada")
    assert places.take("bob")


def test_of_one_place_a_caller_may_have_it() -> None:
    assert ProcessQuota(1).take("ada")
