"""Reload: reads the files again, builds everything that can fail, and only then puts it in force.

An invalid file changes nothing. Reloads run one at a time. A change of listeners, folders or bounds is reported, and
needs a restart.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import anyio
import anyio.to_thread
import msgspec

from samplegate.config import SettingsError
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.settings import settings_hash
from samplegate.config.values import Address
from samplegate.errors import Unavailable
from samplegate.policy.file import load
from samplegate.runtime.process import ProcessContext, Rules
from samplegate.server.admin import ReloadReport
from samplegate.server.prepare import ServeConfig, read_all

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Single-flight: concurrent calls share the next run.

    They do not join the present run, which may have read the files before the latest change. A caller that is cancelled
    does not cancel the run.
    """

    def __init__(self, act: Callable[[], Awaitable[T]]) -> None:
        self._act = act
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """Result or exception of the next run. Raises CancelledError after ``aclose``."""
        if self._next is None:
            self._next = asyncio.create_task(self._turn(self._running))
            # keeps asyncio from logging an exception that was not retrieved
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._next)

    async def aclose(self) -> None:
        """Cancel the present run and the next."""
        tasks = [task for task in (self._running, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _turn(self, before: asyncio.Task[T] | None) -> T:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._act()


LIVE: Final = frozenset(
    {
        "policy",
        "servers",
        "servers_file",
        "callers",
        "env_file",
        "people",
        "allowed_hosts",
        "allowed_origins",
        "model_workers",
    }
)
"""Settings that a reload puts in force."""
_OTHER: Final = LIVE - {"policy", "servers", "servers_file"}


class Changes(msgspec.Struct, frozen=True):
    """Names of the servers that a reload adds, changes or removes."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class ReloadPlan(msgspec.Struct, frozen=True):
    """Built but not yet in force. ``put`` swaps everything at once and cannot fail. ``end`` then closes what was
    replaced, which may take seconds."""

    changes: Changes
    put: Callable[[], None]
    end: Callable[[], Awaitable[None]]


class Reloads:
    """The reloads of one daemon.

    ``prepare`` builds servers and callers without changing anything. ``bound`` is the actual address of the clients'
    listener.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        wanted: ServeConfig,
        context: ProcessContext,
        prepare: Callable[[ServeConfig], ReloadPlan],
        bound: Address,
    ) -> None:
        self.wanted = wanted
        self.last: tuple[float, ReloadReport] | None = None
        """When the latest reload ended, in monotonic seconds, and its report."""
        self._bound = bound
        self._args = args
        self._context = context
        self._prepare = prepare

    async def warm(self) -> None:
        """Warm up the models of the policy in force, where it asks for that."""
        await self._warm(self._context.rules)

    async def reload(self) -> ReloadReport:
        """Read all files again and put them in force, or report every problem. Never raises."""
        report = await self._tried()
        self.last = time.monotonic(), report
        metrics, log = self._context.metrics, self._context.log
        metrics.count("samplegate_reloads_total", result=report.result)
        metrics.set("samplegate_reload_last_success", 0 if report.problems else 1)
        fields = {name: value for name in report.__struct_fields__ if (value := getattr(report, name))}
        (
            log.error("reload.refused", **fields)
            if report.problems
            else log.info("reload.taken", result=report.result, **fields)
        )
        return report

    async def _tried(self) -> ReloadReport:
        now = self._context.rules.hash
        try:
            wanted = await anyio.to_thread.run_sync(read_all, self._args)
        except (load.PolicyError, SettingsError, Unavailable) as problem:
            return ReloadReport(now, now, tuple(str(problem).split("\n")))
        except Exception:
            self._context.log.error("reload.failed", exc_info=True)  # noqa: G201
            return ReloadReport(now, now, ("reload: internal error in the gate; see the log",))
        why = exposure_error(self._bound, wanted.settings)
        if why is not None:
            return ReloadReport(now, now, (why,))
        return await self._in_force(wanted, now)

    async def _in_force(self, wanted: ServeConfig, hash_before: str) -> ReloadReport:
        before = self.wanted
        try:
            change = self._prepare(wanted)
        except Exception:
            self._context.log.error("reload.failed", exc_info=True)  # noqa: G201
            return ReloadReport(hash_before, hash_before, ("reload: internal error in the gate; see the log",))
        rotated = bool(wanted.models_see and before.models_see) and wanted.models_see != before.models_see
        resized = wanted.settings.model_workers != before.settings.model_workers
        anew = rotated or resized or wanted.rules.policy != before.rules.policy or _plays(wanted.rules)
        kept = anew and wanted.rules.models.adopt(self._context.rules.models)
        # models with another environment or number of workers get new ones, of which one starts before the old ones end
        if anew and not kept:
            await self._warm(wanted.rules)
        old = self._context.replace(wanted.rules) if anew else None
        change.put()  # rules, servers and callers change within one turn of the event loop
        self.wanted = wanted
        self._context.settings_hash = settings_hash(wanted.settings)
        publish_policy(self._context)
        report = self._report(before, change.changes, hash_before, rotated=rotated)
        await self._end(change, old)
        if kept:
            await self._warm(wanted.rules)
        return report

    async def _warm(self, rules: Rules) -> None:
        """Start a worker of the sampler if the policy asks for a warm-up. A failure is logged, and the reload
        continues."""
        problem = await rules.models.warm() if rules.models.wants_warm else None
        if problem is not None:
            self._context.log.error("sampler.not_started", problem=problem)

    async def _end(self, change: ReloadPlan, old: Rules | None) -> None:
        """Close what was replaced. An error here does not affect what is in force."""
        try:
            await change.end()
            if old is not None:
                await self._context.retire(old)
        except Exception:
            self._context.log.error("reload.not_ended", exc_info=True)  # noqa: G201

    def _report(self, before: ServeConfig, changes: Changes, hash_before: str, *, rotated: bool) -> ReloadReport:
        wanted = self.wanted
        differing = _differing(before.settings, wanted.settings)
        if rotated and "env_file" not in differing:
            differing.append("env_file")
        return ReloadReport(
            self._context.rules.hash,
            hash_before,
            warnings=wanted.warnings,
            added=changes.added,
            changed=changes.changed,
            removed=changes.removed,
            settings=tuple(name for name in differing if name in _OTHER),
            restart=tuple(name for name in differing if name not in LIVE),
        )


def _plays(rules: Rules) -> bool:
    """Whether the policy answers from case files, which may have changed although the policy has not."""
    policy = rules.policy.policy
    return any(model.cases for model in policy.models) or any(getattr(rule, "cases", None) for rule in policy.rules)


def exposure_error(bound: Address, settings: ServeSettings) -> str | None:
    """Why settings without callers are refused for a listener on this address; None if they are allowed.

    On a public address, anyone could call the servers without a token.
    """
    if bound.is_loopback or settings.callers.required:
        return None
    return (
        f"listen: the gate listens on {bound}, which is reachable from other machines without a token;"
        " configure `callers:`, or set listen: to 127.0.0.1 and restart"
    )


def publish_policy(context: ProcessContext) -> None:
    """Publish the policy in force as metrics."""
    context.metrics.only("samplegate_policy_info", hash=context.rules.hash)
    context.metrics.set("samplegate_policy_loaded_timestamp_seconds", time.time())


def _differing(before: ServeSettings, now: ServeSettings) -> list[str]:
    return [name for name in ServeSettings.__struct_fields__ if getattr(before, name) != getattr(now, name)]
