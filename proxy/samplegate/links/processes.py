"""Starting one process and learning of its end, with errors that say what to mend.

Not asyncio's subprocess: its child watchers differ by loop and version, and it would wrap the pipes in transports.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from samplegate.links.failures import CannotStart
from samplegate.links.polled import PIPE_SIZE

PLACE: Final = "command"


def start(command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, stderr: int | None = None) -> subprocess.Popen[bytes]:
    """Start ``command`` as the leader of a session and group of its own, stdin and stdout on pipes. Raises CannotStart.

    ``stderr``: as for ``subprocess``; None is ours.

    Two milliseconds at most on Linux (vfork). No shell reads the command.
    """
    if not command or not command[0]:
        raise CannotStart(PLACE, "", "it is empty", "give the server's command after --")
    arguments = list(command)
    flags = 0
    if sys.platform == "win32":  # untested; start_new_session and pipesize do nothing there
        import shutil

        flags = subprocess.CREATE_NEW_PROCESS_GROUP
        arguments[0] = shutil.which(command[0], path=env.get("PATH")) or command[0]  # npx is npx.cmd there
    try:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            env=env,
            cwd=cwd,
            start_new_session=True,
            pipesize=PIPE_SIZE,
            creationflags=flags,
        )
    except (OSError, ValueError) as error:
        raise _explain(error, command[0], env, cwd) from error


def unresolved(command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None) -> CannotStart | None:
    """Why a command cannot be started, as far as that is known without starting it: its program is looked for as ``start`` would."""
    import shutil

    name = command[0] if command else ""
    if not name or (cwd is not None and not cwd.is_dir()):
        found = False
    elif os.sep in name:
        path = Path(name) if cwd is None else cwd / name
        found = path.is_file() and os.access(path, os.X_OK)
    else:
        found = shutil.which(name, path=env.get("PATH", os.defpath)) is not None
    return None if found else _explain(PermissionError(), name, env, cwd)


def _explain(error: OSError | ValueError, name: str, env: Mapping[str, str], cwd: Path | None) -> CannotStart:
    import shutil

    if isinstance(error, ValueError):
        return CannotStart(PLACE, name, "or its environment has a NUL character or an '=' in a name", "take it out")
    if cwd is not None and not cwd.is_dir():
        return CannotStart("working folder", str(cwd), "is not a folder", "make it or name another")
    found = name if os.sep in name else shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        return CannotStart(PLACE, name, "is in no folder of PATH", "give its full path, or install it")
    path = Path(found) if cwd is None else cwd / found
    if not path.exists():
        return CannotStart(PLACE, name, "does not exist", "correct the path")
    if path.is_dir():
        return CannotStart(PLACE, name, "is a folder", "name the program in it")
    if isinstance(error, FileNotFoundError):
        return CannotStart(PLACE, name, "names a missing interpreter in its first line", "install that, or correct the line")
    if isinstance(error, PermissionError):
        return CannotStart(PLACE, name, "may not be executed", "make it executable, or start it through its interpreter")
    return CannotStart(PLACE, name, f"could not be started ({error.strerror})", "start it by hand to see why")


def exit_of(process: subprocess.Popen[bytes]) -> asyncio.Future[int]:
    """A future with the return code, as ``subprocess`` gives it. The process is reaped by a daemon thread, whichever loop runs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[int] = loop.create_future()

    def tell(code: int) -> None:
        if not done.done():
            done.set_result(code)

    def wait() -> None:
        code = process.wait()
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(tell, code)

    threading.Thread(target=wait, name=f"samplegate-wait-{process.pid}", daemon=True).start()
    return done
