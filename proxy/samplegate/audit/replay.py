"""Pure. Replay: whether another policy decides a recorded request as it was decided. Limits, brakes and timeouts are
not replayed.

If the log has no contents, only the facts in every record are known: the caller, the kind of request and the calls. The
rules then have three values, as in ``policy/capabilities.py``: certainly the same, certainly changed, or unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, assert_never

import msgspec

from samplegate.audit.record import FULL, MAX_CALLS, RecordLine
from samplegate.policy import answers
from samplegate.policy.arguments import path_of
from samplegate.policy.capabilities import can_forward
from samplegate.policy.conditions import TABLE, IdentityNames, absent
from samplegate.policy.decide import CompiledPolicy, decide, effect_of
from samplegate.policy.decisions import Decision, DenyAs, FixedAnswer, Situation
from samplegate.policy.facts import ABSENT, UNKNOWN, Calls, Known
from samplegate.policy.redaction import REDACTED
from samplegate.policy.schema import AllowRule, AnswerRule, DenyRule, EscalateRule, ForwardRule, Rule
from samplegate.protocol.identity import Identity
from samplegate.protocol.requests import ELICITATION, SAMPLING, BadRequest, ClientCapabilities, Origin, Request, parse
from samplegate.protocol.strictjson import JsonFault, decode
from samplegate.secret_names import REMOVED, secret_fields, without_secrets

# These sentences are values in the output of `replay --json`, so they must not change.
NO_CONTENTS: Final = (
    "the record has no contents, and the rules that may take it look at them; record with `record_content: full`"
)
NO_CLIENT: Final = "it depends on what the client had declared, which no record says; give --client"
REMOVED_PARTS: Final = (
    "it depends on what was removed from the record: secrets in a prompt, fields that look like one, the query of an"
    " address"
)
NO_ARGUMENTS: Final = (
    "the record has no arguments of the call, and the policy looks at them; record with `record_content: full`"
)
NO_IDENTITY: Final = (
    "the record does not have the caller's groups or claims, and the policy looks at them; record with"
    " `record_content: full`"
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
"""Schemas that a removed field may have had: each is tried."""


class ReplayedDecision(msgspec.Struct, frozen=True):
    """The parts of a policy's decision that are compared."""

    effect: str
    rule: str | None
    action: str | None = None
    """The reply to a denied elicitation."""
    answer: str | None = None
    """The JSON of a fixed answer's content, without values that look like secrets; None if it is not compared. In a
    change: "another" if it differs."""


class Same(msgspec.Struct, frozen=True):
    """The decision is the same."""


class Changed(msgspec.Struct, frozen=True):
    """The decision has changed; ``now`` lists the possible new decisions, a single one if it is certain."""

    was: ReplayedDecision
    now: tuple[ReplayedDecision, ...]


class Undetermined(msgspec.Struct, frozen=True):
    """The result is unknown; ``why`` is one of the sentences above."""

    why: str


def replay(
    compiled: CompiledPolicy, line: RecordLine, client: ClientCapabilities | None = None
) -> Same | Changed | Undetermined:
    """Compare one record with a policy. ``client`` are the client's capabilities, None if they are unknown."""
    if (why := _incomparable(line)) is not None:
        return Undetermined(why)
    if line.door == "tool_result":  # any client can get the question
        client = ClientCapabilities(form=True)
    if line.reason in ("malformed", "rounds"):
        return Same()  # no policy decides these
    if not bytes(line.request):
        return _compare(line, _possible(compiled, line, client), NO_CONTENTS)
    if line.redacted:  # the recorded prompt is not the one that was decided
        return _compare(line, _possible(compiled, line, client), REMOVED_PARTS)
    params = _params(line)
    if line.calls and _look_at_arguments(compiled):
        if not params:
            return _compare(line, _possible(compiled, line, client), NO_ARGUMENTS)
        if any(one is None for of_call in params for one in of_call):
            return _compare(line, _possible(compiled, line, client), REMOVED_PARTS)
    identities = _identities(line, compiled.identity_names)
    if isinstance(identities, str):
        return _compare(line, _possible(compiled, line, client), identities)
    requests = _requests(line, params, identities)
    if isinstance(requests, str):
        return Undetermined(requests)
    decisions = {
        _decision(compiled, line, request, can) for request in requests for can in _forwardable(line, request, client)
    }
    return _compare(line, decisions, NO_CLIENT if len(requests) == 1 else REMOVED_PARTS)


def _incomparable(line: RecordLine) -> str | None:
    """Why a comparison would be meaningless, or None."""
    if line.door == "unasked":
        return UNASKED
    if line.reason == "brake":
        return BRAKES
    if line.reason == "error":
        return FAULT
    names = [line.server, line.caller, *(name for call in line.calls for name in (call.method, call.tool or ""))]
    return SHORTENED if len(line.calls) >= MAX_CALLS or any(len(name) >= FULL for name in names) else None


