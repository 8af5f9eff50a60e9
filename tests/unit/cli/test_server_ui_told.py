"""What `check` and `explain` tell of servers' own UIs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.shell import Run, Write

ADVERTISED = "the server's own UI is advertised if reviewers have a page"


POLICY = """\
version: 1
models: [{name: main, model: openai/none}]
reviewers: {ops: {}}
rules:
  - {name: known, match: {kind: elicitation, tool: confirm}, effect: forward}
  - {name: closed, match: {kind: elicitation, tool: close}, effect: deny}
  - {name: plain, match: {kind: elicitation, tool: plain}, effect: escalate, reviewer: ops}
  - {name: people, match: {kind: elicitation, mode: form}, effect: escalate, reviewer: ops, ui: show}
"""


def test_check_prints_it_as_text_and_as_json(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    assert any(
        line.endswith(f"; {ADVERTISED}") and "form elicitation" in line
        for line in run("check", "p.yaml").out.splitlines()
    )
    told = json.loads(run("check", "--format", "json", "p.yaml").out)
    assert {"elicitation by form": True} == {
        report["requests"]: report["shows_ui"] for report in _reports(told) if report.get("shows_ui")
    }


def _reports(node: Any) -> Any:
    if isinstance(node, dict):
        if "requests" in node:
            yield node
        node = list(node.values())
    for child in node if isinstance(node, list) else ():
        yield from _reports(child)


@pytest.mark.parametrize(
    ("match", "warned"),
    [
        ("{kind: sampling}", True),
        ("{kind: elicitation, mode: url}", True),
        ("{mode: url}", True),
        ("{kind: elicitation, mode: [url]}", True),
        ("{kind: elicitation}", False),
        ("{kind: elicitation, mode: [form, url]}", False),
        ("{}", False),
    ],
)
def test_check_warns_of_a_rule_that_matches_no_form(run: Run, write: Write, match: str, warned: bool) -> None:
    rule = f"{{name: people, match: {match}, effect: escalate, reviewer: ops, ui: show}}"
    write(
        "p.yaml",
        f"version: 1\nmodels: [{{name: m, model: openai/none}}]\nreviewers: {{ops: {{}}}}\nrules:\n  - {rule}\n",
    )
    ended = run("check", "p.yaml")
    assert 0 == ended.code
    assert warned is ("the rule matches no form, so the key has no effect; remove it" in ended.out + ended.err)
    write("p.yaml", f"version: 1\nreviewers: {{ops: {{}}}}\nrules:\n  - {rule.replace('show', 'hide')}\n")
    assert "matches no form" not in run("check", "p.yaml").out


META = {"ui": {"resourceUri": "ui://a/x"}}
NAMED = {"message": "m", "requestedSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--tool pick", ("reviewer", "the server's own UI is shown to the reviewer, if there is a page")),
        ("--tool plain", ("nobody", "the server's own UI is hidden from the reviewer (ui: hide)")),
        ("--tool close", ("nobody", "nobody sees the server's own UI")),
        ("--tool confirm", ("nobody", "nobody sees the server's own UI")),
    ],
)
@pytest.mark.parametrize("params", [{"_meta": META}, {"ui": {"uri": "ui://a/x"}}])
def test_explain_tells_who_sees_the_ui(
    run: Run, write: Write, options: str, told: tuple[str, str], params: dict[str, Any]
) -> None:
    write("p.yaml", POLICY)
    write("r.json", json.dumps({"method": "elicitation/create", "params": {**NAMED, **params}}))
    given = ("explain", "--policy", "p.yaml", *options.split())
    assert [f"ui        {told[1]}"] == [one for one in run(*given, "r.json").out.splitlines() if one.startswith("ui ")]
    assert {"shown_to": told[0]} == json.loads(run(*given, "--json", "r.json").out)["ui"]


@pytest.mark.parametrize(
    ("params", "servers", "told"),
    [
        ({"_meta": META}, "", ("client", "the client gets the server's own UI with the form, if it declared that")),
        (
            {"_meta": META},
            "servers: {default: {ui_forward: cut}}",
            ("client", "the client gets the server's own UI with the form, if it declared that"),
        ),
        ({"ui": {"uri": "ui://a/x"}}, "", ("client", "the client gets the server's own UI with the form")),
        (
            {"ui": {"uri": "ui://a/x"}},
            "servers: {default: {ui_forward: cut}}",
            ("nobody", "the server's own UI is removed from the form (ui_forward: cut)"),
        ),
    ],
)
def test_explain_tells_what_a_client_gets_in_each_dialect(
    run: Run, write: Write, params: dict[str, Any], servers: str, told: tuple[str, str]
) -> None:
    write("p.yaml", POLICY + servers)
    write("r.json", json.dumps({"method": "elicitation/create", "params": {**NAMED, **params}}))
    given = ("explain", "--policy", "p.yaml", "--tool", "confirm", "--client", "elicitation.form")
    assert [f"ui        {told[1]}"] == [one for one in run(*given, "r.json").out.splitlines() if one.startswith("ui ")]
    assert {"shown_to": told[0]} == json.loads(run(*given, "--json", "r.json").out)["ui"]


@pytest.mark.parametrize(
    ("params", "origins"),
    [
        ({"ui": {"uri": "ui://a/x"}}, ", also from https://a.example, https://b.example"),
        ({"_meta": META}, ""),  # SEP-3118 negotiates HTML, so no URL counts there
    ],
)
def test_explain_tells_from_which_origins_it_may_be_loaded(
    run: Run, write: Write, params: dict[str, Any], origins: str
) -> None:
    write("p.yaml", POLICY.replace("ui: show", "ui: show, ui_origins: [https://a.example, https://b.example]"))
    write("r.json", json.dumps({"method": "elicitation/create", "params": {**NAMED, **params}}))
    told = run("explain", "--policy", "p.yaml", "--tool", "pick", "r.json").out
    assert f"is shown to the reviewer{origins}, if there is a page" in told


def test_explain_tells_nothing_of_a_form_that_names_none(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    write("r.json", json.dumps({"method": "elicitation/create", "params": NAMED}))
    assert "\nui " not in run("explain", "--policy", "p.yaml", "r.json").out
    assert json.loads(run("explain", "--policy", "p.yaml", "--json", "r.json").out)["ui"] is None


def test_explain_tells_of_a_client_that_alone_may_see_it(run: Run, write: Write) -> None:
    write("p.yaml", "version: 1\nrules:\n  - {name: client, match: {kind: elicitation}, effect: forward}\n")
    write("r.json", json.dumps({"method": "elicitation/create", "params": {**NAMED, "_meta": META}}))
    told = run("explain", "--policy", "p.yaml", "--client", "elicitation.form", "--json", "r.json").out
    assert {"shown_to": "client"} == json.loads(told)["ui"]


SUITE = """\
policy: p.yaml
cases:
  - name: a reviewer answers the form, whatever UI it names
    tool: pick
    request: {method: elicitation/create, params: PARAMS}
    review: {verdict: answer, result: {action: accept, content: {a: x}}}
    expect: {rule: people, effect: escalate}
"""


@pytest.mark.parametrize("params", [NAMED, {**NAMED, "_meta": META}, {**NAMED, "ui": META["ui"]}])
def test_a_policys_cases_have_no_page_and_read_nothing(run: Run, write: Write, params: dict[str, Any]) -> None:
    write("p.yaml", POLICY)
    write("t.yaml", SUITE.replace("PARAMS", json.dumps(params)))
    ended = run("test", "t.yaml")
    assert 0 == ended.code, ended.out + ended.err
