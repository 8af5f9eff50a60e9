"""Ambiguous parts of a client's answer, beyond the table in tests/system/gate/test_pushed_readings.py."""

from __future__ import annotations

import pytest

from samplegate.protocol.results import second_reading


@pytest.mark.parametrize(
    ("field", "twin"),
    [("confirm", "Confirm"), ("gr\u00f6\u00dfe", "GR\u00d6SSE"), ("\u0438\u043c\u044f", "\u0418\u041c\u042f")],
)
def test_a_field_that_resembles_one_of_the_form_is_a_second_reading(field: str, twin: str) -> None:
    answer = {"action": "accept", "content": {field: 1, twin: 2}}
    assert f"{twin!r} could be read as another member" == second_reading(answer, frozenset({field}))
    assert second_reading({"action": "accept", "content": {field: 1}}, frozenset({field})) is None
