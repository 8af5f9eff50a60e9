"""``--since`` of the commands that read decision logs: a span before now, or a date."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from typing import Final

from samplegate.audit.record import timestamp
from samplegate.errors import InputError
from samplegate.policy.conditions import short_value

_SPAN: Final = re.compile(r"([0-9]{1,7}) ?([mhdw])\Z", re.ASCII)
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def since_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--since``."""
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="ignore older records: 90m, 24h, 2d, 1w, 2026-11-01, or 2026-11-01T08:00Z (UTC unless a zone is given)",
    )


def since_time(text: str | None, now: float) -> str:
    """The time in the format of the records; ``""`` for None. ``now``: Unix seconds. Raises InputError."""
    if text is None:
        return ""
    try:
        if (span := _SPAN.match(text)) is not None:
            return timestamp(now - int(span[1]) * _SECONDS[span[2]])
        moment = datetime.fromisoformat(text)
        return timestamp((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"--since: {short_value(text)} is not a time; use a span (24h, 2d), a date (2026-11-01) or both date and"
            " time (2026-11-01T08:00Z)"
        ) from None
