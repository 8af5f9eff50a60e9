"""The doors through which a server's requests come (T3), read into the items of a round. Nothing is decided here.

A pushed request, the ``inputRequests`` of an ``input_required`` result, the elicitations of a -32042 error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from samplegate.core import jsontext, names
from samplegate.core.capabilities import Offer
from samplegate.core.frames import Frame
from samplegate.core.parsing import strictjson
from samplegate.core.parsing.parse import parse
from samplegate.core.requests import BadRequest, ElicitationRequest, Origin, Request
from samplegate.core.session.rounds import ELICITATION, ROOTS, SAMPLING, Item

KINDS: Final = frozenset({SAMPLING, ELICITATION})
MAX_KEYS: Final = 64  # requests in one round; real ones have one to three
URL_ELICITATION_REQUIRED: Final = -32042
MAX_MEMBERS: Final = 64  # of one entry of a round; real ones have two
MAX_URL_ERROR: Final = 1024 * 1024  # bytes of a -32042 error that is taken apart; real ones have one or two URLs
_OF_URL_ERRORS: Final = frozenset({"elicitations"})
_OF_ENTRIES: Final = frozenset({"method", "params"})
INPUT_REQUIRED: Final = "input_required"
_SMALL: Final = 16 * 1024  # bytes of a frame in which searching is cheaper than reading
_OF_RESULTS: Final = frozenset({"resultType", "inputRequests", "requestState"})
_OF_CALLS: Final = frozenset({"resultType", "content", "structuredContent", "isError", "_meta"})
"""Members of most results: none of them resembles one of an input round."""
_COMPLETE: Final = msgspec.Raw(b'"complete"')
_TYPES: Final = frozenset({INPUT_REQUIRED, "complete", "task"})


def item(method: str, params: bytes | None, origin: Origin, offer: Offer) -> Item:
    """One request, parsed, with whether it was declared at its grain (R8, R31, R61)."""
    parsed = parse(method, params, origin)
    return Item(method, params, parsed, _offered(method, parsed, offer))


def _offered(method: str, request: Request | BadRequest, offer: Offer) -> bool:
    if isinstance(request, BadRequest):
        return offer.sampling if method == SAMPLING else offer.form or offer.url
    if isinstance(request, ElicitationRequest):
        return offer.url if request.mode == "url" else offer.form
    asks_tools = "tools" in request.params or "toolChoice" in request.params
    return offer.sampling and (offer.sampling_tools or not asks_tools)


def resembles_a_kind(method: str) -> bool:
    """Whether a lenient parser takes a method that is neither sampling nor elicitation for one of them."""
    return method.strip() in KINDS or names.resembles(method.strip(), KINDS)


class InputRequired(msgspec.Struct, frozen=True):
    """An ``input_required`` result, taken apart."""

    items: Mapping[str, Item]
    roots: Mapping[str, bytes]
    """Keys that ask for roots, with the entry as it stands."""
    entries: Mapping[str, bytes]
    """Every key's entry as the server wrote it."""
    state: bytes | None
    """``requestState`` as raw JSON, None if there was none (T9)."""


def result_type(result: jsontext.Object) -> str | None:
    """``resultType`` of a result, None where it has none. Raises jsontext.Malformed for a result of two readings.

    Clients of both eras look at its members by one model, so they count in every era.
    """
    found = result.members
    if found.keys() <= _OF_CALLS and found.get("resultType") == _COMPLETE:
        return "complete"
    if (name := names.resembling(found, _OF_RESULTS)) is not None:
        raise jsontext.Malformed(f"its result has {name[:20]!r}, which resembles a member of the protocol")
    raw = result.raw("resultType")
    said = None if raw is None or raw == b"null" else jsontext.string(raw) or ""
    if said is not None and (not said or "\0" in said or names.resembles(said, _TYPES)):
        raise jsontext.Malformed("its resultType is none that all parsers read alike")
    if said != INPUT_REQUIRED and ("inputRequests" in found or "requestState" in found):
        raise jsontext.Malformed("its result asks for input without the resultType that says so")
    return said


