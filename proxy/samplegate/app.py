"""`samplegate run`: reads what it is told, has one conversation, and says at the end what came of it. It decides
nothing.

Everything that can be wrong is found before the server is started (``preparation``); ``wiring`` binds the gate to this
process and ``conversation`` starts and ends both sides.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from samplegate import config as process
from samplegate.failed_start import answer_first_request
from samplegate.gate.ports import Unavailable
from samplegate.policy.file import load
from samplegate.preparation import Run, loop_options, prepare, warnings
from samplegate.protocol.bridge.negotiation import Opening
from samplegate.runtime.evidence_files import Witnessed, key_of
from samplegate.runtime.process import House
from samplegate.runtime.run import OK, converse
from samplegate.runtime.session_wiring import Wires, realm_of
from samplegate.say import escaped, say
from samplegate.telemetry.metrics import Metrics, MetricsFile, MetricsServer, metrics_file
from samplegate.transport.stdio import CannotStart, check_own

if TYPE_CHECKING:
    from samplegate.runtime.reviews import Office

WRONG: Final = 2
"""Nothing was started: the policy, the settings, a file or the command is wrong."""
STRICT: Final = 3


def run_command(args: argparse.Namespace) -> int:
    """Wrap one stdio server; the exit code is the server's own where it ended by itself."""
    try:
        run = prepare(args)
    except (load.PolicyError, process.SettingsError, Unavailable) as problem:
        return _not_started(problem)
    for warning in warnings(run):
        say(f"warning: {warning}")
    try:
        check_own()
        return anyio.run(_main, run, backend_options=loop_options())
    except (CannotStart, Unavailable) as problem:
        return _not_started(problem)


def answer_wrong_usage(problem: str) -> None:
    """Tell the client that the command line is wrong; the operator has read it already."""
    answer_first_request("samplegate did not start: wrong command line: " + escaped(problem))


def _not_started(problem: Exception) -> int:
    """Tell the operator what is wrong, and the client, which shows its user no more than the answer to its first
    request."""
    lines = str(problem).split("\n")
    for line in lines:
        say(line)
    answer_first_request("samplegate did not start: " + escaped("; ".join(lines)))
    return WRONG


async def _main(run: Run) -> int:
    """One conversation, from the server's start to the exit code. Raises CannotStart."""
    metrics = Metrics(read=run.settings.metrics_file is not None or run.settings.metrics_port >= 0)
    house = House(
        run.rules, state=run.settings.state, decisions=run.decisions, log=run.log, tape=run.tape, metrics=metrics
    )
    run.log.count_dropped(house.metrics)
    office = _office(run, house)
    protocol, witnessed = run.settings.protocol, _witnessed(run)
    wires = Wires(
        house,
        run.settings.server,
        realm=realm_of(run.settings.server, run.command, run.url),
        streams=run.url is not None,
        session=partial(
            Opening, protocol=protocol, prefers_legacy=witnessed is not None and witnessed.evidence.prefers_legacy
        ),
        observe=(lambda _note: None) if witnessed is None else witnessed.take,
    )
    file = metrics_file(metrics, run.settings.metrics_file, run.settings.server)
    codes: list[int] = []
    failed: list[CannotStart] = []

    async def conversation() -> None:
        if office is not None:
            wires.relay.start(office.run)
        if file is not None and run.settings.metrics_interval:
            wires.relay.start(file.keep, run.settings.metrics_interval, run.log)
        try:
            codes.append(await converse(run, wires.relay, house.admission.hurry))
            for call in wires.relay.left:
                house.tally.left(call.method, call.tool)
        except CannotStart as problem:  # told outside of the task group, which would wrap it
            failed.append(problem)

    try:
        async with _metrics_port(run, house):
            await wires.relay.run(conversation)
    finally:
        await house.aclose()
    for problem in failed:
        raise problem
    return _finish(run, wires, file, *codes)


def _witnessed(run: Run) -> Witnessed | None:
    """What earlier runs saw of the server, and this one may; nothing where the protocol version is set."""
    settings = run.settings
    if settings.protocol != "auto":
        return None
    key = key_of(settings.server, run.command, run.url)
    return Witnessed(settings.server, key, state=settings.state, setting="--protocol legacy", log=run.log)


def _office(run: Run, house: House) -> Office | None:
    """The way to people, for a policy that names any."""
    if not run.rules.policy.policy.reviewers:
        return None
    from samplegate.runtime.reviews import Office

    return Office(house, run.settings, folder=run.folder, environment=run.environment)


@asynccontextmanager
async def _metrics_port(run: Run, house: House) -> AsyncIterator[None]:
    """What Prometheus may ask of this process, where that is wanted. Raises Unavailable."""
    if run.settings.metrics_port < 0:
        yield
        return
    server = await MetricsServer.open(house.metrics.page, run.settings.metrics_port, run.log)
    say(f"metrics on http://127.0.0.1:{server.port}/metrics")
    try:
        yield
    finally:
        await server.aclose()


def _finish(run: Run, wires: Wires, metrics: MetricsFile | None, code: int) -> int:
    """Say what came of it, and give the exit code."""
    place = run.decisions.last
    parts = [wires.house.tally.summary(), f"decision log: {place}" if place is not None else "", wires.notes.summary()]
    say("; ".join(filter(None, parts)))
    if run.tape is not None:
        run.tape.close()
        for line in run.tape.summary(run.folder):
            say(line)
    if metrics is not None:
        try:
            metrics.write()
        except Unavailable as problem:
            say(str(problem))
    for line in wires.house.tally.failures() if run.strict else ():
        say(line)
    return STRICT if run.strict and code == OK and wires.house.tally.failed else code
