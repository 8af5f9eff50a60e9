"""Pure. Facts about a request for the conditions of rules, each computed once and only when needed. ``match.py`` tests
them.

Two values are special. ABSENT: the request does not have the fact (a form has no host), so no condition on it holds.
UNKNOWN: the fact may have any value, so a condition on it neither holds nor fails. Examples are the facts that
``Known`` lacks, an ambiguous URL, and a form that may ask for more than its properties.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from samplegate import secret_names
from samplegate.protocol import rawjson, strictjson
from samplegate.protocol.elicitation_schema import Field, Form, NotFlat, all_names, read_fields, read_form, schema_fault
from samplegate.protocol.identity import Identity
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.requests import Call, Request
from samplegate.regex import Search, utf8
from samplegate.urls import Target, is_web, target


class Special(Enum):
    """Special values of facts."""

    ABSENT = "absent"
    UNKNOWN = "unknown"
    NO_CALL = "no call in flight"


ABSENT: Final = Special.ABSENT
UNKNOWN: Final = Special.UNKNOWN
NO_CALL: Final = Special.NO_CALL

Calls: TypeAlias = tuple[Call, ...] | Literal[Special.UNKNOWN]

_MAX_NAMES: Final = 10_000  # in one form; every expression of the policy is searched for in each name
_MAX_ITEMS: Final = 1_000  # of a list in a claim
_INNER: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
"""Content types within a tool's result."""


class _Values:
    """Values within a JSON object, by path.

    A value is UNKNOWN if it has two readings (duplicate members, names that a lenient parser confuses, numbers and
    texts that parsers read differently), or if the object is not known.
    """

    def __init__(self, text: bytes | None) -> None:
        """``text`` is raw JSON; None if it is not known."""
        self._text = text
        self._raw: dict[tuple[str, ...], Any] = {}
        self._members: dict[tuple[str, ...], Mapping[str, Any] | None] = {}

    def _whole(self, text: bytes) -> Any:
        """The object in the text, ABSENT, or UNKNOWN. Raises Malformed."""
        return text

    def raw(self, path: tuple[str, ...]) -> Any:
        """The raw value at a path, ABSENT, or UNKNOWN."""
        found = self._raw.get(path)
        if found is None:
            found = self._raw[path] = self._read(path)
        return found

    def _read(self, path: tuple[str, ...]) -> Any:
        try:
            if not path:
                return UNKNOWN if self._text is None else self._whole(self._text)
            *parent, name = path
            outer = self.raw(tuple(parent))
            if not isinstance(outer, bytes):
                return outer
            if outer[:1] != b"{":
                return UNKNOWN
            if (members := self._members.get(tuple(parent))) is None:
                members = self._members[tuple(parent)] = rawjson.fields(outer)
            if strictjson.resembling(members, frozenset((name,))) is not None:
                return UNKNOWN
            raw = members.get(name)
            return ABSENT if raw is None else bytes(raw)
        except Malformed:
            return UNKNOWN


class Arguments(_Values):
    """The arguments of one call, read from its params as the client sent them."""

    def _whole(self, text: bytes) -> Any:
        found = rawjson.lookup(text, "arguments")
        return ABSENT if found in (None, b"null") else found

    def at(self, path: tuple[str, ...]) -> Any:
        """The text, number or boolean at a path, ABSENT, or UNKNOWN, as for a list, an object or null. Without
        ``arguments``, all are ABSENT."""
        found = self.raw(path)
        return _scalar(found) if isinstance(found, bytes) else found


class Claims(_Values):
    """The claims of one token, read as the issuer wrote them."""

    def _whole(self, text: bytes) -> Any:
        if b"\\" not in text:
            return text.strip()
        try:  # some issuers escape the slashes in names
            return json.dumps(strictjson.decode(text), ensure_ascii=False).encode()
        except (strictjson.JsonFault, UnicodeEncodeError):
            return UNKNOWN

    def at(self, path: tuple[str, ...]) -> Any:
        """The text, number or boolean at a path; a tuple of these for a list, in which an item may be UNKNOWN; ABSENT;
        or UNKNOWN, as for an object or null."""
        found = self.raw(path)
        if not isinstance(found, bytes):
            return found
        if found[:1] != b"[":
            return _scalar(found)
        try:
            return tuple(map(_scalar, rawjson.elements(found, _MAX_ITEMS)))
        except Malformed:
            return UNKNOWN


_MAX_WHOLE: Final = 1 << 63
"""Parsers disagree about whole numbers beyond 64 bits."""


def _scalar(raw: bytes) -> Any:
    if raw[:1] == b'"':
        text = rawjson.string(raw)
        # for programs in C, a NUL ends a text
        return UNKNOWN if text is None or "\0" in text or not _is_utf8(text) else text
    if raw in (b"true", b"false"):
        return raw == b"true"
    if raw[:1] in b"-0123456789":
        try:
            number = json.loads(raw)
        except ValueError:  # too many digits
            return UNKNOWN
        if isinstance(number, int):
            return number if -_MAX_WHOLE <= number < _MAX_WHOLE else UNKNOWN
        return number if math.isfinite(number) else UNKNOWN
    return UNKNOWN


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def identity_facts(identity: Identity) -> tuple[Any, Claims]:
    """The groups and claims of a caller."""
    return UNKNOWN if identity.groups is None else identity.groups or ABSENT, Claims(identity.claims)


