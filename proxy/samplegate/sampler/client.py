"""The sampler's client: asks a policy's models through worker processes, which requests start.

A failure is a value (``SampleFailed``), never an exception. Cancelling ``sample`` ends the HTTP call. ``scripted``
models are answered here, from case files that ``policy/script.py`` parses, and need no worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec.structs import replace

from samplegate.policy.catalogue import SCRIPTED
from samplegate.policy.file.load import PolicyError, Problem
from samplegate.policy.prompt import Failure, SampleFailed, SampleRequest, SampleResult
from samplegate.policy.schema import AnswerRule, Model, Policy
from samplegate.policy.script import MAX_BYTES, Script, parse, pick
from samplegate.sampler.keys import NoKey, key, problem, withheld_names
from samplegate.sampler.pool import WorkerPool
from samplegate.sampler.process import COMMAND, MAX_FRAME, FrameTooLarge, WorkerGone, WorkerProcess, WorkerReply
from samplegate.sampler.worker.errors import sentence
from samplegate.sampler.worker.request import UnsupportedRequest, call

if TYPE_CHECKING:
    from samplegate.status.snapshot import WorkerStatus


def load_scripts(models: Sequence[Model], *, folder: Path) -> dict[str, Script]:
    """The scripts of ``scripted`` models by name; their files are relative to ``folder``. Raises PolicyError with all
    problems in the files."""
    return _load(
        {(f"model {model.name}", model.name): model.cases for model in models if model.model == SCRIPTED}, folder
    )


def load_rule_scripts(policy: Policy, folder: Path) -> dict[str, Script]:
    """The scripts of ``answer`` rules with ``cases``, by the rule's name. Raises as ``load_scripts``."""
    rules = (rule for rule in policy.rules if isinstance(rule, AnswerRule) and rule.cases is not None)
    return _load({(f"rule {rule.name}", rule.name): rule.cases for rule in rules}, folder)


def _load(files: Mapping[tuple[str, str], str | None], folder: Path) -> dict[str, Script]:
    """Scripts by name. A file that several owners name is read, and its problems are reported, once."""
    read: dict[str | None, Script | PolicyError] = {}
    for (owner, _), file in files.items():
        if file not in read:
            try:
                read[file] = parse(_read(folder, owner, file), file=str(file))
            except PolicyError as error:
                read[file] = error
    problems = [problem for found in read.values() if isinstance(found, PolicyError) for problem in found.problems]
    if problems:
        raise PolicyError(tuple(problems))
    return {name: script for (_, name), file in files.items() if isinstance(script := read[file], Script)}


def _read(folder: Path, owner: str, file: str | None) -> str:
    if file is None:
        raise PolicyError(
            (Problem("policy", 1, 1, "models", f"{owner} is scripted but has no cases; add `cases: FILE`"),)
        )
    try:
        with (folder / file).open("rb") as opened:
            raw = opened.read(MAX_BYTES + 1)
        return raw.decode("utf-8-sig")
    except OSError as problem:
        what = (
            f"the cases of {owner} cannot be read: {problem.strerror or type(problem).__name__}; check the path in"
            " `cases`, which is relative to the policy"
        )
    except UnicodeDecodeError:
        what = f"the cases of {owner} are not UTF-8; save the file as UTF-8 text"
    raise PolicyError((Problem(file, 1, 1, "", what),))


NOT_READY: Final = (
    "the model worker process was not ready in time; the first start after an installation takes longest. Set warm:"
    " true on the model, or give the rule a longer timeout"
)
REHEARSAL: Final = 10.0  # seconds for a rehearsal, which takes one or two
SHAPES: Final = frozenset({"openai", "anthropic", "gemini"})
"""Providers that litellm calls only at ``api_base``, so that a rehearsal reaches no real provider."""


