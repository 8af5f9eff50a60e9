"""Reviews in the daemon: the review service for all conversations, and the reviewers' listener. No frame is read
here."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio.abc

from samplegate import __version__
from samplegate.config.serve_settings import ServeSettings
from samplegate.runtime.process import ProcessContext
from samplegate.runtime.review_page import People
from samplegate.runtime.reviews import ReviewRuntime
from samplegate.server.assertions import ProxyAssertions
from samplegate.server.prepare import ServeConfig
from samplegate.transport.http_server.http import HttpBounds
from samplegate.transport.http_server.listeners import Listeners

if TYPE_CHECKING:
    from samplegate.reviews.web.app import ReviewsApp


NAME: Final = "reviews"
"""The listener's name."""
BOUNDS: Final = HttpBounds(connections=512, head=16 * 1024)
"""Reviewers are few, but each open page holds a stream."""


class Reviewers:
    """Review service and page of one daemon. Must be created before any conversation begins."""

    def __init__(
        self, context: ProcessContext, settings: ServeSettings, wanted: ServeConfig, listeners: Listeners
    ) -> None:
        self._context = context
        self._settings = settings
        self._listeners = listeners
        self._people = People(settings.people, lambda: context.withdrawn) if NAME in listeners else None
        self._assertions = ProxyAssertions(context.log, context.metrics.count)
        if NAME in listeners:
            self._assertions.put(settings.people.assertion)
        self._app: ReviewsApp | None = None
        self._url = settings.reviews_url or (f"http://{listeners.at(NAME)}" if NAME in listeners else None)
        assert settings.policy is not None
        self.runtime = ReviewRuntime(
            context, settings, folder=settings.policy.parent, environment=wanted.reviewers_see, url=self._url
        )

    def listen(self, group: anyio.abc.TaskGroup, *, refused: Callable[[], object]) -> None:
        """Start the service, and the page if its listener is configured."""
        group.start_soon(partial(self.runtime.run, at_once=self._people is not None))
        if self._people is not None:
            self._app = self._page(self._people)
            self._listeners.open(NAME, self._app, BOUNDS, group, refused=refused)
            group.start_soon(self._assertions.warm)

    def put(self, wanted: ServeConfig) -> None:
        """Adopt a reload: other reviewers and webhook secrets."""
        assert wanted.settings.policy is not None
        if self._people is not None:
            self._people.put(wanted.settings.people)
            self._assertions.put(wanted.settings.people.assertion)
        self.runtime.update_reviewers(wanted.settings.policy.parent, wanted.reviewers_see)

    def drain(self) -> None:
        """Begin the drain: reviews may still be decided, and undecided ones are left to the next process."""
        self.runtime.service.end()

    def end(self) -> None:
        """Close the page, because its open streams would keep the listener from ending."""
        self._assertions.stop()
        if self._app is not None:
            self._app.end()

    def _page(self, people: People) -> ReviewsApp:
        from samplegate.reviews.web.app import reviews_app
        from samplegate.reviews.web.context import Web

        assert self._url is not None
        web = Web(
            store=self.runtime.store(),
            person=people.person,
            known=people.known,
            url=self._url,
            wall=time.time,
            random=secrets.token_bytes,
            log=self._context.log,
            version=__version__,
            hosts=self._settings.allowed_hosts,
            assertion=lambda: self._assertions.header,
            count=self._context.metrics.count,
        )
        return reviews_app(web)
