"""`samplegate run`: reads what it is told, wires the links, the session and the gate together, and ends them in order. It decides nothing.

The order at the start: everything that can be wrong is found before the server is started. At the end: the server's end of input, its exit,
the last lines to the client, the records, the metrics; all within the 2 s after which SDK clients kill a wrapper (R90).
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from samplegate import settings as process
from samplegate.core import load
from samplegate.core.decisions import Reason
from samplegate.core.match import Rulebook, compile_policy
from samplegate.core.record import Record
from samplegate.core.rounds import Note, Round, Verdict
from samplegate.core.samples import SampleRequest, SampleResult
from samplegate.core.session import Session
from samplegate.core.state import State
from samplegate.core.unnamed import unnamed
from samplegate.gate import Gate
from samplegate.links.child import Child, exit_code, start_child
from samplegate.links.failures import CannotStart
from samplegate.links.stdio import check_own, open_own
from samplegate.ports import Ports, Unavailable
from samplegate.records.decisions import DecisionLog, NoDecisionLog, decision_log
from samplegate.records.log import Log, configure
from samplegate.records.metrics import Metrics, file_path, preload, write_file
from samplegate.records.tally import Tally
from samplegate.relay import Relay
from samplegate.sampler.client import Models
from samplegate.sampler.keys import child_environment

OK: Final = 0
WRONG: Final = 2
"""Nothing was started: the policy, the settings, a file or the command is wrong."""
STRICT: Final = 3
LAST_LINES: Final = 0.2  # seconds for the client to take what the server wrote last


class Run(msgspec.Struct, frozen=True):
    """Everything `run` was told, read and found right."""

    command: list[str]
    settings: process.RunSettings
    policy: load.Loaded
    book: Rulebook
    models: Models
    decisions: DecisionLog | NoDecisionLog
    server_environment: dict[str, str]
    log: Log
    strict: bool


def run_command(args: argparse.Namespace) -> int:
    """Wrap one stdio server; the exit code is the server's own where it ended by itself."""
    try:
        run = _prepare(args)
    except (load.PolicyError, process.SettingsError, Unavailable) as problem:
        for line in str(problem).splitlines():
            _say(line)
        return WRONG
    except OSError as problem:
        _say(f"{problem.filename}: cannot be read: {(problem.strerror or str(problem)).lower()}")
        return WRONG
    except UnicodeDecodeError as problem:
        _say(f"{args.policy}: cannot be read: byte {problem.start} is not UTF-8; save it as UTF-8 text")
        return WRONG
    _warn(run)
    try:
        check_own()
    except CannotStart as problem:
        _say(str(problem))
        return WRONG
    return anyio.run(_main, run, backend_options={"use_uvloop": _has_uvloop()})


def _prepare(args: argparse.Namespace) -> Run:
    """Read everything that is named on the command line. Raises for what is wrong with it, before anything is started."""
    told = {name: getattr(args, name) for name in ("server", "decision_log", "metrics_file", "env_file")}
    loaded = process.load(os.environ, file=args.settings, given=told)
    settings = loaded.settings
    text = args.policy.read_bytes().decode("utf-8-sig")
    policy = load.load(text, file=str(args.policy), environment=loaded.environment, missing="error")
    models = Models(policy.policy.models, folder=args.policy.parent, environment=loaded.environment)
    decisions = decision_log(settings.decision_log, state=settings.state, server=settings.server, content=settings.record_content)
    decisions.check_writable(time.time())
    return Run(
        command=args.command,
        settings=settings,
        policy=policy,
        book=compile_policy(policy.policy, policy.environment),
        models=models,
        decisions=decisions,
        server_environment=child_environment(os.environ, policy.policy.models),
        log=configure(settings.log_level, settings.log_format),
        strict=args.strict,
    )


def _warn(run: Run) -> None:
    """What can be told at the start and keeps nothing from running."""
    for warning in run.policy.warnings:
        _say(f"warning: {warning}")
    for problem in run.models.problems():
        _say(f"warning: {problem}")
    if unnamed(run.book, run.settings.server):
        _say(f"warning: no rule can match a server named {run.settings.server!r}; name it with --server")


async def _main(run: Run) -> int:
    """One conversation, from the server's start to the exit code."""
    metrics = Metrics()
    tally = Tally(metrics)
    wires = _Wires(run, metrics, tally)
    ended = _Ended()
    relay = Relay(wires.session, wires.run_round, clock=time.monotonic, note=wires.note)
    wires.relay = relay
    try:
        await relay.run(lambda: _converse(run, relay, ended))
    finally:
        await run.models.aclose()
    if not ended.started:
        return ended.code
    _finish(run, metrics, tally)
    if ended.code == OK and run.strict and tally.failed:
        for line in tally.failures():
            _say(line)
        return STRICT
    return ended.code


class _Ended(msgspec.Struct, eq=False):
    """How the conversation ended."""

    code: int = OK
    started: bool = False
    """Whether there was a server at all."""


