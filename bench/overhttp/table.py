"""Rows of the benchmarks over HTTP: ratios to the floor, and each peer that serves the era beside the gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.overhttp.calls import BASE, FORWARDING, HTTP, MANY, STDIO, Call, Found, find_call
from bench.overhttp.programs import FLOOR
from bench.overhttp.reloads import Reloads
from bench.overhttp.rounds import Rounds
from bench.overhttp.sessions import CALLERS, Idle, Sessions
from bench.overhttp.wire import ERAS, Era
from bench.row import Row, beside_base, us
from tests.fakes.hostile_traffic import MOST_STALL, Stall
from tests.fakes.rounds import Tally

MAX_FLOOR_RATIO: Final = 2.0  # times the floor
MAX_IDLE_RATIO: Final = 2.0  # times the same without idle sessions
_OURS: Final = frozenset({FLOOR, FORWARDING, STDIO, HTTP, *BASE.values()})


def calls(found: Found) -> list[Row]:
    """Rows of calls, by era and by the kind of server behind."""
    return [row for era in ERAS for name in (STDIO, HTTP) for row in _calls(found, name, era)]


def _calls(found: Found, name: str, era: Era) -> Sequence[Row]:
    gate, floor, forwarding = (
        find_call(found, name, era),
        find_call(found, FLOOR, era),
        find_call(found, FORWARDING, era),
    )
    if gate is None or floor is None or forwarding is None:
        return []
    behind = "stdio" if name == STDIO else "HTTP"
    beside = [floor] + ([forwarding] if name == HTTP else [])
    peers = [call for call in found.calls if call.era == era and call.name not in _OURS] if name == STDIO else []
    cannot = (
        [f"{peer} cannot" for peer, which, _ in found.refused if which == era and peer not in _OURS]
        if name == STDIO
        else []
    )
    cannot += (
        [f"{peer} failed: {why}" for peer, which, why in found.failed if which == era and peer not in _OURS]
        if name == STDIO
        else []
    )
    times, part = gate.p50 / floor.p50, gate.rate / floor.rate
    quick = times <= MAX_FLOOR_RATIO and all(gate.p50 < peer.p50 for peer in peers)
    many = part >= 1 / MAX_FLOOR_RATIO and all(gate.rate > peer.rate for peer in peers)
    all_peers = ", before every peer" if name == STDIO else ""
    cpu = "" if gate.cpu is None else f", {gate.cpu:.0f} us of CPU each"
    core = "one core" if found.one_core else "all cores"
    return [
        Row(
            f"a call over HTTP, {era}, {behind} behind, p50",
            f"{us(gate.p50)} ({times:.2f} x the floor), p99 {us(gate.p99)}",
            "; ".join([*(f"{call.name} {us(call.p50)}, p99 {us(call.p99)}" for call in [*beside, *peers]), *cannot]),
            f"at most {MAX_FLOOR_RATIO:.0f} x the floor{all_peers}",
            quick,
        ),
        Row(
            f"the same, {MANY} at a time on {core}",
            f"{gate.rate:,.0f} a second ({part:.2f} x the floor){cpu}",
            "; ".join(_rate(call) for call in [*beside, *peers]),
            f"at least {1 / MAX_FLOOR_RATIO:.1f} x the floor{all_peers}",
            many,
        ),
        *_base(found, gate, name, era),
    ]


def _base(found: Found, gate: Call, name: str, era: Era) -> Sequence[Row]:
    what = f"{era}, {'stdio' if name == STDIO else 'HTTP'} behind"
    failed = [why for program, which, why in [*found.refused, *found.failed] if (program, which) == (BASE[name], era)]
    if failed:
        return [Row(f"{what}, beside the earlier version", "", f"failed: {failed[0]}", "", None)]
    base = find_call(found, BASE[name], era)
    if base is None:
        return []
    return [
        beside_base(f"{what}, p50", gate.p50, base.p50, "us"),
        beside_base(f"{what}, {MANY} at a time", gate.rate, base.rate, "a second", more_is_better=True),
    ]


def _rate(call: Call) -> str:
    return f"{call.name} {call.rate:,.0f}" + ("" if call.cpu is None else f", {call.cpu:.0f} us of CPU")


def sessions(found: Sessions) -> Sequence[Row]:
    """Rows of a session's memory while idle, and of many calls at once."""
    what = f"{found.open:,} legacy sessions, {found.behind} behind"
    if found.own is not None and found.children is not None:
        its = f"the server's process {found.children / 1024:.1f} MiB" if found.behind == "stdio" else ""
        idle = [Row(f"{what}, idle", f"{found.own:.0f} KiB each, with its connection", its)]
    else:
        idle = []
    measured = (
        f"{found.rate:,.0f} calls a second, p50 {found.p50 / 1000:.0f} ms, p99 {found.p99 / 1000:.0f} ms,"
        f" {found.errors} errors"
    )
    return [*idle, Row(f"{found.calling} of them calling at once", measured, "", "no error", found.errors == 0)]


