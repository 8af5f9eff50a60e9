"""What the operators' listener answers: lines for people, the same as JSON for programs. It knows no route."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from samplegate.admin.asked import Asked

MAX_LINES: Final = 200  # of one answer; a policy may have more problems than anybody reads at once
LINE: Final = 2000  # characters
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class Answer(msgspec.Struct, frozen=True):
    """One HTTP response."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    def messages(self, asked: Asked) -> list[dict[str, Any]]:
        """As ASGI sends it; without its body, but with its length, for HEAD."""
        headers = {
            "content-type": self.content_type,
            "content-length": str(len(self.body)),
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **({"connection": "close"} if asked.has_body else {}),  # the body was not read
            **dict(self.headers),
        }
        start = {
            "type": "http.response.start",
            "status": self.status,
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        }
        return [start, {"type": "http.response.body", "body": b"" if asked.method == "HEAD" else self.body}]


def lines(status: int, found: Sequence[str], headers: Iterable[tuple[str, str]] = ()) -> Answer:
    """Text, each item a line of its own whatever is in it."""
    shown = [_line(line) for line in found[:MAX_LINES]]
    if len(found) > MAX_LINES:
        shown.append(f"and {len(found) - MAX_LINES} more")
    return Answer(status, "".join(f"{line}\n" for line in shown).encode("utf-8", "backslashreplace"), TEXT, tuple(headers))


def json(status: int, value: object) -> Answer:
    """Structs and plain values."""
    return Answer(status, msgspec.json.encode(value) + b"\n", JSON)


def _line(text: str) -> str:
    cut = text if len(text) <= LINE else text[: LINE - 1] + "…"
    return cut if cut.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
