"""A reviewer's command: one run, with the review as JSON on standard input and its verdict on standard output.

No shell reads the command. Its environment has none of the gate's secrets. Its stderr is discarded, because it may
contain content. When a run ends, its whole process group is killed. Not tested on Windows, where only the program
itself is killed.

``read`` and ``record_verdict`` also handle the verdicts in webhook responses.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from samplegate.errors import Log
from samplegate.protocol import strictjson
from samplegate.reviews import verdict as verdicts
from samplegate.reviews.notify.webhook import Delivered, DeliveryRefused, DeliveryResult, RetryLater, VerdictReceived
from samplegate.reviews.review import Conflict, FieldProblem, Review, Verdict, VoteRefused
from samplegate.reviews.store import ReviewStore
from samplegate.reviews.votes import version

AnswerDoor: TypeAlias = Literal["webhook", "command"]
REFUSED: Final = {
    "repeated": "another person must approve it",
    "caller": "this person made the call",
    "full": "too many votes",
}
_PLACES: Final = frozenset({"verdict", "digest", "edits", "action", "content", "reason", "tell_server"})
MAX_AUTHOR: Final = 100  # characters of a name


def read(raw: bytes, review: Review) -> tuple[Verdict, str] | tuple[FieldProblem, ...]:
    """The verdict and its unverified author (``by``; "" if there is none), or all problems."""
    try:
        found: Any = strictjson.decode(raw, max_bytes=verdicts.MAX_BYTES, max_depth=verdicts.MAX_DEPTH)
    except strictjson.JsonFault as fault:
        return (FieldProblem("", str(fault)),)
    by = found.get("by") if isinstance(found, dict) else None
    given: bytes | Mapping[str, Any] = (
        {name: value for name, value in found.items() if name != "by"} if isinstance(by, str) else raw
    )
    # optional, because a response can only be about the review in its message
    verdict = verdicts.read(given, review, digest="optional")
    return (verdict, _clean_name(by) if isinstance(by, str) else "") if isinstance(verdict, Verdict) else verdict


def _clean_name(text: str) -> str:
    return "".join(c for c in text[: 4 * MAX_AUTHOR] if c.isprintable()).strip()[:MAX_AUTHOR]


def _place(problem: FieldProblem) -> str:
    """A problem's place in our own words: field names of a form are content, and an unknown name may be anything."""
    name = problem.path.partition(".")[0]
    return name if name in _PLACES else "elsewhere" if name else "the whole of it"


async def record_verdict(
    store: ReviewStore, log: Log, review: Review, raw: bytes, *, door: AnswerDoor, reviewer: str
) -> str | None:
    """Record a verdict in the store. Raises Unavailable. ``review``: as it was in the message; ``reviewer``: who got
    the message.

    Returns the result in a few words; None if it cannot be parsed or the review was edited since, which is logged.
    """
    match read(raw, review):
        case (Verdict() as verdict, str(by)):
            pass
        case problems:
            places = sorted({_place(problem) for problem in problems})
            log.warning(
                "review.verdict_unread",
                review=review.id,
                reviewer=reviewer,
                door=door,
                problems=len(problems),
                places=places,
            )
            return None
    seen, who = version(review), by or reviewer
    done = await store.write(lambda store: store.decide(review.id, verdict, who=who, door=door, seen=seen))
    if isinstance(done, VoteRefused):
        log.info("review.vote_refused", review=review.id, reviewer=reviewer, door=door, reason=done.reason)
        return None if done.reason == "stale" else f"{verdict.word}, not counted: {REFUSED[done.reason]}"
    if isinstance(done, Conflict):
        log.info("review.verdict_late", review=review.id, reviewer=reviewer, door=door, state=done.review.state)
        return f"{verdict.word}, too late: {done.review.state}"
    return verdict.word if done is not None else "the review no longer exists"


MAX_OUTPUT: Final = 1024 * 1024  # bytes of a verdict
# seconds from the program's exit to the end of its output, which a leftover process may keep open
OUTPUT_GRACE: Final = 1.0
_INHERITED: Final = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TEMP TMP XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME"
    " XDG_RUNTIME_DIR SYSTEMROOT SYSTEMDRIVE COMSPEC PATHEXT USERPROFILE APPDATA LOCALAPPDATA PROGRAMDATA".split()
)


