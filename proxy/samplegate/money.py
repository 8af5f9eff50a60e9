"""Pure. Amounts of money as text: ``$12.34``, ``$0.0013``. Amounts are whole numbers of units, 10^12 to the dollar."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

UNITS: Final = 10**12
"""Units in a dollar, as in the ledger."""


def dollars(units: int) -> str:
    """An amount, rounded up: to cents, or below a dollar to two significant digits."""
    amount = Decimal(units) / UNITS
    places = 2 if amount == 0 or amount >= 1 else 1 - amount.adjusted()
    return _text(amount.quantize(Decimal(1).scaleb(-places), rounding="ROUND_UP"))


def exact_dollars(units: int) -> str:
    """An amount with all of its digits, such as that of a limit."""
    return _text(Decimal(units) / UNITS)


def _text(amount: Decimal) -> str:
    whole, _, decimals = f"{amount:,f}".partition(".")
    return f"${whole}.{decimals.rstrip('0').ljust(2, '0')}"
