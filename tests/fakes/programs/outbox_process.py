"""A process that runs an outbox over a store on disk until it is killed. ``outbox_process.py STORE_URL HOOK_URL``"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from samplegate.reviews.async_store import AsyncReviewStore
from samplegate.reviews.service import pause
from tests.fakes.outbox import Outside


async def main(store: str, hook: str) -> None:
    """Deliver everything that is due."""
    out = Outside(Path())
    out.tell_at(hook)
    await out.outbox(store=AsyncReviewStore(store), wall=time.time, clock=time.monotonic, pause=pause).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
