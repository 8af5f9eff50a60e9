"""The context of the page and the API, and their short forms of durations, names and problems."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final, Literal, TypeAlias

import msgspec
from starlette.responses import Response

from samplegate.errors import Log
from samplegate.policy.ledger import SCALE
from samplegate.reviews.review import Review
from samplegate.reviews.store import ReviewStore

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def span(seconds: float) -> str:
    """The two largest units: ``2 min 5 s``, ``23 h 59 min``; never less than ``0 s``."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for name, size in _UNITS:
        count, left = divmod(left, size)
        if count or (parts and left):
            parts.append(f"{count} {name}")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 ")) or "0 s"


def moment(at: float) -> str:
    """``22 Nov 2026, 10:03:33 UTC``."""
    return f"{_utc(at):%-d %b %Y, %H:%M:%S} UTC"


def stamp(at: float) -> str:
    """The same for ``<time datetime>``."""
    return f"{_utc(at):%Y-%m-%dT%H:%M:%SZ}"


def _utc(at: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(min(max(at, 0.0), 253_402_300_799.0), dt.UTC)


def dollars(units: int) -> str:
    """An amount in the ledger's units: ``$12.34``, and below a dollar two digits that count, rounded up:
    ``$0.0013``."""
    amount = Decimal(units) / SCALE["usd"]
    if amount == 0 or amount >= 1:
        return f"${amount:,.2f}"
    places = 1 - amount.adjusted()
    step = Decimal(1).scaleb(-places)
    return f"${amount.quantize(step, rounding='ROUND_UP'):f}"


def size(count: int) -> str:
    """Bytes: ``512 bytes``, ``3.4 KiB``, ``12 MiB``."""
    if count < 1024:
        return "1 byte" if count == 1 else f"{count} bytes"
    for name, unit in (("KiB", 1024), ("MiB", 1024**2)):
        if count < unit * 1024 or name == "MiB":
            number = count / unit
            return f"{number:.1f} {name}" if number < 10 else f"{number:,.0f} {name}"
    raise AssertionError("unreachable")


def many(count: int, one: str, more: str = "") -> str:
    """``1 message``, ``3 messages``, ``12,345 bytes``."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


Posted: TypeAlias = Mapping[str, Sequence[str]]
"""A form's fields; a name may come several times."""


def first_value(posted: Posted, name: str) -> str | None:
    """The field's value, None where the form does not have it."""
    values = posted.get(name)
    return values[0] if values else None


def unbroken(text: str) -> str:
    """With the line ends of this world: browsers send CRLF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def same(original: str, typed: str) -> bool:
    """Whether a field that was filled with ``original`` came back untouched."""
    return unbroken(original).replace("\0", "\ufffd") == unbroken(typed)


def kept(original: str, typed: str) -> str:
    """What stands in the field now: ``original`` to the letter where it is untouched."""
    return original if same(original, typed) else unbroken(typed)


PROBLEM: Final = "application/problem+json"
CHALLENGE: Final[Mapping[str, str]] = {"www-authenticate": 'Bearer realm="samplegate reviews"'}
"""What a 401 names (RFC 6750)."""


def problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """A response: ``type``, ``title`` and ``status`` by the status, ``detail`` in a sentence, and members of its
    own."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return Response(json.dumps(body), status, headers, PROBLEM)


def unfit(problems: Sequence[tuple[str, str]]) -> Response:
    """422: something in the request is wrong, each with its place."""
    told = [{"path": path, "what": what} for path, what in problems]
    return problem(422, "the request has problems; each says where and what", problems=told)


def unknown() -> Response:
    """401: nobody is known by what was given, or nothing was."""
    return problem(
        401,
        "no token that is known; send `Authorization: Bearer` and a token of `people` in the settings",
        headers=CHALLENGE,
    )


def missing() -> Response:
    """404: there is no such review, or it is not for this person; which of both is not told."""
    return problem(404, "there is no such review for this token")


Role: TypeAlias = Literal["viewer", "reviewer", "admin"]


class Person(msgspec.Struct, frozen=True):
    """Somebody who signed in. ``reviewers``: the policy's reviewers in whose name this person may act; None: all."""

    name: str
    role: Role
    reviewers: tuple[str, ...] | None = None

    def reviewers_among(self, asked: Sequence[str] | None) -> tuple[str, ...] | None:
        """Of the reviewers that are asked for (None: all), those whose reviews this person may see (None: all)."""
        theirs = None if self.role == "admin" else self.reviewers
        if asked is None:
            return theirs
        return tuple(name for name in dict.fromkeys(asked) if theirs is None or name in theirs)

    def sees(self, review: Review) -> bool:
        """Whether this person may look at it."""
        return self.reviewers_among((review.reviewer,)) != ()

    def decides(self, review: Review) -> bool:
        """Whether this person may give a verdict on it."""
        return self.role != "viewer" and self.sees(review)


class Web(msgspec.Struct, frozen=True, kw_only=True):
    """The listener's side of the world; each a plain callable or value, so that a fake is a few lines."""

    store: ReviewStore
    person: Callable[[str], Person | None]
    """A token -> whose it is; asked each time, so that a reload holds at once."""
    known: Callable[[bytes], Person | None] = lambda _: None
    """The SHA-256 of a token -> whose it is: what a session at the page is asked by, so that a token that is taken away
    ends it."""
    url: str
    """How people reach this listener, without a slash at its end: ``https://reviews.example.com``."""
    wall: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    log: Log
    version: str
    count: Callable[..., None] = lambda *_, **__: None
    """A metric's name, and labels as keywords."""
    hosts: tuple[str, ...] = ()
    """Host headers that are taken besides that of ``url`` and this machine's own."""
    session: int = 43_200
    """Seconds that somebody stays signed in at the page."""
