"""The reviewers' listener in process, over an in-memory store: reviewers, a fixed clock, a client, and a log that tests
can read."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import httpx2

from samplegate.reviews.review import Review
from samplegate.reviews.web.app import ReviewsApp, reviews_app
from samplegate.reviews.web.context import Person, Web
from tests.fakes.review_store import MemoryReviews
from tests.fakes.reviews import NOW, review

URL: Final = "http://reviews.example.com"
OPS, OTHER, VIEWER, ADMIN = "sg_ops", "sg_other", "sg_viewer", "sg_admin"
PEOPLE: Final = {
    OPS: Person("ann", "reviewer", ("ops",)),
    OTHER: Person("ben", "reviewer", ("legal",)),
    VIEWER: Person("cleo", "viewer", None),
    ADMIN: Person("dora", "admin", None),
}
ID: Final = "rv_" + "a" * 24


class Log:
    """A log that keeps its events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))

    debug = warning = error = info


class ReviewersListener:
    """The listener with its store, reviewers, clock and log. Tests may change each of them. ``ahead``: seconds by which
    the clock of the listener's process is ahead of the store's, which is ``now``."""

    def __init__(self, url: str = URL, *, ahead: float = 0.0, **more: Any) -> None:
        self.store = MemoryReviews(lambda: self.now)
        self.people = dict(PEOPLE)
        self.now = NOW
        self.log = Log()
        self.made = 0
        self.web = Web(
            store=self.store,
            person=self.people.get,
            known=self._known,
            url=url,
            wall=lambda: self.now + ahead,
            random=self._random,
            log=self.log,
            version="1.2.3",
            **more,
        )

    def app(self, **more: Any) -> ReviewsApp:
        return reviews_app(self.web, **more)

    async def open_review(self, found: Review | None = None, **values: Any) -> Review:
        """Open a pending review."""
        found = found or review(id=values.pop("id", ID), **values)
        now, self.now = self.now, found.created
        assert self.store.open(found, announce=False, most=10_000)
        self.now = now
        return found

    def _known(self, digest: bytes) -> Person | None:
        return {hashlib.sha256(token.encode()).digest(): person for token, person in self.people.items()}.get(digest)

    def _random(self, size: int) -> bytes:
        self.made += 1
        return self.made.to_bytes(size, "big")


def client(app: Any, token: str | None = None, address: str = "10.0.0.9", **more: Any) -> httpx2.AsyncClient:
    """A client of the application at its URL. ``token`` is sent as bearer token."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    transport = httpx2.ASGITransport(app, client=(address, 4000), raise_app_exceptions=True)
    return httpx2.AsyncClient(transport=transport, base_url=URL, headers=headers, **more)


def plain(found: httpx2.Response) -> tuple[int, str]:
    """The status of a response, and the detail of its problem."""
    return found.status_code, found.json()["detail"]


class Streamed:
    """One GET whose response is read while it arrives."""

    def __init__(self, app: Any, path: str, headers: Mapping[str, str], method: str = "GET") -> None:
        head = [
            (b"host", b"reviews.example.com"),
            *((name.lower().encode(), value.encode()) for name, value in headers.items()),
        ]
        self._scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": head,
            "client": ("10.0.0.9", 4000),
        }
        self._gone = asyncio.Event()
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._asked = False
        self._task = asyncio.ensure_future(app(self._scope, self._receive, self._said.put))

    async def begun(self) -> int:
        """Wait for the status."""
        return int((await self._next())["status"])

    async def part(self) -> str:
        """The next part of the body. It is empty at the end."""
        return str((await self._next())["body"].decode())

    async def parts_until(self, word: str) -> str:
        """Read parts up to one that contains the word."""
        text = ""
        while word not in text:
            part = await self.part()
            assert part, text
            text += part
        return text

    async def leave(self) -> None:
        """The client disconnects. Wait until the application has finished."""
        self._gone.set()
        await asyncio.wait_for(self._task, 10)

    async def ended(self) -> None:
        await asyncio.wait_for(self._task, 10)

    async def _next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self._said.get(), 10)

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}
