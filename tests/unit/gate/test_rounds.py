"""Rounds with several requests under limits that they share with each other and with other rounds, and the entry points
where a limit applies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from samplegate.gate.gate import Gate
from samplegate.limits.limiter import Limiter
from samplegate.policy.ledger import Draw, Refused, Reserved
from samplegate.policy.prompt import SampleFailed
from samplegate.policy.redaction import Redactor
from samplegate.protocol.outcomes import Answered, Reason, Unanswered
from samplegate.protocol.rounds import Note, Open, Returned, Settled
from tests.fakes.dialogue import Dialogue, error, one, request, sample
from tests.fakes.gate_ports import FakePorts, asked, pushed
from tests.fakes.limits import Clock, Log, Timer, Timers, all_blocked
from tests.unit.gate.test_limits import MODELS, allow

pytestmark = pytest.mark.anyio


class NotifyingTimers(Timers):
    """Timers that report when one is set."""

    def __init__(self, clock: Clock, notify: Callable[[], None]) -> None:
        super().__init__(clock)
        self._notify = notify

    def __call__(self, seconds: float, what: Callable[[], None]) -> Timer:
        self._notify()
        return super().__call__(seconds, what)


class LimitedGate:
    """A gate with real limits and a clock that the test moves."""

    def __init__(self, d: Dialogue, folder: Path, answer: Any = None) -> None:
        self.clock = Clock()
        self._news = anyio.Event()
        self.timers = NotifyingTimers(self.clock, lambda: self._news.set())
        self.ports = FakePorts() if answer is None else FakePorts(answer)
        self.admission = Limiter(d.compiled.limit_specs, state=folder, clock=self.clock, log=Log(), later=self.timers)
        self.ports.limits.reserve, self.ports.limits.settle = self.admission.reserve, self.admission.settle  # type: ignore[method-assign]
        self.gate: Gate = self.ports.gate(d)
        self.ended: dict[str, Settled] = {}

    async def run(self, round: Any, name: str) -> None:
        conclusion = await self.gate.run(round)
        assert isinstance(conclusion, Settled)
        self.ended[name] = conclusion
        self._news.set()

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait for timers to be set or rounds to end. Checkpoints of the event loop do not suffice, because the state
        has a thread of its own."""
        with anyio.fail_after(30):
            while not what():
                self._news = anyio.Event()
                await self._news.wait()

    def reason(self, name: str, key: str) -> Reason | None:
        outcome = self.ended[name].releases[key].outcome
        return (
            None
            if isinstance(outcome, Answered)
            else outcome.reason
            if isinstance(outcome, Unanswered)
            else Reason.RULE
        )

    @property
    def held(self) -> int:
        return len(self.admission._held)


def policy(**limits: Mapping[str, Any]) -> dict[str, Any]:
    return {"models": MODELS, "limits": limits}


async def test_a_round_that_needs_more_slots_than_there_are_does_not_wait_for_its_own(tmp_path: Path) -> None:
    d, round = asked(
        allow("room", on_limit="wait"), policy=policy(room={"concurrent": 1}), a=sample("a"), b=sample("b")
    )
    limited = LimitedGate(d, tmp_path)
    async with anyio.create_task_group() as group:
        group.start_soon(limited.run, round, "it")
        await all_blocked()
        assert ["it"] == list(limited.ended), "it waits for what it holds itself"
    assert Reason.LIMIT is limited.reason("it", "b")
    assert not limited.held


async def test_two_rounds_do_not_wait_for_what_each_holds(tmp_path: Path) -> None:
    rules = (allow("first", "second", on_limit="wait"),)
    limits = policy(first={"concurrent": 2}, second={"concurrent": 4})
    d, one_round = asked(*rules, policy=limits, a=sample("a"), b=sample("b"))
    _, other_round = asked(*rules, policy=limits, a=sample("c"), b=sample("d"))
    limited = LimitedGate(d, tmp_path)
    real, tries = limited.ports.gate(d).ports.reserve, 0

    async def slow(draws: Sequence[Draw], wait: float | None) -> Reserved | Refused:
        """Each round gets its first request's slot before any gets its second's, as with a state on a disk."""
        nonlocal tries
        tries += 1
        got = await real(draws, wait)
        if tries <= 2:
            await all_blocked()
        return got

    limited.ports.limits.reserve = slow  # type: ignore[method-assign]
    limited.gate = limited.ports.gate(d)
    async with anyio.create_task_group() as group:
        group.start_soon(limited.run, one_round, "one")
        group.start_soon(limited.run, other_round, "other")
        for _ in range(10):
            await all_blocked()
        assert {"one", "other"} == set(limited.ended), "each waits for the slot that the other holds"
    assert [None] * 4 == [limited.reason(name, key) for name in ("one", "other") for key in ("a", "b")]
    assert not limited.held


