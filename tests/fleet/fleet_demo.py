"""PostgreSQL, HAProxy and three gates, of which one after another is killed and restarted while clients of both
protocol versions work: `python -m tests.fleet.fleet_demo [--turns N]`. The programs are Debian's.

The clients spend one dollar that the gates share, and ask a reviewer, who decides in the database. A client that loses
its gate begins again, and repeats its call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import aiohttp
import psycopg

from samplegate.policy.ledger import SCALE
from samplegate.reviews.review import Filter, Verdict
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes import postgresql
from tests.fakes.daemon import Client, asking
from tests.fleet.balancers import balancing
from tests.fleet.gates import FleetGate, fleet
from tests.fleet.load import DEADLINE, client

CENT: Final = SCALE["usd"] // 100
"""What each sample costs, and at most may cost."""
POLICY: Final[dict[str, Any]] = {
    "version": 1,
    "models": [{"name": "cents", "model": "scripted", "cases": "cases.yaml", "price": {"input": 0, "output": 10}}],
    "limits": {"dollar": {"usd": 1, "per": "month", "tz": "UTC"}},
    "reviewers": {"ops": {"timeout": "10m"}},
    "rules": [
        {
            "name": "samples", "match": {"kind": "sampling"}, "effect": "allow",
            "with": {"models": ["cents"], "max_tokens": 1_000}, "limits": ["dollar"],
        },
        {"name": "forms", "match": {"kind": "elicitation"}, "effect": "escalate", "reviewer": "ops"},
    ],
}  # fmt: skip
CASES: Final = json.dumps({"cases": [{"name": "all", "answer": "yes", "input_tokens": 0, "output_tokens": 1_000}]})
SAMPLE: Final = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 1_000}
Era: TypeAlias = Literal["legacy", "modern"]
ERAS: Final[tuple[Era, ...]] = ("legacy", "modern")
CLIENTS: Final = 4
"""Of each kind: samples and forms, in either protocol version."""


def form(note: str) -> dict[str, Any]:
    """A form that differs for each call."""
    schema = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}
    return {"ask": {"method": "elicitation/create", "params": {"message": note, "requestedSchema": schema}}}


@dataclass
class Done:
    """What the clients got."""

    samples: int = 0
    refused: int = 0
    forms: dict[str, int] = field(default_factory=dict)
    """Answers by the form's note."""
    lost: Counter[str] = field(default_factory=Counter)
    """Calls that ended with their gate, by the reason. Each was repeated."""
    stopped: bool = False


async def called(c: Client, era: Era, arguments: dict[str, Any]) -> dict[str, Any]:
    """One call to its end. In 2026-07-28, the gate puts it off while a reviewer looks at it."""
    if era == "legacy":
        if "mcp-session-id" not in c.session:
            opened = await c.begin()
            if "result" not in opened:
                return opened
        return await c.call("legacy", 1, **arguments)
    answer = await c.call("modern", 1, **arguments)
    while answer.get("result", {}).get("resultType") == "input_required":
        state = answer["result"]["requestState"]
        answer = await c.modern("tools/call", 2, name="do", arguments=arguments, requestState=state, inputResponses={})
    return answer


async def repeated(c: Client, era: Era, arguments: dict[str, Any], done: Done) -> dict[str, Any]:
    """A call, repeated from the start until it has an answer of the server."""
    while True:
        try:
            async with asyncio.timeout(DEADLINE):
                answer = await called(c, era, arguments)
        except (TimeoutError, aiohttp.ClientError, ValueError) as problem:
            done.lost[type(problem).__name__] += 1
        else:
            if "result" in answer:
                found: dict[str, Any] = answer["result"]
                return found
            done.lost[str(answer.get("error", {}).get("message", "no answer"))[:60]] += 1
        c.session = {}
        await asyncio.sleep(0.05)


async def samples(c: Client, era: Era, done: Done) -> None:
    """Spend the dollar."""
    while not done.stopped:
        text = json.dumps(await repeated(c, era, {"ask": {"method": "sampling/createMessage", "params": SAMPLE}}, done))
        if '\\"yes\\"' in text or '"yes"' in text:
            done.samples += 1
        else:
            done.refused += 1


async def forms(c: Client, era: Era, who: str, done: Done) -> None:
    """Ask the reviewer."""
    number = 0
    while not done.stopped:
        note = f"{who}-{number}"
        text = json.dumps(await repeated(c, era, form(note), done))
        assert "confirm" in text, text
        done.forms[note] = done.forms.get(note, 0) + 1
        number += 1


