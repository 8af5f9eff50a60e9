"""Two thousand rounds of five calls at once, on each event loop, with and without a standalone stream: `make soak
LONG=1`."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.fakes import rounds

ROUNDS: Final = 2_000
LONG: Final = os.environ.get("LONG", "") not in ("", "0")

pytestmark = [pytest.mark.soak, pytest.mark.anyio, pytest.mark.timeout(3600)]

if LONG:

    @pytest.mark.parametrize("standalone", [False, True])
    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    async def test_no_request_is_lost_in_two_thousand_rounds(loop: str, standalone: bool) -> None:
        tally = await rounds.measure(ROUNDS, standalone=standalone, loop=loop)
        assert tally.good, tally