async def test_a_round_that_waits_holds_nothing_that_others_could_use(tmp_path: Path) -> None:
    wide = allow("room", "wide", on_limit="wait")
    narrow = {**allow("narrow", on_limit="wait"), "name": "narrow", "match": {"kind": "sampling", "text": "narrow"}}
    free = {**allow("wide"), "name": "free", "match": {"kind": "sampling", "text": "free"}}
    limits = policy(room={"concurrent": 9}, wide={"concurrent": 1}, narrow={"requests": 1, "per": "30s"})
    d, first = asked(free, narrow, wide, policy=limits, a=sample("narrow"))
    _, waits = asked(free, narrow, wide, policy=limits, a=sample("b"), b=sample("narrow"))
    _, passes = pushed(free, narrow, wide, policy=limits, params=sample("free"))
    limited = LimitedGate(d, tmp_path)
    await limited.run(first, "first")
    async with anyio.create_task_group() as group:
        group.start_soon(limited.run, waits, "waits")
        await all_blocked()
        assert "waits" not in limited.ended
        assert not limited.held
        await limited.timers.pass_(31)
        assert (None, None) == (limited.reason("waits", "a"), limited.reason("waits", "b"))
    await limited.run(passes, "passes")
    assert limited.reason("passes", "") is None
    assert not limited.held


async def test_slots_that_were_reserved_together_are_free_when_the_last_of_them_is_over(tmp_path: Path) -> None:
    go = {name: anyio.Event() for name in "abc"}

    async def slow(asked_: Any) -> Any:
        await go[asked_.params["messages"][0]["content"]["text"]].wait()
        return FakePorts().answer

    limits = policy(room={"concurrent": 2})
    rule = allow("room", on_limit="wait")
    d, first = asked(rule, policy=limits, a=sample("c"))
    _, second = asked(rule, policy=limits, a=sample("a"), b=sample("b"))
    limited = LimitedGate(d, tmp_path, slow)

    async def room() -> bool:
        got = await limited.admission.reserve([Draw("room", "[]", 1)], None)
        if isinstance(got, Reserved):
            await limited.admission.settle(got, ())
        return isinstance(got, Reserved)

    async with anyio.create_task_group() as group:
        group.start_soon(limited.run, first, "first")
        await all_blocked()
        group.start_soon(limited.run, second, "second")
        await all_blocked()
        assert 1 == len(limited.ports.asked), "there is room for one of two: neither is asked"
        go["c"].set()
        await all_blocked()
        assert 3 == len(limited.ports.asked)
        go["a"].set()
        await all_blocked()
        assert not await room()
        go["b"].set()
    assert await room()
    assert not limited.held


async def test_a_request_that_waited_in_vain_leaves_the_others_of_its_round_what_they_had(tmp_path: Path) -> None:
    params = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}
    form = {
        "name": "f",
        "match": {"kind": "elicitation"},
        "effect": "answer",
        "content": {"ok": True},
        "limits": ["forms"],
        "on_limit": "wait",
    }
    limits = policy(forms={"requests": 1, "per": "1h"}, room={"concurrent": 1})
    d, first = asked(form, allow("room"), policy=limits, a=params)
    _, second = asked(form, allow("room"), policy=limits, a=sample("a"), b=params)
    limited = LimitedGate(d, tmp_path)
    await limited.run(first, "first")
    async with anyio.create_task_group() as group:
        group.start_soon(limited.run, second, "second")
        await limited.until(lambda: limited.timers.left > 0)
        await limited.timers.pass_(400)
        await limited.until(lambda: "second" in limited.ended)
    assert (None, Reason.LIMIT) == (limited.reason("second", "a"), limited.reason("second", "b"))
    assert not limited.held
    await limited.admission.aclose()


async def test_a_warning_that_cannot_be_told_leaves_nothing_reserved(tmp_path: Path) -> None:
    d, round = pushed(
        allow("few", "room"), policy=policy(few={"requests": 2, "per": "1m", "warn_at": 0.5}, room={"concurrent": 1})
    )
    limited = LimitedGate(d, tmp_path)

    def broken(note: Note) -> None:
        raise RuntimeError(note.event)

    limited.ports.notes = type("Notes", (), {"append": staticmethod(broken)})()
    limited.gate = limited.ports.gate(d)
    await limited.run(round, "it")
    assert Reason.ERROR is limited.reason("it", "")
    assert not limited.held