def idle(found: Idle) -> Sequence[Row]:
    """Rows of a session's memory while many are idle, of other sessions' calls meanwhile, and of opening one more."""
    rows = []
    if found.own is not None:
        what = f"{found.open:,} legacy sessions, HTTP behind, idle"
        rows.append(Row(what, f"{found.own:.0f} KiB each, with its connection", ""))
    pairs = [("1 at a time", found.one, found.one_alone), (f"{CALLERS} at a time", found.many, found.many_alone)]
    for how, mine, alone in pairs:
        ratio = mine.p99 / alone.p99
        rows.append(
            Row(
                f"calls of other sessions meanwhile, {how}, p99",
                f"{us(mine.p99)} ({ratio:.2f} x), p50 {us(mine.p50)}, {found.errors} errors",
                f"without idle sessions {us(alone.p99)}, p50 {us(alone.p50)}",
                f"at most {MAX_IDLE_RATIO:.0f} x, no error",
                ratio <= MAX_IDLE_RATIO and not found.errors,
            )
        )
    ratio = found.opening / found.opening_alone
    rows.append(
        Row(
            "one more session is opened meanwhile, p50",
            f"{found.opening:.1f} ms ({ratio:.2f} x)",
            f"without idle sessions {found.opening_alone:.1f} ms",
            f"at most {MAX_IDLE_RATIO:.0f} x",
            ratio <= MAX_IDLE_RATIO,
        )
    )
    return rows


def rounds(found: Rounds) -> Row:
    """Row of sampling rounds."""
    measured = f"{found.lost} lost, {found.recorded:,} on record, {found.rate:,.0f} a second"
    met = found.lost == 0 and found.recorded == found.rounds
    return Row(
        f"{found.rounds:,} sampling rounds answered by `scripted`, modern",
        measured,
        "",
        "none lost, each on record",
        met,
    )


def reloads(found: Reloads) -> Row:
    """Row of reloads under load."""
    measured = (
        f"{found.failed} of {found.calls:,} calls failed, {found.taken} reloads taken, the slowest call"
        f" {found.slowest:.0f} ms"
    )
    met = found.failed == 0 and found.taken == found.reloads
    return Row(f"{found.reloads} reloads of the policy under {MANY} callers", measured, "", "no call fails", met)


def five(found: Sequence[Tally]) -> Row:
    """Row of rounds of five calls at once. ``found``: without and with a standalone stream."""
    lost = sum(one.lost + one.refused for one in found)
    rounds = sum(one.rounds for one in found)
    measured = f"{lost} requests lost, {sum(one.answered for one in found):,} calls answered"
    return Row(
        f"{rounds} rounds of five calls at once, legacy, forwarded to the client",
        measured,
        "",
        "none lost",
        all(one.good for one in found),
    )


def stalls(found: Sequence[Stall]) -> Row:
    """Row of the longest stalls. The longest by CPU time and the longest by wall time may be of different frames."""
    cpu, wall = max(found, key=lambda stall: stall.cpu), max(found, key=lambda stall: stall.wall)
    measured = f"{cpu.cpu:.0f} ms of CPU time ({_named(cpu)}); {wall.wall:.0f} ms of wall time ({_named(wall)})"
    return Row(
        f"the longest stall over the {len(found)} hostile frames",
        measured,
        "",
        f"at most {MOST_STALL:.0f} ms of CPU time",
        cpu.cpu <= MOST_STALL,
    )


def _named(stall: Stall) -> str:
    return f"{stall.name}, {stall.size / (1 << 20):.0f} MiB"
