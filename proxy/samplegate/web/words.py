"""Numbers in words for people: spans of time, moments, money, sizes. Values in, text out; time is an argument."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Final

from samplegate.core.ledger import SCALE

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def span(seconds: float) -> str:
    """The two largest units: ``2 min 5 s``, ``23 h 59 min``; never less than ``0 s``."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for name, size in _UNITS:
        count, left = divmod(left, size)
        if count or (parts and left):
            parts.append(f"{count} {name}")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 ")) or "0 s"


def moment(at: float) -> str:
    """``22 Nov 2026, 10:03:33 UTC``."""
    return f"{_utc(at):%-d %b %Y, %H:%M:%S} UTC"


def stamp(at: float) -> str:
    """The same for ``<time datetime>``."""
    return f"{_utc(at):%Y-%m-%dT%H:%M:%SZ}"


def _utc(at: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(min(max(at, 0.0), 253_402_300_799.0), dt.UTC)


def dollars(units: int) -> str:
    """An amount in the ledger's units: ``$12.34``, and below a dollar two digits that count, rounded up: ``$0.0013``."""
    amount = Decimal(units) / SCALE["usd"]
    if amount == 0 or amount >= 1:
        return f"${amount:,.2f}"
    places = 1 - amount.adjusted()
    step = Decimal(1).scaleb(-places)
    return f"${amount.quantize(step, rounding='ROUND_UP'):f}"


def size(count: int) -> str:
    """Bytes: ``512 bytes``, ``3.4 KiB``, ``12 MiB``."""
    if count < 1024:
        return "1 byte" if count == 1 else f"{count} bytes"
    for name, unit in (("KiB", 1024), ("MiB", 1024**2)):
        if count < unit * 1024 or name == "MiB":
            number = count / unit
            return f"{number:.1f} {name}" if number < 10 else f"{number:,.0f} {name}"
    raise AssertionError("unreachable")


def many(count: int, one: str, more: str = "") -> str:
    """``1 message``, ``3 messages``, ``12,345 bytes``."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"
