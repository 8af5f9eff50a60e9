"""Answers from a cassette in place of the client and of models: neither is asked, and no answer counts as theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from samplegate.audit.cassette import Cassette
from samplegate.audit.playback import Playback
from samplegate.policy.script import fingerprint
from samplegate.protocol.outcomes import Answered, Outcome, Reason, Unanswered
from samplegate.protocol.rounds import ClientReply, ForwardRound, Open, Settled
from tests.fakes.dialogue import (
    ALLOW,
    FORWARD,
    FORWARD_URLS,
    Dialogue,
    ask,
    error,
    form,
    modern,
    one,
    request,
    result,
    to_client,
)
from tests.fakes.dialogue import sample as sample_params
from tests.fakes.gate_ports import FakePorts, asked, pushed

pytestmark = pytest.mark.anyio

URL = {"mode": "url", "message": "Sign in", "url": "https://example.com", "elicitationId": "1"}
ACCEPTED = {"action": "accept", "content": {"confirm": True}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "gpt", "stopReason": "endTurn"}
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tape.yaml"


def played(path: Path, *answers: tuple[Mapping[str, Any], Mapping[str, Any]]) -> FakePorts:
    """Ports that play a cassette with these answers of a client. Their own client and model never answer."""
    path.write_text("")
    tape = Cassette.open(path)
    for params, answer in answers:
        method = "sampling/createMessage" if "messages" in params else "elicitation/create"
        tape.add(method, params, effect="forward", decided_by="client", result=json.dumps(answer).encode())
    assert len(answers) == tape.cases
    tape.close()
    return playing(path)


def playing(path: Path) -> FakePorts:
    """Ports that play a cassette."""
    playback = Playback.open(path)
    ports = FakePorts(lambda request: playback.sample(request, lambda _: None))
    ports.replay = playback.answer_forwarded
    return ports


def delayed(path: Path) -> Playback:
    """A cassette with a delayed answer."""
    path.write_text("cases: [{text: hello, answer: late, delay: 1h}]\n")
    return Playback.open(path)


def content(outcome: Outcome) -> Any:
    assert isinstance(outcome, Answered)
    assert "policy" == outcome.decided_by
    return json.loads(outcome.result)


def unanswered(outcome: Outcome) -> tuple[Reason, str]:
    assert isinstance(outcome, Unanswered)
    return outcome.reason, outcome.detail


async def test_a_forwarded_form_is_answered_as_the_client_did_and_recorded_as_the_policys(path: Path) -> None:
    ports = played(path, (form(), ACCEPTED))
    d, round = pushed(FORWARD, method="elicitation/create", elicitation={})
    assert ACCEPTED == content((await ports.settled(d, round))[""].outcome)
    (record,) = ports.records
    assert ("forward", "answered", "policy", "accept", True) == (
        record.effect,
        record.outcome,
        record.decided_by,
        record.action,
        record.fits,
    )


async def test_forwarded_sampling_is_answered_too(path: Path) -> None:
    ports = played(path, (sample_params(), SAID))
    d, round = pushed(FORWARD, sampling={})
    assert SAID == content((await ports.settled(d, round))[""].outcome)


async def test_a_request_without_a_case_is_not_answered_and_that_counts_as_the_policys_decision(path: Path) -> None:
    ports = played(path, (form(), ACCEPTED))
    other = form(name={"type": "string"})
    d, round = pushed(FORWARD, method="elicitation/create", params=other, elicitation={})
    reason, detail = unanswered((await ports.settled(d, round))[""].outcome)
    assert Reason.CANNOT is reason
    assert f"fingerprint {fingerprint(other)} (--record-mode replay)" in detail
    assert (detail, "policy", "cancel") == (
        ports.records[0].detail,
        ports.records[0].decided_by,
        ports.records[0].action,
    )


async def test_a_model_without_a_case_is_not_followed_by_another(path: Path) -> None:
    ports = played(path, (form(), ACCEPTED))
    models = [{"name": "m", "model": "openai/m"}, {"name": "n", "model": "openai/n"}]
    d, round = pushed({**ALLOW, "with": {"models": ["m", "n"]}}, policy={"models": models})
    reason, detail = unanswered((await ports.settled(d, round))[""].outcome)
    assert Reason.MODEL is reason
    assert detail.startswith("no_case: model m: ")
    assert "(--record-mode replay)" in detail
    assert ["m"] == [call.model for call in ports.asked]


async def test_a_recorded_timeout_is_the_end_of_the_request_and_takes_no_other_turn(path: Path) -> None:
    later = {"name": "later", "match": {"kind": "sampling"}, "effect": "allow", "with": {"models": ["m"]}}
    tape = Cassette.open(path)
    method, params = "sampling/createMessage", sample_params()
    tape.add(method, params, effect="allow", decided_by="timeout", failure="timeout")
    tape.add(method, params, effect="allow", decided_by="policy", result=json.dumps(SAID).encode())
    tape.close()
    ports = playing(path)
    d, round = pushed({**ALLOW, "on_timeout": "next"}, later)
    assert Reason.TIMEOUT is unanswered((await ports.settled(d, round))[""].outcome)[0]
    assert SAID == content((await ports.settled(d, round))[""].outcome)


async def test_a_recorded_answer_that_does_not_fit_is_withheld_if_the_rule_verifies(path: Path) -> None:
    odd = {"action": "accept", "content": {"confirm": "yes"}}
    ports = played(path, (form(), odd))
    d, round = pushed({**FORWARD, "verify": True}, method="elicitation/create", elicitation={})
    reason, detail = unanswered((await ports.settled(d, round))[""].outcome)
    assert (Reason.CANNOT, True) == (reason, detail.startswith("the recorded answer does not fit: "))
    d, round = pushed(FORWARD, method="elicitation/create", elicitation={})
    assert odd == content((await ports.settled(d, round))[""].outcome)
    assert [(False, "policy"), (False, "policy")] == [(record.fits, record.decided_by) for record in ports.records]


async def test_a_prompt_with_secrets_is_found_by_the_fingerprint_of_its_record(path: Path) -> None:
    secretive = {**ALLOW, "with": {"models": ["m"], "secrets": {"prompt": "redact"}}}
    rules, policy = (FORWARD, secretive), {"secrets": {"x": "XXX"}}
    recording = FakePorts(reply=ClientReply("", "", True, json.dumps(SAID).encode()))
    d, round = pushed(*rules, params=sample_params("an XXX"), policy=policy, sampling={})
    await recording.settled(d, round)
    tape = Cassette.open(path)
    tape.add_record(recording.records[0])
    tape.close()
    ports = FakePorts(replay=Playback.open(path).answer_forwarded)
    d, round = pushed(*rules, params=sample_params("an XXX"), policy=policy, sampling={})
    assert SAID == content((await ports.settled(d, round))[""].outcome)


async def test_a_limit_counts_a_replayed_request(path: Path) -> None:
    ports = played(path, (form(), ACCEPTED))
    limits = {"few": {"requests": 5, "per": "process"}}
    d, round = pushed(
        {**FORWARD, "limits": ["few"]}, method="elicitation/create", policy={"limits": limits}, elicitation={}
    )
    await ports.settled(d, round)
    assert ("few",) == ports.records[0].limits


async def test_a_modern_round_is_answered_without_going_to_the_client(path: Path) -> None:
    ports = played(path, (form(), ACCEPTED), (sample_params(), SAID))
    d, round = asked(FORWARD, capabilities={**FORMS, "sampling": {}}, f=form(), s=sample_params())
    releases = await ports.settled(d, round)
    assert {"f": ACCEPTED, "s": SAID} == {key: content(release.outcome) for key, release in releases.items()}
    assert ["answered", "answered"] == [record.outcome for record in ports.records]


async def test_a_modern_round_with_roots_goes_to_the_client_for_them_alone(path: Path) -> None:
    ports = played(path, (form(), ACCEPTED))
    capabilities = {**FORMS, "roots": {}}
    d = Dialogue(FORWARD)
    d.client(modern(1, "tools/call", capabilities, name="x"))
    inputs = {"f": ask(form()), "r": {"method": "roots/list", "params": {}}}
    round = one(
        d.server(result(1, resultType="input_required", inputRequests=inputs, requestState="s")),
        Open,
    ).round
    conclusion = await ports.gate(d).run(round)
    assert isinstance(conclusion, ForwardRound)
    assert frozenset() == conclusion.keys
    (shown,) = to_client(d.done(round, conclusion))
    state = shown["result"]["requestState"]
    assert ["r"] == list(shown["result"]["inputRequests"])
    back = modern(2, "tools/call", capabilities, name="x", requestState=state, inputResponses={"r": {"roots": []}})
    again = one(d.client(back), Open).round
    assert ACCEPTED == content((await ports.settled(d, again))["f"].outcome)


async def test_links_of_an_error_do_not_go_to_the_client(path: Path) -> None:
    ports = played(path, (form(), ACCEPTED))
    d = Dialogue(FORWARD_URLS)
    d.open_legacy(elicitation={"url": {}})
    d.client(request(1, "tools/call", name="x"))
    round = one(d.server(error(1, -32042, data={"elicitations": [URL, URL]})), Open).round
    conclusion = await ports.gate(d).run(round)
    assert isinstance(conclusion, Settled)
    outcomes = [release.outcome for release in conclusion.releases.values()]
    reason, detail = unanswered(next(outcome for outcome in outcomes if isinstance(outcome, Unanswered)))
    assert (Reason.CANNOT, True) == (reason, f"fingerprint {fingerprint(URL)}" in detail)
    (shown,) = to_client(d.done(round, conclusion))
    assert "example.com" not in json.dumps(shown)


async def test_a_pushed_link_is_declined_as_it_was_and_never_accepted(path: Path) -> None:
    ports = played(path, (URL, {"action": "decline"}))
    d, round = pushed(FORWARD_URLS, method="elicitation/create", params=URL, elicitation={"url": {}})
    assert {"action": "decline"} == content((await ports.settled(d, round))[""].outcome)
    ports = played(path, (form(), ACCEPTED))
    d, round = pushed(FORWARD_URLS, method="elicitation/create", params=URL, elicitation={"url": {}})
    assert Reason.CANNOT is unanswered((await ports.settled(d, round))[""].outcome)[0]


async def test_a_delay_beyond_the_rules_timeout_is_a_timeout(path: Path) -> None:
    ports = FakePorts(replay=delayed(path).answer_forwarded)
    d, round = pushed({**FORWARD, "timeout": "1ms"}, sampling={})
    assert Reason.TIMEOUT is unanswered((await ports.settled(d, round))[""].outcome)[0]
