"""`samplegate run`: wraps one server for one client, from the command line to the exit code.

``prepare`` finds every problem before the server starts. ``SessionWiring`` binds the gate to this process. ``converse``
starts and ends both sides. If the start fails, ``answer_first_request`` reports the reason to the client. No decisions
are made here.

Shutdown order: the server's end of input, its exit, the last lines to the client, the records. All of this stays within
the 2 s after which SDK clients kill a wrapper (R90). Parts that no pending answer needs are closed in parallel with the
server.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import anyio.to_thread
import msgspec

from samplegate import config
from samplegate.audit.cassette import Cassette
from samplegate.audit.decision_log import DecisionLog, decision_log, readable_name
from samplegate.audit.playback import Playback
from samplegate.audit.runs import GateFile, new_state, remove_old_runs
from samplegate.audit.verdict import MEANINGS, FailOn
from samplegate.audit.verdict import STRICT as STRICT_WORDS
from samplegate.ci.annotations import reads_commands
from samplegate.ci.run_id import VARIABLE, check_run_id, run_id_of_ci
from samplegate.config.settings import settings_hash
from samplegate.durations import duration_text
from samplegate.errors import Unavailable
from samplegate.files import check_writable, missing_hint
from samplegate.key_file import database_key
from samplegate.limits.accounts import NO_RUN
from samplegate.policy.conditions import globs
from samplegate.policy.file import load
from samplegate.policy.match import CompiledPolicy, has_no_rule_for
from samplegate.policy.schema import may_decide
from samplegate.postgres.driver import check_driver
from samplegate.protocol import frames, results
from samplegate.protocol.bridge.negotiation import EraNegotiator
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.session_state import INITIALIZE
from samplegate.runtime import heap
from samplegate.runtime.evidence_files import EvidenceStore, key_of
from samplegate.runtime.flow import HttpServerWriter, stdio_client_writer
from samplegate.runtime.preflight import ui_warnings, webhook_warnings
from samplegate.runtime.process import ProcessContext, Rules, compile_loaded, load_policy
from samplegate.runtime.relay import ENDED_UNANSWERED, InputReceiver, Relay, enforce_timeouts
from samplegate.runtime.session_wiring import SessionWiring, realm_of
from samplegate.runtime.status_socket import publish
from samplegate.sampler.client import Models
from samplegate.sampler.keys import child_environment
from samplegate.telemetry.log import EventLog
from samplegate.telemetry.metrics import Metrics, MetricsFile, MetricsServer, metrics_file
from samplegate.telemetry.traces import open_traces
from samplegate.text import escaped, print_line
from samplegate.transport.http_client.health import Health
from samplegate.transport.stdio import CannotStart, LineLink, check_own, open_own
from samplegate.transport.subprocess import ServerProcess, exit_code, start_child, stderr_log
from samplegate.yamlfile.tree import quoted
from samplegate.yamlfile.validate import did_you_mean

if TYPE_CHECKING:
    from samplegate.config.oauth import OAuthSettings
    from samplegate.runtime.database import DatabaseWatch
    from samplegate.runtime.review_page import ReviewPage
    from samplegate.runtime.reviews import ReviewRuntime
    from samplegate.status.snapshot import GateStatus


NO_LOG: Final = (
    "no decision log is written, because the home folder is unknown; set HOME, --state DIR or --decision-log PATH"
)
AT_A_TERMINAL: Final = (
    "waiting for an MCP client on stdin. Clients start this command by themselves: put it into a client's configuration"
    " (samplegate docs put-your-server-behind-the-gate). Ctrl-C ends it."
)


class Run(msgspec.Struct, frozen=True):
    """Validated inputs of `run`."""

    command: list[str]
    """Empty if the server is at a URL."""
    settings: config.RunSettings
    rules: Rules
    decisions: DecisionLog
    server_environment: dict[str, str]
    log: EventLog
    fail_on: tuple[FailOn, ...]
    """The words that let the exit code be STRICT."""
    gate_file: GateFile | None
    """None if the process belongs to no run."""
    url: str | None
    """URL of the server; None if the server is a command."""
    policy: Path
    """The policy's file."""
    environment: Mapping[str, str] = {}
    """Environment with the env file, for the secrets of webhooks. Secret."""
    cassette: Cassette | Playback | None = None
    """Recording of the real answers of models and clients, or the recording that answers in their place."""
    headers: Mapping[str, str] = {}
    """Headers of every request to a server at a URL. Secret."""
    oauth: OAuthSettings | None = None
    """How tokens for a server at a URL are obtained; None for a stored login, if there is one."""
    warnings: tuple[str, ...] = ()
    """Warnings about the command line."""
    health: Health = msgspec.field(default_factory=Health)
    """Of a server at a URL."""


