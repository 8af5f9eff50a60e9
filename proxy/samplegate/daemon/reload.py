"""A reload: the files are read again, everything that can fail is built, and only then is it put in force. It reads no frame.

A file that is wrong leaves all as it was. Listeners, folders and bounds are the process's: a change of those is told, and needs a restart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from samplegate.admin.report import ReloadReport
from samplegate.core import load
from samplegate.daemon.preparation import Wanted, read_all
from samplegate.house import House
from samplegate.ports import Unavailable
from samplegate.settings import SettingsError
from samplegate.settings.serving import ServeSettings

LIVE: Final = frozenset({"policy", "servers", "servers_file", "callers", "env_file", "allowed_hosts", "allowed_origins"})
"""The settings that a reload puts in force."""
_OTHER: Final = LIVE - {"policy", "servers", "servers_file"}


class Changes(msgspec.Struct, frozen=True):
    """The names of servers that a reload touched."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Reloads:
    """``put`` puts other servers and callers in force; it fails before it has touched anything, or not at all."""

    def __init__(self, args: argparse.Namespace, wanted: Wanted, house: House, put: Callable[[Wanted], Awaitable[Changes]]) -> None:
        self.wanted = wanted
        self._args = args
        self._house = house
        self._put = put

    async def reload(self) -> ReloadReport:
        """Read everything again and put it in force, or say why not. Never raises."""
        report = await self._tried()
        metrics, log = self._house.metrics, self._house.log
        metrics.count("samplegate_reloads_total", result=report.result)
        metrics.set("samplegate_reload_last_success", 0 if report.problems else 1)
        fields = {name: value for name in report.__struct_fields__ if (value := getattr(report, name))}
        log.error("reload.refused", **fields) if report.problems else log.info("reload.taken", result=report.result, **fields)
        return report

    async def _tried(self) -> ReloadReport:
        now = self._house.rules.hash
        try:
            wanted = await anyio.to_thread.run_sync(read_all, self._args)
        except (load.PolicyError, SettingsError, Unavailable) as problem:
            return ReloadReport(now, now, tuple(str(problem).split("\n")))
        except OSError as problem:
            return ReloadReport(now, now, (f"{problem.filename}: cannot be read: {(problem.strerror or str(problem)).lower()}",))
        except UnicodeDecodeError as problem:
            return ReloadReport(now, now, (f"policy: cannot be read: byte {problem.start} is not UTF-8; save it as UTF-8 text",))
        except Exception:
            self._house.log.error("reload.failed", exc_info=True)  # noqa: G201
            return ReloadReport(now, now, ("reload: a fault while reading; the log has it",))
        return await self._in_force(wanted, now)

    async def _in_force(self, wanted: Wanted, hash_before: str) -> ReloadReport:
        before = self.wanted
        try:
            changes = await self._put(wanted)
        except Exception:
            self._house.log.error("reload.failed", exc_info=True)  # noqa: G201
            return ReloadReport(hash_before, hash_before, ("reload: a fault while putting it in force; the log has it",))
        self.wanted = wanted
        if wanted.rules.policy != before.rules.policy:
            await self._house.swap(wanted.rules)
        tell_policy(self._house)
        differing = _differing(before.settings, wanted.settings)
        return ReloadReport(
            self._house.rules.hash,
            hash_before,
            warnings=wanted.warnings,
            added=changes.added,
            changed=changes.changed,
            removed=changes.removed,
            settings=tuple(name for name in differing if name in _OTHER),
            restart=tuple(name for name in differing if name not in LIVE),
        )


def tell_policy(house: House) -> None:
    """The policy in force, as metrics."""
    house.metrics.only("samplegate_policy_info", hash=house.rules.hash)
    house.metrics.set("samplegate_policy_loaded_timestamp_seconds", time.time())


def _differing(before: ServeSettings, now: ServeSettings) -> list[str]:
    return [name for name in ServeSettings.__struct_fields__ if getattr(before, name) != getattr(now, name)]
