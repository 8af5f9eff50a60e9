"""Pure. The template of a webhook's own message (``format: json``): which fields its texts may name, and its faults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

DEFAULT_CUT: Final = 1_000
"""Characters of a field, unless the template gives another number."""
MAX_CUT: Final = 10_000
MAX_BODY: Final = 64 * 1024
"""Bytes of a template as JSON; those of real ones have some hundred."""
MAX_DEPTH: Final = 20
FIELDS: Final[Mapping[str, str]] = {
    "event": "what happened: `review.opened`, or how the review ended",
    "title": "the kind of request and its server",
    "summary": "the request, as far as the rule's `show` allows",
    "kind": "`sampling`, `form` or `url`",
    "server": "the server's name",
    "caller": "the caller's name",
    "tool": "the tools of the calls that the request may belong to",
    "rule": "the rule that escalated",
    "reviewer": "the reviewer's name",
    "state": "the review's state, such as `pending` or `approved`",
    "who": "who decided, if anybody has",
    "id": "the review's ID",
    "link": "the address of the review on the page",
    "expires": "the end of the review, in ISO 8601",
    "secret": "the text of `secret_file` or `secret_env`",
}
"""The fields, and what they contain."""
FIELD: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_]*)(?::([0-9]{1,5}))?\}|[{}]")


Place: TypeAlias = tuple[str | int, ...]


def faults(body: object, path: Place = (), depth: int = 0) -> Iterator[tuple[Place, str]]:
    """The problems of a template, each with its place."""
    if depth > MAX_DEPTH:
        yield path, f"the body has more than {MAX_DEPTH} levels"
    elif isinstance(body, Mapping):
        for name, value in body.items():
            yield from faults(value, (*path, str(name)), depth + 1)
    elif isinstance(body, list):
        for index, value in enumerate(body):
            yield from faults(value, (*path, index), depth + 1)
    elif isinstance(body, str):
        yield from ((path, why) for why in _text_faults(body))


def _text_faults(text: str) -> Iterator[str]:
    for found in FIELD.finditer(text):
        name, cut = found[1], found[2]
        if found[0] in ("{", "}"):
            yield f"a single {found[0]} is not a field; write {found[0] * 2} for the character"
        elif name is not None and name not in FIELDS:
            yield f"there is no field {{{name}}}; use one of {', '.join(FIELDS)}"
        elif cut is not None and not 0 < int(cut) <= MAX_CUT:
            yield f"a field is cut to 1 to {MAX_CUT} characters"


def names_field(body: object, name: str) -> bool:
    """Whether a template names a field."""
    if isinstance(body, Mapping):
        return any(names_field(value, name) for value in body.values())
    if isinstance(body, list):
        return any(names_field(value, name) for value in body)
    return isinstance(body, str) and any(found[1] == name for found in FIELD.finditer(body))