class Candidate(NamedTuple):
    """A call to which a request may belong, and its arguments (``Arguments``, or UNKNOWN)."""

    call: Call
    arguments: Any = UNKNOWN


class During:
    """The facts that differ between candidate calls, and between the tokens that came with them."""

    tool: Any = UNKNOWN
    method: Any = UNKNOWN
    arguments: Any = UNKNOWN
    groups: Any = UNKNOWN
    claims: Any = UNKNOWN

    def by_identity(self) -> Iterator[None]:
        """Set the facts to those of each identity that the caller may have, in turn; at least once."""
        yield

    def during(self, candidate: Candidate | None) -> None:
        """Set the facts to those of a call; None means that no call is in flight."""
        if candidate is None:
            self.tool, self.method, self.arguments = NO_CALL, ABSENT, ABSENT
        else:
            call = candidate.call
            self.tool, self.method = ABSENT if call.tool is None else call.tool, call.method
            self.arguments = candidate.arguments


class Known(During):
    """Facts that are known before a request arrives; all others are UNKNOWN."""

    calls: Calls

    def __init__(self, calls: Calls, facts: Mapping[str, object]) -> None:
        self.calls = calls
        self.__dict__.update(facts)
        if calls is not UNKNOWN:
            self.during(Candidate(calls[0]) if calls else None)

    def candidates(self, exactly: bool) -> tuple[Candidate, ...]:
        """The calls, whose arguments are UNKNOWN."""
        return () if self.calls is UNKNOWN else tuple(map(Candidate, self.calls))

    def __getattr__(self, name: str) -> Any:
        return UNKNOWN


