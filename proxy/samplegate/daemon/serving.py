"""`samplegate serve`: reads what it is told, binds its listeners, and runs the daemon. It serves nothing itself.

Everything that can be wrong is found before the first connection is taken (``preparation``, ``listeners``).
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Final

import anyio

from samplegate.config import SettingsError
from samplegate.config.values import address
from samplegate.daemon.operators import admin_token
from samplegate.gate.ports import Unavailable
from samplegate.policy.file import load
from samplegate.preparation import loop_options, open_decision_log
from samplegate.runtime import heap
from samplegate.server.announcements import announce, hear_libraries, refuse_start
from samplegate.server.daemon import Daemon
from samplegate.server.listeners import Listeners, bind, bound
from samplegate.server.prepare import read_all, seal_key
from samplegate.server.reload import open_to_all
from samplegate.server.systemd import Notify
from samplegate.settings.serve_definition import ServeSettings
from samplegate.telemetry.log import Log
from samplegate.transport.stdio import CannotStart

FAILED: Final = 1
"""A fault of the gate ended it."""
WRONG: Final = 2
"""Nothing was started: the policy, the settings, a file or an address is wrong."""


def serve_command(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    started = time.time()
    heap.bound()
    notify = Notify.taken_from(os.environ, os.getpid())  # before anything copies the environment for a server
    try:
        wanted = read_all(args)
        settings = wanted.settings
        decisions = open_decision_log(settings, "serve")
        admin_token(settings.admin_token_file)
        key = seal_key(settings.seal_key_file)
        log = Log(settings.log_level, settings.log_format)
        listeners = _listeners(settings)
    except (load.PolicyError, SettingsError, Unavailable, CannotStart) as problem:
        refuse_start(str(problem))
        return WRONG
    hear_libraries(log)
    for warning in wanted.warnings:
        announce(log, "settings.warned", warning, level="warning")
    daemon = Daemon(args, wanted, decisions, log, listeners, notify=notify, started=started, key=key)
    try:
        return anyio.run(daemon.run, backend_options=loop_options())
    except Exception:
        log.error("daemon.failed", exc_info=True)  # noqa: G201
        return FAILED


def _listeners(settings: ServeSettings) -> Listeners:
    """Every listener that the settings want, bound. Raises CannotStart, Unavailable."""
    sockets = {"public": bind("listen", settings.listens_at)}
    why = open_to_all(bound(sockets["public"]), settings)
    if why is not None:  # a name that is another address than it should be
        raise Unavailable(why)
    for name, text in (("admin", settings.admin_listen), ("reviews", settings.reviews_listen)):
        if text is not None:
            sockets[name] = bind(f"{name}_listen", address(text))
    return Listeners(sockets)
