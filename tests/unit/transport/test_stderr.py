"""Logging a server's stderr: the first and last lines of a read that has too many, and how many are omitted."""

from __future__ import annotations

import pytest

from samplegate.transport.subprocess import Stderr


def logged(data: bytes) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    Stderr(lambda line, left_out: found.append((line, left_out))).data_received(data)
    return found


@pytest.mark.parametrize("count", [1, 49, 50])
def test_up_to_fifty_lines_of_a_read_are_told(count: int) -> None:
    assert [(str(each), 0) for each in range(count)] == logged(b"".join(b"%d\n" % each for each in range(count)))


def test_of_more_the_first_and_the_last_twenty_five_are_told_and_the_others_counted() -> None:
    first, last = [(str(each), 0) for each in range(25)], [(str(each), 0) for each in range(176, 200)]
    assert [*first, ("175", 150), *last] == logged(b"".join(b"%d\n" % each for each in range(200)))
