"""The credentials of one server at a URL: the Authorization header of its requests, kept valid.

``transport.http_client`` asks for the headers before each request, and for new ones after HTTP 401 and 403. A stored
token costs a look at its file; the SDK is imported only to get a new token. All requests of a process share one renewal
at a time, and all gates of a state folder share the file and its lock. The gate never opens a browser: an error names
`samplegate login`.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from samplegate.config.oauth import OAuthSettings
from samplegate.config.servers import NAME
from samplegate.config.sources import state_folder
from samplegate.errors import Log, Unavailable
from samplegate.oauth.challenge import Challenge
from samplegate.oauth.login_file import LOCK_TIME, FileLock, Login, LoginFile

AUTHORIZATION: Final = "Authorization"
PAUSE: Final = 5.0  # seconds without a new attempt after a failed one
MAX_REJECTED: Final = 6  # tokens in REJECTED seconds: a server that accepts none must not cost a renewal for each call
REJECTED: Final = 60.0
CLOSE: Final = 1.0  # seconds at the end for a renewal under way: its refresh token may be the only valid one


class Renews(Protocol):
    """Gets new tokens (``flow``, which imports the SDK). Both raise Unavailable."""

    async def refresh(self, login: Login) -> Login: ...

    async def client_credentials(
        self, url: str, settings: OAuthSettings, challenge: Challenge, before: Login | None
    ) -> Login: ...


def credentials_for(
    name: str,
    url: str,
    settings: OAuthSettings | None,
    *,
    headers: Iterable[str],
    state: Path,
    log: Log,
    in_file: bool = False,
) -> OAuthCredentials | None:
    """The credentials of a server at a URL; None if ``headers``, the names of its configured headers, have
    Authorization already. ``in_file``: the server is in a settings file."""
    names = {header.lower() for header in headers}
    if AUTHORIZATION.lower() in names:
        return None
    return OAuthCredentials(name, url, settings, has_headers=bool(names), state=state, log=log, in_file=in_file)


class OAuthCredentials:
    """The credentials of one server.

    ``has_headers``: the server has headers that may be credentials, too. ``clock`` is the time of day, and ``timer``
    measures pauses.
    """

    def __init__(
        self,
        name: str,
        url: str,
        settings: OAuthSettings | None,
        *,
        state: Path,
        log: Log,
        has_headers: bool = False,
        in_file: bool = False,
        renews: Renews | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._url = url
        self._settings = settings or OAuthSettings()
        self._state = state
        self._has_headers = has_headers
        self._in_file = in_file
        self._file = LoginFile(state, name)
        self._log = log
        self._renews = renews
        self._clock = clock
        self._timer = timer
        self._renewal: asyncio.Task[None] | None = None
        self._failed: tuple[Login | None, Unavailable, float] | None = None
        """The login that could not be renewed, why, and until when there is no new attempt."""
        self._rejected: deque[float] = deque(maxlen=MAX_REJECTED)
        """When renewals began because the server had refused a token."""

    @property
    def _headless(self) -> bool:
        return self._settings.grant == "client_credentials"

    async def headers(self) -> Mapping[str, str]:
        """The headers of the next request. Empty if there is no token. Raises Unavailable."""
        login = self._login()
        if login is None:
            return {}
        now = self._clock()
        if not login.is_valid(now, margin=True) and (self._headless or login.refresh_token is not None):
            try:
                await self._renew(login, Challenge(status=401))
            except Unavailable:
                if not login.is_valid(self._clock()):
                    raise
            login = self._login() or login
        if not login.is_valid(self._clock()):
            raise Unavailable(f"its login has expired; {self._remedy()}")
        return {AUTHORIZATION: login.authorization}

    async def renew(self, status: int, challenges: Sequence[str], sent: Mapping[str, str]) -> bool:
        """Whether the request is worth one more attempt after HTTP 401 or 403, with other headers.

        ``challenges`` are the values of WWW-Authenticate, ``sent`` the headers of the refused request. Raises
        Unavailable, with the remedy.
        """
        challenge = Challenge.of(status, challenges)
        if status == 403 and not challenge.insufficient_scope:
            return False
        login = self._login()
        if login is not None and sent.get(AUTHORIZATION) != login.authorization:
            return True  # renewed since
        if status == 403 and login is not None and _has_scope(login, challenge.scope):
            raise Unavailable("it denied the request, although the token has every scope that it asks for")
        if self._headless:
            await self._renew(login, challenge, refused=login is not None)
            return True
        if login is None:
            if self._has_headers and challenge.resource_metadata is None:
                return False  # the server may have refused another credential, such as an API key
            raise Unavailable(self._no_login(challenge.scope))
        if status == 403:
            scope = _union(login.scope, challenge.scope)
            needed = f"the scope {challenge.scope!r}" if challenge.scope else "another scope"
            raise Unavailable(f"this request needs {needed}, which its login does not have; {self._remedy(scope)}")
        if login.refresh_token is None:
            raise Unavailable(f"it rejected the token of its login, which has no refresh token; {self._remedy()}")
        await self._renew(login, challenge, refused=True)
        return True

    async def settle(self) -> None:
        """Wait briefly for a renewal under way, so that no refresh token is lost at the end of the process."""
        if self._renewal is not None and not self._renewal.done():
            await asyncio.wait([self._renewal], timeout=CLOSE)

    def _login(self) -> Login | None:
        """The stored login, if it is for this server and this configuration. Raises Unavailable."""
        login = self._file.read()
        if login is None or login.url != self._url or login.grant != self._settings.grant:
            return None
        return login if not self._headless or login.key == self._settings.key else None

    async def _renew(self, login: Login | None, challenge: Challenge, *, refused: bool = False) -> None:
        """Get a new token in place of this login's, or wait until another request or gate has it. ``refused``: the
        server has refused the token before its expiry. Raises Unavailable."""
        if self._failed is not None and self._failed[0] is login and self._timer() < self._failed[2]:
            raise self._failed[1]
        if self._renewal is None or self._renewal.done():
            if refused:
                self._count_rejected()
            self._renewal = asyncio.get_running_loop().create_task(self._renewed(login, challenge))
            self._renewal.add_done_callback(_retrieve)
        # a request may be cancelled, but not the renewal: an authorization server may have replaced the refresh token
        await asyncio.shield(self._renewal)

    def _count_rejected(self) -> None:
        """Count a token that the server has refused. Raises Unavailable if there were too many."""
        now = self._timer()
        if len(self._rejected) == MAX_REJECTED and now - self._rejected[0] < REJECTED:
            raise Unavailable(
                f"it has refused {MAX_REJECTED} tokens within {REJECTED:g} s, so no more are requested now; try again"
                " in a minute, or report this to the server's operator"
            )
        self._rejected.append(now)

    async def _renewed(self, login: Login | None, challenge: Challenge) -> None:
        lock: FileLock | None = None
        try:
            lock = await self._file.lock(LOCK_TIME)
            current = self._login()
            if current is not None and (login is None or current.access_token != login.access_token):
                return  # another gate was faster
            new = await self._new_login(current, challenge)
            self._file.write(new)
            self._failed = None
            self._log.info("oauth.token_renewed", server=self._name, grant=new.grant)
        except Unavailable as problem:
            self._failed = (login, problem, self._timer() + PAUSE)
            self._log.warning("oauth.renewal_failed", server=self._name, fault=str(problem))
            raise
        except Exception as problem:  # its text may contain a token
            self._log.warning("oauth.renewal_failed", server=self._name, fault=type(problem).__name__)
            raise Unavailable("internal error in the gate; see the log") from None
        finally:
            if lock is not None:
                lock.release()

    async def _new_login(self, login: Login | None, challenge: Challenge) -> Login:
        renews = self._renews
        if renews is None:  # the import takes 0.7 s
            renews = await asyncio.to_thread(_sdk, self._remedy())
        if self._headless:
            if login is not None and challenge.resource_metadata is None and login.challenge:
                challenge = msgspec.structs.replace(challenge, resource_metadata=login.challenge)
            return await renews.client_credentials(self._url, self._settings, challenge, login)
        assert login is not None
        return await renews.refresh(login)

    def _no_login(self, scope: str | None) -> str:
        login = self._file.read()
        if login is not None and login.grant == "authorization_code" and login.url != self._url:
            return f"its login is for another URL; {self._remedy(scope)}"
        return f"it requires a login; {self._remedy(scope)}"

    def _remedy(self, scope: str | None = None) -> str:
        """What to do, with a command that can be copied.

        For a server in a settings file it names neither the URL nor a folder: the callers of `serve` read it, and the
        file may have the client's ID."""
        if self._headless:
            return "check the client ID, its secret and the issuer"
        if NAME.match(self._name) is None:
            return "give the server a name of letters, digits and . _ -, and log in with samplegate login NAME"
        if self._state == Path():
            return "logins need a state folder, but the home folder is unknown; set --state DIR or HOME, then log in"
        options = "" if scope is None else f" --scope {shlex.quote(scope)}"
        if self._in_file:
            return f"run: samplegate login {self._name} --settings FILE{options}"
        url = "URL" if "?" in self._url else shlex.quote(self._url)
        if self._state != state_folder(os.environ):
            options += f" --state {shlex.quote(str(self._state.absolute()))}"
        return f"run: samplegate login {self._name} --url {url}{options}"


def _has_scope(login: Login, scope: str | None) -> bool:
    return scope is not None and set(scope.split()) <= set((login.scope or "").split())


def _union(granted: str | None, asked: str | None) -> str | None:
    return " ".join(dict.fromkeys([*(granted or "").split(), *(asked or "").split()])) or None


def _sdk(remedy: str) -> Renews:
    from samplegate.oauth.endpoints import tls_context
    from samplegate.oauth.renewal import SdkRenewal

    tls_context()
    return SdkRenewal(remedy)


def _retrieve(task: asyncio.Task[None]) -> None:
    """Keep asyncio from logging an exception whose requests were all cancelled."""
    if not task.cancelled():
        task.exception()
