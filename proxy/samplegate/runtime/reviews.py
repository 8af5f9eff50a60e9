"""Reviews in one process: the review service, the outbox that notifies reviewers, and the store of both.

This module only puts them together. It imports them when a policy names a reviewer, and opens the store on first use,
so that `run` starts as fast without reviewers.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from samplegate.config.settings import ProcessSettings
from samplegate.errors import Unavailable
from samplegate.key_file import database_key
from samplegate.policy.schema import Show
from samplegate.reviews import create
from samplegate.reviews.store import ReviewStore
from samplegate.runtime.process import ProcessContext, Rules

if TYPE_CHECKING:
    from samplegate.reviews.async_store import AsyncReviewStore
    from samplegate.reviews.views import Clean

DAY: Final = 86_400.0


class ReviewRuntime:
    """Review service, outbox and store of one process.

    ``folder`` is the policy's folder, which the paths in webhooks are relative to. ``environment`` has the variables
    that webhooks name. ``url`` is the address of the review page if the settings have none.
    """

    def __init__(
        self,
        context: ProcessContext,
        settings: ProcessSettings,
        *,
        folder: Path,
        environment: Mapping[str, str],
        url: str | None = None,
    ) -> None:
        from samplegate.reviews.service import Counts, ReviewService

        self._context = context
        self._settings = settings
        self._place = folder, environment
        in_database = settings.reviews == settings.database
        self._file_key = database_key(settings.database_key_file) if in_database else None
        self._url = settings.reviews_url or url
        self._hashes = {context.rules.hash}
        """Hashes of the policies that this process has had. Reviews under other hashes belong to other processes."""
        self._kept: AsyncReviewStore | None = None
        self._needed = anyio.Event()
        self._deliveries = anyio.CancelScope()
        self.counts = Counts(context.metrics)
        self.service = ReviewService(
            self.store,
            wall=time.time,
            clock=time.monotonic,
            random=secrets.token_bytes,
            log=context.log,
            counts=self.counts,
            most=settings.max_pending_reviews,
            url=self._url,
        )
        context.reviews, context.has_page = self.service, self._url is not None

    def store(self) -> ReviewStore:
        """The store, which the first call opens."""
        if self._kept is None:
            from samplegate.reviews.async_store import AsyncReviewStore

            self._kept = AsyncReviewStore(self._settings.reviews, file_key=self._file_key)
            self._needed.set()
        return self._kept

    async def run(self, *, at_once: bool = False) -> None:
        """Run the service and the outbox until cancelled. ``at_once`` also opens the store now, to send notifications
        that an earlier process left."""
        if at_once or self._left_over():
            self.store()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self.service.run)
                await self._needed.wait()
                while True:
                    with anyio.CancelScope() as self._deliveries:
                        await self._outbox()
        finally:
            if self._kept is not None:
                self._kept.close()

    def update_reviewers(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Use the reloaded policy's folder and environment for webhooks."""
        if (folder, environment) != self._place:
            self._place = folder, environment
            self._deliveries.cancel()  # deliveries under way are repeated; receivers detect duplicates by id

    async def reloaded(self) -> None:
        """After a reload, withdraw the reviews that the policy in force no longer asks for."""
        self._hashes.add(self._context.rules.hash)
        policy, hashes = self._context.rules.policy.policy, self._hashes
        try:
            await self.service.reloaded(
                lambda review: create.gone(policy, review) if review.policy_hash in hashes else None
            )
        except Unavailable as problem:
            self._context.log.error("review.not_withdrawn", problem=str(problem))

    async def _outbox(self) -> None:
        from samplegate.reviews.notify.endpoint import SecretSources, networks_of
        from samplegate.reviews.notify.outbox import Outbox, OutboxContext
        from samplegate.reviews.notify.webhook import NetworkAccess

        world = OutboxContext(
            store=self.store(),
            sources=SecretSources(*self._place),
            network=NetworkAccess(networks_of(self._settings.webhook_networks), os.environ),
            url=self._url,
            clean=self._clean,
            log=self._context.log,
            count=self._context.metrics.count,
            waiting=self.counts.waiting,
            wall=time.time,
            clock=time.monotonic,
            random=secrets.token_bytes,
        )
        await Outbox(
            world, lambda: self._context.rules.policy.policy.reviewers, keep=self._settings.keep_reviews * DAY
        ).run()

    def _left_over(self) -> bool:
        """Whether an earlier process may have left notifications, so that the outbox must start before the first
        review."""
        reviewers = self._context.rules.policy.policy.reviewers.values()
        notified = any(reviewer.webhook is not None or reviewer.command is not None for reviewer in reviewers)
        shared = self._settings.store is None and self._settings.database is not None
        return notified and (shared or self._settings.reviews_file.exists())

    def _clean(self, show: Show) -> Clean | None:
        """Redaction of webhook messages with the known patterns and the policy's own; None if reviewers see
        everything."""
        return None if show == "full" else partial(_without_secrets, self._context.rules)


def _without_secrets(rules: Rules, text: str) -> str:
    from samplegate.policy import redaction
    from samplegate.runtime import secret_patterns

    found = rules.withheld
    if found is None:
        found = rules.withheld = redaction.of_patterns({**secret_patterns.known(), **rules.policy.policy.secrets})
    return redaction.clean_text(found, text)