def _compare(line: RecordLine, decisions: set[ReplayedDecision], unsure: str) -> Same | Changed | Undetermined:
    same = [_is_same(line, one) for one in decisions]
    if all(same):
        return Same()
    if any(same):
        return Undetermined(unsure)
    now = {
        msgspec.structs.replace(one, answer=None if one.answer in (None, _answered(line)) else "another")
        for one in decisions
    }
    return Changed(
        ReplayedDecision(line.effect, line.rule, line.action if line.effect == "deny" else None),
        tuple(sorted(now, key=str)),
    )


def _is_same(line: RecordLine, now: ReplayedDecision) -> bool:
    if line.reason == "not_offered":  # the server was not allowed to ask; a policy that grants it changes that
        return now.effect not in _GRANTS
    if line.tried:  # an earlier rule had a timeout or a limit without room, so the first rule is compared
        return now.effect in _GRANTS and line.tried[0].startswith(f"{now.rule}: ")
    if line.reason == "limit":  # the rule matched, and limits are not replayed
        return now.effect in _GRANTS and line.rule == now.rule
    if (line.effect, line.rule) != (now.effect, now.rule):
        return False
    if now.action is not None and line.action is not None and line.outcome == "denied" and line.action != now.action:
        return False
    return now.answer is None or now.answer == _answered(line)


def _answered(line: RecordLine) -> str | None:
    """The recorded answer's content to compare; None if it is not recorded."""
    result = _decoded(line.result)
    return _content(result) if isinstance(result, dict) else None


def _content(result: Mapping[str, Any]) -> str:
    content = result.get("content")
    blocks = [content] if isinstance(content, dict) and "type" in content and "action" not in result else content
    return json.dumps([result.get("action"), blocks], sort_keys=True)


def _decision(compiled: CompiledPolicy, line: RecordLine, request: Request, can: bool) -> ReplayedDecision:
    decision = decide(compiled, request, Situation(can_forward=can))
    return ReplayedDecision(decision.effect, decision.rule, _action(line, decision), _fixed(line, request, decision))


def _action(line: RecordLine, decision: Decision) -> str | None:
    return decision.act.as_ if isinstance(decision.act, DenyAs) and line.kind == "elicitation" else None


def _fixed(line: RecordLine, request: Request, decision: Decision) -> str | None:
    """The content of a fixed answer, if the record has the answer."""
    if not isinstance(decision.act, FixedAnswer) or line.outcome != "answered" or not bytes(line.result):
        return None
    return _content(without_secrets(decision.act.result, secret_fields(request.params.get("requestedSchema"))))


# -- with contents
# ----------------------------------------------------------------------------------------------------------------------


def _params(line: RecordLine) -> tuple[tuple[bytes | None, ...], ...]:
    """The params of the calls, as in ``Origin``. Those of a call whose arguments were redacted are None."""
    found = _decoded(line.arguments)
    if not isinstance(found, list) or len(found) != len(line.calls) or not all(isinstance(of, list) for of in found):
        return ()
    return tuple(tuple(_params_of(arguments) for arguments in of_call) for of_call in found)


def _params_of(arguments: Any) -> bytes | None:
    text = json.dumps({"arguments": arguments}, ensure_ascii=False)
    return None if REMOVED in text or REDACTED in text else text.encode("utf-8", "surrogatepass")


def _look_at_arguments(compiled: CompiledPolicy) -> bool:
    """Whether any rule depends on the arguments of the call."""
    return any(entry.matcher.names_arguments or answers.takes_arguments(entry.rule) for entry in compiled.entries)


def _identities(line: RecordLine, names: IdentityNames) -> tuple[Identity, ...] | str:
    """The identities as far as the policy ``names`` them, or why they are not known."""
    groups, claims = _list_of(list, line.groups), _list_of(dict, line.claims)
    if REMOVED in (text := json.dumps([groups, claims])) or REDACTED in text:
        return REMOVED_PARTS
    lists = [one for one in (groups, claims) if one]
    lacking = any(one is not None and path not in one for one in claims or [{}] for path in names.claims)
    if lacking or (names.groups and not groups) or len({len(one) for one in lists}) > 1:
        return NO_IDENTITY
    number = len(lists[0]) if lists else 1
    return tuple(
        Identity(
            line.caller,
            None if one is None else frozenset(map(str, one)),
            None if by_path is None else _claims_of({path: by_path[path] for path in names.claims}),
        )
        for one, by_path in zip(groups or [()] * number, claims or [{}] * number, strict=True)
    )


def _list_of(kind: type, raw: msgspec.Raw) -> list[Any]:
    """The items of a recorded list, each of this kind or None; none if it is not such a list."""
    found = _decoded(raw)
    fits = isinstance(found, list) and all(one is None or isinstance(one, kind) for one in found)
    return found if fits else []


