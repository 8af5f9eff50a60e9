"""The reviewers' page of `run --reviews-listen`, and the users who may sign in at a page.

The socket is bound before the server starts, and everything else waits for the first connection: web framework,
templates and database take half a second to import, and most processes have no visitor. A fault of the page ends the
page, never the conversation.
"""

from __future__ import annotations

import getpass
import hashlib
import re
import secrets
import socket
import time
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from samplegate import __version__
from samplegate.config.settings import RunSettings
from samplegate.config.values import Address, address
from samplegate.errors import Unavailable
from samplegate.request_headers import entry_for_digest
from samplegate.reviews import sign_in_links
from samplegate.runtime.process import ProcessContext
from samplegate.transport.sockets import AddressInUse, bind, bound

if TYPE_CHECKING:
    from samplegate.config.identities import PeopleSettings
    from samplegate.reviews.store import ReviewStore
    from samplegate.reviews.web.app import ReviewsApp
    from samplegate.reviews.web.context import Person

MAX_SESSIONS: Final = 1_000  # by one-use links; the oldest one ends then
CONNECTIONS: Final = 128
HEAD: Final = 16 * 1024  # bytes of a request's head
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_unfit: Final = re.compile(r"[^A-Za-z0-9._@-]")


class People:
    """Reviewers who may sign in, by the hash of their token."""

    def __init__(self, settings: PeopleSettings, withdrawn: Callable[[], Container[bytes]] = tuple) -> None:
        """``withdrawn``: the SHA-256 of tokens that another gate has withdrawn by now."""
        self._withdrawn = withdrawn
        self._people: dict[bytes, Person] = {}
        self.put(settings)

    def put(self, settings: PeopleSettings) -> None:
        """Replace the reviewers at a reload. The sessions and streams of removed reviewers end."""
        from samplegate.reviews.web.context import Person

        self._people = {
            bytes.fromhex(token.sha256): Person(
                token.name, token.role, token.reviewers, frozenset(token.groups), frozenset(token.callers)
            )
            for token in settings.tokens
        }

    def person(self, token: str) -> Person | None:
        """The reviewer with this token."""
        return self.known(hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest())

    def known(self, digest: bytes) -> Person | None:
        """The reviewer whose token has this SHA-256."""
        return None if digest in self._withdrawn() else entry_for_digest(self._people, digest)


class Visitors:
    """Who may sign in at the page of `run`: the `people` of the settings, and this process's user by one-use links.

    The user may decide everything, as on the command line.
    """

    def __init__(self, people: People, codes: sign_in_links.OneUseCodes, *, user: str, wall: Callable[[], float]):
        from samplegate.reviews.web.context import Person

        self._people = people
        self._codes = codes
        self._user = Person(user, "admin")
        self._wall = wall
        self._signed_in: dict[bytes, None] = {}
        """The SHA-256 of the codes that were used, oldest first."""

    def known(self, digest: bytes) -> Person | None:
        """The user whose token or code has this SHA-256."""
        return self._user if digest in self._signed_in else self._people.known(digest)

    def one_use(self, code: str) -> Person | None:
        """The user of a one-use link, which this call uses up."""
        if not self._codes.use(code, self._wall()):
            return None
        if len(self._signed_in) >= MAX_SESSIONS:
            del self._signed_in[next(iter(self._signed_in))]
        self._signed_in[hashlib.sha256(code.encode()).digest()] = None
        return self._user


def user_name() -> str:
    """The name of this process's user, for histories."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        name = ""
    return _unfit.sub("-", name[:64]) or "local"


class ReviewPage:
    """The page of one process. Created by ``open``, which binds the address."""

    def __init__(self, listening: socket.socket, context: ProcessContext, settings: RunSettings) -> None:
        self._socket = listening
        self._context = context
        self._settings = settings
        self._at = bound(listening)
        here = Address(_WILDCARDS.get(self._at.host, self._at.host), self._at.port)
        self.url = settings.reviews_url or f"http://{here}"
        """The base URL for links, without a slash at its end."""

    @classmethod
    def open(cls, context: ProcessContext, settings: RunSettings) -> ReviewPage | None:
        """Bind the address. None if there is none, or if another process listens there: clients start several gates
        with the same settings. Raises CannotStart."""
        if settings.reviews_listen is None:
            return None
        try:
            listening = bind("reviews_listen", address(settings.reviews_listen))
        except AddressInUse as problem:
            context.log.warning(
                "listener.unavailable",
                listener="reviews",
                problem=str(problem),
                remedy="decide reviews at the page that listens there, if it shares this review store, or with"
                " `samplegate reviews`",
            )
            return None
        return cls(listening, context, settings)

    async def run(self, store: Callable[[], ReviewStore]) -> None:
        """Serve the page until cancelled. ``store``: opens the review store."""
        try:
            await self._announced(store)
        except Unavailable as problem:
            self._context.log.error("listener.failed", listener="reviews", problem=str(problem))
        except Exception:
            self._context.log.error("listener.failed", listener="reviews", exc_info=True)  # noqa: G201
        finally:
            self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    async def _announced(self, store: Callable[[], ReviewStore]) -> None:
        folder = sign_in_links.folder_of(self._settings.reviews_file)
        file = sign_in_links.PageFile.create(folder, self.url, now=time.time(), random=secrets.token_bytes)
        try:
            self._context.log.info("listener.opened", listener="reviews", url=f"{self.url}/reviews")
            await anyio.wait_readable(self._socket)
            await anyio.to_thread.run_sync(_import, abandon_on_cancel=True)
            await self._serve(self._app(store(), file.page.secret))
        finally:
            file.close()

    def _app(self, store: ReviewStore, secret: bytes) -> ReviewsApp:
        from samplegate.config.identities import PeopleSettings
        from samplegate.reviews.web.app import reviews_app
        from samplegate.reviews.web.context import Web

        people = People(self._settings.people or PeopleSettings(), lambda: self._context.withdrawn)
        visitors = Visitors(people, sign_in_links.OneUseCodes(secret), user=user_name(), wall=time.time)
        web = Web(
            store=store,
            person=people.person,
            known=visitors.known,
            one_use=visitors.one_use,
            cookie=f"samplegate-{self._at.port}",
            url=self.url,
            wall=time.time,
            random=secrets.token_bytes,
            log=self._context.log,
            version=__version__,
        )
        return reviews_app(web)

    async def _serve(self, app: ReviewsApp) -> None:
        from samplegate.transport.http_server.http import HttpBounds
        from samplegate.transport.http_server.listeners import listener
        from samplegate.transport.http_server.uvicorn_protocol import Connections

        connections = Connections(app, HttpBounds(connections=CONNECTIONS, head=HEAD))
        server = listener(connections)
        try:
            await server.serve([self._socket])
        finally:  # at once: clients kill a gate that takes 2 s to end
            app.end()
            for one in server.servers:
                one.close()
            for connection in tuple(connections.open):
                connection.cut()


def _import() -> None:
    """Import everything that the page needs, in a thread, because the event loop must not wait for it."""
    import samplegate.config.identities
    import samplegate.reviews.async_store
    import samplegate.reviews.web.app
    import samplegate.transport.http_server.listeners  # noqa: F401 - imported for their effect on the next import
