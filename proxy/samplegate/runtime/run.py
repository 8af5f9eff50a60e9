"""One conversation: the server is started, our own stdio opened, and both are ended in order by whoever goes first. It
reads no frame.

At the end: the server's end of input, its exit, the last lines to the client, the records; all within the 2 s after
which SDK clients kill a wrapper (R90). What is not needed by somebody who may still be answered ends beside the server,
not after it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from samplegate.preparation import Run
from samplegate.runtime import heap
from samplegate.runtime.flow import ManyStreams, facing
from samplegate.runtime.relay import InputReceiver, Relay, enforce_timeouts
from samplegate.say import say
from samplegate.transport.stdio import LineLink, open_own
from samplegate.transport.subprocess import Child, exit_code, start_child

OK: Final = 0
GONE: Final = 1
"""The server over HTTP has ended its session."""
NEVER_ANSWERED: Final = 2
"""The server has not answered its first request in time."""
LAST_LINES: Final = 0.2  # seconds for the client to take what the server wrote last, once it has closed its side
# seconds for the end of an ended server's output, where nothing of it is held up; a process it left behind may hold it
# open
TAIL: Final = 0.3
# seconds for the records that are still to be written, all together; and for the limits that are to be corrected
LAST_RECORDS: Final = 0.5


class Side(msgspec.Struct, frozen=True, eq=False):
    """The server's side, opened."""

    connect: Callable[[LineLink], None]
    """Has the client's frames go there and the server's to the client."""
    ends: tuple[Callable[[LineLink], Awaitable[int]], ...]
    """Each waits for an end of the server's own and gives the exit code for it, once the client has taken what came
    before."""
    stop: Callable[[], Coroutine[Any, Any, object]]


async def converse(run: Run, relay: Relay, hurry: Callable[[float], None]) -> int:
    """The exit code of the first of: the client's end, the server's end, its failure to answer, a signal. Raises
    CannotStart.

    ``hurry`` tells the limits that the end has begun, and how many seconds they have.
    """
    async with _child(run, relay) if run.url is None else _at_url(run, run.url, relay) as server:
        try:
            client = InputReceiver(relay, "client")
            own = await open_own(client, max_line=run.settings.max_frame_bytes)
            server.connect(own)
            ends = [partial(end, own) for end in server.ends]
            trimmer = heap.Trimmer(lambda: relay.session.state.held)
            input_ends = partial(_input_ends, relay, client, own, run.settings.end_of_input_timeout)
            relay.on_large = trimmer.came
            code = await _first(
                input_ends, *ends, lambda: _signalled(relay), lambda: _silent(run, relay), trimmer.watch
            )
        finally:
            run.decisions.hurry(LAST_RECORDS)
            hurry(LAST_RECORDS)
            with anyio.CancelScope(shield=True):
                await _end(run, relay, server.stop)
    await own.drained(LAST_LINES)
    own.close_writing()
    own.abort()
    return code


@asynccontextmanager
async def _child(run: Run, relay: Relay) -> AsyncIterator[Side]:
    """A process of the server's. Raises CannotStart."""
    child = await start_child(
        run.command, relay.server, env=run.server_environment, max_line=run.settings.max_frame_bytes
    )
    yield Side(
        lambda own: relay.connect(own, child.link),
        (lambda own: _server_ends(relay, child, own), lambda own: _output_ends(relay, child, own)),
        child.stop,
    )


@asynccontextmanager
async def _at_url(run: Run, url: str, relay: Relay) -> AsyncIterator[Side]:
    """A server over HTTP, which is sent nothing before the client's first frame."""
    from samplegate.transport.http_client.connection import Remote, pool

    async with pool() as http:
        link = Remote(
            url, relay.streams, http=http, headers=run.headers, max_frame=run.settings.max_frame_bytes, note=relay.note
        )

        def connect(own: LineLink) -> None:
            relay.connect_client(facing(own))
            relay.connect_server(ManyStreams(link))

        yield Side(connect, (lambda own: _session_ends(relay, own),), link.aclose)


async def _end(run: Run, relay: Relay, stop: Callable[[], Coroutine[Any, Any, object]]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(stop)
        if relay.client_gone.is_set():  # every round is withdrawn: nobody waits for a model
            group.start_soon(run.rules.models.aclose)


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


async def _input_ends(relay: Relay, client: InputReceiver, own: LineLink, seconds: float) -> int:
    """The client ends its input: what is in flight is still answered, for as long as anybody reads the answers."""
    await client.over.wait()
    relay.client_silent()
    with anyio.move_on_after(seconds):
        await _first(lambda: _all_taken(relay, own), lambda: _unread(own))
    relay.ended("client")
    return OK


async def _all_taken(relay: Relay, own: LineLink) -> int:
    await relay.all_answered()
    await _taken(own)
    return OK


async def _unread(own: LineLink) -> int:
    await own.unread()
    return OK


async def _silent(run: Run, relay: Relay) -> int | None:
    """The server does not answer its first request."""
    silent = anyio.Event()
    await enforce_timeouts(run.settings.start_timeout, run.settings.call_timeout, silent.set, relay)
    if not silent.is_set():
        return None
    seconds = run.settings.start_timeout
    say(
        f"server {run.settings.server}: it did not answer its first request within {seconds} s; if it needs longer,"
        " raise start_timeout"
    )
    return NEVER_ANSWERED


async def _server_ends(relay: Relay, child: Child, own: LineLink) -> int:
    """The server ended by itself; a client that is slow still gets all that it wrote."""
    code = exit_code(await child.exited())
    while not relay.server_gone.is_set():
        held_up = own.buffered > 0
        with anyio.move_on_after(TAIL):
            await relay.server_gone.wait()
        if not held_up and own.buffered == 0:
            break
    await _taken(own)
    return code


async def _output_ends(relay: Relay, child: Child, own: LineLink) -> int:
    """A server that closes its stdout can answer nothing any more, whether it lives on or not."""
    await relay.server_gone.wait()
    code = exit_code(await child.stop())
    await _taken(own)
    return code


async def _session_ends(relay: Relay, own: LineLink) -> int:
    """The server has forgotten its session: a client on stdio can only be started again."""
    await relay.server_gone.wait()
    await _taken(own)
    return GONE


async def _taken(own: LineLink) -> None:
    """Wait until the client has taken everything; its end or a signal is waited for beside this."""
    while own.buffered:
        await own.drained(1.0)


async def _signalled(relay: Relay) -> int:
    """After a signal nothing is decided for anybody: what is open is withdrawn while the server ends, as where the
    client goes."""
    if sys.platform == "win32":  # its event loop takes no signal handlers; SIGINT comes as KeyboardInterrupt
        await anyio.sleep_forever()
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for number in signals:
            relay.ended("client")
            return 128 + number
    raise AssertionError("signals do not end")
