"""An outbox over the real store, in processes that are killed."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from samplegate.reviews.async_store import AsyncReviewStore
from samplegate.reviews.notify.outbox import LEASE
from samplegate.reviews.review import Delivery, Review
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes.outbox import Outside, running
from tests.fakes.reviews import review
from tests.fakes.webhook_endpoint import answer, endpoint, ok
from tests.paths import ROOT

pytestmark = pytest.mark.anyio


async def kept(url: str) -> tuple[AsyncReviewStore, Review]:
    store, now = AsyncReviewStore(url), time.time()
    asked = review(created=now, expires=now + 900)
    opened = await store.write(lambda reviews: reviews.open(asked, announce=True, most=10))
    assert opened is not None
    return store, opened


@pytest.mark.timeout(120)
async def test_what_a_killed_process_had_taken_is_told_again_with_the_same_id(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'reviews.db'}"
    store, asked = await kept(url)
    out = Outside(tmp_path)
    async with endpoint(ok(b'{"verdict":"approve"}')) as hook:

        async def silence(reader: Any, _writer: Any) -> None:
            await reader.read()

        hook.behave = silence
        program = [sys.executable, "-m", "tests.fakes.programs.outbox_process", url, hook.url]
        process = await asyncio.create_subprocess_exec(
            *program, cwd=ROOT, env={"PYTHONPATH": f"{ROOT / 'proxy'}:{ROOT}"}
        )
        async with asyncio.timeout(60):
            while not hook.seen:
                hook.came.clear()
                await hook.came.wait()
        process.kill()
        await process.wait()
        hook.behave = None

        store.close()
        store, decided = AsyncReviewStore(url, clock=lambda: time.time() + LEASE + 1), asyncio.Event()
        stop = store.watch(decided.set)
        out.tell(hook)
        async with running(out.outbox(store=store, wall=lambda: time.time() + LEASE + 1)):
            async with asyncio.timeout(60):
                while (
                    found := await store.read(lambda reviews: reviews.get(asked.id))
                ) is None or found.state == "pending":
                    decided.clear()
                    await decided.wait()
        stop()
    assert ("approved", "webhook") == (found.state, found.door)
    assert 2 == len(hook.seen)
    assert 1 == len({seen.headers["webhook-id"] for seen in hook.seen})
    store.close()


async def test_the_real_store_keeps_what_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_off, loop, real = asyncio.Event(), asyncio.get_running_loop(), SqlReviewStore.postpone

    def postpone(self: SqlReviewStore, delivery: Delivery, **values: Any) -> None:
        real(self, delivery, **values)
        loop.call_soon_threadsafe(put_off.set)

    monkeypatch.setattr(SqlReviewStore, "postpone", postpone)
    first, asked = await kept(f"sqlite:{tmp_path / 'reviews.db'}")
    first.close()
    out = Outside(tmp_path)
    store = AsyncReviewStore(f"sqlite:{tmp_path / 'reviews.db'}", clock=out.clock)
    out.clock.now = asked.created
    told = asyncio.Event()
    stop = store.watch(told.set)
    async with endpoint(answer("503 Unavailable")) as hook, asyncio.timeout(30):
        out.tell(hook)
        async with running(out.outbox(store=store)):
            await put_off.wait()
            hook.says = answer()
            while not any(
                event.what == "told" for event in await store.read(lambda reviews: reviews.history(asked.id))
            ):
                told.clear()
                out.clock.move(1)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await told.wait()
    stop()
    assert 2 == len(hook.seen)
    assert 1 == len({seen.headers["webhook-id"] for seen in hook.seen})
    store.close()
