"""Pure. Capabilities that the gate declares to a server on its policy's behalf, before any request (R112, R113).

``protocol/capabilities.py`` has their wire form. A rule can be reached by a class of requests unless its match fails on
the known facts of the class; an unknown fact may have any value. So the gate declares nothing that no rule could
answer, and omits nothing that a rule may answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final, Literal, TypeAlias, assert_never

import msgspec

from samplegate.policy import answers, model_choice
from samplegate.policy.conditions import absent, short_value
from samplegate.policy.facts import UNKNOWN, Calls, Facts, Known, identity_facts
from samplegate.policy.match import CompiledPolicy
from samplegate.policy.schema import AllowRule, AnswerRule, DenyRule, EscalateRule, ForwardRule, ModelRule, Rule
from samplegate.protocol.frames import LEGACY, Era, has_elicitation, has_modes
from samplegate.protocol.identity import Identity
from samplegate.protocol.requests import Call, ClientCapabilities, Kind, Offer, Origin, Request

Class: TypeAlias = Literal["sampling", "sampling with tools", "elicitation by form", "elicitation by url"]
"""Classes of requests that are declared separately."""
_Answerer: TypeAlias = Literal["gate", "client", "nobody", "otherwise"]
"""The party that answers a class under a rule. ``otherwise``: the rule's effect cannot be carried out for the class."""

_CLASSES: Final[tuple[Class, ...]] = ("sampling", "sampling with tools", "elicitation by form", "elicitation by url")
_ALL: Final = ClientCapabilities(True, True, True, True, True, ui=True)


class Asker(msgspec.Struct, frozen=True):
    """The server, caller and call of possible requests. ``call`` None stands for any call or none."""

    server: str
    caller: str
    era: Era
    call: Call | None
    identity: Identity | None = None
    """The caller with its groups and claims; None: these are not known."""


def offer(
    compiled: CompiledPolicy,
    *,
    server: str,
    caller: str,
    era: Era,
    revision: str,
    client: ClientCapabilities,
    call: Call | None,
    page: bool = False,
) -> Offer:
    """The capabilities that reachable rules can allow, answer, escalate, forward or decline.

    ``call`` None gives the union over all calls and none: in the legacy era, and in the modern one outside CALLS.
    ``page``: whether reviewers have a page, which can show a server's own UI.
    """
    who = Asker(server, caller, era, call)
    modes = has_modes(revision)
    finer = modes and not _plain(compiled, server)
    tools = finer and _reached(compiled, who, "sampling with tools", client, {"client", "gate"})
    form = has_elicitation(revision) and _reached(compiled, who, "elicitation by form", client, {"client", "gate"})
    return Offer(
        sampling=tools or _reached(compiled, who, "sampling", client, {"client", "gate"}),
        sampling_tools=tools,
        sampling_context=finer and client.sampling_context and _reached_by_client(compiled, who, client),
        form=form,
        url=modes and _reached(compiled, who, "elicitation by url", client, {"client", "gate"}),
        ui=form and _shows_ui(compiled, who, client, page=page),
    )


def _shows_ui(compiled: CompiledPolicy, who: Asker, client: ClientCapabilities, *, page: bool) -> bool:
    """Whether somebody may see the server's own UI of a form: a client that declares it, or a reviewer."""
    if client.ui and _reached(compiled, who, "elicitation by form", client, {"client"}):
        return True
    rules = (rule for rule, _ in _reachable(compiled, who, "elicitation by form")) if page else ()
    return any(isinstance(rule, EscalateRule) and rule.ui == "show" for rule in rules)


def offer_to(compiled: CompiledPolicy, origin: Origin, client: ClientCapabilities, *, page: bool = False) -> Offer:
    """The capabilities that were declared to the server before a request of this origin: once for all calls in the
    legacy era, per call in the modern one."""
    call = origin.calls[0] if origin.era == "modern" and origin.calls else None
    return offer(
        compiled,
        server=origin.server,
        caller=origin.caller,
        era=origin.era,
        revision=origin.revision,
        client=client,
        call=call,
        page=page,
    )


