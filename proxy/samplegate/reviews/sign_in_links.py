"""One-use sign-in links to the review pages of `run`, and the files by which the command line finds these pages.

A process with a page keeps a file, for its owner only, beside the review store: the page's address and a secret.
Whoever can read the file can read the store, too. `samplegate reviews open` signs a code with the secret. The process
checks the code and uses it up, so no code is stored, and none is valid at another page. The code is in the link's
fragment, which browsers send to no server.

A locked file belongs to a process that runs; the lock ends with the process.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from samplegate.errors import Unavailable
from samplegate.files import make_folder, try_lock

VALID: Final = 60  # seconds
CODE_PREFIX: Final = "once1."
MAX_FILES: Final = 1_000  # of one store
MAX_FILE: Final = 4_096  # bytes
MAX_USED: Final = 10_000  # codes to remember, which only the owner of the file can make

_code: Final = re.compile(r"once1\.([0-9]{1,12})\.([0-9a-f]{32})\.([A-Za-z0-9_-]{43})")
_name: Final = re.compile(r"[0-9a-f]{32}\.json")
_opener: Final = re.compile(r"open-[0-9a-f]{32}\.html")
_url: Final = re.compile(r"https?://[A-Za-z0-9._\[\]:/~-]{1,500}")


class OpenPage(msgspec.Struct, frozen=True):
    """The page of one process, as its file has it."""

    url: str
    """The base URL, without a slash at its end."""
    secret: bytes
    opened: float
    """Unix seconds."""

    def __repr__(self) -> str:
        return f"OpenPage({self.url!r})"


def folder_of(store: Path) -> Path:
    """The folder of the pages' files, beside the store's file."""
    return store.with_name(f"{store.name}-pages")


def make_code(secret: bytes, *, now: float, random: Callable[[int], bytes]) -> str:
    """A code that signs in once within VALID seconds."""
    until, nonce = int(now) + VALID, random(16).hex()
    return f"{CODE_PREFIX}{until}.{nonce}.{_signature(secret, until, nonce)}"


def link(page: OpenPage, place: str, code: str) -> str:
    """The link that signs in at a page and leads to ``place`` on it."""
    return f"{page.url}/reviews/sign-in?next={quote(place, safe='/')}#token={code}"


def _signature(secret: bytes, until: int, nonce: str) -> str:
    text = f"samplegate sign-in link 1 {until} {nonce}".encode()
    return base64.urlsafe_b64encode(hmac.digest(secret, text, hashlib.sha256)).rstrip(b"=").decode()


class OneUseCodes:
    """The codes of one page: which are valid and unused. Calls do not yield, so one of two concurrent uses succeeds."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._used: dict[str, int] = {}
        """By nonce: when the code expires."""
        self._over = 0
        """Codes that expire up to this time were forgotten, so they are refused, whatever the clock says."""

    def use(self, code: str, now: float) -> bool:
        """Use a code up. False if it is not one of this page's, has expired or was used before."""
        found = _code.fullmatch(code)
        if found is None:
            return False
        until, nonce = int(found[1]), found[2]
        if not hmac.compare_digest(_signature(self._secret, until, nonce), found[3]):
            return False
        # a code that is valid for longer was made by a clock that was set back since
        if not now < until <= now + VALID or until <= self._over or nonce in self._used:
            return False
        if len(self._used) >= MAX_USED:
            self._forget()
        self._used[nonce] = until
        return True

    def _forget(self) -> None:
        half = sorted(self._used.values())[len(self._used) // 2]
        self._over = max(self._over, half)
        self._used = {nonce: until for nonce, until in self._used.items() if until > half}


class PageFile:
    """The file of this process's page. ``close`` removes it."""

    def __init__(self, path: Path, fd: int, page: OpenPage) -> None:
        self.page = page
        self._path = path
        self._fd = fd

    @classmethod
    def create(cls, folder: Path, url: str, *, now: float, random: Callable[[int], bytes]) -> PageFile:
        """Create the file, and remove those of processes that have ended. Raises Unavailable."""
        page = OpenPage(url, random(32), now)
        path = folder / f"{random(16).hex()}.json"
        draft = path.with_suffix(".new")
        try:
            make_folder(folder)
            for _ in open_pages(folder):
                pass
            remove_openers(folder, now)
            fd = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600)
            try:
                if not try_lock(fd):
                    raise BlockingIOError(0, "a new file is locked already")
                os.write(fd, msgspec.json.encode(page))
                draft.rename(path)  # complete and locked
            except OSError:
                os.close(fd)
                raise
        except OSError as problem:
            raise Unavailable(f"reviews: {folder}: {(problem.strerror or str(problem)).lower()}") from None
        return cls(path, fd, page)

    def close(self) -> None:
        """Remove the file."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def open_pages(folder: Path) -> list[OpenPage]:
    """The pages of the processes that run, the newest first. Removes the files of those that have ended. Raises
    OSError."""
    found = [page for path in _files(folder, _name) if (page := _read(path)) is not None]
    return sorted(found, key=lambda page: page.opened, reverse=True)


def _files(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MAX_FILES)]
    except FileNotFoundError:
        return
    yield from (folder / each for each in names if name.fullmatch(each))


def _read(path: Path) -> OpenPage | None:
    """The page of a file; None if its process has ended, or if it is no such file."""
    try:
        fd = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0))
    except OSError:  # removed meanwhile, or not a file of ours
        return None
    try:
        if try_lock(fd):
            path.unlink(missing_ok=True)
            return None
        page = msgspec.json.decode(os.read(fd, MAX_FILE), type=OpenPage)
        return page if _url.fullmatch(page.url) else None
    except (OSError, msgspec.DecodeError):
        return None
    finally:
        os.close(fd)


OPENER: Final = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}">
<title>samplegate reviews</title>
<p><a href="{link}" rel="noreferrer">Continue to samplegate reviews</a></p>
"""


def write_opener(folder: Path, link: str, *, now: float, random: Callable[[int], bytes]) -> Path:
    """A page for the owner only that leads to the link. A browser is started with this file's name, because other
    users can read the command line of a process. Raises OSError."""
    make_folder(folder)
    remove_openers(folder, now)
    path = folder / f"open-{random(16).hex()}.html"
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(fd, OPENER.format(link=link.replace("&", "&amp;")).encode())
    finally:
        os.close(fd)
    return path


def remove_openers(folder: Path, now: float) -> None:
    """Remove the pages of ``write_opener`` whose links have expired. Raises OSError."""
    for path in _files(folder, _opener):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < now - VALID:
                path.unlink()