def decide(store: SqlReviewStore) -> int:
    """Answer all pending forms. Returns how many."""
    pending = store.list(Filter(states=("pending",), limit=200))
    for review in pending:
        result = {"action": "accept", "content": {"confirm": True}}
        store.decide(review.id, Verdict(word="answer", result=result), who="ann", door="cli")
    return len(pending)


async def reviewer(url: str) -> None:
    """A person who decides everything within a moment, until cancelled."""
    store = SqlReviewStore(url)
    try:
        while True:
            await asyncio.to_thread(decide, store)
            await asyncio.sleep(0.1)
    finally:
        store.close()


async def kill_in_turn(gates: list[FleetGate], turns: int) -> None:
    """Kill one gate after another, and start it again."""
    for turn in range(turns):
        gate = gates[turn % len(gates)]
        await asyncio.sleep(1.0)
        await gate.end(signal.SIGKILL)
        await asyncio.sleep(0.5)
        await gate.start()
        print(f"{gate.name} was killed and started again", flush=True)


async def demo(folder: Path, place: str, turns: int) -> Done:
    """Run it, and return what the clients got."""
    url, done = postgresql.url(place), Done()
    program, *arguments = asking("legacy+modern")
    (folder / "gates").mkdir()
    (folder / "haproxy").mkdir()
    async with AsyncExitStack() as stack:
        gates = await stack.enter_async_context(
            fleet(
                folder / "gates",
                policy=POLICY,
                files={"cases.yaml": CASES},
                servers={"one": {"command": program, "args": arguments}},
                database=url,
                decision_log="database",
            )
        )
        balancer = await stack.enter_async_context(balancing("haproxy", folder / "haproxy", gates))
        deciding = asyncio.ensure_future(reviewer(url))
        workers = []
        for number in range(CLIENTS):
            for era in ERAS:
                for kind in ("samples", "forms"):
                    c = await stack.enter_async_context(client(balancer.url, "one", f"{kind}-{era}-{number}"))
                    work = samples(c, era, done) if kind == "samples" else forms(c, era, f"{era}-{number}", done)
                    workers.append(asyncio.ensure_future(work))
        try:
            await kill_in_turn(gates, turns)
            done.stopped = True
            await asyncio.wait_for(asyncio.gather(*workers), 4 * DEADLINE)
        finally:
            for task in (deciding, *workers):
                task.cancel()
            await asyncio.gather(deciding, *workers, return_exceptions=True)
    return done


@dataclass(frozen=True)
class Told:
    """What the database tells afterwards."""

    charged: int
    """Units of the dollar."""
    answered: int
    """Recorded answers of samples."""
    used: Counter[str]
    """How often the verdict of each review was used."""


def told(place: str) -> Told:
    """Read the database."""
    with psycopg.connect(place) as db:
        (charged,) = db.execute("SELECT sum(level) FROM samplegate.accounts").fetchone() or (0,)
        rows = db.execute(
            "SELECT count(*) FROM samplegate.decisions WHERE kind = 'sampling' AND outcome = 'answered'"
        ).fetchone()
        used = db.execute("SELECT review FROM samplegate.review_events WHERE what = 'used'").fetchall()
    return Told(int(charged or 0), rows[0] if rows else 0, Counter(review for (review,) in used))


def faults(done: Done, found: Told) -> list[str]:
    """What is wrong; nothing, if all is well."""
    wrong = []
    if found.charged > SCALE["usd"] or found.answered * CENT > SCALE["usd"]:
        wrong.append(f"more than a dollar was spent: {found.charged / SCALE['usd']:.2f}, {found.answered} answers")
    if not done.samples <= found.answered:
        wrong.append(f"{done.samples} samples arrived, but {found.answered} are recorded")
    if found.answered * CENT > found.charged:
        wrong.append(f"{found.answered} answers are recorded, but only {found.charged} units are charged")
    twice = [review for review, times in found.used.items() if times > 1]
    if twice:
        wrong.append(f"verdicts that were used twice: {twice}")
    if sum(done.forms.values()) > len(found.used):
        wrong.append(f"{sum(done.forms.values())} forms were answered by {len(found.used)} verdicts")
    return wrong


def main() -> int:
    """Print what happened. Returns 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=6, help="how many times a gate is killed (default: 6)")
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as folder, postgresql.postgresql() as place:
        done = asyncio.run(demo(Path(folder), place, turns))
        found = told(place)
    print(f"samples: {done.samples} arrived, {done.refused} refused; {found.answered} recorded as answered")
    print(f"dollar:  {found.charged / SCALE['usd']:.2f} charged")
    print(f"forms:   {len(done.forms)} answered, by {len(found.used)} verdicts, each used once")
    print(f"repeated calls: {dict(done.lost)}")
    wrong = faults(done, found)
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