def prepare(args: argparse.Namespace) -> Run:
    """Read and validate everything that the command line names.

    Raises PolicyError, SettingsError or Unavailable.
    """
    try:
        loaded = config.load(os.environ, file=args.settings, flags=vars(args))
    except config.SettingsError:
        note_failed_start("run", args)
        raise
    settings = loaded.settings
    run = run_of(settings, loaded.environment)
    gate_file = create_gate_file(
        settings, run, command="run", server=settings.server, wrapped=_wrapped(args), policy=args.policy
    )
    with until_started(gate_file):
        return _prepared(args, loaded, gate_file)


def _prepared(args: argparse.Namespace, loaded: config.LoadedSettings, gate_file: GateFile | None) -> Run:
    settings = loaded.settings
    warned: list[str] = []
    headers, oauth, environment = ({}, None, loaded.environment) if args.url is None else _headers(args, loaded, warned)
    rules = read_rules(args.policy, environment, settings.model_workers)
    no_log = settings.decision_log is None and settings.state == Path()
    if no_log:
        warned.append(NO_LOG)
    decisions = open_decision_log(
        msgspec.structs.replace(settings, decision_log="none") if no_log else settings, settings.server
    )
    check_state(rules, settings, None if gate_file is None else gate_file.state.run)
    log = EventLog(settings.log_level, settings.log_format)
    cassette = None if args.record is None else _cassette(args, log)
    return Run(
        command=args.command,
        settings=settings,
        rules=rules,
        decisions=decisions,
        server_environment=child_environment(
            without_webhooks(os.environ, rules), rules.policy.policy.models, database=settings.database is not None
        ),
        log=log,
        fail_on=args.fail_on or (STRICT_WORDS if args.strict else ()),
        gate_file=gate_file,
        url=args.url,
        policy=args.policy,
        environment=environment if rules.policy.policy.reviewers else {},
        cassette=cassette,
        headers=headers,
        oauth=oauth,
        warnings=tuple(warned),
    )


def _cassette(args: argparse.Namespace, log: EventLog) -> Cassette | Playback:
    """The cassette of the command line. Raises Unavailable."""
    if args.record_mode == "replay":
        return Playback.open(args.record, fails_if_unused=args.unused == "fail")
    return Cassette.open(args.record, replace=args.record_mode == "all", warn=log.warning)


def _headers(
    args: argparse.Namespace, loaded: config.LoadedSettings, warnings: list[str]
) -> tuple[dict[str, str], OAuthSettings | None, Mapping[str, str]]:
    """Validated headers and OAuth settings for the server at a URL, and the environment without their variables, so
    that no other process gets their values. Raises SettingsError."""
    from samplegate.config.servers import secret_variables, server_at_url

    problems: list[str] = []
    server, headers = server_at_url(
        loaded.settings.server,
        args.url,
        args.header_from,
        args.header_env,
        loaded.environment,
        oauth=vars(args),
        problems=problems,
        warnings=warnings,
    )
    if problems:
        raise config.SettingsError(problems)
    hidden = secret_variables(args.header_env, args.oauth_client_secret_env)
    return headers, server.oauth, {name: value for name, value in loaded.environment.items() if name not in hidden}


def without_webhooks(environment: Mapping[str, str], rules: Rules) -> dict[str, str]:
    """An environment without the secrets of reviewers' webhooks, so that no server can sign in their name."""
    webhooks = [reviewer.webhook for reviewer in rules.policy.policy.reviewers.values() if reviewer.webhook is not None]
    hidden = {
        name
        for webhook in webhooks
        for name in (webhook.url_env, webhook.secret_env, webhook.old_secret_env, webhook.authorization_env)
    }
    return {name: value for name, value in environment.items() if name not in hidden}


