"""Pure. A recorded request put to another policy: is it decided as it was. Pure; limits, brakes and time-outs are not
played again.

Where the log kept no contents, only what every record says is known (who asked what kind of thing, during what), and
the rules are asked in three values, as for what is declared (``policy/capabilities.py``): surely the same, surely
changed, or it cannot be told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, assert_never

import msgspec

from samplegate.audit.record import FULL, MAX_CALLS, RecordLine
from samplegate.policy import answers
from samplegate.policy.capabilities import can_forward
from samplegate.policy.conditions import TABLE, absent
from samplegate.policy.decide import CompiledPolicy, decide, effect_of
from samplegate.policy.decisions import Decision, DenyAs, FixedAnswer, Situation
from samplegate.policy.facts import ABSENT, UNKNOWN, Calls, Known
from samplegate.policy.schema import AllowRule, AnswerRule, DenyRule, EscalateRule, ForwardRule, Rule
from samplegate.protocol.requests import ELICITATION, SAMPLING, BadRequest, ClientCapabilities, Origin, Request, parse
from samplegate.protocol.strictjson import JsonFault, decode
from samplegate.secret_names import REMOVED, secret_fields, without_secrets

NO_CONTENTS: Final = (
    "the record has no contents, and the rules that may take it look at them; record with `record_content: full`"
)
NO_CLIENT: Final = "it depends on what the client had declared, which no record says; give --client"
REMOVED_PARTS: Final = (
    "it depends on what was removed from the record: secrets in a prompt, fields that look like one, the query of an"
    " address"
)
SHORTENED: Final = "names in the record were shortened"
UNREADABLE: Final = "its contents do not read as a request any more"
BRAKES: Final = "a brake decided it, and those are not replayed"
FAULT: Final = "a fault in the gate decided it"
UNASKED: Final = "the client answered unasked, and no request was decided"

_GRANTS: Final = frozenset({"allow", "answer", "forward", "escalate"})
_user: Final = re.compile(r"^([^/?#]*//)\[removed\]@")
_QUERY: Final = "?[removed]"
_STAND_INS: Final[tuple[Mapping[str, Any], ...]] = (
    {"type": "string"},
    {"type": "boolean"},
    {"type": "number"},
    {"type": "integer"},
    {"type": "string", "enum": ["a"]},
    {"type": "array", "items": {"type": "string", "enum": ["a"]}},
)
"""What a removed field may have been: it is tried as each."""


class ReplayedDecision(msgspec.Struct, frozen=True):
    """What a policy says to a request, as far as it is compared."""

    effect: str
    rule: str | None
    action: str | None = None
    """What a denied elicitation is answered."""
    answer: str | None = None
    """The JSON of a fixed answer's content, without what looks like a secret; None where it is not compared. Of a
    change only that it is another."""


class Same(msgspec.Struct, frozen=True):
    """Decided as it was."""


class Changed(msgspec.Struct, frozen=True):
    """Decided otherwise; ``now`` is what may come of it, one where that is sure."""

    was: ReplayedDecision
    now: tuple[ReplayedDecision, ...]


class Untold(msgspec.Struct, frozen=True):
    """Nobody can tell; ``why`` is one of the sentences above."""

    why: str


def replay(book: CompiledPolicy, line: RecordLine, client: ClientCapabilities | None = None) -> Same | Changed | Untold:
    """Hold one record against a policy. ``client`` is what the client had declared, None where nobody knows."""
    if (why := _beyond(line)) is not None:
        return Untold(why)
    if line.reason in ("malformed", "rounds"):
        return Same()  # no policy has a say in these
    if not bytes(line.request):
        return _compared(line, _possible(book, line, client), NO_CONTENTS)
    if line.redacted:  # the prompt in the record is not the one that was decided
        return _compared(line, _possible(book, line, client), REMOVED_PARTS)
    requests = _requests(line)
    if isinstance(requests, str):
        return Untold(requests)
    told = {_told(book, line, request, can) for request in requests for can in _can(line, request, client)}
    return _compared(line, told, NO_CLIENT if len(requests) == 1 else REMOVED_PARTS)


def _beyond(line: RecordLine) -> str | None:
    """Why no comparison would mean anything."""
    if line.door == "unasked":
        return UNASKED
    if line.reason == "brake":
        return BRAKES
    if line.reason == "error":
        return FAULT
    names = [line.server, line.caller, *(name for call in line.calls for name in (call.method, call.tool or ""))]
    return SHORTENED if len(line.calls) >= MAX_CALLS or any(len(name) >= FULL for name in names) else None


def _compared(line: RecordLine, told: set[ReplayedDecision], unsure: str) -> Same | Changed | Untold:
    same = [_is_same(line, one) for one in told]
    if all(same):
        return Same()
    if any(same):
        return Untold(unsure)
    now = {
        msgspec.structs.replace(one, answer=None if one.answer in (None, _answered(line)) else "another")
        for one in told
    }
    return Changed(
        ReplayedDecision(line.effect, line.rule, line.action if line.effect == "deny" else None),
        tuple(sorted(now, key=str)),
    )


def _is_same(line: RecordLine, now: ReplayedDecision) -> bool:
    if line.reason == "not_offered":  # the server was told not to ask; a policy that grants it tells it otherwise
        return now.effect not in _GRANTS
    if line.tried:  # time ran out before, or a limit had no room; the first rule is the one to compare
        return now.effect in _GRANTS and line.tried[0].startswith(f"{now.rule}: ")
    if line.reason == "limit":  # the rule took it, and limits are not replayed
        return now.effect in _GRANTS and line.rule == now.rule
    if (line.effect, line.rule) != (now.effect, now.rule):
        return False
    if now.action is not None and line.action is not None and line.outcome == "denied" and line.action != now.action:
        return False
    return now.answer is None or now.answer == _answered(line)


def _answered(line: RecordLine) -> str | None:
    """The content that was answered, to compare; None where the record does not say."""
    result = _decoded(line.result)
    return _content(result) if isinstance(result, dict) else None


def _content(result: Mapping[str, Any]) -> str:
    content = result.get("content")
    blocks = [content] if isinstance(content, dict) and "type" in content and "action" not in result else content
    return json.dumps([result.get("action"), blocks], sort_keys=True)


def _told(book: CompiledPolicy, line: RecordLine, request: Request, can: bool) -> ReplayedDecision:
    decision = decide(book, request, Situation(can_forward=can))
    return ReplayedDecision(decision.effect, decision.rule, _action(line, decision), _fixed(line, request, decision))


def _action(line: RecordLine, decision: Decision) -> str | None:
    return decision.act.as_ if isinstance(decision.act, DenyAs) and line.kind == "elicitation" else None


def _fixed(line: RecordLine, request: Request, decision: Decision) -> str | None:
    """A fixed answer, where the record says what the answer was."""
    if not isinstance(decision.act, FixedAnswer) or line.outcome != "answered" or not bytes(line.result):
        return None
    return _content(without_secrets(decision.act.result, secret_fields(request.params.get("requestedSchema"))))


# -- with contents
# ----------------------------------------------------------------------------------------------------------------------


def _requests(line: RecordLine) -> list[Request] | str:
    """The request, as each of what it may have been where fields were removed from the record; why there is none."""
    params = _decoded(line.request)
    if not isinstance(params, dict):
        return UNREADABLE
    method = SAMPLING if line.kind == "sampling" else ELICITATION
    origin = Origin(line.server, line.caller, line.era, line.revision, line.calls)
    parsed = [
        parse(method, json.dumps(one, separators=(",", ":"), ensure_ascii=False).encode(), origin)
        for one in _mended(params)
    ]
    found = [one for one in parsed if not isinstance(one, BadRequest)]
    return found if len(found) == len(parsed) else UNREADABLE


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return decode(bytes(raw))
    except JsonFault:
        return None


def _mended(params: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The params with something in place of what was removed, as each of what it may have been: in an address, and
    fields that look like secrets."""
    url = params.get("url")
    if isinstance(url, str):
        bare = _user.sub(r"\1user@", url.removesuffix(_QUERY))
        # an @ in a query may give an address a second reading (``urls.target``)
        queries = ("?x", "?@") if url.endswith(_QUERY) else ("",)
        yield from ({**params, "url": bare + query} for query in queries)
        return
    schema = params.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    removed = [name for name, field in fields.items() if _is_removed(field)] if isinstance(fields, dict) else []
    if not removed or not isinstance(schema, dict) or not isinstance(fields, dict):
        yield params
        return
    for stand_in in _STAND_INS:  # the title keeps it a secret in the eyes of the rules
        mended = {
            name: {**stand_in, "title": "password"} if name in removed else field for name, field in fields.items()
        }
        yield {**params, "requestedSchema": {**schema, "properties": mended}}


