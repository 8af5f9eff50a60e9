"""What every store of tasks does, whatever it is kept in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import pytest

from samplegate.errors import Unavailable
from samplegate.protocol.identity import static
from samplegate.protocol.requests import Call, ClientCapabilities, Offer
from samplegate.protocol.rounds import TaskStep
from samplegate.protocol.task_state import Change, TaskKey, TaskRecord, paying, unchanged
from samplegate.tasks.store import TaskStore

LIFE: Final = 1_000.0


def record(token: str = "t", caller: str = "ana") -> TaskRecord:
    """A new task of a call to ``pay``."""
    call = Call("tools/call", "pay")
    return TaskRecord(
        token, static(caller), call, "c", "2026-07-28", ClientCapabilities(), Offer(), "{}", "{}", 0.0, 0.0
    )


def create(id: str = "1", token: str = "t") -> TaskStep:
    """A step that creates a task."""

    def keep(record: TaskRecord, now: float) -> bool:
        record.created, record.expires = now, now + LIFE
        return True

    return TaskStep("", id, keep, record(token))


def step(change: Change, id: str = "1") -> TaskStep:
    """A step that changes a task."""
    return TaskStep("", id, change)


def claim(owner: str) -> Change:
    """Claims the key ``k``, unless it is claimed."""

    def change(record: TaskRecord, now: float) -> bool:
        if "k" in record.keys:
            return False
        record.keys["k"] = TaskKey("d")
        record.keys["k"].claim(owner, now)
        return True

    return change


async def keeps_tasks(store: TaskStore) -> None:
    """A task is created once, changed, and another scope has tasks of its own."""
    assert None is await store.step("a", step(unchanged))
    made = await store.step("a", create())
    again = await store.step("a", create(token="other"))
    assert made is not None
    assert again is not None
    assert ("t", "t") == (made.token, again.token), "a task that exists stays as it is"
    await store.step("a", step(claim("me")))
    found = await store.step("a", step(unchanged))
    assert found is not None
    assert "me" == found.keys["k"].owner
    assert found.call == Call("tools/call", "pay")
    assert static("ana") == found.identity
    assert None is await store.step("b", step(unchanged))


async def undoes_a_lost_claim(store: TaskStore) -> None:
    """A process that has lost its claim gets an error, and nothing is written."""
    await store.step("a", create())
    await store.step("a", step(claim("other")))
    with pytest.raises(Unavailable, match="another process"):
        await store.step("a", step(paying("k", "me")))
    found = await store.step("a", step(unchanged))
    assert found is not None
    assert not found.keys["k"].paid


async def refuses_more_than_it_takes(store: TaskStore) -> None:
    """A store that takes two tasks refuses a third."""
    for id in ("1", "2"):
        await store.step("a", create(id))
    with pytest.raises(Unavailable, match="already has 2 tasks"):
        await store.step("a", create("3"))


async def gives_each_key_to_one(stores: Callable[[], TaskStore]) -> None:
    """Of several processes that claim a key at the same time, one gets it."""
    first = stores()
    await first.step("a", create())
    others = [stores() for _ in range(4)]
    async with anyio.create_task_group() as group:
        for number, store in enumerate(others):
            for _ in range(5):
                group.start_soon(store.step, "a", step(claim(f"gate {number}")))
    owners = set[str]()
    for store in others:
        found = await store.step("a", step(unchanged))
        assert found is not None
        owners.add(found.keys["k"].owner)
        store.close()
    first.close()
    assert 1 == len(owners)
