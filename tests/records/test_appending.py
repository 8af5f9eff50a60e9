"""Appends of many processes to one log: whole lines, turned over by size, whatever dies, fills up or is moved away
meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from samplegate import files
from samplegate.audit import jsonl
from samplegate.audit.jsonl import Appender
from tests.records.sample import names

WRITER = """
import sys
from pathlib import Path
from samplegate.audit.jsonl import Appender
from samplegate.files import secret
path, letter, count, length = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
key = secret(Path(sys.argv[1] + ".key"), 32)
appender = Appender(max_bytes=int(sys.argv[5]), synced=sys.argv[6] == "synced")
print(key.hex(), flush=True)
for number in range(count):
    appender.append(path, [f"{letter}{number}:".encode() + letter.encode() * length], patience=lambda: 60)
    print(number, flush=True)
"""


def writer(
    path: Path, letter: str, *, count: int = 200, length: int = 3000, max_bytes: int = 0, synced: bool = False
) -> subprocess.Popen[str]:
    """A process that appends; it prints the key and then every number that stands."""
    told = [str(path), letter, str(count), str(length), str(max_bytes), "synced" if synced else "written"]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, *told],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "proxy"},
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> list[str]:
    """What it printed; it must have ended well."""
    out, err = process.communicate(timeout=100)
    assert (0, "") == (process.returncode, err)
    return out.split()


def whole(letter: str, count: int, length: int = 3000) -> list[str]:
    return [f"{letter}{number}:{letter * length}" for number in range(count)]


def lines(*paths: Path) -> list[str]:
    """Every line of the files, each of which ends in a line end."""
    texts = [path.read_text() for path in paths]
    assert all(text.endswith("\n") for text in texts if text)
    return [line for text in texts for line in text.splitlines() if line]


def log_files(path: Path) -> list[Path]:
    """Those of the log, oldest first."""
    return [part for _, part in jsonl.turned(path)] + ([path] if path.exists() else [])


def test_several_processes_append_whole_lines_and_agree_on_the_key(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    keys = {ended(process)[0] for process in [writer(path, letter) for letter in "abc"]}
    found = lines(path)
    assert (1, 600) == (len(keys), len(found))
    for letter in "abc":
        assert whole(letter, 200) == [line for line in found if line[0] == letter]


@pytest.mark.parametrize("synced", [False, True], ids=["written", "synced"])
def test_processes_that_turn_the_file_over_lose_nothing_and_tear_nothing(tmp_path: Path, synced: bool) -> None:
    path = tmp_path / "x.jsonl"
    for process in [writer(path, letter, count=100, max_bytes=10_000, synced=synced) for letter in "abcdef"]:
        ended(process)
    parts = log_files(path)
    found = lines(*parts)
    assert 600 == len(found)
    for letter in "abcdef":
        assert whole(letter, 100) == [line for line in found if line[0] == letter], (
            "in the order in which they were written"
        )
    assert len(parts) >= 200
    assert max(part.stat().st_size for part in parts) <= 10_000
    assert [f"x.jsonl.{number:06d}" for number in range(1, len(parts))] == [part.name for part in parts[:-1]]


@pytest.mark.parametrize("max_bytes", [0, 50_000], ids=["one file", "turned over"])
def test_a_writer_that_is_killed_leaves_at_most_a_half_line_that_the_next_one_ends(
    tmp_path: Path, max_bytes: int
) -> None:
    path = tmp_path / "x.jsonl"
    stands = Counter[str]()
    for letter in "abcdef":
        process = writer(path, letter, count=100_000, max_bytes=max_bytes)
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        stands[letter] = len(process.communicate(timeout=100)[0].split()) + 19
    Appender(max_bytes=max_bytes).append(path, [b"last"])
    found = lines(*log_files(path))
    assert "last" == found.pop()
    for letter, least in stands.items():
        told = [line for line in found if line.endswith(letter * 3000)]
        assert len(told) >= least
        assert whole(letter, len(told)) == told
    assert sum(len(line) < 3000 for line in found) <= len(stands)


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


LIMITED = """
import resource, sys
from pathlib import Path
from samplegate.audit.jsonl import Appender
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, appender = Path(sys.argv[1]), Appender(synced=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
stood = 0
try:
    while True:
        stood += appender.append(path, [b"x" * 98, b"y" * 98])
except OSError as problem:
    print(stood, problem.strerror, path.stat().st_size)
try:
    appender.probe(path, 198)
except OSError as problem:
    print("no room:", problem.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
appender.probe(path, 198)
print(appender.append(path, [b"z"]), path.stat().st_size)
"""


def test_a_full_disk_leaves_whole_lines_and_is_over_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "x"
    said = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": "proxy"},
        timeout=50,
        check=False,
    )
    assert ["10 File too large 990", "no room: File too large", "1 992"] == said.stdout.splitlines(), said.stderr


class Disk:
    """What was brought to the disk, in order; it fails as often as told."""

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
        with pytest.raises(OSError, match="it is no file"):
            Appender(synced=True).append(path, [b"one"])
    finally:
        os.close(reader)