def has_no_type(result: bytes) -> bool:
    """Cheap and safe: True only if no parser, however lenient, finds a member of an input round in a frame. A large frame has to be read."""
    if len(result) > _SMALL or result.find(b"resultType") >= 0 or not result.isascii():
        return False
    loose = result.decode().lower().replace("_", "")
    return "\\u" not in loose and "resulttype" not in loose and "inputrequests" not in loose and "requeststate" not in loose


def may_say(text: bytes, word: bytes) -> bool:
    """Cheap and safe: False only if no JSON spelling of ``word`` can stand in the text.

    One byte is searched for ten times faster than two, and most large texts hold no escape at all.
    """
    if word in text:
        return True
    return b"\\" in text and (b"\\u" in text or (b"/" in word and b"\\/" in text))


def input_required(result: jsontext.Object, origin: Origin, offer: Offer) -> InputRequired | str:
    """The requests of an ``input_required`` result (R60), or what is wrong with it."""
    state, asked = result.raw("requestState"), result.raw("inputRequests")
    state = None if state == b"null" else state
    if state is not None and not _is_text(state):
        return "its requestState is not a string"
    if asked is None or asked == b"null":
        return InputRequired({}, {}, {}, state) if state is not None else "it has neither inputRequests nor requestState"
    entries = result.inner("inputRequests")
    if entries is None:
        return "its inputRequests is not an object"
    count = len(entries.members)
    if not count and state is None:
        return "it has neither inputRequests nor requestState"
    if count > MAX_KEYS:
        return f"it asks {count} things at once, more than {MAX_KEYS}"
    try:
        strictjson.check_values(bytes(asked) if count > 1 else b"")  # all of them together have as many as one may have
    except strictjson.Fault as fault:
        return f"its inputRequests are too large: {fault}"
    return _sorted(entries, origin, offer, state)


def _is_text(raw: bytes) -> bool:
    """Whether raw JSON is a string, in UTF-8."""
    try:
        return raw[:1] == b'"' and bool(raw.decode())
    except UnicodeDecodeError:
        return False


def _sorted(entries: jsontext.Object, origin: Origin, offer: Offer, state: bytes | None) -> InputRequired | str:
    items: dict[str, Item] = {}
    roots: dict[str, bytes] = {}
    texts = {key: bytes(raw) for key, raw in entries.members.items()}
    for key, raw in texts.items():
        entry = entries.inner(key)
        if entry is None:
            return "an entry of its inputRequests is not an object"
        if len(entry.members) > MAX_MEMBERS:
            return f"an entry of its inputRequests has more than {MAX_MEMBERS} members"
        for name in entry.members:
            if names.resembles(name, _OF_ENTRIES):
                return "an entry of its inputRequests has a member that resembles one of the protocol"
        method = jsontext.string(entry.raw("method"))
        if method == ROOTS:
            roots[key] = raw
        elif method in KINDS:
            items[key] = item(method, entry.raw("params"), origin, offer)
        else:
            return "an entry of its inputRequests is neither sampling, elicitation nor roots"
    return InputRequired(items, roots, texts, state)


def url_elicitations(error: Frame, origin: Origin, offer: Offer) -> Mapping[str, Item] | None:
    """The elicitations of a -32042 error (R44), None if the error is another one. Raises jsontext.Malformed for data of two readings."""
    if error.code != URL_ELICITATION_REQUIRED:
        return None
    data = error.object.inner("data") if len(error.raw) <= MAX_URL_ERROR else None
    if data is not None and (name := names.second_reading(data.members, _OF_URL_ERRORS)) is not None:
        raise jsontext.Malformed(f"the data of its error has {name[:20]!r}, which resembles a member of the protocol")
    raw = None if data is None else data.raw("elicitations")
    try:
        entries = [] if raw is None else msgspec.json.decode(raw, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        entries = []
    items = {str(number): item(ELICITATION, bytes(params), origin, offer) for number, params in enumerate(entries[:MAX_KEYS])}
    return items if entries and len(entries) <= MAX_KEYS else {"0": item(ELICITATION, b"{}", origin, offer)}
