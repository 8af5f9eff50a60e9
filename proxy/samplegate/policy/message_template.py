"""Pure. The template of a webhook's own message (``format: json``): which fields its texts may name, and its faults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from samplegate.yamlfile.validate import did_you_mean

DEFAULT_CUT: Final = 1_000
"""Characters of a field, unless the template gives another number."""
MAX_CUT: Final = 10_000
MAX_BODY: Final = 64 * 1024
"""Bytes of a template as JSON; those of real ones have some hundred."""
MAX_FILLED: Final = 32_000
"""Characters of a template with all fields at their maximum; the receivers of notifications take less."""
MAX_OWN: Final = 2_000
"""Characters of fields that are not cut, such as a link: an upper bound of what they have."""
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
OURS: Final = frozenset({"id", "link", "expires", "secret", "event", "state"})
"""Fields that the gate or the operator wrote: they stay as they are."""
FIELD: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_]*)(?::([0-9]{1,5}))?\}|[{}]")


Place: TypeAlias = tuple[str | int, ...]


def faults(body: object, path: Place = (), depth: int = 0) -> Iterator[tuple[Place, str]]:
    """The problems of a template, each with its place."""
    if depth > MAX_DEPTH:
        yield path, f"the body has more than {MAX_DEPTH} levels"
    elif isinstance(body, Mapping):
        name = next(iter(body), None)
        if name in FIELDS and list(body.values()) == [None]:
            yield path, f"this is a mapping, not a field; quote it: '{{{name}}}'"
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
            known = did_you_mean(name, FIELDS) or f"; use one of {', '.join(FIELDS)}"
            yield f"there is no field {{{name}}}{known}"
        elif cut is not None and name in OURS:
            yield f"the field {{{name}}} is never cut; remove the number"
        elif cut is not None and not 0 < int(cut) <= MAX_CUT:
            yield f"a field is cut to 1 to {MAX_CUT} characters"


def size(body: object) -> int:
    """The characters of a template with all of its fields at their maximum."""
    if isinstance(body, Mapping):
        return sum(len(str(name)) + 4 + size(value) for name, value in body.items()) + 2
    if isinstance(body, list):
        return sum(map(size, body)) + 2
    if not isinstance(body, str):
        return 8
    fields = [found for found in FIELD.finditer(body) if found[1] is not None]
    return len(body) + 2 + sum(MAX_OWN if found[1] in OURS else int(found[2] or DEFAULT_CUT) for found in fields)


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and a mark, with at most ``most`` characters. Those outside of the Basic Multilingual
    Plane, such as most emoji, count twice, because some services count in UTF-16."""
    if len(text) <= most and len(text) + sum(map(_is_wide, text)) <= most:
        return text
    kept, length = 0, 1
    for character in text[:most]:
        length += 2 if _is_wide(character) else 1
        if length > most:
            break
        kept += 1
    return f"{text[:kept]}…"


def _is_wide(character: str) -> bool:
    return character > "\uffff"


def names_field(body: object, name: str) -> bool:
    """Whether a template names a field."""
    if isinstance(body, Mapping):
        return any(names_field(value, name) for value in body.values())
    if isinstance(body, list):
        return any(names_field(value, name) for value in body)
    return isinstance(body, str) and any(found[1] == name for found in FIELD.finditer(body))