def _is_removed(field: Any) -> bool:
    return field == REMOVED or (isinstance(field, dict) and REMOVED in field.values())


def _can(line: RecordLine, request: Request, client: ClientCapabilities | None) -> tuple[bool, ...]:
    """Whether the client could be asked: both, where nobody knows."""
    if line.effect == "forward":
        return (True,)
    return (True, False) if client is None else (can_forward(request, client),)


# -- without
# ----------------------------------------------------------------------------------------------------------------------


def _possible(book: CompiledPolicy, line: RecordLine, client: ClientCapabilities | None) -> set[ReplayedDecision]:
    """All that may come of a request of which only what every record says is known."""
    known, found = _known(line), set[ReplayedDecision]()
    for entry in book.entries:
        if entry.rule.shadow or (held := entry.holds(known)) is False:
            continue
        ways, goes_on = _ways(entry.rule, line, client)
        found |= ways
        if held is True and not goes_on:
            return found
    return {*found, ReplayedDecision("none", None)}


def _known(line: RecordLine) -> Known:
    calls: Calls = line.calls
    facts: dict[str, object] = {row.fact: getattr(line, row.fact) for row in TABLE.values() if row.logged}
    mode = ABSENT if line.kind == "sampling" else line.mode or UNKNOWN
    is_url: object = UNKNOWN if mode is UNKNOWN else mode == "url"
    facts |= absent("sampling" if line.kind == "sampling" else "url" if mode == "url" else "form")
    facts |= {"mode": mode, "is_url": is_url, "is_web": UNKNOWN if is_url is not False else True}
    return Known(calls, facts)


