"""`python -m bench.endpoint`: OpenAI-compatible endpoint with constant answers, streamed or whole. Prints its URL.

Its own time must be small and the same for every caller, so it reads only a request's length and whether it asks for a
stream.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from bench.client import guarded

ROOT: Final = Path(__file__).resolve().parent.parent
WORDS: Final = ("Change ", "of ", "two ", "lines.")
USAGE: Final = {"prompt_tokens": 120, "completion_tokens": len(WORDS), "total_tokens": 120 + len(WORDS)}
_length: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_streamed: Final = re.compile(rb'"stream" *: *true')


def _head(type: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (type, len(body)) + body


def _whole() -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "".join(WORDS)}}
    answer = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "instant-1",
        "choices": [choice],
        "usage": USAGE,
    }
    return _head(b"application/json", json.dumps(answer).encode())


def _stream() -> bytes:
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "instant-1"}
    deltas: list[dict[str, str]] = [{"role": "assistant", "content": ""}, *({"content": word} for word in WORDS)]
    said = [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    said.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    said.append({**chunk, "choices": [], "usage": USAGE})
    events = [*map(json.dumps, said), "[DONE]"]
    return _head(b"text/event-stream", "".join(f"data: {event}\n\n" for event in events).encode())


class _Endpoint(asyncio.Protocol):
    """One keep-alive connection."""

    whole, stream = _whole(), _stream()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._came = b""

    def data_received(self, data: bytes) -> None:
        self._came += data
        while (end := self._came.find(b"\r\n\r\n")) >= 0:
            length = _length.search(self._came, 0, end)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._came) < size:
                return
            self._transport.write(self.stream if _streamed.search(self._came, end, size) else self.whole)
            self._came = self._came[size:]


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Endpoint, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the parent process ends


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running endpoint."""

    url: str
    pid: int


@contextmanager
def running() -> Iterator[Endpoint]:
    """Start the endpoint in its own process."""
    command = [sys.executable, "-m", "bench.endpoint"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        with guarded(process):
            yield Endpoint(process.stdout.readline().decode().strip(), process.pid)
        process.stdin.close()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve())
    else:
        uvloop.run(_serve())
