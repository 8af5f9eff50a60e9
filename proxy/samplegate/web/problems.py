"""What the API answers where it does not do what was asked: problem details (RFC 9457), as values. No message content, no secret."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

PROBLEM: Final = "application/problem+json"
CHALLENGE: Final[Mapping[str, str]] = {"www-authenticate": 'Bearer realm="samplegate reviews"'}
"""What a 401 names (RFC 6750)."""


def problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """A response: ``type``, ``title`` and ``status`` by the status, ``detail`` in a sentence, and members of its own."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return Response(json.dumps(body), status, headers, PROBLEM)


def unfit(problems: Sequence[tuple[str, str]]) -> Response:
    """422: something in the request is wrong, each with its place."""
    told = [{"path": path, "what": what} for path, what in problems]
    return problem(422, "the request has problems; each says where and what", problems=told)


def unknown() -> Response:
    """401: nobody is known by what was given, or nothing was."""
    return problem(401, "no token that is known; send `Authorization: Bearer` and a token of `people` in the settings", headers=CHALLENGE)


def missing() -> Response:
    """404: there is no such review, or it is not for this person; which of both is not told."""
    return problem(404, "there is no such review for this token")
