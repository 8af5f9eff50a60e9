"""Reload triggers, with real files and a real watch of their folders."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from samplegate.protocol.rounds import Note
from samplegate.server import watch
from samplegate.server.watch import ReloadTrigger, ReloadTriggers, watching

pytestmark = pytest.mark.anyio


class Watch:
    """A stream under test. ``next`` is bounded."""

    def __init__(self, wishes: ReloadTriggers) -> None:
        self.wishes = wishes

    async def next(self) -> ReloadTrigger:
        with anyio.fail_after(20):
            return await anext(self.wishes)

    async def nothing(self) -> None:
        """Check that there is no trigger: the next one is that requested here, alone."""
        self.wishes.ask()
        assert ReloadTrigger((), signal=True) == await self.next()


@asynccontextmanager
async def watched(*files: Path, notes: list[Note] | None = None, **options: Any) -> AsyncIterator[Watch]:
    async with watching(lambda: files, note=([] if notes is None else notes).append, **options) as wishes:
        yield Watch(wishes)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "conf" / "policy.yaml"
    path.parent.mkdir()
    path.write_text("version: 1\n")
    return path


def write(path: Path) -> None:
    path.write_text("version: 1 # new\n")


def config_map(root: Path) -> Path:
    """A file as Kubernetes mounts it: a link through ``..data``, which is switched to change the file."""
    for version in ("v1", "v2"):
        (root / version).mkdir(parents=True)
        (root / version / "policy.yaml").write_text("version: 1\n")
    (root / "..data").symlink_to("v1")
    (root / "policy.yaml").symlink_to("..data/policy.yaml")
    return root / "policy.yaml"


def turn(path: Path) -> None:
    (path.parent / "..new").symlink_to("v1" if (path.parent / "..data").readlink() == Path("v2") else "v2")
    (path.parent / "..new").rename(path.parent / "..data")


def replace(path: Path) -> None:
    new = path.with_name(".new")
    new.write_text(path.read_text())
    new.rename(path)


def grow(path: Path) -> None:
    with path.open("a") as file:
        file.write("# more\n")


def plain(root: Path) -> Path:
    root.mkdir()
    write(root / "policy.yaml")
    return root / "policy.yaml"


def missing(root: Path) -> Path:
    return root / "not" / "yet" / "policy.yaml"


def nested(root: Path) -> Path:
    """A link to a link in another folder, in a folder that is a link."""
    for folder in ("a", "b", "c", "d"):
        (root / folder).mkdir(parents=True)
    for folder in ("c", "d"):
        write(root / folder / "real")
    (root / "b" / "link").symlink_to("../c/real")
    (root / "a" / "policy.yaml").symlink_to(root / "b" / "link")
    (root / "way").symlink_to("a")
    return root / "way" / "policy.yaml"


def turn_nested(path: Path) -> None:
    root = path.parent.parent
    (root / "b" / "new").symlink_to("../d/real")
    (root / "b" / "new").rename(root / "b" / "link")


def touch(path: Path) -> None:
    os.utime(path)


def chmod(path: Path) -> None:
    path.chmod(0o600)


def make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path)


def read(path: Path) -> None:
    path.read_text()
    os.utime(path.parent)


CHANGES: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object], bool]] = {
    "written to": (plain, grow, True),
    "renamed over": (plain, replace, True),
    "touched without a change": (plain, touch, True),
    "other permissions": (plain, chmod, True),
    "deleted": (plain, Path.unlink, True),
    "read": (plain, read, False),
    "another file of its folder written": (plain, lambda path: write(path.with_name("other")), False),
    "missing at the start, then made": (missing, make, True),
    "missing, another made": (missing, lambda path: make(path.parent.parent / "other"), False),
    "a ConfigMap turned": (config_map, turn, True),
    "a ConfigMap's file written to": (config_map, grow, True),
    "another file of a ConfigMap's folder": (config_map, lambda path: write(path.parent / "v1" / "other"), False),
    "behind nested links, written to": (nested, grow, True),
    "behind nested links, renamed over": (nested, lambda path: replace(path.resolve()), True),
    "behind nested links, a middle one turned": (nested, turn_nested, True),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_these_changes_are_wishes(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "TICK", 0.5)
    made, change, told = CHANGES[name]
    path = made(tmp_path / "root")
    async with watched(path) as seen:
        change(path)
        if told:
            assert ReloadTrigger((path,)) == await seen.next()
        await seen.nothing()


@pytest.mark.parametrize("change", [grow, replace], ids=["write", "replace"])
async def test_each_of_three_changes_is_a_wish(policy: Path, change: Callable[[Path], None]) -> None:
    async with watched(policy) as seen:
        for _ in range(3):
            change(policy)
            assert ReloadTrigger((policy,)) == await seen.next()
        await seen.nothing()


@pytest.mark.parametrize("name", ["ring", "a\0b", "x" * 5000])
async def test_a_path_that_leads_nowhere_is_not_there_and_the_others_are_watched(policy: Path, name: str) -> None:
    (policy.parent / "ring").symlink_to("ring")
    async with watched(policy.parent / name, policy) as seen:
        grow(policy)
        assert ReloadTrigger((policy,)) == await seen.next()


async def test_a_config_map_is_read_again_each_time_its_link_is_turned(tmp_path: Path) -> None:
    path = config_map(tmp_path / "mount")
    async with watched(path) as seen:
        for _ in range(2):
            turn(path)
            assert ReloadTrigger((path,)) == await seen.next()


async def test_a_file_that_goes_and_comes_again_is_two_wishes(policy: Path) -> None:
    async with watched(policy) as seen:
        Path.unlink(policy)
        assert ReloadTrigger((policy,)) == await seen.next()
        write(policy)
        assert ReloadTrigger((policy,)) == await seen.next()


async def test_a_folder_that_goes_and_comes_again_with_its_file_is_watched_on(policy: Path) -> None:
    async with watched(policy) as seen:
        shutil.rmtree(policy.parent)
        assert ReloadTrigger((policy,)) == await seen.next()
        policy.parent.mkdir()
        write(policy)
        assert ReloadTrigger((policy,)) == await seen.next()
        replace(policy)
        assert ReloadTrigger((policy,)) == await seen.next()


async def test_a_file_behind_a_link_is_watched_where_it_lies(policy: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "current.yaml"
    link.parent.mkdir()
    link.symlink_to(policy)
    async with watched(link) as seen:
        grow(policy)
        assert ReloadTrigger((link,)) == await seen.next()


async def test_an_editor_that_moves_the_file_away_and_writes_a_new_one_ends_in_the_new_one(policy: Path) -> None:
    async with watched(policy) as seen:
        Path.rename(policy, policy.with_name("policy.yaml~"))
        write(policy)
        assert ReloadTrigger((policy,)) == await seen.next()
        await seen.nothing()


async def test_other_files_of_the_folder_are_nobodys_wish(policy: Path) -> None:
    async with watched(policy) as seen:
        (policy.parent / "decisions.jsonl").write_text("{}\n")
        await seen.nothing()
        grow(policy)
        assert ReloadTrigger((policy,)) == await seen.next()


async def test_only_the_files_that_changed_are_named(policy: Path, tmp_path: Path) -> None:
    other = tmp_path / "samplegate.yaml"
    other.write_text("")
    async with watched(policy, other) as seen:
        grow(other)
        assert ReloadTrigger((other,)) == await seen.next()
        grow(other)
        grow(policy)
        changed = set((await seen.next()).files)
        while changed != {policy, other}:  # two folders may not report at once
            changed |= set((await seen.next()).files)


async def test_what_changes_before_the_watch_stands_is_not_lost(policy: Path) -> None:
    """Nothing waits between the first look and the change, so the folder is not watched yet."""
    async with watched(policy) as seen:
        grow(policy)
        with anyio.fail_after(watch.TICK - 1):
            assert ReloadTrigger((policy,)) == await anext(seen.wishes)


async def test_what_changed_since_a_time_before_the_first_look_is_a_wish(policy: Path) -> None:
    read = os.stat(policy).st_ctime  # noqa: PTH116
    async with watched(policy, since=read + 3600) as seen:
        await seen.nothing()
    async with watched(policy, since=read - 3600) as seen:
        assert ReloadTrigger((policy,)) == await seen.next()


async def test_sighup_is_a_wish_and_several_are_one(policy: Path) -> None:
    async with watched(policy) as seen:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
        assert ReloadTrigger((), signal=True) == await seen.next()
        grow(policy)
        assert ReloadTrigger((policy,)) == await seen.next()


async def test_without_files_only_the_signal_counts() -> None:
    async with watched() as seen:
        os.kill(os.getpid(), signal.SIGHUP)
        assert ReloadTrigger((), signal=True) == await seen.next()


async def test_a_signal_and_a_change_are_one_wish(policy: Path) -> None:
    async with watched(policy) as seen:
        grow(policy)
        seen.wishes.ask()
        assert ReloadTrigger((policy,), signal=True) == await seen.next()
        await seen.nothing()


async def test_the_old_handler_of_sighup_is_there_again_at_the_end() -> None:
    before = signal.getsignal(signal.SIGHUP)
    async with watched():
        assert before != signal.getsignal(signal.SIGHUP)
    assert before == signal.getsignal(signal.SIGHUP)


async def test_a_file_that_a_reload_brought_is_watched_too(policy: Path, tmp_path: Path) -> None:
    files = [policy]
    other = tmp_path / "more" / "tokens"
    other.parent.mkdir()
    other.write_text("")
    later = time.time() + 3600  # so that the triggers are later than the other file's last change
    async with watching(lambda: files, note=list[Note]().append, clock=lambda: later) as wishes:
        seen = Watch(wishes)
        grow(policy)
        assert ReloadTrigger((policy,)) == await seen.next()
        files.append(other)
        await seen.nothing()
        grow(other)
        assert ReloadTrigger((other,)) == await seen.next()
        files.remove(policy)
        await seen.nothing()
        grow(policy)
        grow(other)
        assert ReloadTrigger((other,)) == await seen.next()


async def test_a_file_that_a_reload_brought_and_that_changed_during_it_is_a_wish(policy: Path, tmp_path: Path) -> None:
    files = [policy]
    other = tmp_path / "tokens"
    other.write_text("")
    async with watching(lambda: files, note=list[Note]().append) as wishes:
        seen = Watch(wishes)
        wishes.ask()
        assert ReloadTrigger((), signal=True) == await seen.next()
        files.append(other)  # the reload read it, and then:
        grow(other)
        assert ReloadTrigger((other,)) == await seen.next()


async def test_a_wish_that_nobody_took_in_time_is_still_there(policy: Path) -> None:
    async with watched(policy) as seen:
        seen.wishes.ask()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anext(seen.wishes)
        assert ReloadTrigger((), signal=True) == await seen.next()


async def exhausted(folders: Collection[str], stop: asyncio.Event) -> AsyncGenerator[Any, None]:
    if folders:
        raise OSError(28, "No space left on device")
    yield


async def test_where_folders_cannot_be_watched_the_files_are_looked_at_and_it_is_told_once(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL", 0.01)
    notes: list[Note] = []
    async with watched(policy, notes=notes, notices=exhausted) as seen:
        for _ in range(3):
            grow(policy)
            assert ReloadTrigger((policy,)) == await seen.next()
    assert [("watch.polling", True)] == [(note.event, note.warn) for note in notes]
    assert "No space left on device" in notes[0].fields["problem"]


async def test_a_watch_that_fails_later_is_set_up_again(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL", 0.01)
    notes: list[Note] = []
    calls = 0

    async def fails_once(folders: Collection[str], stop: asyncio.Event) -> AsyncGenerator[Any, None]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("the watch broke")
        async for found in watch.notices(folders, stop):
            yield found

    async with watched(policy, notes=notes, notices=fails_once) as seen:
        grow(policy)
        assert ReloadTrigger((policy,)) == await seen.next()
        while calls < 2:
            await anyio.lowlevel.checkpoint()
        grow(policy)
        assert ReloadTrigger((policy,)) == await seen.next()
    assert ["watch.polling"] == [note.event for note in notes]


async def test_the_end_does_not_wait_for_the_next_look_around(policy: Path) -> None:
    with anyio.fail_after(watch.TICK - 1):
        async with watched(policy) as seen:
            grow(policy)
            await seen.next()
