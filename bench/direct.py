"""`python -m bench.direct URL`: litellm called directly in one process, for comparison with the gate's sampling.

Each line ``COUNT AT_ONCE stream|whole`` on stdin starts a lap. The answer is the lap's duration in seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import IO, Any, Literal

from bench.client import guarded
from bench.endpoint import ROOT
from bench.sampling_server import MAX_TOKENS, TEXT

Manner = Literal["stream", "whole"]


class Direct:
    """A running process of this module."""

    def __init__(self, sink: IO[bytes], source: IO[bytes]) -> None:
        self._sink, self._source = sink, source

    def lap(self, count: int, at_once: int, manner: Manner) -> float:
        """Seconds for ``count`` calls, ``at_once`` of them concurrently."""
        self._sink.write(f"{count} {at_once} {manner}\n".encode())
        self._sink.flush()
        took = self._source.readline()
        if not took:
            raise RuntimeError(f"litellm ended before {count} calls were answered, {at_once} at once ({manner})")
        return float(took)


@contextmanager
def running(url: str) -> Iterator[Direct]:
    """Start this module in its own process, and wait until it has imported litellm."""
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "CRITICAL"}
    command = [sys.executable, "-W", "ignore", "-m", "bench.direct", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        with guarded(process):
            yield Direct(process.stdin, process.stdout)
        process.stdin.close()


async def _call(litellm: Any, url: str, streamed: bool) -> None:
    messages = [{"role": "user", "content": TEXT}]
    target = {
        "model": "openai/instant",
        "api_base": url,
        "api_key": "none",
        "messages": messages,
        "max_tokens": MAX_TOKENS,
        "num_retries": 0,
    }
    if not streamed:
        answer = await litellm.acompletion(**target)
        assert answer.choices[0].message.content
        return
    text = ""
    async for chunk in await litellm.acompletion(**target, stream=True, stream_options={"include_usage": True}):
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    assert text


async def _lap(litellm: Any, url: str, count: int, at_once: int, streamed: bool) -> float:
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await _call(litellm, url, streamed)

    started = perf_counter()
    await asyncio.gather(*(caller() for _ in range(at_once)))
    return perf_counter() - started


async def _main(url: str) -> None:
    sink = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # litellm prints to stdout
    logging.disable(logging.CRITICAL)
    import litellm

    while line := await asyncio.to_thread(sys.stdin.readline):
        count, at_once, manner = line.split()
        print(await _lap(litellm, url, int(count), int(at_once), manner == "stream"), file=sink, flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
