"""The server of the review demo with the SDK's own client: its requests, and how it shows the answers."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    TextContent,
)

from samplegate.demo.client import MODES, Era
from samplegate.demo.review import CALLS, FORM
from samplegate.demo.review_server import build
from samplegate.protocol.elicitation_schema import Form, field_problems, read_form

ERAS: tuple[Era, ...] = ("legacy", "modern")
SUMMARIZE, RESTART = ((call.tool, call.arguments) for call in CALLS[:2])


class Answers:
    """A client's two callbacks, which keep what they were asked."""

    def __init__(self, action: Any = "accept") -> None:
        self.asked: list[Any] = []
        self._action = action

    async def sample(self, context: Any, params: CreateMessageRequestParams) -> CreateMessageResult:
        self.asked.append(params)
        return CreateMessageResult(
            role="assistant", model="m", content=TextContent(text="all is well"), stop_reason="endTurn"
        )

    async def elicit(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params)
        return ElicitResult(action=self._action, content=dict(FORM) if self._action == "accept" else None)


async def called(call: tuple[str, dict[str, str]], era: Era, answers: Answers) -> CallToolResult:
    with anyio.fail_after(20):
        async with Client(
            build(), mode=MODES[era], sampling_callback=answers.sample, elicitation_callback=answers.elicit
        ) as client:
            return await client.call_tool(*call)


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_one_tool_asks_a_model_and_shows_what_it_got(era: Era) -> None:
    answers = Answers()
    result = await called(SUMMARIZE, era, answers)
    assert {"text": "all is well", "model": "m"} == result.structured_content
    assert "## Incident INC-7" in answers.asked[0].messages[0].content.text


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("action", "form"), [("accept", FORM), ("decline", None), ("cancel", None)])
async def test_the_other_asks_a_person_and_shows_what_it_got(era: Era, action: str, form: Any) -> None:
    result = await called(RESTART, era, Answers(action))
    assert {"action": action, "form": form} == result.structured_content


@pytest.mark.anyio
async def test_the_form_is_flat_has_every_kind_of_field_and_is_filled_in_right() -> None:
    answers = Answers()
    await called(RESTART, "legacy", answers)
    asked = answers.asked[0]
    assert isinstance(asked, ElicitRequestFormParams)
    form = read_form(asked.requested_schema, "2025-11-25")
    assert isinstance(form, Form), form
    assert {"boolean", "enum", "multi_enum", "integer", "number", "string"} == {field.type for field in form.fields}
    assert {} == field_problems(form, FORM)
