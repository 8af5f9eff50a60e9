"""The sampler's side in the gate's process: a policy's models, asked through one worker that the first request starts. Not litellm: ``worker.py``.

A failure is a value (``SampleFailed``), never an exception; cancelling ``sample`` ends the HTTP call. ``scripted`` models answer here and
start nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio

from samplegate.core.catalogue import SCRIPTED
from samplegate.core.policy import Model
from samplegate.core.samples import Failure, SampleFailed, SampleRequest, SampleResult
from samplegate.core.scripted import Script, pick
from samplegate.sampler.chat import Unfit, call
from samplegate.sampler.faults import sentence
from samplegate.sampler.keys import NoKey, key, problem, withheld
from samplegate.sampler.process import COMMAND, MAX_FRAME, Child, Gone, Reply, TooLarge
from samplegate.sampler.scripts import load_scripts

MAX_CALLS: Final = 64  # at once; the others wait within their own time-outs
FIRST_PAUSE: Final = 1.0  # seconds after a start that failed, doubling with each
LONGEST_PAUSE: Final = 60.0


class Models:
    """The models of one policy. ``folder`` is the policy's, for relative paths; ``environment`` is the gate's own, with the env file.

    Raises PolicyError with every problem in the files of ``scripted`` models.
    """

    def __init__(self, models: Sequence[Model], *, folder: Path, environment: Mapping[str, str], command: Sequence[str] = COMMAND) -> None:
        self._models = {model.name: model for model in models}
        self._folder = folder
        self._environment = dict(environment)
        self._command = command
        self._hidden = sorted(withheld(environment, models))
        self._scripts: dict[str, Script] = load_scripts(models, folder=folder)
        self._turns: dict[str, Counter[str]] = defaultdict(Counter)
        self._slots = anyio.Semaphore(MAX_CALLS)
        self._child: Child | None = None
        self._starting: asyncio.Task[Child | Gone] | None = None
        self._failed_starts = 0
        self._last = ""
        self._not_before = 0.0
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The worker's process id, None while there is none."""
        return self._child.pid if self._child is not None and self._child.alive else None

    def problems(self) -> list[str]:
        """What will go wrong, as far as can be told at start: a key that is missing, a key file that cannot be read."""
        real = [model for model in self._models.values() if model.model != SCRIPTED]
        found = ((model.name, problem(model, folder=self._folder, environment=self._environment)) for model in real)
        return [f"model {name}: {what}" for name, what in found if what is not None]

    async def warm(self) -> None:
        """Start the worker ahead of the first request, if any model needs it. What goes wrong is told to the request that comes."""
        if any(model.model != SCRIPTED for model in self._models.values()):
            try:
                await self._running()
            except Gone:
                return

    async def sample(self, request: SampleRequest, heard: Callable[[int], None]) -> SampleResult:
        """Ask one model once. ``heard`` is told, from the first token on and four times a second at most, how many have come."""
        model = self._models.get(request.model)
        if model is None:
            return SampleFailed("unknown_model", f"model {request.model[:100]}: the policy has none of that name; add it under models", free=True)
        try:
            if model.model == SCRIPTED:
                return await self._play(model, request)
            asked = call(request.params, model.max_tokens)
        except Unfit as why:
            return SampleFailed("bad_request", f"model {model.name}: {why}", free=True)
        return await self._ask(model, asked, request.timeout, _Way(heard))

    async def aclose(self) -> None:
        """End the worker; calls in flight fail. Takes well under a second."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            if self._starting is not None:
                self._starting.cancel()
                await asyncio.wait([self._starting])
            if self._child is not None:
                await self._child.aclose()

    async def _play(self, model: Model, request: SampleRequest) -> SampleResult:
        """What a script says, after its delay. Its turns count from the start of the process."""
        turns = self._turns[model.name]
        picked = pick(self._scripts[model.name], model.name, request.params, turns)
        if picked.fingerprint is not None:
            turns[picked.fingerprint] += 1
        with anyio.move_on_after(request.timeout):
            await anyio.sleep(picked.delay)
            return picked.result
        return SampleFailed("timeout", sentence(model.name, "timeout"), free=True)

    async def _ask(self, model: Model, asked: Mapping[str, Any], timeout: float, way: _Way) -> SampleResult:
        with anyio.move_on_after(timeout) as scope:
            async with self._slots:
                frame = await self._frame(model, asked)
                if isinstance(frame, SampleFailed):
                    return frame
                try:
                    child = await self._running()
                    way.sent = True
                    left = max(scope.deadline - anyio.current_time(), 0.001)
                    return _result(model, await child.call({**frame, "timeout": left}, way.tell), way)
                except Gone as why:
                    return way.failed("crashed", sentence(model.name, "crashed", what=str(why)))
                except TooLarge:
                    way.sent = False
                    return way.failed("bad_request", f"model {model.name}: the request is larger than {MAX_FRAME} bytes; the server must send less")
        return way.failed("timeout", sentence(model.name, "timeout"))

    async def _frame(self, model: Model, asked: Mapping[str, Any]) -> dict[str, Any] | SampleFailed:
        """The worker's frame. The key is read anew for each call, so one that was changed on disk is the one used."""
        secret = await asyncio.to_thread(key, model, folder=self._folder, environment=self._environment)
        if isinstance(secret, NoKey):
            return SampleFailed("bad_key", sentence(model.name, "bad_key", what=secret.what), free=True)
        target = {"model": model.model, "api_base": model.api_base, "api_key": secret}
        return {"name": model.name, "target": {k: v for k, v in target.items() if v is not None}, "hidden": self._hidden, **asked}

    async def _running(self) -> Child:
        """The worker, started if there is none; many callers share one start, and none of them ends it by giving up. Raises Gone."""
        if self._child is not None and self._child.alive:
            return self._child
        if self._closed:
            raise Gone("its worker was ended, for the gate is shutting down")
        if self._starting is None:
            wait = self._not_before - anyio.current_time()
            if wait > 0:
                raise Gone(f"{self._last} (start {self._failed_starts}; the next try is in {wait:.0f} s)")
            self._starting = asyncio.get_running_loop().create_task(self._start())
        started = await asyncio.shield(self._starting)
        if isinstance(started, Gone):
            raise started
        return started

    async def _start(self) -> Child | Gone:
        try:
            self._child = child = await Child.start(self._environment, self._command)
        except Gone as why:
            self._not_before = anyio.current_time() + min(FIRST_PAUSE * 2**self._failed_starts, LONGEST_PAUSE)
            self._failed_starts += 1
            self._last = str(why)
            return why
        else:
            self._failed_starts = 0
            return child
        finally:
            self._starting = None


class _Way:
    """How far a call has come: what a failure says of its cost depends on it."""

    def __init__(self, heard: Callable[[int], None]) -> None:
        self._heard = heard
        self.sent = False
        self.started = False

    def tell(self, pieces: int) -> None:
        self.started = True
        self._heard(pieces)

    def failed(self, failure: Failure, message: str) -> SampleFailed:
        return SampleFailed(failure, message, started=self.started, free=not self.sent)


def _result(model: Model, reply: Reply, way: _Way) -> SampleResult:
    if reply.failed is not None:
        return reply.failed
    if reply.sampled is None or not reply.sampled.content:
        return way.failed("error", sentence(model.name, "error"))
    return reply.sampled