def first_to_forward_forms(compiled: CompiledPolicy, who: Asker) -> str | None:
    """The rule that forwards forms if no rule before it may answer or escalate some; None if there is none."""
    takers = (rule for rule, _ in _reachable(compiled, who, "elicitation by form") if not isinstance(rule, DenyRule))
    first = next(takers, None)
    return first.name if isinstance(first, ForwardRule) else None


REMEDY: Final = "to forward them to the client, add these rules below the rules that deny"
_FORWARDS: Final[Mapping[str, tuple[Class, str]]] = {
    "sampling": ("sampling", "{name: forward sampling, match: {kind: sampling}, effect: forward}"),
    "sampling.tools": (
        "sampling with tools",
        "{name: forward sampling with tools, match: {kind: sampling, tools: true}, effect: forward}",
    ),
    "sampling.context": ("sampling", "{name: forward sampling, match: {kind: sampling}, effect: forward}"),
    "elicitation.form": (
        "elicitation by form",
        "{name: forward forms, match: {kind: elicitation, mode: form}, effect: forward}",
    ),
    "elicitation.url": (
        "elicitation by url",
        "{name: forward URLs, match: {kind: elicitation, mode: url}, effect: forward}",
    ),
}
"""By capability: its class of requests, and the rule that keeps the client's capability."""


def remedies(compiled: CompiledPolicy, who: Asker, withheld: Sequence[str]) -> dict[str, Any]:
    """Fields for the operator's log about withheld capabilities: the rules that deny all such requests, and rules to
    add for the others."""
    denied_by: dict[str, None] = {}
    add: dict[str, None] = {}
    for name in withheld:
        class_, rule = _FORWARDS[name]
        reached = list(_reachable(compiled, who, class_))
        if reached and reached[-1][1] and isinstance(last := reached[-1][0], DenyRule):
            denied_by[last.name] = None
        elif not (name in {"sampling.tools", "sampling.context"} and _plain(compiled, who.server)):
            add[rule] = None
    return {
        **({"denied_by": list(denied_by)} if denied_by else {}),
        **({"remedy": REMEDY, "add": list(add)} if add else {}),
    }


def _plain(compiled: CompiledPolicy, server: str) -> bool:
    """Whether the server gets ``sampling`` without sub-capabilities (R114). A request with tools is then undeclared."""
    settings = compiled.policy.servers.get(server)
    return settings is not None and settings.plain_sampling


def _reached_by_client(compiled: CompiledPolicy, who: Asker, client: ClientCapabilities) -> bool:
    """Whether a rule lets the client sample: only the client can include context, our models have none (R18)."""
    return any(
        _reached(compiled, who, class_, client, {"client"}) for class_ in _CLASSES if _kind_of(class_) == "sampling"
    )


def _reached(
    compiled: CompiledPolicy, who: Asker, class_: Class, client: ClientCapabilities, wanted: Set[_Answerer]
) -> bool:
    """Whether a rule under which one of ``wanted`` answers can be reached."""
    return any(_by(compiled, rule, class_, client) in wanted for rule, _ in _reachable(compiled, who, class_))


def _reachable(compiled: CompiledPolicy, who: Asker, class_: Class) -> Iterator[tuple[Rule, bool]]:
    """The enforced rules that a request of the class may reach, in order, and whether each surely ends the walk."""
    known = _known(who, class_)
    for entry in compiled.entries:
        if entry.rule.shadow or (held := entry.holds(known)) is False:
            continue
        sure = held is True and (isinstance(entry.rule, DenyRule) or entry.rule.otherwise != "next")
        yield entry.rule, sure
        if sure:
            return


def _known(who: Asker, class_: Class) -> Known:
    """The facts that are known of every request of a class."""
    calls: Calls = UNKNOWN if who.call is None else (who.call,)
    facts: dict[str, object] = {
        "server": who.server,
        "caller": who.caller,
        "era": who.era,
        "is_url": class_ == "elicitation by url",
    }
    match class_:
        case "sampling" | "sampling with tools":
            facts |= {**absent("sampling"), "kind": "sampling", "tools": class_ != "sampling"}
        case "elicitation by form":
            facts |= {**absent("form"), "kind": "elicitation", "mode": "form", "is_web": True}
        case "elicitation by url":
            facts |= {**absent("url"), "kind": "elicitation", "mode": "url"}
    if who.identity is not None:
        facts["groups"], facts["claims"] = identity_facts(who.identity)
    return Known(calls, facts)


