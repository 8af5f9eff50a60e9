"""Templates -> pages, with the headers that keep a hostile text a text. Autoescape is always on; an undefined name is a fault, not a blank."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from samplegate.web import words
from samplegate.web.assets import address
from samplegate.web.context import Person, Web
from samplegate.web.visible import hides, plain, visible

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # no-referrer would make browsers say `Origin: null` of our own forms
    "x-frame-options": "DENY",
    "x-dns-prefetch-control": "off",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=(), clipboard-read=()",
    "cache-control": "no-store",
}
"""Nothing inline, nothing from elsewhere, nothing kept."""


def page(web: Web, request: Request, template: str, *, status: int = 200, person: Person | None = None, **values: Any) -> Response:
    """One page of ``templates/``. ``person``: who is signed in, for the bar at the top; ``values`` are the template's own names."""
    values = {"form_token": "", "here": request.url.path, **values}
    html = _environment().get_template(template).render(web=web, now=web.wall(), person=person, **values)
    return HTMLResponse(html, status, HEADERS)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = Environment(loader=PackageLoader("samplegate.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {
        "visible": visible,
        "plain": plain,
        "hides": hides,
        "span": words.span,
        "moment": words.moment,
        "stamp": words.stamp,
        "dollars": words.dollars,
        "size": words.size,
        "many": lambda count, one, more="": words.many(count, one, more),
    }
    made.globals["static"] = address
    return made
