"""The status of a process: what its conversations do, in bounded time, and what is used of its limits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import anyio
import pytest

from samplegate.limits.balances import Balance, Balances
from samplegate.policy.ledger import Draw, LimitSpec
from samplegate.protocol.session_state import Inflight, OpenCall
from samplegate.runtime.status import MAX_CALLS, StatusSource, conversations, limit_rows
from samplegate.status.snapshot import MAX_LISTED, CallStatus, RequestStatus
from tests.unit.runtime.test_process import Conversation, process_context, rules

DRAW: Final = Draw("room", "[]", 1)


def conversation(number: int, calls: int, *, tool: str = "work", caller: str = "ci") -> Any:
    """What the status needs of a conversation. Its calls are as many seconds old as their number."""
    found = [OpenCall(1, id, "tools/call", tool, 100.0 - id, caller) for id in range(calls)]
    state = SimpleNamespace(
        token=f"{number:08x}",
        caller=caller,
        client_name="editor 1.0",
        revision="2025-11-25",
        answered=True,
        inflight=Inflight(),
        caller_on=lambda _stream: caller,
    )
    session = SimpleNamespace(open_calls=lambda: list(found))
    return SimpleNamespace(
        state=state, relay=SimpleNamespace(session=session), server="db", began=float(number), rounds={}
    )


def test_ten_thousand_sessions_are_counted_and_the_oldest_listed() -> None:
    found = conversations((conversation(number, 1) for number in reversed(range(10_000))), 20_000.0)
    assert (10_000, MAX_LISTED) == (found.sessions.total, len(found.sessions.items))
    assert ["00000000", "00000001"] == [each.id for each in found.sessions.items[:2]]
    assert (10_000, MAX_LISTED) == (found.calls.total, len(found.calls.items))
    assert (10_000, 10_000) == (found.by_server["db"].sessions, found.by_server["db"].calls)


def test_calls_beyond_the_bound_are_counted_but_not_looked_at() -> None:
    def never() -> Any:
        pytest.fail("it was looked at")

    last = conversation(3, 0)
    last.relay.session.open_calls = never
    last.state.inflight.asked = {(1, id): object() for id in range(7)}
    found = conversations([conversation(1, MAX_CALLS), last], 200.0)
    assert MAX_CALLS + 7 == found.calls.total
    assert (199.0, MAX_LISTED) == (found.calls.items[0].age, len(found.calls.items))


def test_text_of_peers_is_printable_and_cut() -> None:
    hostile = "\x1b[2J\u202e" + "x" * 2000
    found = conversations([conversation(1, 1, tool=hostile, caller=hostile)], 200.0)
    for text in (found.calls.items[0].tool, found.calls.items[0].caller, found.sessions.items[0].caller):
        assert text is not None
        assert text.isprintable()
        assert len(text) <= 200


def test_accounts_are_rows_and_unused_limits_have_one() -> None:
    day = LimitSpec("daily", "usd", 5 * 10**12, "day", by=("caller",), shared=True)
    slots = LimitSpec("calls", "concurrent", 3, "slots")
    found = Balances((Balance(day, True, '["ci"]', 2 * 10**12, 4600.0),), 1)
    rows = limit_rows(found, {"a": day, "b": slots}, 1000.0, {("a", '["ci"]'): 2, ("b", "[]"): 1})
    assert 2 == rows.total
    assert [
        ("daily", {"caller": "ci"}, 5.0, 2.0, 3.0, 3600.0, 2, True),
        ("calls", {}, 3.0, 0.0, 3.0, None, 1, False),
    ] == [
        (row.limit, row.key, row.max, row.used, row.left, row.resets_in, row.waiting, row.shared) for row in rows.items
    ]


@pytest.fixture
def talking(tmp_path: Path) -> tuple[Conversation, StatusSource]:
    context = process_context(rules(tmp_path, "one"), tmp_path)
    settings: Any = SimpleNamespace(reviews="sqlite:none")
    source = StatusSource("run", context, settings, policy=tmp_path / "policy.yaml", started=0.0)
    return Conversation(context), source


@pytest.mark.anyio
async def test_a_request_that_waits_for_a_limit_is_told(talking: tuple[Conversation, StatusSource]) -> None:
    conversation, source = talking
    relay = conversation.wiring.relay

    async def until() -> None:
        conversation.begin()
        status = await source()
        assert "default" == status.servers.items[0].name
        assert (1, "ready", "2025-11-25") == (
            status.sessions.total,
            status.servers.items[0].state,
            status.servers.items[0].protocol,
        )
        await conversation.wiring.context.admission.reserve([DRAW], None)
        await conversation.ask(7)
        status = await source()
        (asked,) = status.requests.items
        assert ("limit", "room", "allow", "all", "sampling") == (
            asked.waits_for,
            asked.name,
            asked.effect,
            asked.rule,
            asked.kind,
        )
        (limit,) = status.limits.items
        assert ("room", 1.0, 1.0, 0.0, 1) == (limit.limit, limit.used, limit.max, limit.left, limit.waiting)

    with anyio.fail_after(20):
        await relay.run(until)
    assert 0 == (await source()).requests.total


def test_no_struct_has_room_for_content() -> None:
    """A field for content would have to be added here first."""
    assert {"server", "caller", "session", "method", "tool", "age"} == set(CallStatus.__struct_fields__)
    assert {
        "decision_id", "server", "caller", "session", "tool", "kind", "rule", "effect", "waits_for", "name", "age",
        "expires_in",
    } == set(RequestStatus.__struct_fields__)  # fmt: skip