def _by(compiled: CompiledPolicy, rule: Rule, class_: Class, client: ClientCapabilities) -> _Answerer:
    match rule:
        case AllowRule():
            return "gate" if _has_model(compiled, rule, class_) else "otherwise"
        case AnswerRule():
            # fixed content answers any question, so it is no reason to declare tools; a file of cases may use tools
            worth = class_ != "sampling with tools" or rule.cases is not None
            return "gate" if worth and answers.can_answer(rule, class_) else "otherwise"
        case ForwardRule():
            return "client" if _declared(class_, client) else "otherwise"
        case EscalateRule():  # a reviewer may answer without a model, but that is no reason to declare tools
            return "gate" if class_ != "sampling with tools" or _has_model(compiled, rule, class_) else "otherwise"
        case DenyRule():  # a decline reaches the server only for a declared capability
            return "gate" if rule.as_ == "decline" and _kind_of(class_) == "elicitation" else "nobody"
        case _ as never:
            assert_never(never)


def _has_model(compiled: CompiledPolicy, rule: ModelRule, class_: Class) -> bool:
    """Whether the rule has a model for the class. Only the request tells which model fits it."""
    if _kind_of(class_) != "sampling":
        return False
    allowed = model_choice.candidates(compiled.policy, rule)
    return (
        any("tools" in compiled.catalogue[model.name].accepts for model in allowed)
        if class_ == "sampling with tools"
        else bool(allowed)
    )


def _kind_of(class_: Class) -> Kind:
    return "sampling" if class_.startswith("sampling") else "elicitation"


def _declared(class_: Class, client: ClientCapabilities) -> bool:
    match class_:
        case "sampling":
            return client.sampling
        case "sampling with tools":
            return client.sampling and client.sampling_tools
        case "elicitation by form":
            return client.form
        case "elicitation by url":
            return client.url
        case _ as never:
            assert_never(never)


def can_forward(request: Request, client: ClientCapabilities) -> bool:
    """Whether the client declared the capability that the request needs, sub-capabilities included (R8, R31, T24)."""
    if request.kind == "elicitation":
        return _declared("elicitation by url" if request.mode == "url" else "elicitation by form", client)
    return _declared("sampling with tools" if _has_tools(request) else "sampling", client)


def _has_tools(request: Request) -> bool:
    """Whether the request has tools, a tool choice, or tool use in its messages. A client without ``sampling.tools``
    understands none of these."""
    params = request.params
    if params.get("tools") is not None or params.get("toolChoice") is not None:
        return True
    return not {"tool_use", "tool_result"}.isdisjoint(Facts(request).content_types)


def unsolicited(
    compiled: CompiledPolicy,
    *,
    server: str,
    identity: Identity,
    call: Call,
    client: ClientCapabilities = _ALL,
    kinds: Set[Kind] = frozenset({"sampling", "elicitation"}),
) -> Literal["pass", "refuse", "strip"]:
    """What happens to ``inputResponses`` of these ``kinds`` that a client sends unasked, by the rules that can be
    reached during ``call``.

    They pass only if the client could have been asked: every rule forwards without ``verify`` (there is no request to
    check them against), and for each kind, a rule forwards a class that this client declared. No rule may depend on
    groups or claims that cannot be judged, or on arguments. Otherwise they are refused if a rule may deny, else
    stripped.
    """
    who = Asker(server, identity.name, "modern", call, identity)  # unsolicited answers exist only in the modern era
    rules: dict[Class, list[Rule]] = {
        class_: [rule for rule, _ in _reachable(compiled, who, class_)] for class_ in _CLASSES
    }
    every = [rule for some in rules.values() for rule in some]
    if any(
        isinstance(rule, DenyRule) or (rule.otherwise == "deny" and not isinstance(rule, ForwardRule)) for rule in every
    ):
        return "refuse"
    if not all(isinstance(rule, ForwardRule) and not rule.verify for rule in every):
        return "strip"
    if any(_doubts_identity(compiled, who, class_) or _asks_arguments(compiled, who, class_) for class_ in _CLASSES):
        return "strip"
    asked = {_kind_of(class_) for class_, some in rules.items() if some and _declared(class_, client)}
    return "pass" if asked and asked >= kinds else "strip"