async def test_a_limit_that_a_fallback_takes_over_its_mark_is_warned_of(tmp_path: Path) -> None:
    limits = policy(tokens={"output_tokens": 1000, "per": "1m", "warn_at": 0.14})
    d, round = pushed(allow("tokens", models=("cheap", "dear")), policy=limits)
    limited = LimitedGate(d, tmp_path, SampleFailed("unreachable", "503"))
    await limited.run(round, "it")
    assert ["limit.warned"] == [note.event for note in limited.ports.notes if note.event == "limit.warned"]


URL = {"mode": "url", "elicitationId": "e", "url": "https://a.example/x", "message": "open"}
URLS = {"name": "urls", "match": {"kind": "elicitation", "mode": "url"}, "effect": "forward"}


def failed(d: Dialogue, id: int, urls: int = 1) -> Any:
    """The round of a call that fails with URLs."""
    d.client(request(id, "tools/call", name="x"))
    return one(d.server(error(id, -32042, data={"elicitations": [URL] * urls})), Open).round


async def test_a_limit_holds_for_urls_in_an_error_too(tmp_path: Path) -> None:
    d = Dialogue({**URLS, "limits": ["few"]}, limits={"few": {"requests": 2, "per": "1m"}})
    d.open_legacy(elicitation={"url": {}})
    limited = LimitedGate(d, tmp_path)
    for number in (1, 2, 3):
        await limited.run(failed(d, number), str(number))
    assert [None, None, Reason.LIMIT] == [limited.reason(str(number), "0") for number in (1, 2, 3)]
    assert not limited.held


async def test_also_one_that_counts_by_call(tmp_path: Path) -> None:
    d = Dialogue({**URLS, "limits": ["loop"]}, limits={"loop": {"requests": 2, "per": "call"}})
    d.open_legacy(elicitation={"url": {}})
    limited = LimitedGate(d, tmp_path)
    await limited.run(failed(d, 1, urls=2), "two")
    await limited.run(failed(d, 2, urls=3), "three")
    assert limited.reason("two", "0") is None
    (blocked,) = [
        release.outcome
        for release in limited.ended["three"].releases.values()
        if isinstance(release.outcome, Unanswered)
    ]
    assert Reason.LIMIT is blocked.reason
    assert not limited.held


async def test_urls_that_could_not_be_recorded_draw_nothing(tmp_path: Path) -> None:
    d = Dialogue({**URLS, "limits": ["few"]}, limits={"few": {"requests": 1, "per": "1m"}})
    d.open_legacy(elicitation={"url": {}})
    limited = LimitedGate(d, tmp_path)
    limited.ports.broken_log = True
    await limited.run(failed(d, 1), "lost")
    limited.ports.broken_log = False
    await limited.run(failed(d, 2), "kept")
    assert (Reason.RECORDS, None) == (limited.reason("lost", "0"), limited.reason("kept", "0"))


async def test_a_fault_while_a_record_is_made_is_no_answer_and_takes_no_other_record_with_it(tmp_path: Path) -> None:
    rule = {**allow(), "with": {"models": ["cheap"], "secrets": {"prompt": "keep", "answer": "redact"}}}
    params = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}
    form = {"name": "f", "match": {"kind": "elicitation"}, "effect": "answer", "content": {"ok": True}}
    d, round = asked(rule, form, policy={**policy(), "secrets": {"x": "XXX"}}, a=sample("a"), b=params)
    limited = LimitedGate(d, tmp_path)

    class Broken:
        """A redactor with a bug."""

        def hits(self, text: bytes) -> Any:
            if text == b"a":
                raise RuntimeError("a bug")
            return ()

    limited.gate = Gate(replace(d.compiled, redactor=Redactor(Broken())), "hash", limited.gate.ports)  # type: ignore[arg-type]
    await limited.run(round, "it")
    assert (Reason.RECORDS, None) == (limited.reason("it", "a"), limited.reason("it", "b"))
    assert ["b"] == [record.key for record in limited.ports.records]


async def test_a_retry_that_is_withdrawn_while_it_is_decided_is_recorded_under_its_first_name() -> None:
    ports = FakePorts()
    d, round = asked({"name": "r", "match": {"kind": "sampling"}, "effect": "deny"}, a=sample("x" * 70_000))
    with anyio.CancelScope() as scope:
        scope.cancel()  # this much is decided off the event loop, where it can be cancelled
        await ports.gate(d).run(
            msgspec.structs.replace(round, returned=Returned(replies={}, seen={}, ids={"a": "first"}))
        )
    assert [("first", "withdrawn")] == [(record.decision_id, record.outcome) for record in ports.records]
