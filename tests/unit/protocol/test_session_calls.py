"""The call that a request belongs to, for limits per call, and the progress from a model's tokens (R16, R101)."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.protocol.rounds import Open
from tests.fakes.dialogue import (
    FORWARD,
    Dialogue,
    ask,
    form,
    modern,
    one,
    request,
    result,
    sample,
    to_client,
    to_server,
)

ALLOW = {"name": "models", "match": {"kind": "sampling"}, "effect": "allow"}


def legacy() -> Dialogue:
    d = Dialogue(ALLOW)
    d.open_legacy()
    return d


def pushed(d: Dialogue, id: int, **more: Any) -> Any:
    return one(d.server(request(id, "sampling/createMessage", **sample(), **more)), Open).round


def test_two_requests_during_one_call_belong_to_the_same_call_and_another_call_is_another() -> None:
    d = legacy()
    d.client(request(1, "tools/call", name="x"))
    first, second = pushed(d, 7), pushed(d, 8)
    assert first.call_ids == second.call_ids
    d.server(result(1, content=[]))
    d.client(request(2, "tools/call", name="x"))
    assert first.call_ids != pushed(d, 9).call_ids


def test_with_several_calls_in_flight_each_is_a_candidate_even_where_they_are_alike() -> None:
    d = legacy()
    d.client(request(1, "tools/call", name="x"))
    d.client(request(2, "tools/call", name="x"))
    round = pushed(d, 7)
    assert 2 == len(set(round.call_ids))
    assert 1 == len(round.origin.calls)


def test_with_no_call_in_flight_it_is_counted_under_the_session() -> None:
    round = pushed(legacy(), 7)
    assert (round.session,) == round.call_ids


def test_a_call_keeps_its_name_over_retries_of_the_gate_and_of_the_client() -> None:
    d = Dialogue(ALLOW, {**FORWARD, "match": {"kind": "elicitation"}})
    d.client(modern(1, "tools/call", {"elicitation": {}}, name="x"))
    first = d.server(result(1, resultType="input_required", inputRequests={"a": ask(sample())}))
    name = one(first, Open).round.call_ids
    (retry,) = to_server(d.settle(first))
    second = d.server(result(retry["id"], resultType="input_required", inputRequests={"b": ask(form())}))
    assert name == one(second, Open).round.call_ids
    (asked,) = to_client(d.hand_on(second, "b"))
    back = modern(2, "tools/call", {"elicitation": {}}, name="x")
    back["params"] |= {"requestState": asked["result"]["requestState"], "inputResponses": {"b": {"action": "decline"}}}
    assert name == one(d.client(back), Open).round.call_ids
    d.client(modern(3, "tools/call", {"elicitation": {}}, name="x"))
    other = d.server(result(3, resultType="input_required", inputRequests={"a": ask(sample())}))
    assert name != one(other, Open).round.call_ids


def test_tokens_are_told_on_the_servers_series_and_never_fall() -> None:
    d = legacy()
    round = pushed(d, 7, _meta={"progressToken": "t"})
    told = [
        to_server(d.session.round_progress(round.id, tokens))[0]["params"]["progress"] for tokens in (0, 40, 40, 12)
    ]
    assert told == sorted(set(told)), "each is more than the one before"
    assert 40 == told[1]


@pytest.mark.parametrize("tokens", [0, 40])
def test_without_a_token_of_the_peer_nothing_is_told(tokens: int) -> None:
    d = legacy()
    round = pushed(d, 7)
    assert [] == d.session.round_progress(round.id, tokens)
