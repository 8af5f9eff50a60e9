"""The page's own style and scripts: a few files, read once, named by what is in them so that browsers may keep them."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

TYPES: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "sign_in.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_KEEP: Final = "public, max-age=31536000, immutable"


@lru_cache(maxsize=len(TYPES))
def _read(name: str) -> tuple[bytes, str]:
    data = files("samplegate.web").joinpath("static", name).read_bytes()
    return data, hashlib.sha256(data).hexdigest()[:16]


def address(name: str) -> str:
    """Where a page finds the file, with its digest: a new one has a new address."""
    return f"/reviews/static/{name}?{_read(name)[1]}"


async def serve(request: Request) -> Response:
    """One of our files. Nothing of the file system is reached by a name that somebody sends."""
    name = request.path_params["name"]
    if name not in TYPES:
        return PlainTextResponse("there is no such file\n", 404)
    data, digest = _read(name)
    keep = _KEEP if request.url.query == digest else "no-cache"
    headers = {"cache-control": keep, "x-content-type-options": "nosniff", "cross-origin-resource-policy": "same-origin"}
    return Response(data, 200, headers, TYPES[name])


ROUTE: Final = Route("/reviews/static/{name}", serve)
