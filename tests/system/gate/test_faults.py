"""Faults of models and of the ledger, through the whole gate: the server's answer, the record, and the balances
afterwards."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate import sqlite
from samplegate.limits import async_ledger as state_module
from samplegate.limits.limiter import Limiter
from samplegate.limits.sqlite_ledger import FILE
from samplegate.policy.ledger import SCALE
from samplegate.policy.prompt import Sampled, SampleRequest, SampleResult
from samplegate.protocol.outcomes import Answered, Reason, Unanswered
from tests.fakes.gate_ports import FakePorts, pushed
from tests.fakes.ledger_faults import checkpoint, garbage, locked, moved
from tests.fakes.limits import NOON, Clock, Log
from tests.fakes.openai_endpoint import Endpoint
from tests.fakes.run_command import Client, RunCommand

PRICE: Final = {"input": 10, "output": 20}  # dollars a million
MOST: Final = 50  # output tokens that the server asks for
TOOLS: Final = [{"name": "look", "inputSchema": {"type": "object"}}]
DAYS: Final = 86_400.0
DOLLAR: Final = SCALE["usd"]


def cost(input_tokens: int, output_tokens: int) -> int:
    """A cost in the ledger's units."""
    return (input_tokens * PRICE["input"] + output_tokens * PRICE["output"]) * DOLLAR // 10**6


# ----------------------------------------------------------------------------------------------------------------------
# A model: one `samplegate run`, one worker, one endpoint; each model has accounts of its own

SAID: Final = cost(7, 3)  # what the endpoint reports by default
NOTHING, WORST = 0, -1

MODELS: Final[dict[str, tuple[str, str, int]]] = {
    # the model's name selects its behavior: (reason that the server gets, failure on record, what the ledger charges)
    "status-401": ("model", "bad_key", NOTHING),
    "retry-after": ("model", "rate_limited", NOTHING),
    "status-500": ("model", "error", WORST),
    "garbage": ("model", "error", WORST),
    "wrong-shape": ("model", "error", WORST),
    "empty": ("model", "empty", SAID),
    "none": ("model", "empty", SAID),
    "call-unknown": ("model", "error", SAID),
    "too-much": ("model", "ok", cost(7, 10_000)),
    "cut": ("model", "unreachable", WORST),
    "silence": ("model", "error", WORST),
    "breaks": ("model", "error", WORST),
    "drop": ("model", "unreachable", WORST),
    "hang": ("timeout", "timeout", WORST),
    "hang-later": ("timeout", "timeout", WORST),
}


def policy_for(url: str) -> str:
    names = ["normal", "no-usage", *MODELS, "killed"]
    own = {"killed": "hang"}
    models = [
        {"name": name, "model": f"openai/{own.get(name, name)}", "api_base": url, "api_key_env": "KEY", "price": PRICE}
        for name in names
    ]
    limits = {
        "money": {"usd": 100, "per": "day", "tz": "UTC", "by": ["model"]},
        "number": {"requests": 100, "per": "day", "tz": "UTC", "by": ["model"]},
        "one at a time": {"concurrent": 1},
    }
    rule = {"match": {"kind": "sampling"}, "effect": "allow", "limits": list(limits)}
    impatient = {
        "name": "hangs",
        **rule,
        "match": {"kind": "sampling", "hint": ["hang", "hang-later"]},
        "with": {"fallback": False, "timeout": "1s"},
    }
    policy = {
        "version": 1,
        "models": [{**model, "accepts": ["tools"]} for model in models],
        "limits": limits,
        "rules": [impatient, {"name": "models", **rule, "with": {"fallback": False}}],
    }
    return json.dumps(policy)


class Gate:
    """A gate around the bare server. Its client lets the server ask a model by name."""

    def __init__(self, wrapped: RunCommand, endpoint: Endpoint) -> None:
        self.wrapped, self.endpoint = wrapped, endpoint
        self.state = wrapped.folder / "state"
        (wrapped.folder / "policy.yaml").write_text(policy_for(endpoint.url))
        self.client: Client = wrapped("--state", str(self.state), environment={"KEY": "sk-secret"})
        self.client.initialize()
        self.ask("normal")  # the worker's start does not count for a hanging model's timeout

    def params(self, model: str) -> dict[str, Any]:
        tools = {"tools": TOOLS} if model.startswith("call") else {}
        preferences = {"hints": [{"name": model}]}
        return {
            "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
            "maxTokens": MOST,
            "modelPreferences": preferences,
            **tools,
        }

    def ask(self, model: str) -> dict[str, Any]:
        return self.client.ask("sampling/createMessage", self.params(model))

    def record(self) -> dict[str, Any]:
        return self.wrapped.records()[-1]

    def drawn(self, limit: str, model: str) -> int:
        """The charges in the ledger, in its units."""
        with closing(sqlite3.connect(self.state / FILE)) as state:
            rows = state.execute(
                "SELECT limit_name, level FROM accounts WHERE key = ?", (json.dumps([model]),)
            ).fetchall()
        return sum(level for stored, level in rows if json.loads(stored)[0] == limit)

    def slots(self) -> int:
        with closing(sqlite3.connect(self.state / FILE)) as state:
            (found,) = state.execute("SELECT count(*) FROM slots").fetchone()
        return int(found)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    wrapped = RunCommand(tmp_path_factory.mktemp("faults"))
    with Endpoint() as endpoint:
        try:
            yield Gate(wrapped, endpoint)
        finally:
            for process in wrapped.started:
                process.kill()
                process.communicate()