class Facts(During):
    """The facts of one request, cached for one decision."""

    def __init__(self, request: Request, finders: Mapping[str, Search] = MappingProxyType({})) -> None:
        """``finders`` match what any expression of the policy matches, for ``text`` and ``field_names``. Texts without
        a match are dropped."""
        self._finders = finders
        origin = request.origin
        self.request = request
        self.calls: tuple[Call, ...] = origin.calls
        self.during(Candidate(origin.calls[0]) if origin.calls else None)
        self.kind = request.kind
        self.server = origin.server
        self.caller = origin.caller
        self.era = origin.era
        self.size = request.size
        self.mode: Any = ABSENT if request.kind == "sampling" else request.mode
        self.is_url = self.mode == "url"
        self.is_form = self.mode == "form"
        self.is_sampling = request.kind == "sampling"

    def by_identity(self) -> Iterator[None]:
        """Set the facts to those of each identity that the caller may have, in turn; at least once."""
        for groups, claims in self._identities:
            self.groups, self.claims = groups, claims
            yield

    @cached_property
    def _identities(self) -> tuple[tuple[Any, Claims], ...]:
        found = self.request.origin.identities or (Identity(self.caller),)
        return tuple(map(identity_facts, found))

    def candidates(self, exactly: bool) -> tuple[Candidate, ...]:
        """The calls to which the request may belong. With ``exactly``, those that differ only in their arguments are
        several."""
        return self._exact if exactly else self._plain

    @cached_property
    def _plain(self) -> tuple[Candidate, ...]:
        return tuple(map(Candidate, self.calls))

    @cached_property
    def _exact(self) -> tuple[Candidate, ...]:
        origin = self.request.origin
        if not origin.params:
            return self._plain
        pairs = zip(origin.calls, origin.params, strict=True)
        return tuple(Candidate(call, Arguments(params)) for call, all_of_it in pairs for params in all_of_it)

    def _param(self, name: str) -> Any:
        """A param of a sampling request; null counts as absent."""
        value = self.request.params.get(name) if self.is_sampling else None
        return ABSENT if value is None else value

    @cached_property
    def max_tokens(self) -> Any:
        """The requested output tokens."""
        return self._param("maxTokens")

    @cached_property
    def messages(self) -> Any:
        """The number of messages."""
        return len(self.request.params["messages"]) if self.is_sampling else ABSENT

    @cached_property
    def blocks(self) -> tuple[Mapping[str, Any], ...]:
        """All content blocks of all messages."""
        return tuple(_blocks(self.request.params["messages"])) if self.is_sampling else ()

    @cached_property
    def content_types(self) -> Any:
        """The types of all blocks, including those in a tool's result; there, "other" stands for an unknown type."""
        return frozenset(type_ for block in self.blocks for type_ in _types(block)) if self.is_sampling else ABSENT

    @cached_property
    def tools(self) -> Any:
        """Whether the request has tools."""
        return bool(self.request.params.get("tools")) if self.is_sampling else ABSENT

    @cached_property
    def system_prompt(self) -> Any:
        """UTF-8; empty if there is none."""
        return utf8(self.request.params.get("systemPrompt") or "") if self.is_sampling else ABSENT

    @cached_property
    def texts(self) -> Any:
        """The texts in UTF-8, kept apart: an anchored expression applies to each of them."""
        return self._worth_searching("text", tuple(map(utf8, self._all_texts())))

    def _worth_searching(self, condition: str, texts: tuple[bytes, ...]) -> tuple[bytes, ...]:
        find = self._finders.get(condition)
        return texts if find is None else tuple(text for text in texts if find(text) is not None)

    def _all_texts(self) -> Iterator[str]:
        if not self.is_sampling:
            yield self.request.params["message"]
            return
        for block in self.blocks:
            yield from _texts(block)

    @cached_property
    def hints(self) -> Any:
        """The names of the hints in lower case, without empty ones (R21)."""
        return tuple(name.lower() for name in hint_names(self.request.params)) if self.is_sampling else ABSENT

    @cached_property
    def properties(self) -> Any:
        """The form's properties by name, valid or not."""
        if not self.is_form:
            return ABSENT
        found = self.request.params["requestedSchema"].get("properties")
        return found if isinstance(found, dict) else {}

    @cached_property
    def _asks_more(self) -> bool:
        """Whether a form may ask for more than its properties: by allOf, $ref, patternProperties, or a required name
        that it does not describe."""
        return schema_fault(self.request.params["requestedSchema"]) is not None

    @cached_property
    def fields(self) -> Any:
        """The names of a form's fields; UNKNOWN if there may be more."""
        if not self.is_form:
            return ABSENT
        return UNKNOWN if self._asks_more else frozenset(self.properties)

    @cached_property
    def field_names(self) -> Any:
        """The names in UTF-8, including those in nested schemas, so that nesting does not bypass a rule against
        secrets. UNKNOWN above _MAX_NAMES."""
        if not self.is_form:
            return ABSENT
        names = tuple(islice(all_names(self.request.params["requestedSchema"]), _MAX_NAMES + 1))
        return UNKNOWN if len(names) > _MAX_NAMES else self._worth_searching("field_names", tuple(map(utf8, names)))

    @cached_property
    def form(self) -> Form | NotFlat:
        """The form read as a flat one, once for all rules. Only if ``is_form``."""
        return read_form(self.request.params["requestedSchema"], self.request.origin.revision)

    @cached_property
    def secret_fields(self) -> frozenset[str]:
        """The form's fields that look secret (R39). Only if ``is_form``."""
        return secret_names.secret_fields(self.request.params["requestedSchema"])

    @cached_property
    def field_types(self) -> Any:
        """The types of the flat fields; "" stands for a field that is not flat. UNKNOWN if there may be more fields."""
        if not self.is_form:
            return ABSENT
        if self._asks_more:
            return UNKNOWN
        found = (
            self.form.fields
            if isinstance(self.form, Form)
            else read_fields(self.request.params["requestedSchema"], self.request.origin.revision)
        )
        return frozenset(field.type if isinstance(field, Field) else "" for field in found)

    @cached_property
    def _address(self) -> Target | None:
        return target(self.request.params["url"]) if self.is_url else None

    @cached_property
    def host(self) -> Any:
        """The host in ASCII. UNKNOWN also for a URL without a host (``javascript:``), because its target is unclear."""
        if not self.is_url:
            return ABSENT
        return UNKNOWN if self._address is None else self._address.host or UNKNOWN

    @cached_property
    def scheme(self) -> Any:
        """The URL's scheme in lower case."""
        if not self.is_url:
            return ABSENT
        return UNKNOWN if self._address is None else self._address.scheme

    @cached_property
    def is_web(self) -> bool:
        """Whether the request has an http or https URL or no URL, as a rule without a scheme requires."""
        return not self.is_url or is_web(self.request.params["url"])


def hint_names(params: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a sampling request's model hints, in order, without empty ones (R21)."""
    hints = (params.get("modelPreferences") or {}).get("hints") or ()
    return tuple(name for hint in hints if (name := (hint.get("name") or "").strip()))


def _blocks(messages: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        content = message["content"]
        yield from content if isinstance(content, list) else (content,)


def _texts(block: Mapping[str, Any]) -> Iterator[str]:
    """The texts of one block: its own, or those in a tool's result, including embedded resources."""
    if block["type"] == "text":
        yield block["text"]
    elif block["type"] == "tool_result":
        for inner in block["content"]:
            resource = inner.get("resource")
            for holder in (inner, resource if isinstance(resource, dict) else {}):
                if isinstance(text := holder.get("text"), str):
                    yield text


def _types(block: Mapping[str, Any]) -> Iterator[str]:
    """The type of a block and, for a tool's result, the types of its content."""
    yield block["type"]
    if block["type"] == "tool_result":
        yield from (inner["type"] if inner["type"] in _INNER else "other" for inner in block["content"])
