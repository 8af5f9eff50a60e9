"""Pure. IDs of runs: all gates of one CI job have the same ID, so that their limits and their verdict belong together.

A user gives it, or the CI system's own variables do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from samplegate.printable import printable

MAX_LENGTH: Final = 128
SHOWN: Final = 60  # characters of what is not an ID
VARIABLE: Final = "SAMPLEGATE_RUN"
CI_VARIABLES: Final = (("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "GITHUB_JOB"), ("CI_JOB_ID",), ("BUILD_TAG",))
"""Variables of GitHub Actions, GitLab CI and Jenkins. Their values, joined with ``-``, are the ID."""

_id: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._%@+-]{{0,{MAX_LENGTH - 1}}}\Z")
_DIGEST: Final = 16  # hexadecimal digits in place of the rest of an ID that is too long


def check_run_id(text: str) -> None:
    """Raise ValueError unless this is an ID: it names a folder, and appears in logs and reports."""
    if not _id.match(text):
        shown = printable(text[:SHOWN]) + ("…" if len(text) > SHOWN else "")
        raise ValueError(
            f"'{shown}' is not an ID of a run; use at most {MAX_LENGTH} letters, digits and . _ % @ + -, and begin with"
            " a letter or a digit"
        )


def run_id_of_ci(environ: Mapping[str, str]) -> str | None:
    """The ID of the CI system's job; None outside of a known CI system.

    Characters that an ID cannot have are written as ``%XX``, and the end of a long one is replaced by its hash.
    """
    for names in CI_VARIABLES:
        if environ.get(names[0]):
            return _as_id("-".join(filter(None, (environ.get(name) for name in names))))
    return None


def _as_id(text: str) -> str:
    safe = quote(text.encode("utf-8", "surrogateescape"), safe="@+").replace("~", "%7E")
    if not safe[0].isalnum():
        safe = f"0{safe}"
    if len(safe) <= MAX_LENGTH:
        return safe
    return safe[: MAX_LENGTH - _DIGEST - 1] + "-" + hashlib.sha256(safe.encode()).hexdigest()[:_DIGEST]