class _Wires:
    """The gate's ports, bound to this process."""

    relay: Relay

    def __init__(self, run: Run, metrics: Metrics, tally: Tally) -> None:
        self._run = run
        self._metrics = metrics
        self._tally = tally
        state = State(run.book, run.settings.server, secrets.token_hex(4), secrets.token_bytes(32), epoch=time.time() - time.monotonic())
        self.session = Session(state)
        ports = Ports(
            sample=self._sample,
            ask_client=self._ask_client,
            record=self._record,
            clock=time.monotonic,
            wall=time.time,
            random=secrets.token_bytes,
            log=run.log,
        )
        self._gate = Gate(run.book, run.policy.hash, ports)

    async def run_round(self, round: Round) -> Verdict:
        self._metrics.count("samplegate_rounds_total", server=round.origin.server, door=round.door)
        return await self._gate.run(round)

    def note(self, note: Note) -> None:
        """An event of the session: into the log, and counted where a frame was lost by it."""
        (self._run.log.warning if note.warn else self._run.log.debug)(note.event, **note.fields)
        self._count(note)

    def _count(self, note: Note) -> None:
        name = {"frame.refused": "samplegate_frames_refused_total", "frame.unasked": "samplegate_frames_dropped_total"}.get(note.event)
        if name is not None:
            self._metrics.count(name, server=self._run.settings.server, side=note.fields["side"], reason=note.event.partition(".")[2])

    async def _sample(self, request: SampleRequest) -> SampleResult:
        started = time.monotonic()
        answer = await self._run.models.sample(request)
        failure = getattr(answer, "failure", "ok")
        self._metrics.count("samplegate_model_calls_total", model=request.model, result=failure)
        self._metrics.observe("samplegate_model_call_duration_seconds", time.monotonic() - started, model=request.model)
        for direction in ("input", "output"):
            tokens = getattr(answer, f"{direction}_tokens", None)
            if tokens:
                self._metrics.count("samplegate_model_tokens_total", tokens, model=request.model, direction=direction)
        return answer

    async def _ask_client(self, round: Round) -> Any:
        return await self.relay.ask_client(round)

    async def _record(self, record: Record) -> None:
        try:
            await self._run.decisions.write(record)
        except Unavailable:
            self._metrics.count("samplegate_records_failed_total", server=record.server)
            record = replace(record, outcome="unanswered", reason=Reason.RECORDS)
            raise
        finally:
            self._tally.take(record)
            self._run.log.info("request.decided", **_told(record))


def _told(record: Record) -> dict[str, object]:
    fields = ("decision_id", "server", "kind", "effect", "rule", "outcome", "reason", "detail", "model")
    return {name: value for name in fields if (value := getattr(record, name))}


async def _converse(run: Run, relay: Relay, ended: _Ended) -> None:
    """Start the server, open our own stdio, and wait for the first of: the client's end, the server's end, a signal."""
    limit = run.settings.max_frame_bytes
    try:
        child = await start_child(run.command, relay.server, env=run.server_environment, max_line=limit)
    except CannotStart as problem:
        _say(str(problem))
        ended.code = WRONG
        return
    ended.started = True
    try:
        own = await open_own(relay.client, max_line=limit)
        relay.connect(own, child.link)
        ended.code = await _first(
            lambda: _client_ends(relay),
            lambda: _server_ends(child),
            lambda: _output_ends(relay, child),
            _signalled,
            lambda: _preload(run),
        )
    finally:
        with anyio.CancelScope(shield=True):
            await child.stop()
    await own.drained(LAST_LINES)
    own.close_writing()
    own.abort()


async def _first(*waits: Callable[[], Awaitable[int | None]]) -> int:
    """The code of the first that has one; the others are cancelled."""
    codes: list[int] = []

    async def one(wait: Callable[[], Awaitable[int | None]]) -> None:
        code = await wait()
        if code is not None:
            codes.append(code)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for wait in waits:
            group.start_soon(one, wait)
    return codes[0]


async def _client_ends(relay: Relay) -> int:
    await relay.client_gone.wait()
    return OK


async def _server_ends(child: Child) -> int:
    return exit_code(await child.exited())


async def _output_ends(relay: Relay, child: Child) -> int:
    """A server that closes its stdout can answer nothing any more, whether it lives on or not."""
    await relay.server_gone.wait()
    return exit_code(await child.stop())


async def _signalled() -> int:
    if sys.platform == "win32":  # its event loop takes no signal handlers; SIGINT comes as KeyboardInterrupt
        await anyio.sleep_forever()
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for number in signals:
            return 128 + number
    raise AssertionError("signals do not end")


async def _preload(run: Run) -> None:
    """What the end needs and has no time to import."""
    if run.settings.metrics_file is not None:
        await anyio.to_thread.run_sync(preload)


def _finish(run: Run, metrics: Metrics, tally: Tally) -> None:
    place = run.decisions.last
    _say(tally.summary() + (f"; decision log: {place}" if place is not None else ""))
    if run.settings.metrics_file is None:
        return
    try:
        write_file(metrics, file_path(run.settings.metrics_file, run.settings.server, os.getpid()))
    except Unavailable as problem:
        _say(str(problem))


def _has_uvloop() -> bool:
    """uvloop where it exists: not on Windows."""
    try:
        import uvloop
    except ImportError:
        return False
    return uvloop is not None


def _say(line: str) -> None:
    """One line to the operator."""
    with suppress(OSError, ValueError):  # nobody reads our stderr any more
        print(f"samplegate: {line}", file=sys.stderr, flush=True)
