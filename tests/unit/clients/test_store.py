"""Replacing a client's file: other programs that write it, links, modes, and files that must not be replaced."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.clients import store
from samplegate.clients.faults import FileFault
from samplegate.clients.formats import MAX_BYTES
from samplegate.clients.store import Disk, Snapshot

STEPS: Final = ("create", "write", "sync", "adopt", "swap")


class Interrupted(Disk):
    """A disk on which another program does something right before a step."""

    def __init__(self, step: str, act: Callable[[], object], times: int = 1) -> None:
        self._act, self._times = act, times
        setattr(self, step, self._interrupted(getattr(super(), step)))

    def _interrupted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def interrupted(*args: Any) -> Any:
            if self._times > 0:
                self._times -= 1
                self._act()
            return step(*args)

        return interrupted


def marked(before: Snapshot) -> tuple[bytes, None]:
    return before.data + b"+", None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.json"
    path.write_bytes(b"old")
    return path


def moved_over(file: Path, data: bytes) -> None:
    """Replaces a file as an atomic writer does."""
    draft = file.with_name("theirs")
    draft.write_bytes(data)
    draft.replace(file)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("write", [Path.write_bytes, moved_over])
def test_what_another_program_writes_during_the_edit_is_kept(
    step: str, write: Callable[[Path, bytes], object], file: Path
) -> None:
    store.update(file, marked, Interrupted(step, lambda: write(file, b"theirs")))
    assert b"theirs+" == file.read_bytes()
    assert [file] == list(file.parent.iterdir())


def test_without_an_atomic_swap_the_file_is_replaced(file: Path) -> None:
    class OldDisk(Disk):
        def swap(self, draft: Path, path: Path) -> bool:
            return False

    store.update(file, marked, OldDisk())
    assert b"old+" == file.read_bytes()
    assert [file] == list(file.parent.iterdir())


def test_a_file_that_another_program_touches_without_a_change_is_edited_once(file: Path) -> None:
    store.update(file, marked, Interrupted("adopt", file.touch))
    assert b"old+" == file.read_bytes()


def test_a_program_that_always_writes_ends_the_edit(file: Path) -> None:
    with pytest.raises(FileFault, match="another program changed it 10 times during the edit"):
        store.update(file, marked, Interrupted("sync", lambda: file.write_bytes(file.read_bytes() + b"."), times=100))
    assert b"old.........." == file.read_bytes()


def test_a_file_that_disappears_during_the_edit_stays_away(file: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.update(file, marked, Interrupted("adopt", file.unlink))
    assert [] == list(file.parent.iterdir())


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_leaves_the_old_file_and_nothing_else(step: str, file: Path) -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        store.update(file, marked, Interrupted(step, fail))
    assert ({"client.json": b"old"}) == {path.name: path.read_bytes() for path in file.parent.iterdir()}


def test_links_and_modes_stay(file: Path, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to(file)
    file.chmod(0o604)
    store.update(tmp_path / "a", marked)
    assert [Path("b"), file] == [(tmp_path / name).readlink() for name in "ab"]
    assert 0o604 == file.stat().st_mode & 0o777
    assert b"old+" == file.read_bytes()


def test_a_link_that_changes_during_the_edit_is_followed_again(file: Path, tmp_path: Path) -> None:
    other, link = tmp_path / "other.json", tmp_path / "link"
    other.write_bytes(b"other")
    link.symlink_to(file)

    def turn() -> None:
        link.unlink()
        link.symlink_to(other)

    store.update(link, marked, Interrupted("adopt", turn))
    assert (b"old", b"other+") == (file.read_bytes(), other.read_bytes())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "it is a folder"),
        (os.mkfifo, "it is not a regular file"),
        (lambda path: path.symlink_to("missing"), "it is a link to a file that does not exist"),
        (lambda path: path.symlink_to(path.name), "it cannot be read: too many levels"),
        (lambda path: path.write_bytes(b" " * (MAX_BYTES + 1)), "it has more than 32 MiB"),
        (lambda _: None, "no such file"),
    ],
)
def test_what_is_no_file_to_read_is_told(make: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    make(tmp_path / "x")
    with pytest.raises(FileFault, match=message):
        store.snapshot(tmp_path / "x")


def test_a_read_only_file_is_not_replaced(file: Path) -> None:
    file.chmod(0o444)
    with pytest.raises(FileFault, match="it is read-only; make it writable"):
        store.update(file, marked)
    assert b"old" == file.read_bytes()


def test_drafts_of_killed_processes_are_removed_at_the_next_edit(file: Path) -> None:
    old, young, other = (file.with_name(f".samplegate-{name}") for name in ("0" * 16, "1" * 16, "notes"))
    for path in (old, young, other):
        path.write_text("secret")
    for path in (old, other):
        os.utime(path, (time.time() - 3600,) * 2)
    store.update(file, marked)
    assert (False, True, True) == (old.exists(), young.exists(), other.exists())
