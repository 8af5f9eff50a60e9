"""The shared context of page and API: dependencies, users, problem responses, formats of times and amounts."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal, TypeAlias

import msgspec
from starlette.responses import Response

from samplegate.errors import Log
from samplegate.reviews.review import Review
from samplegate.reviews.store import ReviewStore
from samplegate.reviews.votes import deciders

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
    """A time for users: ``22 Nov 2026, 10:03:33 UTC``."""
    return f"{_utc(at):%-d %b %Y, %H:%M:%S} UTC"


def stamp(at: float) -> str:
    """A time for ``<time datetime>``: ``2026-11-22T10:03:33Z``."""
    return f"{_utc(at):%Y-%m-%dT%H:%M:%SZ}"


def _utc(at: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(min(max(at, 0.0), 253_402_300_799.0), dt.UTC)


def size(count: int) -> str:
    """A size: ``512 bytes``, ``3.4 KiB``, ``12 MiB``."""
    if count < 1024:
        return "1 byte" if count == 1 else f"{count} bytes"
    for name, unit in (("KiB", 1024), ("MiB", 1024**2)):
        if count < unit * 1024 or name == "MiB":
            number = count / unit
            return f"{number:.1f} {name}" if number < 10 else f"{number:,.0f} {name}"
    raise AssertionError("unreachable")


def many(count: int, one: str, more: str = "") -> str:
    """A count with its noun: ``1 message``, ``3 messages``, ``12,345 bytes``."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


Posted: TypeAlias = Mapping[str, Sequence[str]]
"""A form's fields; a name may occur several times."""


def first_value(posted: Posted, name: str) -> str | None:
    """The field's first value, None if the form does not have the field."""
    values = posted.get(name)
    return values[0] if values else None


def unbroken(text: str) -> str:
    """The text with LF as its line ends, because browsers send CRLF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def same(original: str, typed: str) -> bool:
    """Whether a field that was filled with ``original`` came back unchanged."""
    return unbroken(original).replace("\0", "\ufffd") == unbroken(typed)


def kept(original: str, typed: str) -> str:
    """The field's value: exactly ``original`` if the field is unchanged."""
    return original if same(original, typed) else unbroken(typed)


PROBLEM: Final = "application/problem+json"
CHALLENGE: Final[Mapping[str, str]] = {"www-authenticate": 'Bearer realm="samplegate reviews"'}
"""The header of a 401 (RFC 6750)."""


def problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """A problem response (RFC 9457). ``detail`` is a sentence, ``more`` are additional members."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return Response(json.dumps(body), status, headers, PROBLEM)


def invalid_input(problems: Sequence[tuple[str, str]]) -> Response:
    """422: invalid input, with the path of each problem."""
    listed = [{"path": path, "what": what} for path, what in problems]
    return problem(422, "the request is invalid; see problems", problems=listed)


def unauthorized() -> Response:
    """401: the token is missing or unknown."""
    return problem(
        401,
        "missing or unknown token; send `Authorization: Bearer` with a token of `people` in the settings",
        headers=CHALLENGE,
    )


def not_found() -> Response:
    """404: the review does not exist or belongs to other reviewers. The response does not reveal which."""
    return problem(404, "there is no such review, or you may not see it")


Role: TypeAlias = Literal["viewer", "reviewer", "admin"]


class Person(msgspec.Struct, frozen=True):
    """A user who has signed in. ``reviewers``: the policy's reviewers for whom this user may act; None: all."""

    name: str
    role: Role
    reviewers: tuple[str, ...] | None = None
    groups: frozenset[str] = frozenset()
    """The groups that reviewers of the policy may ask for, from the settings or a signed assertion."""
    callers: frozenset[str] = frozenset()
    """The callers that are this person, in addition to the one of the same name."""
    subject: str = ""
    """The ID of a person whom a proxy's assertion identifies, whatever their name is; "" for one with a token."""

    def reviewers_among(self, asked: Sequence[str] | None) -> tuple[str, ...] | None:
        """Of the requested reviewers (None: all), those whose reviews this user may see (None: all)."""
        theirs = None if self.role == "admin" else self.reviewers
        if asked is None:
            return theirs
        return tuple(name for name in dict.fromkeys(asked) if theirs is None or name in theirs)

    def sees(self, review: Review, now: float) -> bool:
        """Whether this user may see the review."""
        return self.reviewers_among([name for name, _ in deciders(review, now)]) != ()

    def decides(self, review: Review, now: float) -> bool:
        """Whether this user may decide the review. ``votes.is_caller`` has the last word about approvals."""
        return self.undecidable(review, now) is None

    def undecidable(self, review: Review, now: float) -> str | None:
        """Why this user may not decide a review that they may see; None if they may."""
        if self.role == "viewer":
            return "you can view reviews but not decide them"
        if self.role == "admin":
            return None
        acts_for = [(name, groups) for name, groups in deciders(review, now) if self.reviewers_among((name,)) != ()]
        if any(not groups or not self.groups.isdisjoint(groups) for _, groups in acts_for):
            return None
        needed = ", ".join(dict.fromkeys(group for _, groups in acts_for for group in groups))
        return f"only people in the groups {needed} may decide it"


class Asserted(msgspec.Struct, frozen=True):
    """The person of a valid assertion. ``until``: when it ends, in Unix seconds."""

    person: Person
    until: float


class AssertionHeader(msgspec.Struct, frozen=True):
    """The header in which an identity-aware proxy sends its signed assertion of the person."""

    header: str
    """In lower case."""
    person: Callable[[str], Awaitable[Asserted | str]]
    """Verifies an assertion. A text is the reason of a refusal, from a finite set. Raises Unavailable without keys."""


class Web(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of the page and the API: plain callables and values, so that a fake takes a few lines."""

    store: ReviewStore
    person: Callable[[str], Person | None]
    """The user with a token; looked up each time, so that a reload takes effect at once."""
    known: Callable[[bytes], Person | None] = lambda _: None
    """The user with the SHA-256 of a token. Sessions of the page use it, so that a revoked token ends them."""
    url: str
    """The listener's public base URL, without a slash at its end: ``https://reviews.example.com``."""
    wall: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    log: Log
    version: str
    count: Callable[..., None] = lambda *_, **__: None
    """Takes a metric's name, and labels as keywords."""
    hosts: tuple[str, ...] = ()
    """Permitted Host headers, in addition to that of ``url`` and this machine's own."""
    assertion: Callable[[], AssertionHeader | None] = lambda: None
    """How a proxy identifies people; asked each time, so that a reload takes effect at once. None: no proxy does."""
    one_use: Callable[[str], Person | None] | None = None
    """The user of the code in a one-use sign-in link, which the call uses up. None: there are no such links."""
    cookie: str = "samplegate"
    """The name of the session cookie. Browsers share cookies between the ports of a host."""
    session: int = 43_200
    """Seconds that a user stays signed in at the page."""
