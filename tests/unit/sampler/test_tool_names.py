"""The server's tool names and ids -> names and ids that every provider accepts, and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.sampler.worker.request import aliases, positions


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["read_file"], ["read_file"]),
        (["a.b", "a/b", "a_b"], ["a_b_1", "a_b_2", "a_b"]),
        (["9lives", "-x", "_"], ["t_9lives", "t_-x", "_"]),
        (["x" * 70, "x" * 71], ["x" * 64, "x" * 62 + "_1"]),
        (["é"], ["_"]),
        (["a\n"], ["a_"]),
    ],
)
def test_a_safe_name_stays_and_others_are_made_safe(names: list[str], expected: list[str]) -> None:
    known = aliases(names)

    assert expected == [known[name] for name in names]


@given(names=st.lists(st.text(st.characters() | st.sampled_from("ab._/-19"), min_size=1, max_size=80), max_size=30))
def test_every_name_has_a_safe_one_of_its_own(names: list[str]) -> None:
    known = aliases(names)

    assert set(names) == known.keys()
    assert len(known) == len(set(known.values()))
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", alias) for alias in known.values())


def test_very_many_names_of_one_form_take_no_time() -> None:
    known = aliases(chr(0x4E00 + number) for number in range(20_000))

    assert 20_000 == len(set(known.values()))


def test_ids_go_by_position_in_the_strictest_form() -> None:
    assert {"b": "use000001", "a": "use000002"} == positions(["b", "a", "b"])
