"""One answer: `samplegate test`, `explain` and a run agree on a generated policy and request, and the promises of
`check` hold.

The run is a real session with the real gate behind it, in both eras: pushed requests, input rounds of one key and of
several, and URLs in an error, of kinds that are declared and that are not.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import Phase, assume, event, given, settings
from hypothesis import strategies as st

from samplegate.audit.record import Record
from samplegate.cli.main import main
from samplegate.policy.capabilities import SessionRules, can_forward
from samplegate.policy.decide import CompiledPolicy, decide
from samplegate.policy.decisions import Situation
from samplegate.policy.file.load import PolicyError
from samplegate.protocol.outcomes import Reason
from samplegate.protocol.requests import BadRequest
from samplegate.protocol.rounds import ClientReply, Effect, Open, Round, ToClient, ToServer
from samplegate.protocol.session import Session
from samplegate.protocol.session_state import SessionState
from samplegate.runtime.process import compile_loaded, load_policy
from tests.fakes.daemon import Gate, admin, asking, client, serving
from tests.fakes.dialogue import SEAL_KEYS, Dialogue, error, modern, one, request, result, to_client
from tests.fakes.gate_ports import FakePorts
from tests.profiles import share

NEWEST: Final = ("2025-11-25", "2026-07-28")
IN_MODERN: Final = " with 2026-07-28"
"""What `check` adds to the name of servers where the newest version differs from older ones."""
CAPABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "sampling": ("sampling",),
    "sampling.tools": ("sampling", "tools"),
    "elicitation.form": ("elicitation", "form"),
    "elicitation.url": ("elicitation", "url"),
}
FIELDS: Final = {"confirm": {"type": "boolean"}, "password": {"type": "string"}}
SAMPLING: Final = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10}
ASKS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "sampling": ("sampling/createMessage", SAMPLING),
    "sampling with tools": (
        "sampling/createMessage",
        {**SAMPLING, "tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    ),
    "elicitation by form": (
        "elicitation/create",
        {
            "message": "?",
            "requestedSchema": {
                "type": "object",
                "properties": {"confirm": FIELDS["confirm"]},
                "required": ["confirm"],
            },
        },
    ),
    "form with a password": (
        "elicitation/create",
        {"message": "?", "requestedSchema": {"type": "object", "properties": FIELDS, "required": []}},
    ),
    "elicitation by url": (
        "elicitation/create",
        {"mode": "url", "message": "?", "url": "https://a.example/", "elicitationId": "e"},
    ),
}
NARROWED: Final = st.fixed_dictionaries(
    {},
    optional={
        "server": st.sampled_from(["docs", ["docs", "db"]]),
        "tool": st.sampled_from(["a", "none", ["a", "none"]]),
        "era": st.sampled_from(["legacy", "modern"]),
        "not": st.sampled_from([{"server": "docs"}, {"tool": "b"}, {"era": "modern"}]),
    },
)
OF_KIND: Final[Mapping[str, list[dict[str, Any]]]] = {
    "sampling": [
        {"kind": "sampling"},
        {"kind": "sampling", "max_tokens": {"max": 5}},
        {"kind": "sampling", "tools": True},
    ],
    "form": [{"kind": "elicitation", "mode": "form"}, {"kind": "elicitation", "mode": "form", "field_names": "passw"}],
    "url": [{"mode": "url"}, {"kind": "elicitation", "mode": ["form", "url"]}],
    "any": [{}],
}
EFFECTS: Final[Mapping[str, list[str]]] = {
    "sampling": ["allow", "answer", "forward", "escalate", "deny", "deny"],
    "form": ["answer", "forward", "escalate", "deny", "deny"],
    "url": ["forward", "escalate", "deny", "deny"],
    "any": ["forward", "escalate", "deny"],
}
KIND: Final = {
    "sampling with tools": "sampling",
    "elicitation by form": "form",
    "form with a password": "form",
    "elicitation by url": "url",
}
_AUDIO: Final = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
_IMAGE: Final = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
_TOOL: Final = {"type": "tool_use", "id": "u", "name": "t", "input": {}}
CONTENTS: Final[list[Any]] = ["fixed", [_AUDIO], [_IMAGE], [_TOOL], [_IMAGE, {"type": "text", "text": "a"}]]
"""Not all have a form in every revision, and a use of a tool has none where no tools were given."""
MORE: Final = st.fixed_dictionaries(
    {}, optional={"otherwise": st.sampled_from(["next", "deny"]), "as": st.just("decline"), "shadow": st.just(True)}
)


@st.composite
def rules_for(draw: st.DrawFn, what: str) -> list[dict[str, Any]]:
    """Rules that mostly concern the request."""
    rules = []
    for _ in range(draw(st.integers(0, 9)) // 2):
        own = KIND.get(what, "sampling")
        kind = draw(st.sampled_from([own, own, own, *OF_KIND]))
        narrowed = draw(NARROWED) if draw(st.integers(0, 2)) == 2 else {}
        effect, of = draw(st.sampled_from(EFFECTS[kind])), draw(st.sampled_from(OF_KIND[kind]))
        rules.append(
            {"effect": effect, "of": of, "narrowed": narrowed, "content": draw(st.sampled_from(CONTENTS)), **draw(MORE)}
        )
    return rules


SCENE: Final = st.fixed_dictionaries({
    "what": st.sampled_from(sorted(ASKS)),
    "server": st.sampled_from(["docs", "db"]),
    "tool": st.sampled_from(["a", "b"]),
    "revision": st.sampled_from([*NEWEST, *NEWEST, "2025-06-18", "2025-03-26", "2024-11-05"]),
    "client": st.sets(st.sampled_from(sorted(CAPABLE))).map(sorted),
})  # fmt: skip


def policy(rules: list[dict[str, Any]], *, plain: bool) -> str:
    """The text of a policy with these rules. Keys that a kind of rule does not have are left out."""
    written = [_rule(f"rule-{number}", rule) for number, rule in enumerate(rules)]
    models = [
        {"name": "m", "model": "openai/m", "accepts": ["tools"], "price": {"input": 0, "output": 0}},
        {"name": "text", "model": "openai/t", "price": {"input": 0, "output": 0}},
    ]
    servers = {"docs": {"plain_sampling": True}} if plain else {}
    return json.dumps(
        {"version": 1, "models": models, "reviewers": {"ops": {}}, "servers": servers, "rules": written}
        if rules
        else {"version": 1, "rules": []}
    )


def _rule(name: str, drawn: dict[str, Any]) -> dict[str, Any]:
    match = {**drawn["of"], **drawn["narrowed"]}
    effect, kind = drawn["effect"], match.get("kind")
    out: dict[str, Any] = {"name": name, "effect": effect, "match": match}
    out |= {
        key: drawn[key]
        for key in ("otherwise", "shadow")
        if key in drawn and not (effect == "deny" and key == "otherwise")
    }
    match effect, kind:
        case "allow", _:
            out |= {"with": {"models": ["text" if "otherwise" in drawn else "m"]}}
        case "answer", "sampling":
            out |= {"content": drawn["content"]}
        case "answer", _:
            out |= {"content": {"confirm": True}}
        case "escalate", _:
            out |= {"reviewer": "ops"}
        case "deny", kind if "as" in drawn and kind != "sampling":
            out |= {"as": "decline"}
    return out


class Run:
    """One request that passed through a session and its gate."""

    def __init__(self, compiled: CompiledPolicy, scene: Mapping[str, Any]) -> None:
        self.d = Dialogue(server=scene["server"])
        self.d.compiled, self.d.session = (
            compiled,
            Session(SessionState(SessionRules(compiled), scene["server"], "t", SEAL_KEYS)),
        )
        self.modern = scene["revision"] == NEWEST[1]
        declared = able(scene["client"])
        method, params = ASKS[scene["what"]]
        call = {"name": scene["tool"], "arguments": {}}
        if self.modern:
            self.d.client(modern(1, "tools/call", declared, **call))
            asked = self.d.server(
                result(
                    1,
                    resultType="input_required",
                    inputRequests={"k": {"method": method, "params": params}},
                    requestState="s",
                )
            )
        else:
            self.d.open_legacy(scene["revision"], **declared)
            self.d.client(request(1, "tools/call", **call))
            asked = self.d.server(request(7, method, **params))
        self.round: Round = one(asked, Open).round
        (self.item,) = self.round.items.values()
        self.ports = FakePorts(reply=ClientReply(self.round.id, "", True, b'{"action":"cancel"}'))

    async def done(self) -> None:
        conclusion = await self.ports.gate(self.d).run(self.round)
        self.effects = self.d.done(self.round, conclusion)

    @property
    def record(self) -> Record:
        return self.ports.records[0]

    @property
    def wire(self) -> str:
        """The server's answer."""
        (line,) = [json.loads(effect.line) for effect in self.effects if isinstance(effect, ToServer | ToClient)]
        if "error" in line:
            return f"error {line['error']['code']}"
        if self.modern and "result" in line:
            return "call ends" if line["result"].get("isError") else "forwarded"
        answer = line["params"]["inputResponses"]["k"] if self.modern else line["result"]
        return str(answer.get("action", "result"))