def _ways(rule: Rule, line: RecordLine, client: ClientCapabilities | None) -> tuple[set[ReplayedDecision], bool]:
    """What comes of a request that the rule takes, and whether it may go on to the later rules."""
    can: bool | None
    match rule:
        case DenyRule():
            return {ReplayedDecision("deny", rule.name, rule.as_ if line.kind == "elicitation" else None)}, False
        case AllowRule():
            can = None if line.kind == "sampling" else False
        case AnswerRule():
            can = None if answers.can_answer(rule, _class(line)) else False
        case ForwardRule():
            can = True if line.effect == "forward" else None if client is None else _could(line, client)
        case EscalateRule():  # a person may be asked anything but a form that is not flat
            can = None if _class(line) == "elicitation by form" else True
        case _ as never:
            assert_never(never)
    ways = set() if can is False else {ReplayedDecision(effect_of(rule), rule.name)}
    if can is not True and rule.otherwise == "deny":
        ways.add(ReplayedDecision("deny", rule.name, "cancel" if line.kind == "elicitation" else None))
    if can is not True and rule.otherwise == "unanswered":
        ways.add(ReplayedDecision("none", rule.name))
    return ways, can is not True and rule.otherwise == "next"


def _class(line: RecordLine) -> str:
    return "sampling" if line.kind == "sampling" else f"elicitation by {line.mode or 'form'}"


def _could(line: RecordLine, client: ClientCapabilities) -> bool | None:
    """Whether a client can be asked; None where it takes no tools, and nobody knows whether there were some."""
    if line.kind == "elicitation":
        return client.url if line.mode == "url" else client.form
    return client.sampling if client.sampling_tools or not client.sampling else None
