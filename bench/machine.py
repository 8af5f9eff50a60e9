"""What the figures were taken on, in one line."""

from __future__ import annotations

import os
import platform
from importlib.util import find_spec


def describe() -> str:
    """Cores, system, Python, and whether uvloop is there. No host name, no path."""
    loop = "uvloop" if find_spec("uvloop") else "asyncio's loop"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, {python}, {loop}"


def load() -> float | None:
    """The load average of the last fifteen minutes: well over the bench's own 2, and neighbours shook the figures. None
    where it is not told."""
    return os.getloadavg()[2] if hasattr(os, "getloadavg") else None