HUMAN: Final = {"role": "assistant", "content": {"type": "text", "text": "a person"}, "model": "person"}


class SeveralKeys:
    """A modern call in which the server asks several things at once, to its end. The client answers what is forwarded
    to it."""

    def __init__(self, compiled: CompiledPolicy, scene: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
        self.d = Dialogue(server=scene["server"])
        self.d.compiled, self.d.session = (
            compiled,
            Session(SessionState(SessionRules(compiled), scene["server"], "t", SEAL_KEYS)),
        )
        self._able, self._call = able(scene["client"]), {"name": scene["tool"], "arguments": {}}
        asked = {key: dict(zip(("method", "params"), ASKS[what], strict=True)) for key, what in kinds.items()}
        self.d.client(modern(1, "tools/call", self._able, **self._call))
        out = self.d.server(result(1, resultType="input_required", inputRequests=asked, requestState="s"))
        self.round: Round = one(out, Open).round
        self.ports = FakePorts()
        self.handed: set[str] = set()

    async def done(self) -> None:
        effects = await self._concluded(self.round)
        while (shown := _input_required(effects)) is not None:
            self.handed |= shown.get("inputRequests", {}).keys()
            replies = {
                key: HUMAN if "sampling" in asked["method"] else {"action": "cancel"}
                for key, asked in shown.get("inputRequests", {}).items()
            }
            back = modern(
                2, "tools/call", self._able, **self._call, requestState=shown["requestState"], inputResponses=replies
            )
            effects = await self._concluded(one(self.d.client(back), Open).round)
        (line,) = [json.loads(effect.line) for effect in effects if isinstance(effect, ToServer | ToClient)]
        self.given: dict[str, str] | None = None
        """What the server got for each key; None if the call ended."""
        if "method" in line:
            self.given = {
                key: str(answer.get("action", "result")) for key, answer in line["params"]["inputResponses"].items()
            }
        else:
            assert "error" in line or line["result"]["isError"]

    async def _concluded(self, round: Round) -> list[Effect]:
        return self.d.done(round, await self.ports.gate(self.d).run(round))


def _input_required(effects: list[Effect]) -> Any:
    lines = [json.loads(effect.line) for effect in effects if isinstance(effect, ToClient)]
    return next(
        (line["result"] for line in lines if line.get("result", {}).get("resultType") == "input_required"), None
    )


def able(names: list[str]) -> dict[str, Any]:
    """The client's capabilities."""
    out: dict[str, Any] = {}
    for kind, *parts in (CAPABLE[name] for name in names):
        out.setdefault(kind, {}).update({part: {} for part in parts})
    return out


def command(*words: str) -> Any:
    """The JSON output of a command."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert main([*words, "--json"]) in (0, 1)
    return json.loads(out.getvalue())


def names_a_call(match: Mapping[str, Any]) -> bool:
    """Whether the declared capabilities depend on the call in flight."""
    return "tool" in match or ("not" in match and names_a_call(match["not"]))


@pytest.mark.timeout(240)
@settings(max_examples=share(0.5), phases=set(Phase) - {Phase.explain})  # an example runs three commands
@given(data=st.data(), scene=SCENE, plain=st.booleans())
def test_a_policy_and_a_request_come_to_one_answer(data: st.DataObject, scene: dict[str, Any], plain: bool) -> None:
    text = policy(data.draw(rules_for(scene["what"])), plain=plain)
    try:
        loaded = load_policy(text, file="policy.yaml", environment={})
    except PolicyError:
        assume(False)
        raise
    run = Run(compile_loaded(loaded, Path()), scene)
    anyio.run(run.done)
    event(f"{run.record.effect}, {'declared' if run.item.offered else 'not declared'}: {run.wire}")
    with TemporaryDirectory() as folder, chdir(folder):
        Path("policy.yaml").write_text(text)
        _same_in_test(run, scene)
        if not isinstance(run.item.request, BadRequest):  # which `explain` refuses to examine
            _same_in_explain(run, scene)
            _as_checked(run, scene, json.loads(text))


def _came(run: Run) -> tuple[Any, ...]:
    return run.record.effect, run.record.rule, run.item.offered


def _same_in_explain(run: Run, scene: Mapping[str, Any]) -> None:
    method, params = ASKS[scene["what"]]
    Path("request.json").write_text(json.dumps({"method": method, "params": params}))
    where = [f"--{key}={scene[key]}" for key in ("server", "tool", "revision")]
    explained = command(
        "explain", "--policy", "policy.yaml", *where, "--client", ",".join(scene["client"]), "request.json"
    )
    assert _came(run) == (explained["effect"], explained["rule"], explained["declared"])
    _same_answer(run, explained["wire"])
    assert explained["wire"] is None or run.record.reason == explained["reason"]


def _same_in_test(run: Run, scene: Mapping[str, Any]) -> None:
    method, params = ASKS[scene["what"]]
    asked = {key: scene[key] for key in ("server", "tool", "revision", "client")}
    expect: dict[str, Any] = {"effect": run.record.effect, "declared": run.item.offered}
    if run.record.effect not in ("allow", "forward", "escalate"):
        expect |= {"wire": run.wire, "reason": run.record.reason, "outcome": run.record.outcome}
    case = {"name": "one", **asked, "request": {"method": method, "params": params}, "expect": expect}
    Path("policy_test.yaml").write_text(json.dumps({"cases": [case]}))
    (file,) = command("test", "policy.yaml")["files"]
    (tested,) = file["cases"]
    assert [] == tested["mismatches"]
    assert _came(run) == (tested["effect"], tested["rule"], tested["declared"])
    _same_answer(run, tested["wire"])


def _same_answer(run: Run, wire: str | None) -> None:
    """None if the answer comes from a model, a reviewer or the client."""
    assert (wire is None) == (run.record.effect in ("allow", "forward", "escalate"))
    assert wire is None or run.wire == wire


def _as_checked(run: Run, scene: Mapping[str, Any], written: Mapping[str, Any]) -> None:
    """`check` reports on the newest version of each kind."""
    if scene["revision"] not in NEWEST:
        return
    (file,) = command("check", "policy.yaml")["files"]
    assert [] == file["problems"]
    by_label = {label: group["requests"] for group in file["servers"] for label in group["servers"]}
    plain = {label.removesuffix(IN_MODERN) for label in by_label}
    assert plain <= {"server docs", "server db", "any other server", "any server"}
    label = next(name for name in (f"server {scene['server']}", "any other server", "any server") if name in by_label)
    told = by_label.get(f"{label}{IN_MODERN}", by_label[label]) if run.modern else by_label[label]
    class_ = scene["what"] if scene["what"] != "form with a password" else "elicitation by form"
    (coverage,) = (one for one in told if one["requests"] == class_)
    # in the modern era declared is what the call's own rules can answer; what `check` says is their union
    by_call = run.modern and any(names_a_call(rule["match"]) for rule in written["rules"])
    if run.item.offered:
        assert "never" != coverage["declared"]
    elif not by_call:
        assert "always" != coverage["declared"]
    if not by_call and coverage["declared"] == "if the client can":
        assert run.item.offered or set(scene["client"]) != set(CAPABLE)
        assert scene["client"] or not run.item.offered
    assert not isinstance(run.item.request, BadRequest)
    by_rules = decide(run.d.compiled, run.item.request, Situation(can_forward(run.item.request, run.round.client)))
    unmatched = by_rules.reason is Reason.NO_RULE
    assert not unmatched or coverage["untaken"] != "none"
    assert unmatched or coverage["untaken"] != "all"
    if run.record.effect == "deny":
        when = {"rule": "match", "cannot": "otherwise"}[run.record.reason]
        (denial,) = (one for one in coverage["denials"] if (one["rule"], one["when"]) == (run.record.rule, when))
        assert run.wire in (denial["wire"] if not run.modern else {*denial["wire"], "call ends"})


# -- several keys in one round, and the URLs of an error
# ---------------------------------------------------------------------------------------


def drawn_rules(data: st.DataObject, what: str) -> list[dict[str, Any]]:
    """Rules of which usually one matches the request."""
    rules, kind = data.draw(rules_for(what)), KIND.get(what, "sampling")
    last = data.draw(st.sampled_from([None, *EFFECTS[kind]]))
    return (
        rules
        if last is None
        else [*rules, {"effect": last, "of": OF_KIND[kind][0], "narrowed": {}, "content": "fixed"}]
    )


def drawn_scene(data: st.DataObject) -> dict[str, Any]:
    """A scene whose client can usually do everything."""
    scene = data.draw(SCENE)
    return {**scene, **({"client": sorted(CAPABLE)} if data.draw(st.integers(0, 3)) else {})}


def compiled(text: str) -> CompiledPolicy:
    try:
        return compile_loaded(load_policy(text, file="policy.yaml", environment={}), Path())
    except PolicyError:
        assume(False)
        raise


def said_of_each(text: str, scene: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The result of `test` for each request as its own case, which `explain` must give too."""
    asked = {key: scene[key] for key in ("server", "tool", "revision", "client")}
    requests = {key: dict(zip(("method", "params"), ASKS[what], strict=True)) for key, what in kinds.items()}
    cases = [
        {"name": key, **asked, "request": request, "expect": {"effect": "none", "reason": "malformed"}}
        for key, request in requests.items()
    ]
    with TemporaryDirectory() as folder, chdir(folder):
        Path("policy.yaml").write_text(text)
        Path("policy_test.yaml").write_text(json.dumps({"cases": cases}))
        (file,) = command("test", "policy.yaml")["files"]
        tested = {case["name"]: case for case in file["cases"]}
        where = [f"--{key}={scene[key]}" for key in ("server", "tool", "revision")]
        for key, request in requests.items():
            if all(mismatch["what"] != "reason" for mismatch in tested[key]["mismatches"]):
                continue  # malformed, which `explain` refuses to examine
            Path("request.json").write_text(json.dumps(request))
            explained = command(
                "explain", "--policy", "policy.yaml", *where, "--client", ",".join(scene["client"]), "request.json"
            )
            assert all(explained[name] == tested[key][name] for name in ("effect", "rule", "declared", "wire"))
    return tested


@pytest.mark.timeout(240)
@settings(max_examples=share(0.3), phases=set(Phase) - {Phase.explain})  # and these some for each key
@given(
    data=st.data(),
    scene=SCENE,
    kinds=st.lists(st.sampled_from(sorted(ASKS.keys() - {"form with a password"})), min_size=2, max_size=3),
)
def test_each_key_of_a_round_comes_to_what_it_comes_to_alone(
    data: st.DataObject, scene: dict[str, Any], kinds: list[str]
) -> None:
    scene |= {"revision": NEWEST[1]}
    by_key = {f"k{number}": what for number, what in enumerate(kinds)}
    text = policy([rule for what in kinds for rule in data.draw(rules_for(what))], plain=False)
    run = SeveralKeys(compiled(text), scene, by_key)
    anyio.run(run.done)
    alone = said_of_each(text, scene, by_key)
    last = {record.key: record for record in run.ports.records}
    assert {key: (one["effect"], one["rule"]) for key, one in alone.items()} == {
        key: (record.effect, record.rule) for key, record in last.items()
    }
    assert {key: one["declared"] for key, one in alone.items()} == {
        key: item.offered for key, item in run.round.items.items()
    }
    # a refusal before any request is sent ends the call for all keys, and nothing reaches the client
    refused = any(one["wire"] == "call ends" for one in alone.values())
    assert run.handed == (set() if refused else {key for key, one in alone.items() if one["effect"] == "forward"})
    # without reviewers an escalation has no answer; sampling has no milder form of that than the end of the call
    ends = refused or any(one["effect"] == "escalate" and "sampling" in by_key[key] for key, one in alone.items())
    event(f"{len(kinds)} keys: {'refused' if refused else 'ends' if ends else 'answered'}, {len(run.handed)} handed on")
    assert (run.given is None) == ends
    if run.given is not None:
        assert run.given.keys() == by_key.keys()
        for key, one in alone.items():
            assert one["wire"] in (None, run.given[key])
            assert key not in run.handed or run.given[key] == ("result" if "sampling" in by_key[key] else "cancel")
    else:
        outcomes = sorted(record.outcome for record in last.values())
        assert "answered" not in outcomes
        assert len(outcomes) - 1 <= outcomes.count("withdrawn")


@pytest.mark.timeout(240)
@settings(max_examples=share(0.2), phases=set(Phase) - {Phase.explain})
@given(data=st.data(), scene=SCENE, urls=st.integers(1, 3), is_modern=st.booleans())
def test_the_urls_of_an_error_come_to_what_each_of_them_comes_to_alone(
    data: st.DataObject, scene: dict[str, Any], urls: int, is_modern: bool
) -> None:
    """The client gets the error unchanged if the policy forwards all its URLs. Otherwise the call ends without them
    (R44)."""
    scene |= {"revision": NEWEST[is_modern]}
    text = policy(data.draw(rules_for("elicitation by url")), plain=False)
    d, declared, ports = Dialogue(server=scene["server"]), able(scene["client"]), FakePorts()
    d.compiled = compiled(text)
    d.session = Session(SessionState(SessionRules(d.compiled), scene["server"], "t", SEAL_KEYS))
    call = {"name": scene["tool"], "arguments": {}}
    if not is_modern:
        d.open_legacy(scene["revision"], **declared)
    d.client(modern(1, "tools/call", declared, **call) if is_modern else request(1, "tools/call", **call))
    failed = error(1, -32042, data={"elicitations": [ASKS["elicitation by url"][1]] * urls})
    round = one(d.server(failed), Open).round

    async def done() -> list[Effect]:
        return d.done(round, await ports.gate(d).run(round))

    (answer,) = to_client(anyio.run(done))
    alone = said_of_each(text, scene, {"k": "elicitation by url"})["k"]
    event(f"{alone['effect']}, {'declared' if alone['declared'] else 'not declared'}")
    assert [(alone["effect"], alone["rule"])] * urls == [(record.effect, record.rule) for record in ports.records]
    assert {alone["declared"]} == {item.offered for item in round.items.values()}
    if alone["effect"] == "forward":
        assert answer == failed
    else:
        assert "https://a.example/" not in json.dumps(answer)
        assert answer["result"]["isError"]


# -- a running daemon
# ----------------------------------------------------------------------------------------------------------------------

ADMIN: Final = "a-token-for-the-reload-of-this-test"


class Daemon:
    """A `samplegate serve` over HTTP with two servers that speak both versions, and the policies of the examples, one
    after another."""

    def __init__(self, folder: Path, portal: BlockingPortal, gate: Gate) -> None:
        self._folder, self._portal, self._gate = folder, portal, gate

    def answer(self, text: str, scene: Mapping[str, Any]) -> str:
        """The server's answer to its request under this policy, or that the client was asked."""
        (self._folder / "policy.yaml").write_text(text)
        got: str = self._portal.call(self._answer, scene)
        return got

    async def _answer(self, scene: Mapping[str, Any]) -> str:
        status, said = await admin(self._gate, "/reload", "POST", authorization=f"Bearer {ADMIN}")
        assert status == 200, said
        asked = {"ask": dict(zip(("method", "params"), ASKS[scene["what"]], strict=True))}
        async with client(self._gate, f"/servers/{scene['server']}/mcp", capabilities=able(scene["client"])) as c:
            if scene["revision"] == NEWEST[1]:
                done = await c.modern("tools/call", name=scene["tool"], arguments=asked)
            else:
                await c.begin(scene["revision"])
                done = await c.legacy("tools/call", name=scene["tool"], arguments=asked)
        if any("id" in heard for heard in c.heard) or done["result"].get("resultType") == "input_required":
            return "forwarded"
        if done["result"].get("isError"):
            return "call ends"
        got = done["result"]["structuredContent"]
        if "error" in got:
            return f"error {got['error']['code']}"
        return str(got.get("result", got).get("action", "result"))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("daemon")
    program, *arguments = asking("legacy+modern")
    servers = {name: {"command": program, "args": arguments} for name in ("docs", "db")}
    wanted = {"policy": "policy.yaml", "servers": servers, "decision_log": "none", "admin_token_file": "admin.token"}
    (folder / "samplegate.yaml").write_text(json.dumps(wanted))
    (folder / "policy.yaml").write_text(policy([], plain=False))
    (folder / "admin.token").write_text(ADMIN)
    (folder / "admin.token").chmod(0o600)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(folder, "--settings", "samplegate.yaml")) as gate,
    ):
        yield Daemon(folder, portal, gate)


@pytest.mark.timeout(240)
@settings(max_examples=share(0.2), phases=set(Phase) - {Phase.explain})  # an example asks a real daemon
@given(data=st.data())
def test_a_daemon_gives_the_answer_that_test_and_explain_say(daemon: Daemon, data: st.DataObject) -> None:
    """Without rules for a model or a reviewer, because the policy does not determine their answers."""
    scene = drawn_scene(data)
    if scene["revision"] == "2024-11-05":  # which does not have this transport
        scene["revision"] = "2025-03-26"
    passed_on = {"allow": "forward", "escalate": "forward"}
    rules = [
        {**rule, "effect": passed_on.get(rule["effect"], rule["effect"])} for rule in drawn_rules(data, scene["what"])
    ]
    text = policy(rules, plain=False)
    compiled(text)
    got = daemon.answer(text, scene)
    alone = said_of_each(text, scene, {"k": scene["what"]})["k"]
    event(f"{alone['effect']}, {'declared' if alone['declared'] else 'not declared'}: {got}")
    assert got == ("forwarded" if alone["effect"] == "forward" else alone["wire"])
