"""Logins: the tokens of servers, one file for each server in the state folder, for the owner only.

All gates of a state folder share the files. A file is replaced as a whole, and its lock is held while a token is
renewed: an authorization server may accept a refresh token only once. Only the standard library and msgspec are used,
because `run` reads a login whenever it starts.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from samplegate.config.servers import NAME
from samplegate.errors import Unavailable
from samplegate.files import identity, identity_of, make_file, make_folder, sync_file, sync_folder, try_lock, unlock

MAX_FILE: Final = 256 * 1024  # bytes
VERSION: Final = 1
LOCK_TIME: Final = 45.0  # seconds to wait for the renewal of another process, which takes at most 30
MARGIN: Final = 30.0  # seconds before its expiry from which a token is renewed
_MARGIN_SHARE: Final = 0.1  # of a token's lifetime: a short-lived token is renewed later
_LOCK_PAUSE: Final = 0.02
_TOKEN: Final = re.compile(r"[!-~]{1,16384}\Z")

Grant = Literal["authorization_code", "client_credentials"]


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens for one server, and what renews them. Secret: ``repr`` shows only the URL."""

    version: int = VERSION
    url: str
    """The server's URL. The token is sent to no other."""
    grant: Grant
    issuer: str
    """The authorization server."""
    client_id: str
    access_token: str
    refresh_token: str | None = None
    scope: str | None = None
    """The granted scopes."""
    obtained_at: float
    """Unix time."""
    expires_at: float | None = None
    """Unix time; None if the authorization server did not tell."""
    key: str = ""
    """Which configuration obtained it, for the client credentials grant; a changed one gets a new token."""
    challenge: str = ""
    """The server's last challenge with its resource metadata, for the next token."""
    client: dict[str, Any] = {}
    """The client's registration (RFC 7591), which may contain a secret."""
    metadata: dict[str, Any] = {}
    """The authorization server's endpoints (RFC 8414)."""
    resource: dict[str, Any] = {}
    """The server's resource metadata (RFC 9728)."""

    def __repr__(self) -> str:
        return f"Login(url={self.url!r})"

    @property
    def authorization(self) -> str:
        """The value of the Authorization header."""
        return f"Bearer {self.access_token}"

    def is_valid(self, now: float, *, margin: bool = False) -> bool:
        """Whether the token has not expired; with ``margin``, whether it need not be renewed yet."""
        if self.expires_at is None:
            return True
        ahead = min(MARGIN, (self.expires_at - self.obtained_at) * _MARGIN_SHARE) if margin else 0.0
        return now < self.expires_at - ahead


def is_token(text: object) -> bool:
    """Whether a text can be a token: visible ASCII, at most 16 KiB."""
    return isinstance(text, str) and _TOKEN.match(text) is not None


