"""Appends to a decision log in files: whole lines, rotation by size, failing writes and files that are moved away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samplegate import files
from samplegate.audit import jsonl
from samplegate.audit.jsonl import Appender
from tests.fakes.records import lines, log_files, names


def test_more_than_fits_is_left_for_the_next_call(tmp_path: Path) -> None:
    path, appender = tmp_path / "x", Appender(max_bytes=10)
    told = [b"123", b"456", b"789", b"a line that is longer than the whole file", b"0"]
    assert [2, 1, 1, 1] == [appender.append(path, told[at:]) for at in (0, 2, 3, 4)]
    assert [["123", "456"], ["789"], [told[3].decode()], ["0"]] == [lines(part) for part in log_files(path)]


def test_only_so_many_files_are_kept(tmp_path: Path) -> None:
    path, appender = tmp_path / "x", Appender(max_bytes=4, keep=3)
    for number in range(12):
        appender.append(path, [b"%03d" % number])
    assert (["x", "x.000009", "x.000010", "x.000011"], ["008", "009", "010", "011"]) == (
        names(tmp_path),
        lines(*log_files(path)),
    )


def test_a_half_line_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"one\ncut")
    Appender().append(path, [b"two"])
    assert ["one", "cut", "two"] == lines(path)


@pytest.mark.parametrize("how", ["renamed", "copied and truncated", "removed", "removed with its folder"])
def test_what_others_do_to_the_file_tears_no_line(tmp_path: Path, how: str) -> None:
    path, old = tmp_path / "logs" / "x", tmp_path / "old"
    appender = Appender(synced=True)
    appender.append(path, [b"one"])
    match how:
        case "renamed":
            path.rename(old)
        case "copied and truncated":
            old.write_bytes(path.read_bytes())
            os.truncate(path, 0)
        case _:
            path.unlink()
            if how == "removed with its folder":
                path.parent.rmdir()
    appender.append(path, [b"two"])
    assert (["two"], ["one"] if old.exists() else []) == (lines(path), lines(old) if old.exists() else [])


def test_a_lock_that_was_waited_for_is_not_used_on_a_file_that_was_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    real, moved = files.lock, list[object]()

    def meanwhile(*given: object) -> None:
        real(*given)  # type: ignore[arg-type]
        if not moved:
            moved.append(path.rename(tmp_path / "aside"))

    monkeypatch.setattr(files, "lock", meanwhile)
    Appender().append(path, [b"one"])
    assert (["one"], []) == (lines(path), lines(tmp_path / "aside"))


def test_what_could_be_written_in_part_only_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, appender = tmp_path / "x", Appender()
    appender.append(path, [b"one"])
    real = os.write

    def full(fd: int, data: memoryview) -> int:
        if len(data) < 4:
            raise OSError(28, "No space left on device")
        return real(fd, data[:3])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            appender.append(path, [b"second"])
        with pytest.raises(OSError, match="No space"):
            appender.probe(path, 7)
    assert b"one\n" == path.read_bytes()
    appender.probe(path, 7)
    assert b"one\n" == path.read_bytes()
    assert 1 == appender.append(path, [b"second"])


class Disk:
    """The calls that reached the disk, in order. It fails as often as configured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did: list[str] = []
        self.fails = 0
        for name in ("sync_file", "sync_folder"):
            monkeypatch.setattr(jsonl, name, self._sync(name, getattr(files, name)))

    def _sync(self, name: str, real: object) -> object:
        def sync(what: object) -> None:
            self.did.append(name if isinstance(what, int) else f"{name} {Path(str(what)).name}")
            if self.fails:
                self.fails -= 1
                raise OSError(5, "Input/output error")
            real(what)  # type: ignore[operator]

        return sync


def test_written_asks_nothing_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    Appender(max_bytes=4).append(tmp_path / "new" / "x", [b"one"])
    assert [] == disk.did


def test_synced_brings_the_file_to_the_disk_and_its_name_where_it_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, appender, path = Disk(monkeypatch), Appender(synced=True, max_bytes=8), tmp_path / "new" / "x"
    for _ in range(3):
        appender.append(path, [b"one"])
        disk.did.append("stands")
    folders = [f"sync_folder {tmp_path.name}", "sync_file", "sync_folder new", "stands"]
    assert [*folders, "sync_file", "stands", "sync_file", "sync_folder new", "stands"] == disk.did


@pytest.mark.parametrize("fails", [1, 2], ids=["the file", "its folder"])
def test_what_was_not_brought_to_the_disk_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    disk, appender, path = Disk(monkeypatch), Appender(synced=True), tmp_path / "x"
    path.write_bytes(b"zero\n")
    disk.fails = 1
    if fails == 2:
        monkeypatch.setattr(jsonl, "sync_file", lambda _: None)
    with pytest.raises(OSError, match="Input/output error"):
        appender.append(path, [b"one"])
    assert b"zero\n" == path.read_bytes()
    appender.append(path, [b"two"])
    assert ["zero", "two"] == lines(path)


def test_a_pipe_is_written_as_it_is_and_cannot_be_synced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert 1 == Appender(max_bytes=1).append(path, [b"one", b"two"])
        assert b"one\n" == os.read(reader, 100)
        with pytest.raises(OSError, match="it is not a regular file"):
            Appender(synced=True).append(path, [b"one"])
    finally:
        os.close(reader)