class Models:
    """The models of one policy. ``folder`` is the policy's, for relative paths. ``environment`` is the gate's own,
    including the env file. ``workers``: the maximum number of worker processes.

    Raises PolicyError with all problems in the files of ``scripted`` models.
    """

    def __init__(
        self,
        models: Sequence[Model],
        *,
        folder: Path,
        environment: Mapping[str, str],
        workers: int = 1,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._models = {model.name: model for model in models}
        self._called = [model for model in models if model.model != SCRIPTED]
        self._folder = folder
        self._environment = dict(environment)
        self._pool = WorkerPool(environment, command, workers)
        self._hidden = sorted(withheld_names(environment, models))
        self._scripts: dict[str, Script] = load_scripts(models, folder=folder)
        self._turns: dict[str, Counter[str]] = defaultdict(Counter)
        self._closed = False

    @property
    def pids(self) -> tuple[int, ...]:
        """The process IDs of the workers that are ready."""
        return self._pool.pids

    @property
    def workers(self) -> tuple[WorkerStatus, ...]:
        """What the workers do now; empty if no model needs one."""
        return self._pool.states() if self._called else ()

    @property
    def wants_warm(self) -> bool:
        """Whether the policy wants a worker to start before the first request."""
        return any(model.warm for model in self._models.values())

    def adopt(self, before: Models) -> bool:
        """Share the workers of the earlier policy; must be called before this object is used. False, without effect, if
        their environment or maximum number has changed."""
        old, new = before._pool, self._pool
        if (old.environment, old.command, old.count) != (new.environment, new.command, new.count):
            return False
        self._pool = old.shared()
        return True

    def report_failed_starts(self, report: Callable[[str], None]) -> None:
        """Call ``report`` with the problem of each worker that cannot start while others run."""
        self._pool.on_failed_start = report

    def problems(self) -> list[str]:
        """Problems that are known at start: a missing key, or a key file that cannot be read."""
        found = (
            (model.name, problem(model, folder=self._folder, environment=self._environment)) for model in self._called
        )
        return [f"model {name}: {what}" for name, what in found if what is not None]

    async def warm(self) -> str | None:
        """Start a worker before the first request, if any model needs it, and rehearse calls of ``warm`` models.
        Returns why it did not start, or None.

        litellm loads much of itself at its first call of a provider, which takes seconds. A rehearsal makes that call
        to a port that refuses connections.
        """
        if self._called:
            try:
                await self._pool.prepare(partial(self._rehearse, [model for model in self._called if model.warm]))
            except WorkerGone as why:
                return str(why)
        return None

    async def _rehearse(self, models: Sequence[Model], child: WorkerProcess) -> None:
        by_shape = {model.model.partition("/")[0]: model.model for model in models}
        names = {model if shape in SHAPES else "openai/rehearsal" for shape, model in by_shape.items()}
        with socket.socket() as silent, contextlib.suppress(WorkerGone), anyio.move_on_after(REHEARSAL):
            silent.bind(("127.0.0.1", 0))  # bound but never listening
            base = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
            asked = call(
                {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 16}, None
            )
            for name in sorted(names):
                target = {"model": name, "api_base": base, "api_key": "rehearsal"}
                await child.call(
                    {"name": "rehearsal", "target": target, "hidden": [], "timeout": REHEARSAL, **asked}, lambda _: None
                )

    async def sample(self, request: SampleRequest, on_progress: Callable[[int], None]) -> SampleResult:
        """Ask one model once. ``on_progress`` is called with the number of pieces so far, from the first token on, at
        most four times a second."""
        model = self._models.get(request.model)
        if model is None:
            return SampleFailed(
                "unknown_model",
                f"model {request.model[:100]}: the policy has no model with this name; add it under models",
                free=True,
            )
        try:
            if model.model == SCRIPTED:
                return await self._play(model, request)
            asked = call(request.params, model.max_tokens)
        except UnsupportedRequest as why:
            return SampleFailed("bad_request", f"model {model.name}: {why}", free=True)
        return await self._ask(model, asked, request.timeout, _Progress(on_progress))

    async def aclose(self) -> None:
        """End the workers unless other models share them; calls in flight then fail. Takes well under a second."""
        if not self._closed:
            self._closed = True
            await self._pool.release()

    async def _play(self, model: Model, request: SampleRequest) -> SampleResult:
        """The script's answer, after its delay. Its turns count from the start of the process."""
        turns = self._turns[model.name]
        picked = pick(self._scripts[model.name], model.name, request.params, turns)
        if picked.fingerprint is not None:
            turns[picked.fingerprint] += 1
        with anyio.move_on_after(request.timeout):
            await anyio.sleep(picked.delay)
            return picked.result
        return SampleFailed("timeout", sentence(model.name, "timeout"), free=True)

    async def _ask(self, model: Model, asked: Mapping[str, Any], timeout: float, progress: _Progress) -> SampleResult:
        starting = False
        with anyio.move_on_after(timeout) as scope:
            async with self._pool.slots:
                frame = await self._frame(model, asked)
                if isinstance(frame, SampleFailed):
                    return frame
                try:
                    starting = True
                    child = await self._pool.running(partial(self._rehearse, self._called))
                    starting, progress.sent = False, True
                    left = max(scope.deadline - anyio.current_time(), 0.001)
                    reply = await child.call({**frame, "timeout": left}, progress.tell)
                    return await self._explained(model, _result(model, reply, progress))
                except WorkerGone as why:
                    return progress.failed("crashed", sentence(model.name, "crashed", what=str(why)))
                except FrameTooLarge:
                    progress.sent = False
                    return progress.failed(
                        "bad_request",
                        f"model {model.name}: the request is larger than {MAX_FRAME} bytes; the server must"
                        " send a smaller one",
                    )
        return progress.failed("timeout", sentence(model.name, "timeout", what=NOT_READY if starting else None))

    async def _explained(self, model: Model, result: SampleResult) -> SampleResult:
        """A rejected key with its cause, if the key is missing: litellm calls some providers without one."""
        if not isinstance(result, SampleFailed) or result.failure != "bad_key":
            return result
        missing = await asyncio.to_thread(problem, model, folder=self._folder, environment=self._environment)
        return result if missing is None else replace(result, message=sentence(model.name, "bad_key", what=missing))

    async def _frame(self, model: Model, asked: Mapping[str, Any]) -> dict[str, Any] | SampleFailed:
        """The worker's frame. The key is read again for each call, so that a changed key file takes effect."""
        secret = await asyncio.to_thread(key, model, folder=self._folder, environment=self._environment)
        if isinstance(secret, NoKey):
            return SampleFailed("bad_key", sentence(model.name, "bad_key", what=secret.what), free=True)
        target = {"model": model.model, "api_base": model.api_base, "api_key": secret}
        return {
            "name": model.name,
            "target": {k: v for k, v in target.items() if v is not None},
            "hidden": self._hidden,
            **asked,
        }


class _Progress:
    """The progress of one call, which decides whether a failure may have cost something."""

    def __init__(self, on_progress: Callable[[int], None]) -> None:
        self._on_progress = on_progress
        self.sent = False
        self.started = False

    def tell(self, pieces: int) -> None:
        self.started = True
        self._on_progress(pieces)

    def failed(self, failure: Failure, message: str) -> SampleFailed:
        return SampleFailed(failure, message, started=self.started, free=not self.sent)


def _result(model: Model, reply: WorkerReply, progress: _Progress) -> SampleResult:
    if reply.failed is not None:
        return reply.failed
    if reply.sampled is None or not reply.sampled.content:
        return progress.failed("error", sentence(model.name, "error"))
    return reply.sampled