def _asks_arguments(compiled: CompiledPolicy, who: Asker, class_: Class) -> bool:
    """Whether a rule that a request of the class may reach depends on the call's arguments, which are not looked at
    here."""
    known = _known(who, class_)
    return any(
        entry.matcher.names_arguments and not entry.rule.shadow and entry.holds(known) is not False
        for entry in compiled.entries
    )


def _doubts_identity(compiled: CompiledPolicy, who: Asker, class_: Class) -> bool:
    """Whether a rule that a request of the class may reach depends on groups or claims that cannot be judged."""
    known = _known(who, class_)
    return any(
        entry.matcher.doubts_identity(known)
        for entry in compiled.entries
        if entry.matcher.names_identity and not entry.rule.shadow and entry.holds(known) is not False
    )


_NAMES: Final[Mapping[Class, str]] = {
    "elicitation by form": "form elicitation",
    "elicitation by url": "URL elicitation",
}
"""Names of classes for people, if they differ from the stable values of ``check --json``."""

_When: TypeAlias = Literal["match", "otherwise", "on_limit", "on_timeout"]
_DENIES: Final[Mapping[_When, str]] = {
    "match": "",
    "otherwise": "if it cannot be carried out, ",
    "on_limit": "if a limit is reached, ",
    "on_timeout": "on timeout, ",
}


class Denial(msgspec.Struct, frozen=True):
    """A rule that may deny requests of a class, and what the server then gets in the legacy era. ``wire`` has two
    values if that depends on the client's capabilities."""

    rule: str
    wire: tuple[str, ...]
    when: _When = "match"
    """What makes the rule deny: its match, or one of its settings."""

    def __str__(self) -> str:
        first, *more = self.wire
        return (
            f"{_DENIES[self.when]}rule {short_value(self.rule)} denies with"
            f" {first}{''.join(f', or {other} if the client declares it' for other in more)}"
        )


class CapabilityReport(msgspec.Struct, frozen=True):
    """What a policy means for one server and one class of requests. ``str()`` is a line for users."""

    requests: Class
    declared: Literal["always", "if the client can", "never"]
    untaken: Literal["none", "some", "all"]
    """Which of these requests may match no rule."""
    denials: tuple[Denial, ...] = ()
    """The rules that may deny some of them, in order."""
    shows_ui: bool = False
    """Forms: whether a rule shows the server's own UI, so that it is declared to the server if there is a page."""

    def __str__(self) -> str:
        said = {
            "always": "advertised",
            "if the client can": "advertised if the client declares it",
            "never": "not advertised",
        }[self.declared]
        left = {
            "none": "every request matches a rule",
            "some": "some requests may match no rule",
            "all": "no rule matches",
        }[self.untaken]
        if self.declared == "never" and self.untaken != "all" and not self.denials:
            tools = self.requests == "sampling with tools"
            said += f", because {'no model accepts tools' if tools else 'no rule can answer it'}"
        ui = "the server's own UI is advertised if reviewers have a page" if self.shows_ui else ""
        parts = (f"{_NAMES.get(self.requests, self.requests)}: {said}", left, *map(str, self.denials), ui)
        return "; ".join(filter(None, parts))


def describe_offer(
    compiled: CompiledPolicy,
    *,
    server: str,
    caller: str = "local",
    era: Era = "legacy",
    revision: str = LEGACY[-1],
    call: Call | None = None,
) -> tuple[CapabilityReport, ...]:
    """The report of ``check``: for each class of requests, what is declared and whether rules match all requests."""
    bare, able = (
        offer(compiled, server=server, caller=caller, era=era, revision=revision, client=c, call=call)
        for c in (ClientCapabilities(), _ALL)
    )
    pairs = (
        (bare.sampling, able.sampling),
        (bare.sampling_tools, able.sampling_tools),
        (bare.form, able.form),
        (bare.url, able.url),
    )
    who = Asker(server, caller, era, call)
    shows_ui = able.form and _shows_ui(compiled, who, ClientCapabilities(), page=True)
    reports = (
        _coverage(class_, declared, list(_reachable(compiled, who, class_)))
        for class_, declared in zip(_CLASSES, pairs, strict=True)
    )
    return tuple(
        msgspec.structs.replace(report, shows_ui=shows_ui) if report.requests == "elicitation by form" else report
        for report in reports
    )