class LoginFile:
    """The file of one login. Without a state folder, the login is kept in memory."""

    def __init__(self, state: Path, name: str) -> None:
        usable = state != Path() and NAME.match(name) is not None
        self.path = state / "oauth" / f"{name}.json" if usable else None
        self._seen: tuple[int, int, int, int] | None = None
        self._login: Login | None = None

    def read(self) -> Login | None:
        """The login; None if there is none. The file is read again only if it has changed. Raises Unavailable."""
        if self.path is None:
            return self._login
        try:
            found = self.path.stat()
            seen = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                self._login = _parsed(self.path)
                self._seen = seen
        except FileNotFoundError:
            self._seen = self._login = None
        except OSError as problem:
            raise _unreadable(self.path, problem) from None
        return self._login

    def write(self, login: Login) -> None:
        """Replace the file, with the lock held. The old one stays if this fails. Raises Unavailable."""
        text = msgspec.json.format(msgspec.json.encode(login), indent=1) + b"\n"
        if len(text) > MAX_FILE:  # a huge registration; it could not be read again
            raise Unavailable(f"the login is larger than {MAX_FILE} bytes; report this to the server's operator")
        self._login = login
        if self.path is None:
            return
        draft = _draft_of(self.path)
        try:
            make_folder(self.path.parent)
            draft.unlink(missing_ok=True)  # of a process that was killed
            try:
                make_file(draft)
                with draft.open("r+b") as file:
                    file.write(text)
                    file.flush()
                    sync_file(file.fileno())
                draft.replace(self.path)
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(self.path.parent)
        except OSError as problem:
            what = (problem.strerror or str(problem)).lower()
            raise Unavailable(f"{self.path}: cannot be written: {what}; make the folder writable") from None

    def remove(self) -> bool:
        """Delete the file, with the lock held. Returns whether there was one. Raises Unavailable."""
        self._login = None
        if self.path is None:
            return False
        try:
            _draft_of(self.path).unlink(missing_ok=True)
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as problem:
            what = (problem.strerror or str(problem)).lower()
            raise Unavailable(f"{self.path}: cannot be deleted: {what}") from None
        return True

    async def lock(self, patience: float) -> FileLock:
        """Wait for the lock of this login, at most ``patience`` seconds. No thread waits, so that a process can end at
        any time. Raises Unavailable."""
        until = time.monotonic() + patience
        while (lock := self._try_lock()) is None:
            if time.monotonic() >= until:
                raise Unavailable(f"{self.path}: another process has held the lock for {patience:g} s; try again")
            await asyncio.sleep(_LOCK_PAUSE)
        return lock

    def _try_lock(self) -> FileLock | None:
        """The lock; None if another process has it, or has just deleted its file. Raises Unavailable."""
        if self.path is None:
            return FileLock(None)
        path = self.path.with_suffix(".lock")
        try:
            make_folder(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            try:
                if try_lock(fd) and identity(path) == identity_of(fd):
                    fd, held = -1, fd
                    return FileLock(held)
            finally:
                if fd >= 0:
                    os.close(fd)
        except OSError as problem:
            why = (problem.strerror or str(problem)).lower()
            raise Unavailable(
                f"{path}: cannot be locked: {why}; make the folder writable, or set another one with --state"
            ) from None
        return None


class FileLock:
    """A held lock. The operating system releases it if the process dies."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock. May be called again."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with suppress(OSError):
                unlock(fd)
            os.close(fd)


def names(state: Path) -> list[str]:
    """The names of all logins in the state folder."""
    try:
        found = [path.stem for path in (state / "oauth").iterdir() if path.suffix == ".json"]
    except OSError:
        return []
    return sorted(name for name in found if NAME.match(name))


def _draft_of(path: Path) -> Path:
    """Where the file is written before it replaces the old one. It is one name, so that a killed process leaves one
    draft at most, which the next one removes."""
    return path.with_name(f".{path.name}.draft")


def _unreadable(path: Path, problem: OSError) -> Unavailable:
    return Unavailable(f"{path}: cannot be read: {(problem.strerror or str(problem)).lower()}")


def _parsed(path: Path) -> Login:
    """The login in the file. Raises OSError and Unavailable, whose text contains nothing of the file."""
    with path.open("rb") as file:
        text = file.read(MAX_FILE + 1)
    remedy = "; log in again, which replaces it, or delete it with samplegate logout"
    if len(text) > MAX_FILE:
        raise Unavailable(f"{path}: is larger than {MAX_FILE} bytes{remedy}")
    try:
        login = msgspec.json.decode(text, type=Login)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Unavailable(f"{path}: is not a login{remedy}") from None
    if login.version != VERSION:
        raise Unavailable(f"{path}: was written by another version of samplegate{remedy}")
    tokens: Mapping[str, str | None] = {"access": login.access_token, "refresh": login.refresh_token}
    if not all(token is None or is_token(token) for token in tokens.values()):
        raise Unavailable(f"{path}: contains an invalid token{remedy}")
    return login