def is_as_told(gate: Gate, model: str, answer: Mapping[str, Any], expected: tuple[str, str, int]) -> None:
    reason, failure, kept = expected
    error, record = answer["error"], gate.record()
    assert (-1, "sampling", reason) == (error["code"], error["data"]["kind"], error["data"]["reason"])
    assert model not in error["message"]
    assert ("unanswered", reason, error["data"]["decision_id"]) == (
        record["outcome"],
        record["reason"],
        record["decision_id"],
    )
    (attempt,) = record["attempts"]
    worst = round(record["reserved_usd"] * DOLLAR)
    assert cost(0, MOST) < worst
    units = worst if kept == WORST else kept
    assert (model, failure, units) == (attempt["model"], attempt["result"], round(attempt["cost_usd"] * DOLLAR))
    assert units == gate.drawn("money", model)
    assert SCALE["requests"] == gate.drawn("number", model), "a request that was made counts"
    assert 0 == gate.slots(), "nobody holds the place of a request that is over"


@pytest.mark.parametrize("model", MODELS)
def test_what_a_model_does_wrong_is_an_error_to_the_server_and_a_true_figure_in_the_ledger(
    gate: Gate, model: str
) -> None:
    is_as_told(gate, model, gate.ask(model), MODELS[model])


def test_an_answer_without_usage_is_kept_at_its_worst_case(gate: Gate) -> None:
    assert "free" == gate.ask("no-usage")["result"]["content"]["text"]
    assert round(gate.record()["reserved_usd"] * DOLLAR) == gate.drawn("money", "no-usage")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc here")
def test_a_worker_that_is_killed_during_a_call_leaves_the_worst_case(gate: Gate) -> None:
    """tests/unit/sampler/test_client.py has the next call, which starts a new worker."""
    gate.endpoint.forget()
    arguments = {"ask": {"method": "sampling/createMessage", "params": gate.params("killed")}}
    gate.client.write(id=2, method="tools/call", params={"name": "t", "arguments": arguments})
    assert "hang" == gate.endpoint.next().body["model"]
    assert (True, 1) == (cost(0, MOST) < gate.drawn("money", "killed"), gate.slots()), "reserved before it was sent"
    for worker in _workers(gate.client.process.pid):
        os.kill(worker, signal.SIGKILL)
    answer = gate.client.read()["result"]["structuredContent"]
    is_as_told(gate, "killed", answer, ("model", "crashed", WORST))


def _workers(gate: int) -> list[int]:
    """The process ids of the gate's worker."""
    children = Path(f"/proc/{gate}/task/{gate}/children").read_text().split()
    return [
        int(child) for child in children if "samplegate.sampler.worker" in Path(f"/proc/{child}/cmdline").read_text()
    ]


# ----------------------------------------------------------------------------------------------------------------------
# The state and the clock: the gate in this process, on real accounts in a real file

DAY: Final[dict[str, Any]] = {
    "models": [{"name": "m", "model": "openai/m", "price": PRICE}],
    "limits": {"money": {"usd": 1, "per": "day", "tz": "UTC"}, "number": {"requests": 3, "per": "day", "tz": "UTC"}},
}
RULE: Final = {
    "name": "models",
    "match": {"kind": "sampling"},
    "effect": "allow",
    "with": {"models": ["m"]},
    "limits": ["money", "number"],
}


class Kept:
    """The gate on a state folder. Tests move ``clock`` by hand."""

    def __init__(self, state: Path) -> None:
        self.state, self.clock, self.log = state, Clock(), Log()
        self.ports = FakePorts(Sampled(({"type": "text", "text": "hi"},), "gpt", "endTurn", 7, 3))
        self._dialogue, self._round = pushed(RULE, policy=DAY)
        specs = self._dialogue.compiled.limit_specs
        assert all(one.shared for one in specs.values())
        self.admission = Limiter(specs, state=state, clock=self.clock, log=self.log)
        self.ports.limits = self.admission  # type: ignore[assignment]

    async def ask(self) -> Any:
        return (await self.ports.settled(self._dialogue, self._round))[""].outcome

    def drawn(self) -> dict[str, int]:
        with closing(sqlite3.connect(self.state / FILE)) as state:
            rows = state.execute("SELECT limit_name, level FROM accounts WHERE key = '[]'").fetchall()
        return {json.loads(name)[0]: level for name, level in rows}


@pytest.fixture
async def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(state_module, "PATIENCE", 0.7)
    made = Kept(tmp_path)
    yield made
    await made.admission.aclose()


ONCE: Final = {"money": SAID, "number": SCALE["requests"]}
TWICE: Final = {name: 2 * amount for name, amount in ONCE.items()}