def environment_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The few variables that any program needs. Keys that the command needs belong in a file of their own."""
    return {name: value for name, value in environment.items() if name.upper() in _INHERITED or name.startswith("LC_")}


async def run(
    argv: Sequence[str],
    stdin_data: bytes,
    *,
    environment: Mapping[str, str],
    folder: Path,
    seconds: float,
    output: int = MAX_OUTPUT,
) -> DeliveryResult:
    """Run the command once, at most ``seconds``. Cancellation kills it.

    Empty output with exit code 0 means that a verdict may arrive later through another door.

    ``environment`` is the gate's, of which the command gets only a part; ``folder`` is the working directory, and
    relative program paths start there. Raises nothing but CancelledError.
    """
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            lambda: _CommandProtocol(stdin_data, output),
            *argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment_of(environment),
            start_new_session=True,
        )
    )
    try:
        transport, protocol = await asyncio.shield(starting)
    # cancelled during the start: asyncio would kill only the program, not processes that it has already started
    except asyncio.CancelledError:
        with suppress(OSError, ValueError):
            await _end(*await starting)
        raise
    except (OSError, ValueError) as problem:
        return DeliveryRefused(f"the command could not be started: {type(problem).__name__}")
    try:
        async with asyncio.timeout(seconds):
            return await _wait_for_result(transport, protocol)
    except TimeoutError:
        return RetryLater("the command was killed after its timeout")
    finally:
        await _end(transport, protocol)


async def _end(transport: asyncio.SubprocessTransport, protocol: _CommandProtocol) -> None:
    _kill(transport)
    await asyncio.wait([protocol.exited], timeout=OUTPUT_GRACE)
    transport.close()


async def _wait_for_result(transport: asyncio.SubprocessTransport, protocol: _CommandProtocol) -> DeliveryResult:
    await asyncio.wait([protocol.exited, protocol.too_much], return_when=asyncio.FIRST_COMPLETED)
    if protocol.exited.done():
        await asyncio.wait(
            [protocol.closed, protocol.too_much], timeout=OUTPUT_GRACE, return_when=asyncio.FIRST_COMPLETED
        )
    if protocol.too_much.done():
        return RetryLater(f"the command printed more than {protocol.most} bytes")
    return _result_of(bytes(protocol.output_bytes), transport.get_returncode())


def _result_of(raw: bytes, code: int | None) -> DeliveryResult:
    """The result of a run. It fails closed: only a program that exits with 0 gives a verdict."""
    if code != 0:
        return RetryLater(
            f"the command was killed by signal {-code}"
            if code is not None and code < 0
            else f"the command exited with code {code}"
        )
    return VerdictReceived(raw, "exit code 0") if raw.strip() else Delivered("exit code 0, no output")


class _CommandProtocol(asyncio.SubprocessProtocol):
    """Writes the input and collects the output.

    asyncio's streams are not used, because they report the exit only after the end of the output.
    """

    def __init__(self, stdin_data: bytes, most: int) -> None:
        new = asyncio.get_running_loop().create_future
        self.exited: asyncio.Future[None] = new()
        self.closed: asyncio.Future[None] = new()
        self.too_much: asyncio.Future[None] = new()
        self.output_bytes = bytearray()
        self.most = most
        self._stdin_data = stdin_data

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # cast, because uvloop's transports have the methods but not the class
        entry = cast("asyncio.WriteTransport", cast("asyncio.SubprocessTransport", transport).get_pipe_transport(0))
        # the program may have exited without reading, and uvloop has then closed the pipe
        with suppress(RuntimeError):
            entry.write(self._stdin_data)
        entry.close()

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        assert isinstance(data, bytes)
        self.output_bytes += data[: self.most + 1 - len(self.output_bytes)]
        if len(self.output_bytes) > self.most:
            _resolve(self.too_much)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            _resolve(self.closed)

    def process_exited(self) -> None:
        _resolve(self.exited)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _kill(transport: asyncio.SubprocessTransport) -> None:
    """Kill the program's process group.

    After the program has exited, the group is empty or contains only leftover processes.
    """
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            transport.kill()
        else:
            os.killpg(transport.get_pid(), signal.SIGKILL)
