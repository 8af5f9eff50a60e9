"""An outbox over an in-memory store, with a manual clock and a log that keeps its lines."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from standardwebhooks.webhooks import Webhook as Signer

from samplegate.policy.schema import Reviewer, Webhook
from samplegate.reviews.notify.endpoint import SecretSources, networks_of
from samplegate.reviews.notify.outbox import Outbox, OutboxContext
from samplegate.reviews.notify.webhook import NetworkAccess, WebhookBounds
from samplegate.reviews.review import Delivery, Review
from tests.fakes.review_store import MemoryReviews
from tests.fakes.reviews import NOW, review
from tests.fakes.webhook_endpoint import LOOPBACK, Endpoint

KEY: Final = bytes(range(24))
SECRET: Final = "whsec_" + base64.b64encode(KEY).decode()
DAY: Final = 86_400.0


def is_signed(key: bytes, headers: Mapping[str, str], body: bytes, at: float) -> bool:
    """Whether a message of that second has the signature that the reference library computes with the key."""
    signature = Signer(key).sign(headers["webhook-id"], datetime.fromtimestamp(at, UTC), body.decode())
    return str(int(at)) == headers["webhook-timestamp"] and signature in headers["webhook-signature"].split(" ")


class Clock:
    """Unix seconds that only the test moves. ``pause`` ends when the clock has moved far enough."""

    def __init__(self) -> None:
        self.now = NOW
        self._moved = asyncio.Event()

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds
        self._moved.set()
        self._moved = asyncio.Event()

    async def pause(self, event: asyncio.Event, seconds: float) -> None:
        until = self.now + seconds
        await asyncio.sleep(0)
        while not event.is_set() and self.now < until:
            waiting = [asyncio.ensure_future(each.wait()) for each in (event, self._moved)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waiting:
                    each.cancel()


class Log:
    """``lines`` has level, event and fields of each line."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append(("warning", event, fields))

    def info(self, event: str, **fields: object) -> None:
        self.lines.append(("info", event, fields))

    def error(self, event: str, **fields: object) -> None:
        self.lines.append(("error", event, fields))

    def events(self) -> list[str]:
        return [event for _, event, _ in self.lines]


class Store(MemoryReviews):
    """A store that signals every change of a delivery."""

    def __init__(self) -> None:
        super().__init__()
        self.touched = asyncio.Event()
        self.taken: list[tuple[str, int]] = []
        """Each taking that gave something: of which reviewer, and how many."""

    def take_deliveries(self, reviewers: Sequence[str], **values: Any) -> Sequence[Delivery]:
        found = super().take_deliveries(reviewers, **values)
        self.taken += [(reviewers[0], len(found))] if found else []
        return found

    def hold_delivery(self, delivery: Delivery, *, seconds: float) -> bool:
        held = super().hold_delivery(delivery, seconds=seconds)
        self.touched.set()
        return held

    def delivered(self, delivery: Delivery, *, said: str) -> None:
        super().delivered(delivery, said=said)
        self.touched.set()

    def postpone(self, delivery: Delivery, *, wait: float, said: str) -> None:
        super().postpone(delivery, wait=wait, said=said)
        self.touched.set()

    def give_up(self, delivery: Delivery, *, said: str) -> None:
        super().give_up(delivery, said=said)
        self.touched.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds for the deliveries."""
        stop = self.watch(self.touched.set)
        async with asyncio.timeout(20):
            while not holds():
                self.touched.clear()
                await self.touched.wait()
        stop()

    @property
    def one(self) -> Delivery:
        """The first delivery."""
        return next(iter(self.deliveries.values()))


class Outside:
    """A policy's reviewers, the outbox's context, and the outbox. ``ahead``: seconds by which the outbox's clock is
    ahead of the store's, which is ``clock``."""

    def __init__(self, folder: Path, store: Store | None = None, *, ahead: float = 0.0) -> None:
        self.ahead = ahead
        self.clock, self.log, self.store = Clock(), Log(), store or Store()
        self.store.clock = self.clock
        self.counted: list[tuple[str, str]] = []
        self.reviewers: Mapping[str, Reviewer] = {}
        self.environment: dict[str, str] = {"HOOK_SECRET": SECRET}
        self.clean: Callable[[str], str] | None = None
        self.waiting: list[Mapping[str, tuple[int, float]]] = []
        self.folder = folder

    def context(self, **values: Any) -> OutboxContext:
        given: dict[str, Any] = {
            "store": self.store,
            "sources": SecretSources(self.folder, self.environment),
            "network": NetworkAccess(networks=networks_of([LOOPBACK]), bounds=WebhookBounds(total=15.0)),
            "url": "https://reviews.example.com",
            "clean": lambda _show: self.clean,
            "log": self.log,
            "count": lambda _name, *, reviewer, result: self.counted.append((reviewer, result)),
            "waiting": lambda pending, _now: self.waiting.append(pending),
            "wall": lambda: self.clock() + self.ahead,
            "clock": self.clock,
            "random": bytes,
            "pause": self.clock.pause,
        }
        return OutboxContext(**(given | values))

    def outbox(self, **values: Any) -> Outbox:
        return Outbox(self.context(**values), lambda: self.reviewers, keep=30 * DAY)

    def tell(self, hook: Endpoint, name: str = "ops", **values: Any) -> None:
        """Give this reviewer this webhook."""
        self.tell_at(hook.url, name, **values)

    def tell_at(self, url: str, name: str = "ops", **values: Any) -> None:
        """Give this reviewer the webhook at this address."""
        webhook = Webhook(**({"url": url, "secret_env": "HOOK_SECRET"} | values))
        self.reviewers = {**self.reviewers, name: Reviewer(webhook=webhook)}

    def run_by(self, name: str, *argv: str) -> None:
        """Give this reviewer this command."""
        self.reviewers = {**self.reviewers, name: Reviewer(command=list(argv))}

    async def ask(self, number: int = 1, **values: Any) -> Review:
        """Open a review. Each call opens a newer one."""
        asked = review(**({"id": f"rv_{number}", "created": self.clock.now, "expires": self.clock.now + 900} | values))
        assert self.store.open(asked, announce=True, most=100_000)
        return asked


@asynccontextmanager
async def running(outbox: Outbox) -> AsyncIterator[None]:
    """Run the outbox for the block. An exception in it fails the test."""
    task = asyncio.create_task(outbox.run())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