def is_unavailable(kept: Kept, outcome: object, words: str) -> None:
    assert isinstance(outcome, Unanswered)
    assert (Reason.LIMIT, -1) == (outcome.reason, outcome.code)
    record = kept.ports.records[-1]
    assert ("unanswered", "money", ()) == (record.outcome, record.refused_by, record.attempts)
    assert words in (record.detail or "")
    assert str(kept.state) not in (record.detail or "")


@pytest.mark.anyio
@pytest.mark.parametrize("fault", ["locked", "corrupt"])
async def test_a_state_that_cannot_be_asked_leaves_the_server_unanswered_and_charges_nothing(
    kept: Kept, fault: str
) -> None:
    assert isinstance(await kept.ask(), Answered)
    if fault == "corrupt":
        checkpoint(kept.state)
    with locked(kept.state) if fault == "locked" else moved(kept.state, garbage):
        is_unavailable(
            kept,
            await kept.ask(),
            {"locked": "another process has locked it", "corrupt": "move limits.sqlite3 aside"}[fault],
        )
        assert 1 == len(kept.ports.asked), "no model is asked"
    assert ONCE == kept.drawn()
    assert isinstance(await kept.ask(), Answered)
    assert TWICE == kept.drawn()
    assert ["limits.unavailable", "limits.recovered"] == kept.log.names


@pytest.mark.anyio
async def test_a_full_disk_leaves_the_server_unanswered_and_charges_nothing(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_PAGES", 2)
    is_unavailable(kept, await kept.ask(), "free disk space")
    assert not kept.ports.asked
    monkeypatch.undo()
    assert isinstance(await kept.ask(), Answered)
    assert ONCE == kept.drawn()


@pytest.mark.anyio
async def test_a_state_that_fails_while_the_model_answers_gives_the_answer_and_keeps_the_worst_case_until_it_can_be_corrected(  # noqa: E501
    kept: Kept,
) -> None:
    assert isinstance(await kept.ask(), Answered)
    answer = kept.ports.answer

    async def answering(_: SampleRequest) -> SampleResult:
        held.enter_context(locked(kept.state))
        assert not callable(answer)
        return answer

    kept.ports.answer = answering
    with ExitStack() as held:
        assert isinstance(await kept.ask(), Answered)
        assert SAID + cost(0, 100) < kept.drawn()["money"], "not corrected yet"
        kept.ports.answer = answer
    assert isinstance(await kept.ask(), Answered)
    assert {name: 3 * amount for name, amount in ONCE.items()} == kept.drawn()


@pytest.mark.anyio
@pytest.mark.parametrize("jump", [-30 * DAYS, -3600.0, 3600.0], ids=["a month back", "an hour back", "an hour ahead"])
async def test_a_clock_that_jumps_within_its_day_or_back_frees_nothing(kept: Kept, jump: float) -> None:
    for _ in range(3):
        assert isinstance(await kept.ask(), Answered)
    kept.clock.now = NOON + jump
    outcome = await kept.ask()
    assert isinstance(outcome, Unanswered)
    assert (Reason.LIMIT, "number") == (outcome.reason, kept.ports.records[-1].refused_by)
    assert {name: 3 * amount for name, amount in ONCE.items()} == kept.drawn()
    kept.clock.now = NOON + DAYS
    assert isinstance(await kept.ask(), Answered)
    assert ONCE == kept.drawn()


@pytest.mark.anyio
@pytest.mark.parametrize("jump", [-DAYS, DAYS], ids=["a day back", "a day ahead"])
async def test_a_clock_that_jumps_while_the_model_answers_leaves_no_less_than_the_truth(
    kept: Kept, jump: float
) -> None:
    answer = kept.ports.answer

    async def answering(_: SampleRequest) -> SampleResult:
        kept.clock.now += jump
        assert not callable(answer)
        return answer

    kept.ports.answer = answering
    assert isinstance(await kept.ask(), Answered)
    record = kept.ports.records[-1]
    assert record.reserved_usd is not None
    assert SAID == record.usd
    assert SAID <= kept.drawn()["money"] <= record.reserved_usd
    assert SCALE["requests"] == kept.drawn()["number"]


@pytest.mark.anyio
async def test_among_a_hundred_thousand_keys_the_server_is_answered_and_its_own_key_is_charged(kept: Kept) -> None:
    assert isinstance(await kept.ask(), Answered)
    with closing(sqlite3.connect(kept.state / FILE)) as state, state:
        found = state.execute("SELECT limit_name, level, stamp, warned FROM accounts").fetchall()
        for name, *rest in found:
            rows = ((name, f'["{number}"]', *rest) for number in range(100_000))
            state.executemany("INSERT INTO accounts VALUES(?, ?, ?, ?, ?)", rows)
    assert isinstance(await kept.ask(), Answered)
    assert TWICE == kept.drawn()
    with closing(sqlite3.connect(kept.state / FILE)) as state:
        assert (2 * 100_000 + 2,) == state.execute("SELECT count(*) FROM accounts").fetchone()
    kept.clock.now += 2 * DAYS
    assert isinstance(await kept.ask(), Answered)
    assert ONCE == kept.drawn(), "a day of other keys is no day of ours"
