"""The server of the recipe `server-ui`, as its page has it, behind a daemon with its policy."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon import BOUND, client, serving
from tests.fakes.daemon_reviews import People, people, settings
from tests.paths import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
RECIPE: Final = ROOT / "policies" / "recipes" / "server-ui.md"


def server() -> str:
    """The program on the page."""
    found = re.search(r"```python\n(.*?)```", RECIPE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


async def shown(ana: People) -> dict[str, Any]:
    """The pending review, once its UI has been read."""
    async with asyncio.timeout(BOUND):
        while True:
            for one in (await ana.get("/reviews?state=pending"))["reviews"]:
                review: dict[str, Any] = await ana.get(f"/reviews/{one['id']}")
                if review["ui"] is not None and review["ui"]["state"] != "loading":
                    return review
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_gate_reads_the_ui_and_the_server_gets_the_answer(tmp_path: Path, era: str) -> None:
    (tmp_path / "releases.py").write_text(server())
    arguments = settings(
        tmp_path,
        policy=RECIPE.with_suffix(".yaml").read_text("utf-8"),
        servers={"releases": {"command": sys.executable, "args": ["releases.py"]}},
    )
    async with serving(tmp_path, *arguments, forked=True) as gate:
        await gate.said("reviews on")
        async with people(gate) as ana, client(gate) as c:
            if era == "legacy":
                await c.begin()
            call = asyncio.create_task(c.call(era))
            review = await shown(ana)
            assert {"uri": "ui://releases/share.html", "state": "ready"}.items() <= review["ui"].items()
            chosen = {"action": "accept", "content": {"percent": 25}}
            status, _ = await ana.say(review, verdict="answer", **chosen)
            assert 200 == status
            (block,) = (await call)["result"]["content"]
            assert chosen.items() <= json.loads(block["text"]).items()