def _claims_of(by_path: Mapping[str, Any]) -> bytes:
    """A JSON object with claims that are given by path; those with null are absent."""
    found: dict[str, Any] = {}
    for path, value in sorted(by_path.items(), key=lambda item: len(path_of(item[0]))):
        if value is None:
            continue
        *parents, name = path_of(path)
        at: Any = found
        for parent in parents:
            at = at.setdefault(parent, {}) if isinstance(at, dict) else None
        if isinstance(at, dict):
            at.setdefault(name, value)
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _requests(
    line: RecordLine, of_calls: tuple[tuple[bytes | None, ...], ...], identities: tuple[Identity, ...]
) -> list[Request] | str:
    """The request, in every form that it may have had if fields were removed from the record; or why there is none."""
    params = _decoded(line.request)
    if not isinstance(params, dict):
        return UNREADABLE
    method = SAMPLING if line.kind == "sampling" else ELICITATION
    origin = Origin(
        line.server, line.caller, line.era, line.revision, line.calls, params=of_calls, identities=identities
    )
    parsed = [
        parse(method, json.dumps(one, separators=(",", ":"), ensure_ascii=False).encode(), origin)
        for one in _with_stand_ins(params)
    ]
    found = [one for one in parsed if not isinstance(one, BadRequest)]
    return found if len(found) == len(parsed) else UNREADABLE


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return decode(bytes(raw))
    except JsonFault:
        return None


def _with_stand_ins(params: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The params with stand-ins for what was removed, one version for each possibility: in a URL, and in fields that
    look like secrets."""
    url = params.get("url")
    if isinstance(url, str):
        bare = _user.sub(r"\1user@", url.removesuffix(_QUERY))
        # an @ in a query may give a URL a second reading (``urls.target``)
        queries = ("?x", "?@") if url.endswith(_QUERY) else ("",)
        yield from ({**params, "url": bare + query} for query in queries)
        return
    schema = params.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    removed = [name for name, field in fields.items() if _is_removed(field)] if isinstance(fields, dict) else []
    if not removed or not isinstance(schema, dict) or not isinstance(fields, dict):
        yield params
        return
    for stand_in in _STAND_INS:  # with this title, the rules still treat it as a secret
        mended = {
            name: {**stand_in, "title": "password"} if name in removed else field for name, field in fields.items()
        }
        yield {**params, "requestedSchema": {**schema, "properties": mended}}


def _is_removed(field: Any) -> bool:
    return field == REMOVED or (isinstance(field, dict) and REMOVED in field.values())


def _forwardable(line: RecordLine, request: Request, client: ClientCapabilities | None) -> tuple[bool, ...]:
    """Whether the client could be asked; both values if that is unknown."""
    if line.effect == "forward":
        return (True,)
    return (True, False) if client is None else (can_forward(request, client),)


# -- without contents
# ----------------------------------------------------------------------------------------------------------------------


def _possible(compiled: CompiledPolicy, line: RecordLine, client: ClientCapabilities | None) -> set[ReplayedDecision]:
    """All possible decisions on a request of which only the facts in every record are known."""
    known, found = _known(line), set[ReplayedDecision]()
    for entry in compiled.entries:
        if entry.rule.shadow or (held := entry.holds(known)) is False:
            continue
        decisions, goes_on = _outcomes_of(entry.rule, line, client)
        found |= decisions
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


def _outcomes_of(rule: Rule, line: RecordLine, client: ClientCapabilities | None) -> tuple[set[ReplayedDecision], bool]:
    """The possible decisions of a rule that matches, and whether the request may go on to later rules."""
    can: bool | None
    match rule:
        case DenyRule():
            return {ReplayedDecision("deny", rule.name, rule.as_ if line.kind == "elicitation" else None)}, False
        case AllowRule():
            can = None if line.kind == "sampling" else False
        case AnswerRule():
            can = None if answers.can_answer(rule, _class(line)) else False
        case ForwardRule():
            can = True if line.effect == "forward" else None if client is None else _client_can(line, client)
        case EscalateRule():  # a reviewer can be asked anything, except a form that is not flat
            can = None if _class(line) == "elicitation by form" else True
        case _ as never:
            assert_never(never)
    decisions = set() if can is False else {ReplayedDecision(effect_of(rule), rule.name)}
    if can is not True and rule.otherwise == "deny":
        decisions.add(ReplayedDecision("deny", rule.name, "cancel" if line.kind == "elicitation" else None))
    if can is not True and rule.otherwise == "unanswered":
        decisions.add(ReplayedDecision("none", rule.name))
    return decisions, can is not True and rule.otherwise == "next"


def _class(line: RecordLine) -> str:
    return "sampling" if line.kind == "sampling" else f"elicitation by {line.mode or 'form'}"


def _client_can(line: RecordLine, client: ClientCapabilities) -> bool | None:
    """Whether a client can be asked; None if it does not support tools, and it is unknown whether the request had
    some."""
    if line.kind == "elicitation":
        return client.url if line.mode == "url" else client.form
    return client.sampling if client.sampling_tools or not client.sampling else None
