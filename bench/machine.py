"""Description of the machine in one line."""

from __future__ import annotations

import os
import platform
from importlib.util import find_spec


def describe() -> str:
    """Cores, system, Python, and whether uvloop is installed; no host name and no path."""
    loop = "uvloop" if find_spec("uvloop") else "asyncio's loop"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, {python}, {loop}"


def load() -> float | None:
    """The load average of the last fifteen minutes. If it is well above the benchmark's own 2, other processes
    disturbed the figures. None if the system does not report it."""
    return os.getloadavg()[2] if hasattr(os, "getloadavg") else None
