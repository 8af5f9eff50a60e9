"""The reviewers' REST API as a program of three calls would use it: what waits, one review, a verdict. Standard library only."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

TIMEOUT: Final = 30.0

DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The gate is on this machine: no proxy of the environment is in the way."""


class Refused(Exception):
    """The API answered with an error, or not at all."""


class Api:
    """One person at one gate."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    def waiting(self) -> list[dict[str, Any]]:
        """The reviews that wait for a verdict, each without its content."""
        found: list[dict[str, Any]] = self._ask("/v1/reviews?state=pending")["reviews"]
        return found

    def review(self, id: str) -> dict[str, Any]:
        """One with all of its content."""
        return self._ask(f"/v1/reviews/{id}")

    def decide(self, review: Mapping[str, Any], **verdict: Any) -> dict[str, Any]:
        """Give a verdict on what was shown."""
        return self._ask(f"/v1/reviews/{review['id']}/verdict", {"digest": review["digest"], **verdict})

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers)
        try:
            with DIRECT.open(request, timeout=TIMEOUT) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as problem:
            with problem:
                said = problem.read(2000).decode("utf-8", "replace")
            raise Refused(f"{path.partition('?')[0]}: {problem.code}: {said}") from None
        except (OSError, ValueError) as problem:
            raise Refused(f"{path.partition('?')[0]}: {problem}") from None
