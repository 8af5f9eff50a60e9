"""Rotated files of one log: which belong to it, their order, and reading them while they are rotated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from samplegate.audit.jsonl import open_files, rotate, rotated_files, split_rotated
from tests.fakes.records import names


def write(path: Path, text: str) -> None:
    path.write_text(text)


def read(path: Path) -> list[str]:
    return [file.read().decode() for _, file in open_files(path)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x.jsonl", ("x.jsonl", None)),
        ("x.jsonl.000001", ("x.jsonl", 1)),
        ("x.jsonl.1000000", ("x.jsonl", 1_000_000)),
        ("x.jsonl.1", ("x.jsonl.1", None)),
        ("x.jsonl.key", ("x.jsonl.key", None)),
        (".000001", (".000001", None)),
    ],
)
def test_a_part_is_told_by_its_digits(name: str, expected: tuple[str, int | None]) -> None:
    main, number = split_rotated(Path("logs", name))
    assert expected == (main.name, number)


def test_parts_are_in_the_order_of_their_numbers_and_no_other_file_is_one(tmp_path: Path) -> None:
    for name in ("x", "x.1000000", "x.999999", "x.000002", "x.1", "x.gz", "x.000002.gz", "xx.000001", "x.key"):
        write(tmp_path / name, "")
    assert [2, 999_999, 1_000_000] == [number for number, _ in rotated_files(tmp_path / "x")]
    assert [] == rotated_files(tmp_path / "none" / "x")


def test_a_turn_never_takes_a_number_twice(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for text in "abc":
        write(path, text)
        rotate(path, 2)
    assert ["x.000002", "x.000003"] == names(tmp_path)
    write(path, "d")
    rotate(path, 0)
    assert ["b", "c", "d"] == [(tmp_path / name).read_text() for name in names(tmp_path)]


def test_files_are_read_oldest_first(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for text in "abc":
        write(path, text)
        rotate(path, 0)
    assert ["a", "b", "c"] == read(path)
    write(path, "d")
    assert ["a", "b", "c", "d"] == read(path)


def test_a_log_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "x")


@pytest.mark.parametrize("at", [0, 1, 2], ids=["before the first", "before the second", "before the last"])
def test_a_log_that_is_turned_over_while_it_is_read_is_read_whole_and_once(tmp_path: Path, at: int) -> None:
    path = tmp_path / "x"
    for text in "ab":
        write(path, text)
        rotate(path, 0)
    write(path, "c")
    found, reading = [], open_files(path)
    for step in range(10):
        if step == at:
            rotate(path, 0)
            write(path, "d")
        part = next(reading, None)
        if part is None:
            break
        found.append(part[1].read().decode())
    assert ["a", "b", "c", "d"] == found


def test_a_log_that_is_turned_over_between_a_look_and_an_opening_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "x", Path.open
    write(path, "a")

    def opens(self: Path, mode: str, **more: Any) -> object:
        if self == path and not rotated_files(path):
            rotate(path, 0)
            write(path, "b")
        return real(self, mode, **more)

    monkeypatch.setattr(Path, "open", opens)
    assert ["a", "b"] == read(path)


def test_what_is_removed_before_its_turn_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for text in "abc":
        write(path, text)
        rotate(path, 0)

    def reading() -> Iterator[str]:
        for part, file in open_files(path):
            (tmp_path / "x.000002").unlink(missing_ok=True)
            yield f"{part.name[-1]}{file.read().decode()}"

    assert ["1a", "3c"] == list(reading())