def read_rules(file: Path, environment: Mapping[str, str], workers: int) -> Rules:
    """Load a policy and build everything it needs, without starting anything. ``workers``: the maximum number of model
    workers. Raises PolicyError, or Unavailable for an unreadable file."""
    policy = load_policy(_text(file), file=str(file), environment=environment, missing="error")
    compiled = compile_loaded(policy, file.parent)
    models = Models(policy.policy.models, folder=file.parent, environment=environment, workers=workers)
    return Rules(policy, compiled, models)


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        hint = missing_hint(str(file), Path())
        raise Unavailable(f"{file}: cannot be read: no such file or directory; {hint}") from None
    except OSError as problem:
        raise Unavailable(f"{file}: cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    except UnicodeDecodeError as problem:
        raise Unavailable(f"{file}: cannot be read: byte {problem.start} is not UTF-8; save it as UTF-8 text") from None


def open_decision_log(settings: config.ProcessSettings, server: str) -> DecisionLog:
    """Open the configured decision log and check that it is writable, and that the database's key can be read. Raises
    Unavailable."""
    decisions = decision_log(
        settings.decision_log,
        state=settings.state,
        database=settings.database,
        database_key=database_key(settings.database_key_file),
        server=server,
        content=settings.record_content,
        durability=settings.decision_log_durability,
        max_bytes=settings.decision_log_max_bytes,
        keep=settings.decision_log_keep,
    )
    decisions.check_writable(time.time())
    return decisions


def run_of(settings: config.ProcessSettings, environment: Mapping[str, str]) -> str | None:
    """The ID of the run to which the process belongs. A run that is only known from the CI job needs a state folder."""
    return settings.run or (None if settings.state == Path() else run_id_of_ci(environment))


def create_gate_file(
    settings: config.ProcessSettings,
    run: str | None,
    *,
    command: Literal["run", "serve"],
    server: str,
    wrapped: str,
    policy: Path,
) -> GateFile | None:
    """Create the file of this gate if it belongs to a run. Raises Unavailable."""
    if run is None:
        return None
    if settings.state == Path():
        raise Unavailable("run: a run needs a state folder, but the home folder is unknown; set --state DIR or HOME")
    now = time.time()
    remove_old_runs(settings.state, now)
    log = readable_name(
        settings.decision_log, state=settings.state, database=settings.database, server=server or "serve"
    )
    state = new_state(run, command=command, server=server, wrapped=wrapped, policy=policy, decision_log=log, now=now)
    return GateFile.create(settings.state, state)


def _wrapped(args: argparse.Namespace) -> str:
    return json.dumps([args.command, args.url])


def note_failed_start(command: Literal["run", "serve"], args: argparse.Namespace | None = None) -> None:
    """Leave the file of a gate whose command line or settings are wrong, if the run and the state folder are known
    without them. Never raises."""
    with suppress(Exception):
        run = (None if args is None else args.run) or os.environ.get(VARIABLE) or run_id_of_ci(os.environ)
        state = (None if args is None else args.state) or os.environ.get("SAMPLEGATE_STATE")
        folder = config.state_folder(os.environ) if state is None else Path(state)
        if run is None or folder is None:
            return
        check_run_id(run)
        server = "" if args is None or command == "serve" else args.server or config.RunSettings().server
        first = new_state(
            run, command=command, server=server, wrapped="", policy=Path(), decision_log=None, now=time.time()
        )
        with until_started(GateFile.create(folder, first)):
            raise RuntimeError("it did not start")


@contextmanager
def until_started(gate_file: GateFile | None) -> Iterator[None]:
    """Note in the gate's file if the start fails."""
    try:
        yield
    except BaseException:
        if gate_file is not None:
            gate_file.update(started_up=False)
            gate_file.close(time.time(), WRONG)
        raise


def check_state(rules: Rules, settings: config.ProcessSettings, run: str | None) -> None:
    """Check the state folder, which shared limits need, and reviews without a store setting; or the driver of the
    shared database. Limits per run need a run. Raises Unavailable."""
    if settings.database is not None:
        check_driver()
    limits = any(spec.shared for spec in rules.compiled.limit_specs.values()) and settings.database is None
    reviews = bool(rules.policy.policy.reviewers) and settings.store is None and settings.database is None
    if settings.state == Path() and (limits or reviews):
        what = "limits" if limits else "reviewers"
        raise Unavailable(
            f"state: the policy's {what} need a state folder, but the home folder is unknown; set --state DIR,"
            " SAMPLEGATE_STATE or HOME"
        )
    if limits:
        check_writable(settings.state)
    per_run = [name for name, spec in rules.compiled.limit_specs.items() if spec.per == "run"]
    if per_run and run is None:
        raise Unavailable(f"limits: limit {per_run[0]}: {NO_RUN}")


def warnings(run: Run) -> list[str]:
    """Warnings that do not prevent the start."""
    keys = [] if isinstance(run.cassette, Playback) else run.rules.models.problems()
    webhooks = webhook_warnings(
        run.rules.policy.policy, run.policy.parent, run.environment, run.settings.webhook_networks
    )
    found = [*run.warnings, *map(str, run.rules.policy.warnings), *keys, *webhooks]
    if run.settings.people is not None and run.settings.reviews_listen is None:
        found.append("people: has no effect, because reviews_listen is not set")
    if run.settings.reviews_listen is not None and not run.rules.policy.policy.reviewers:
        found.append("reviews_listen: has no effect, because the policy has no reviewers")
    found += ui_warnings(run.rules.policy.policy, run.settings.reviews_url or run.settings.reviews_listen)
    people = () if run.settings.people is None else run.settings.people.tokens
    if run.settings.reviews_listen is None or not people:
        found += [
            f"reviewers: {name} needs {reviewer.approvals} approvals, but only this user can give one; set `people` and"
            " reviews_listen, or use `samplegate serve`"
            for name, reviewer in run.rules.policy.policy.reviewers.items()
            if reviewer.approvals > 1 + may_decide(reviewer)
        ]
    found += [
        f"reviewers: `not: caller` of {name} excludes nobody, because `samplegate run` does not know who its caller is"
        for name, reviewer in run.rules.policy.policy.reviewers.items()
        if reviewer.not_ is not None
    ]
    unmatched = unmatched_server(run.rules.compiled, run.settings.server, "set its name with --server")
    if unmatched is not None:
        found.append(unmatched)
    return found


def unmatched_server(compiled: CompiledPolicy, server: str, remedy: str, *, others: Collection[str] = ()) -> str | None:
    """A warning about a server's name, with the names in the policy and the remedy: no rule can match a request of this
    server, or its name looks like a typo of a name in the policy that is not one of the ``others``. Otherwise None."""
    conditions = [rule.match.server for rule in compiled.policy.rules if rule.match.server is not None]
    names = dict.fromkeys(name for one in conditions for name in ([one] if isinstance(one, str) else one))
    if not has_no_rule_for(compiled, server):
        named = any(globs(name)[0](server) for name in names) or server in compiled.policy.servers
        meant = next((name for name in names if name not in others and is_slip(server, name)), None)
        if named or meant is None:
            return None
        return f"no rule names a server {server!r}; did you mean {quoted(meant)}? {remedy[0].upper()}{remedy[1:]}"
    listed = f"; the rules name {', '.join(map(quoted, list(names)[:20]))}" if names else ""
    near = did_you_mean(server, names)
    hint = f"{near} {remedy[0].upper()}{remedy[1:]}" if near else f"{listed}; {remedy}"
    return f"no rule can match a server named {server!r}{hint}"


def is_slip(one: str, other: str) -> bool:
    """Whether one name looks like a typo of the other: another case, a letter too many or too few, two letters swapped.

    A replaced letter or another digit is none, because names such as db-eu and db-us differ so on purpose.
    """
    one, other = one.casefold(), other.casefold()
    short, long = sorted((one, other), key=len)
    if len(short) == len(long):
        return one == other or any(
            one[:at] + one[at + 1] + one[at] + one[at + 2 :] == other for at in range(len(one) - 1)
        )
    return len(short) > 2 and any(long[at].isalpha() and long[:at] + long[at + 1 :] == short for at in range(len(long)))


def loop_options() -> dict[str, bool]:
    """Event loop options for ``anyio.run``: uvloop where it exists (not on Windows)."""
    try:
        import uvloop
    except ImportError:
        return {"use_uvloop": False}
    return {"use_uvloop": uvloop is not None}


OK: Final = 0
GONE: Final = 1
"""Exit code: the server over HTTP ended its session."""
NEVER_ANSWERED: Final = 2
"""Exit code: the server did not answer its first request in time."""
LAST_LINES: Final = 0.2  # seconds for the client to read the last lines, after the server has closed its side
# seconds for the end of an ended server's output while no backpressure delays it: a process that the server left behind
# may keep the output open
TAIL: Final = 0.3
# seconds for all remaining records together, and as many for settling the limits
LAST_RECORDS: Final = 0.5


class ServerSide(msgspec.Struct, frozen=True, eq=False):
    """The server's side of a conversation, opened."""

    connect: Callable[[LineLink], None]
    """Connects the client's link with the server in both directions."""
    ends: tuple[Callable[[LineLink], Awaitable[int]], ...]
    """Each waits for one kind of end of the server and returns its exit code, once the client has read all earlier
    output."""
    stop: Callable[[], Coroutine[Any, Any, object]]


async def converse(run: Run, relay: Relay, set_shutdown_deadline: Callable[[float], None]) -> int:
    """Run the conversation; the exit code is that of the first end: client, server, start timeout or signal. Raises
    CannotStart.

    ``set_shutdown_deadline`` is called when shutdown begins, with the seconds that the limits have left.
    """
    async with _child(run, relay) if run.url is None else _at_url(run, run.url, relay) as server:
        try:
            client = InputReceiver(relay, "client")
            own = await open_own(client, max_line=run.settings.max_frame_bytes)
            server.connect(own)
            ends = [partial(end, own) for end in server.ends]
            trimmer = heap.Trimmer(lambda: relay.session.state.held)
            input_ends = partial(_input_ends, relay, client, own, run.settings.end_of_input_timeout)
            relay.on_large = trimmer.report_large_frame
            code = await _first(
                input_ends, *ends, lambda: _signalled(relay), lambda: _silent(run, relay), trimmer.watch
            )
        finally:
            run.decisions.set_shutdown_deadline(LAST_RECORDS)
            set_shutdown_deadline(LAST_RECORDS)
            with anyio.CancelScope(shield=True):
                await _end(run, relay, server.stop)
    await own.drained(LAST_LINES)
    own.close_writing()
    own.abort()
    return code


@asynccontextmanager
async def _child(run: Run, relay: Relay) -> AsyncIterator[ServerSide]:
    """Start the server as a child process. Raises CannotStart.

    It inherits our stderr, except where a CI runner takes lines of it for commands: there its lines are logged.
    """
    child = await start_child(
        run.command,
        relay.server,
        env=run.server_environment,
        max_line=run.settings.max_frame_bytes,
        on_stderr=stderr_log(run.log, run.settings.server) if reads_commands(os.environ) else None,
    )
    yield ServerSide(
        lambda own: relay.connect(own, child.link),
        (lambda own: _server_ends(run, relay, child, own), lambda own: _output_ends(run, relay, child, own)),
        child.stop,
    )


@asynccontextmanager
async def _at_url(run: Run, url: str, relay: Relay) -> AsyncIterator[ServerSide]:
    """Prepare the connection to a server over HTTP. Nothing is sent before the client's first frame."""
    from samplegate.oauth.credentials import credentials_for
    from samplegate.transport.http_client.connection import RemoteConnection, pool

    settings = run.settings
    credentials = credentials_for(
        settings.server, url, run.oauth, headers=run.headers, state=settings.state, log=run.log
    )
    async with pool() as http:
        link = RemoteConnection(
            url,
            relay.streams,
            http=http,
            headers=run.headers,
            credentials=credentials,
            health=run.health,
            max_frame=settings.max_frame_bytes,
            note=relay.note,
        )

        def connect(own: LineLink) -> None:
            relay.connect_client(stdio_client_writer(own))
            relay.connect_server(HttpServerWriter(link))

        yield ServerSide(connect, (lambda own: _session_ends(relay, own),), link.aclose)


async def _end(run: Run, relay: Relay, stop: Callable[[], Coroutine[Any, Any, object]]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(stop)
        if relay.client_gone.is_set():  # every round is withdrawn, so no model is needed
            group.start_soon(run.rules.models.aclose)


async def _first(*waits: Callable[[], Awaitable[int | None]]) -> int:
    """The first exit code that a wait returns; the other waits are cancelled."""
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


async def _input_ends(relay: Relay, client: InputReceiver, own: LineLink, seconds: float) -> int:
    """The client ends its input: requests in flight are still answered while the client reads, up to the timeout."""
    await client.over.wait()
    relay.client_silent()
    with anyio.move_on_after(seconds):
        await _first(lambda: _answers_read(relay, own), lambda: _unread(own))
    relay.ended("client")
    return OK


async def _answers_read(relay: Relay, own: LineLink) -> int:
    await relay.all_answered()
    await _until_read(own)
    return OK


async def _unread(own: LineLink) -> int:
    await own.unread()
    return OK


async def _silent(run: Run, relay: Relay) -> int | None:
    """The server does not answer its first request in time. Other timeouts are enforced here, too."""
    silent = anyio.Event()
    await enforce_timeouts(run.settings.start_timeout, run.settings.call_timeout, silent.set, relay)
    if not silent.is_set():
        return None
    seconds = duration_text(run.settings.start_timeout)
    print_line(
        f"server {run.settings.server}: it did not answer its first request within {seconds}; if it needs longer,"
        " increase start_timeout"
    )
    return NEVER_ANSWERED


async def _server_ends(run: Run, relay: Relay, child: ServerProcess, own: LineLink) -> int:
    """The server process ends by itself. A slow client still gets all its output."""
    code = exit_code(await child.exited())
    while not relay.server_gone.is_set():
        held_up = own.buffered > 0
        with anyio.move_on_after(TAIL):
            await relay.server_gone.wait()
        if not held_up and own.buffered == 0:
            break
    _report_unanswered(run, relay, code)
    await _until_read(own)
    return code


async def _output_ends(run: Run, relay: Relay, child: ServerProcess, own: LineLink) -> int:
    """The server closes its stdout, after which it cannot answer, even if the process is still running."""
    await relay.server_gone.wait()
    code = exit_code(await child.stop())
    _report_unanswered(run, relay, code)
    await _until_read(own)
    return code


def _report_unanswered(run: Run, relay: Relay, code: int) -> None:
    """Tell the operator if the server ended before it answered the client's first request."""
    if relay.left and relay.session.state.end_reason == ENDED_UNANSWERED:
        print_line(
            f"server {run.settings.server}: it exited with code {code} before it answered its first request; run its"
            " command in a terminal to see why"
        )


async def _session_ends(relay: Relay, own: LineLink) -> int:
    """The server has dropped its session. A stdio client must be restarted to get a new one."""
    await relay.server_gone.wait()
    await _until_read(own)
    return GONE


async def _until_read(own: LineLink) -> None:
    """Wait until the client has read everything. The caller waits for the client's end and for signals in parallel."""
    while own.buffered:
        await own.drained(1.0)


async def _signalled(relay: Relay) -> int:
    """A signal arrives: open requests are withdrawn while the server ends, as when the client ends.

    From the first end of a side on, signals are ignored until the process has ended: the shutdown is bounded, and
    clients send several in a row (Claude Code SIGTERM 0.1 s after SIGINT, which may be after the event loop's end).
    """
    if sys.platform == "win32":  # no signal handlers in its event loop; SIGINT comes as KeyboardInterrupt
        await anyio.sleep_forever()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        with anyio.open_signal_receiver(*numbers) as signals:
            first = await anext(signals)
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
    relay.ended("client")
    return 128 + first


FIRST_REQUEST_TIMEOUT: Final = 5.0  # seconds for the client's first request; clients send it right after they start us
FALLBACK_TIMEOUT: Final = 1.0  # seconds for the ``initialize`` of a client that sent ``server/discover`` first
ERROR_READ_TIMEOUT: Final = 0.5  # seconds for the client to read the error
MAX_LINE: Final = 1024 * 1024


def answer_first_request(why: str) -> None:
    """Wait briefly for the client's first request, and answer it with this error so that the client can show it.

    Does nothing on a terminal. A client that sends ``server/discover`` first may fall back to ``initialize``, which is
    answered too.
    """
    try:
        if sys.stdin is not None and sys.stdin.isatty():
            return
        check_own()
        anyio.run(_answer, why)
    except (CannotStart, OSError, ValueError):  # without usable stdio there is no client
        return


class _Refusal:
    """Answers every request of the client with the error."""

    def __init__(self, why: str) -> None:
        self.link: LineLink | None = None
        self.asked = anyio.Event()
        self.over = anyio.Event()
        self._why = why

    def received(self, line: bytes) -> None:
        try:
            f = frames.read(line)
        except Malformed:
            return
        if f.kind != "request" or self.link is None or self.over.is_set():
            return
        self.link.send(frames.error(f.id, results.INTERNAL, self._why))
        self.asked.set()
        if f.method == INITIALIZE:
            self.over.set()

    def oversized(self, size: int, head: bytes) -> None:
        """Ignore it: no first request is that long."""

    def oversized_end(self, head: bytes, tail: bytes) -> None:
        """Ignore it."""

    def ended(self) -> None:
        self.asked.set()
        self.over.set()


async def _answer(why: str) -> None:
    refusal = _Refusal(why)
    refusal.link = link = await open_own(refusal, max_line=MAX_LINE)
    with anyio.move_on_after(FIRST_REQUEST_TIMEOUT):
        await refusal.asked.wait()
    if refusal.asked.is_set():
        with anyio.move_on_after(FALLBACK_TIMEOUT):
            await refusal.over.wait()
    await link.drained(ERROR_READ_TIMEOUT)
    link.abort()


WRONG: Final = 2
"""Exit code: nothing was started, because the policy, the settings, a file or the command is wrong."""
STRICT: Final = 3


def run_command(args: argparse.Namespace) -> int:
    """Run `samplegate run`. If the server ends by itself, its exit code is returned."""
    try:
        run = prepare(args)
    except (load.PolicyError, config.SettingsError, Unavailable) as problem:
        return _not_started(problem)
    for warning in warnings(run):
        print_line(f"warning: {warning}")
    if args.replays_in_ci:
        print_line(f"replaying {args.record}, because CI is set; to record, add --record-mode once")
    if sys.stdin is not None and sys.stdin.isatty():
        print_line(AT_A_TERMINAL)
    try:
        with until_started(run.gate_file):
            check_own()
            code = anyio.run(_main, run, backend_options=loop_options())
    except (CannotStart, Unavailable) as problem:
        return _not_started(problem)
    finally:
        if run.cassette is not None:
            run.cassette.close()
    if run.gate_file is not None:
        run.gate_file.close(time.time(), code)
    return code


def answer_wrong_usage(problem: str) -> None:
    """Report a wrong command line to the client. The operator has seen the message already."""
    note_failed_start("run")
    answer_first_request("samplegate did not start: invalid command line: " + escaped(problem))


def _not_started(problem: Exception) -> int:
    """Report the problem to the operator and to the client, which can show only an error to its first request."""
    lines = str(problem).split("\n")
    for line in lines:
        print_line(line)
    answer_first_request("samplegate did not start: " + escaped("; ".join(lines)))
    return WRONG


async def _main(run: Run) -> int:
    """Run one conversation, from the server's start to the exit code. Raises CannotStart."""
    metrics = Metrics(read=run.settings.metrics_file is not None or run.settings.metrics_port >= 0)
    context = ProcessContext(
        run.rules,
        state=run.settings.state,
        database=run.settings.database,
        decisions=run.decisions,
        log=run.log,
        cassette=run.cassette if isinstance(run.cassette, Cassette) else None,
        playback=run.cassette if isinstance(run.cassette, Playback) else None,
        metrics=metrics,
        gate_file=run.gate_file,
        fail_on=run.fail_on or STRICT_WORDS,
        settings_hash=settings_hash(run.settings),
        traces=open_traces(os.environ, metrics, run.log),
    )
    run.log.count_dropped(context.metrics)
    page = _review_page(run, context)
    reviews = _review_runtime(run, context, page)
    protocol, witnessed = run.settings.protocol, _evidence_store(run)
    wiring = SessionWiring(
        context,
        run.settings.server,
        realm=realm_of(run.settings.server, run.command, run.url),
        streams=run.url is not None,
        session=partial(
            EraNegotiator, protocol=protocol, prefers_legacy=witnessed is not None and witnessed.evidence.prefers_legacy
        ),
        observe=(lambda _note: None) if witnessed is None else witnessed.take,
    )
    file = metrics_file(metrics, run.settings.metrics_file, run.settings.server)
    started = time.time()

    async def status() -> GateStatus:
        await anyio.to_thread.run_sync(_import_status)
        from samplegate.runtime.status import StatusSource

        problem = run.health.shown_problem()
        return await StatusSource(
            "run",
            context,
            run.settings,
            policy=run.policy,
            started=started,
            servers=lambda found: [server.failed(problem) for server in found.by_server.values()],
        )()

    codes: list[int] = []
    failed: list[CannotStart] = []

    async def conversation() -> None:
        if reviews is not None:
            wiring.relay.start(reviews.run)
            if page is not None:
                wiring.relay.start(page.run, reviews.store)
        wiring.relay.start(_watch_database, context)
        wiring.relay.start(publish, run.settings.state, status, run.log)
        if file is not None and run.settings.metrics_interval:
            wiring.relay.start(file.keep, run.settings.metrics_interval, run.log)
        try:
            codes.append(await converse(run, wiring.relay, context.admission.set_shutdown_deadline))
            for call in wiring.relay.left:
                context.tally.count_unanswered_call(call.method, call.tool)
            context.publish()
        except CannotStart as problem:  # raised outside of the task group, which would wrap it
            failed.append(problem)

    try:
        async with _metrics_port(run, context):
            await wiring.relay.run(conversation)
    finally:
        if page is not None:
            page.close()
        await context.aclose()
    for problem in failed:
        raise problem
    return _finish(run, wiring, file, *codes)


async def _watch_database(context: ProcessContext) -> None:
    if (watch := database_watch(context)) is not None:
        await watch.run()


def database_watch(
    context: ProcessContext, changed: Callable[[], Awaitable[object]] | None = None
) -> DatabaseWatch | None:
    """The watch over the shared database; None without one. ``changed``: see ``DatabaseWatch``."""
    if context.database is None:
        return None
    from samplegate.runtime.database import DatabaseWatch

    return DatabaseWatch(context, context.database, changed)


def _import_status() -> None:
    """Import what builds a status, in a thread, because the event loop must not wait for it."""
    import samplegate.runtime.status  # noqa: F401 - imported for its effect on the next import


def _evidence_store(run: Run) -> EvidenceStore | None:
    """Evidence of how the server asks; None if the protocol version is configured."""
    settings = run.settings
    if settings.protocol != "auto":
        return None
    key = key_of(settings.server, run.command, run.url)
    return EvidenceStore(settings.server, key, state=settings.state, setting="--protocol legacy", log=run.log)


def _review_page(run: Run, context: ProcessContext) -> ReviewPage | None:
    """The page at ``reviews_listen``, for a policy that names reviewers. Raises CannotStart."""
    if run.settings.reviews_listen is None or not run.rules.policy.policy.reviewers:
        return None
    from samplegate.runtime.review_page import ReviewPage

    return ReviewPage.open(context, run.settings)


def _review_runtime(run: Run, context: ProcessContext, page: ReviewPage | None) -> ReviewRuntime | None:
    """Reviews, for a policy that names reviewers."""
    if not run.rules.policy.policy.reviewers:
        return None
    from samplegate.runtime.reviews import ReviewRuntime

    url = None if page is None else page.url
    return ReviewRuntime(context, run.settings, folder=run.policy.parent, environment=run.environment, url=url)


@asynccontextmanager
async def _metrics_port(run: Run, context: ProcessContext) -> AsyncIterator[None]:
    """Serve metrics for Prometheus if a port is configured. Raises Unavailable."""
    if run.settings.metrics_port < 0:
        yield
        return
    server = await MetricsServer.open(context.metrics.page, run.settings.metrics_port, run.log)
    print_line(f"metrics on http://127.0.0.1:{server.port}/metrics")
    try:
        yield
    finally:
        await server.aclose()


def _finish(run: Run, wiring: SessionWiring, metrics: MetricsFile | None, code: int) -> int:
    """Print the summary, write the metrics, and return the exit code."""
    place = run.decisions.last
    parts = [
        wiring.context.tally.summary(),
        f"decision log: {place}" if place is not None else "",
        wiring.notes.summary(),
    ]
    print_line("; ".join(filter(None, parts)))
    if run.cassette is not None:
        for line in run.cassette.finish(run.policy.parent):
            print_line(line)
    if metrics is not None:
        try:
            metrics.write()
        except Unavailable as problem:
            print_line(str(problem))
    met = wiring.context.tally.final_counts.met(run.fail_on)
    for line in wiring.context.tally.failures() if met else ():
        print_line(line)
    unused = run.cassette is not None and run.cassette.unused and run.cassette.fails_if_unused
    if run.gate_file is not None:
        run.gate_file.update(failed=(*(MEANINGS[word] for word in met), *(["cases not used"] if unused else [])))
    return STRICT if (met or unused) and code == OK else code