def _coverage(class_: Class, declared: tuple[bool, bool], reached: Sequence[tuple[Rule, bool]]) -> CapabilityReport:
    """The report for one class. ``declared`` is for a client without capabilities and for one with all."""
    bare, able = declared
    untaken: Literal["none", "some", "all"] = "all" if not reached else "none" if reached[-1][1] else "some"
    denials = [denial for rule, _ in reached for denial in _denials(rule, class_, declared)]
    return CapabilityReport(
        class_, "always" if bare else "if the client can" if able else "never", untaken, tuple(denials)
    )


def _denials(rule: Rule, class_: Class, declared: tuple[bool, bool]) -> Iterator[Denial]:
    """Denials by one rule. An undeclared request gets an error. A rule that began its effect can only deny declared
    requests."""
    milder = "error -1" if _kind_of(class_) == "sampling" else "cancel"
    if isinstance(rule, DenyRule):
        milder = "error -1" if _kind_of(class_) == "sampling" else rule.as_
        yield Denial(rule.name, _wire(milder, declared))
        return
    if rule.otherwise == "deny":  # a forward rule can always forward what the client declares
        yield Denial(rule.name, _wire(milder, declared[:1] if isinstance(rule, ForwardRule) else declared), "otherwise")
    if not declared[1] or not _may_begin(rule, class_):
        return
    if rule.limits and rule.on_limit == "deny":
        yield Denial(rule.name, (milder,), "on_limit")
    if not isinstance(rule, AnswerRule) and rule.on_timeout == "deny":
        yield Denial(rule.name, (milder,), "on_timeout")


def _wire(milder: str, declared: Sequence[bool]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(milder if each else "error -32602" for each in declared))


def _may_begin(rule: Rule, class_: Class) -> bool:
    """Whether a rule's effect can be carried out for some request of a class."""
    if isinstance(rule, AllowRule):
        return _kind_of(class_) == "sampling"
    return answers.can_answer(rule, class_) if isinstance(rule, AnswerRule) else True


class SessionRules(msgspec.Struct, frozen=True, eq=False):
    """A compiled policy in the form that sessions need (``session_state.SessionPolicy``)."""

    compiled: CompiledPolicy
    page: bool = False
    """Whether reviewers have a page, which can show a server's own UI."""

    def offer(
        self, *, server: str, caller: str, era: Era, revision: str, client: ClientCapabilities, call: Call | None
    ) -> Offer:
        """``offer``."""
        return offer(
            self.compiled,
            server=server,
            caller=caller,
            era=era,
            revision=revision,
            client=client,
            call=call,
            page=self.page,
        )

    def remedies(
        self, *, server: str, caller: str, era: Era, call: Call | None, withheld: Sequence[str]
    ) -> dict[str, Any]:
        """``remedies``."""
        return remedies(self.compiled, Asker(server, caller, era, call), withheld)

    def unsolicited(
        self, *, server: str, identity: Identity, call: Call, client: ClientCapabilities, kinds: Set[Kind]
    ) -> Literal["pass", "refuse", "strip"]:
        """``unsolicited``."""
        return unsolicited(self.compiled, server=server, identity=identity, call=call, client=client, kinds=kinds)

    @property
    def has_reviews(self) -> bool:
        """Whether some rule asks a reviewer."""
        rules = self.compiled.policy.rules
        return any(
            isinstance(rule, EscalateRule) or (isinstance(rule, AllowRule) and rule.review_answer is not None)
            for rule in rules
        )

    def cuts_ui(self, server: str) -> bool:
        """Whether the policy's ``servers.NAME.ui_forward`` is ``cut``."""
        peer = self.compiled.policy.servers.get(server)
        return peer is not None and peer.ui_forward == "cut"

    def polices_results(self, server: str) -> bool:
        """Whether the policy's ``servers.NAME.ui_results`` is ``police``."""
        peer = self.compiled.policy.servers.get(server)
        return peer is not None and peer.ui_results == "police"

    def extends_on_progress(self, server: str) -> bool:
        """The policy's ``servers.NAME.extends_on_progress``."""
        peer = self.compiled.policy.servers.get(server)
        return peer is not None and peer.extends_on_progress
