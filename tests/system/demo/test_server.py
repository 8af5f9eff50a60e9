"""The demo's server with the SDK's own client, without a gate: the client itself answers here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    TextContent,
)

from samplegate.demo import server
from samplegate.demo.client import MODES, TOOL, Era
from samplegate.demo.server import build

ERAS: tuple[Era, ...] = ("legacy", "modern")
CONFIRMED: Mapping[str, Any] = {"confirm": True, "reason": "cleaning"}


class Answers:
    """A client's two callbacks, which keep what they were asked."""

    def __init__(self, action: Any, content: Mapping[str, Any] | None) -> None:
        self.asked: list[str] = []
        self._form = ElicitResult(action=action, content=None if content is None else dict(content))

    async def sample(self, context: Any, params: CreateMessageRequestParams) -> CreateMessageResult:
        text = params.messages[0].content
        assert isinstance(text, TextContent)
        self.asked.append(text.text)
        return CreateMessageResult(role="assistant", model="m", content=TextContent(text="low"), stop_reason="endTurn")

    async def elicit(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        return self._form


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "users.db"
    server.create(made)
    return made


async def purge(path: Path, era: Era, answers: Answers) -> CallToolResult:
    with anyio.fail_after(20):
        async with Client(
            build(path), mode=MODES[era], sampling_callback=answers.sample, elicitation_callback=answers.elicit
        ) as client:
            return await client.call_tool(TOOL, {"ticket": "T-1"})


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_it_asks_three_times_and_deletes(path: Path, era: Era) -> None:
    answers = Answers("accept", CONFIRMED)
    result = await purge(path, era, answers)
    assert [
        "Classify the risk: 4 of 8 user accounts are inactive and would be deleted for good.",
        "Delete 4 of 8 accounts? A model calls the risk low.",
        "Write the audit entry: purge T-1 deleted 4 inactive accounts. Reason given: cleaning",
    ] == answers.asked
    assert {
        "ticket": "T-1",
        "found": 4,
        "deleted": 4,
        "remaining": 4,
        "risk": "low",
        "reason": "cleaning",
        "audit": "low",
    } == result.structured_content
    assert ["ada", "chen", "emil", "gita"] == server.names(path)


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("action", "content"),
    [("decline", None), ("cancel", None), ("accept", {"confirm": False, "reason": "not today"})],
    ids=["decline", "cancel", "no"],
)
async def test_without_a_confirmation_nothing_is_deleted(
    path: Path, era: Era, action: str, content: Mapping[str, Any] | None
) -> None:
    result = await purge(path, era, Answers(action, content))
    assert result.is_error
    assert len(server.USERS) == len(server.names(path))
