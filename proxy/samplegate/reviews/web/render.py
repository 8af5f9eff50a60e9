"""Responses with pages from templates, static files, pictures and raw JSON.

Templates have autoescape on; an undefined name is an error.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import groupby
from typing import Any, Final

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from samplegate.money import dollars
from samplegate.reviews.review import Review, ReviewEvent
from samplegate.reviews.views import EVENT_MEANINGS
from samplegate.reviews.web import content, context
from samplegate.reviews.web.context import Person, Web
from samplegate.reviews.web.visible import hides, plain, visible

TYPES: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "sign_in.js": "text/javascript; charset=utf-8",
    "ui.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_KEEP: Final = "public, max-age=31536000, immutable"


@lru_cache(maxsize=len(TYPES))
def _read(name: str) -> tuple[bytes, str]:
    data = files("samplegate.reviews.web").joinpath("static", name).read_bytes()
    return data, hashlib.sha256(data).hexdigest()[:16]


def address(name: str) -> str:
    """The URL of a static file, with its digest, so that a new version has a new URL."""
    return f"/reviews/static/{name}?{_read(name)[1]}"


async def serve(request: Request) -> Response:
    """A static file. Only listed names are served, so a request cannot reach other files."""
    name = request.path_params["name"]
    if name not in TYPES:
        return PlainTextResponse("file not found\n", 404)
    data, digest = _read(name)
    keep = _KEEP if request.url.query == digest else "no-cache"
    return Response(data, 200, {"cache-control": keep}, TYPES[name])


ROUTE: Final = Route("/reviews/static/{name}", serve)

MAX_LINES: Final = 50


class HistoryLine(msgspec.Struct, frozen=True):
    """An event in the history, or several equal ones: ``event`` is the last of them."""

    event: ReviewEvent
    count: int
    meaning: str


def lines(events: Sequence[ReviewEvent]) -> tuple[HistoryLine, ...]:
    """The last lines of a history, in order.

    A request that is put off joins again at each retry; consecutive joins share one line.
    """
    found: list[HistoryLine] = []
    for what, some in groupby(events, lambda event: event.what):
        alike = list(some)
        meaning = EVENT_MEANINGS.get(what, "")
        found += (
            [HistoryLine(alike[-1], len(alike), meaning)]
            if what == "joined"
            else [HistoryLine(event, 1, meaning) for event in alike]
        )
    return tuple(found[-MAX_LINES:])


HEADERS: Final = {
    "x-dns-prefetch-control": "off",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=(), clipboard-read=()",
}
"""Headers of pages, in addition to those of every response (``security.py``)."""


def page(
    web: Web, request: Request, template: str, *, status: int = 200, person: Person | None = None, **values: Any
) -> Response:
    """A page from ``templates/``. ``person``: the user in the top bar; ``values``: the template's own variables."""
    values = {"form_token": "", "here": request.url.path, **values}
    html = _environment().get_template(template).render(web=web, now=web.store.wall(), person=person, **values)
    return HTMLResponse(html, status, HEADERS)


def part(template: str, **values: Any) -> str:
    """A part of a page, which the page's script inserts."""
    return _environment().get_template(template).render(**values)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("samplegate.reviews.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "visible": visible,
        "plain": plain,
        "hides": hides,
        "span": context.span,
        "moment": context.moment,
        "stamp": context.stamp,
        "dollars": dollars,
        "size": context.size,
        "many": lambda count, one, more="": context.many(count, one, more),
    }
    made.globals["static"] = address
    return made


_SANDBOX: Final = {**HEADERS, "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}


def picture_of(review: Review, number: int) -> Response | None:
    """The picture with this number on the page; None if it does not exist or may not be shown."""
    block = next(itertools.islice(content.all_of(review), number, None), None)
    found = None if block is None else content.picture(block)
    if found is None or isinstance(found, str):
        return None
    return Response(found.data, 200, {**_SANDBOX, "content-disposition": "inline"}, found.type)


def raw_of(review: Review) -> Response:
    """The whole request as indented text."""
    whole = {"method": review.method, "params": review.params, "arguments": review.arguments}
    if review.answer is not None:
        whole["answer"] = review.answer
    text = json.dumps(whole, indent=2, ensure_ascii=True)  # escape non-ASCII characters, so that none is hidden
    return Response(text, 200, {**_SANDBOX, "content-disposition": "inline"}, "text/plain; charset=utf-8")
