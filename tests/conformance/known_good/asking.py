"""The tools that ask the client: by their own requests up to 2025-11-25, by `input_required` rounds since
2026-07-28."""

from __future__ import annotations

import json
from typing import Any

from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)

from tests.conformance.known_good.content import COLOR, DEFAULTS, ENUMS, NAME, OK, TEXT, USER
from tests.conformance.known_good.offers import Call, Reply, said, tool


def form(message: str, schema: dict[str, Any]) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(text: str) -> CreateMessageRequest:
    messages = [SamplingMessage(role="user", content=TextContent(type="text", text=text))]
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=messages, max_tokens=50))


# --- in either era: asked while the call waits, or in a result and answered with the next call
# ------------------------------------------


@tool("test_sampling", prompt=TEXT)
async def samples(call: Call) -> Reply:
    """Makes a sampling request."""
    question = sampling(call.arguments["prompt"])
    if not call.modern:
        messages, most = question.params.messages, question.params.max_tokens
        result = await call.context.session.create_message(
            messages, max_tokens=most, related_request_id=call.context.request_id
        )
        return heard(result)
    answer = call.answers.get("sample")
    return (
        heard(answer)
        if isinstance(answer, CreateMessageResult)
        else InputRequiredResult(input_requests={"sample": question})
    )


def heard(result: CreateMessageResult) -> Reply:
    return said(f"LLM response: {result.content.text if isinstance(result.content, TextContent) else ''}")


async def asked(call: Call, message: str, schema: dict[str, Any]) -> Reply:
    if call.modern and not isinstance(call.answers.get("form"), ElicitResult):
        return InputRequiredResult(input_requests={"form": form(message, schema)})
    pushed = call.context.session.elicit_form
    result = (
        call.answers["form"]
        if call.modern
        else await pushed(message, schema, related_request_id=call.context.request_id)
    )
    return said(f"Elicitation completed: action={result.action}, content={json.dumps(result.content)}")


@tool("test_elicitation", message=TEXT)
async def elicits(call: Call) -> Reply:
    """Makes an elicitation request."""
    return await asked(call, call.arguments["message"], USER)


@tool("test_elicitation_sep1034_defaults")
async def elicits_with_defaults(call: Call) -> Reply:
    """Sends a form with a default of every type."""
    return await asked(call, "Please provide your data", DEFAULTS)


@tool("test_elicitation_sep1330_enums")
async def elicits_choices(call: Call) -> Reply:
    """Sends a form with a choice of every type."""
    return await asked(call, "Please choose", ENUMS)


# --- since 2026-07-28: rounds
# ----------------------------------------------------------------------------------------------------------


def filled(call: Call, key: str, field: str) -> Any:
    """The value of a field of an accepted form, or None without such an answer."""
    answer = call.answers.get(key)
    return answer.content.get(field) if isinstance(answer, ElicitResult) and answer.content else None


@tool("test_input_required_result_elicitation")
async def asks_a_name(call: Call) -> Reply:
    """Sends one form."""
    if name := filled(call, "user_name", "name"):
        return said(f"Hello, {name}!")
    return InputRequiredResult(input_requests={"user_name": form("What is your name?", NAME)})


@tool("test_streaming_elicitation")
async def asks_a_name_on_a_stream(call: Call) -> Reply:
    """Sends one form after a progress report."""
    await call.context.session.report_progress(1, 2)
    return await asks_a_name(call)


@tool("test_input_required_result_sampling")
async def asks_a_model(call: Call) -> Reply:
    """Sends one sampling request."""
    answer = call.answers.get("capital_question")
    if isinstance(answer, CreateMessageResult):
        return said(f"The model said: {answer.content.text if isinstance(answer.content, TextContent) else ''}")
    return InputRequiredResult(input_requests={"capital_question": sampling("What is the capital of France?")})


@tool("test_input_required_result_list_roots")
async def asks_for_roots(call: Call) -> Reply:
    """Requests the client's roots."""
    answer = call.answers.get("client_roots")
    if isinstance(answer, ListRootsResult):
        return said(f"Roots: {', '.join(str(root.uri) for root in answer.roots)}")
    return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})


@tool("test_input_required_result_request_state")
async def keeps_state(call: Call) -> Reply:
    """Sends a form, and a state that must come back unchanged."""
    if call.state == "confirming" and "confirm" in call.answers:
        return said("state-ok")
    return InputRequiredResult(input_requests={"confirm": form("Please confirm", OK)}, request_state="confirming")


@tool("test_input_required_result_tampered_state")
async def guards_state(call: Call) -> Reply:
    """Sends a form and a state. The SDK checks that a state is ours before this tool sees it."""
    return await keeps_state(call)


@tool("test_input_required_result_multiple_inputs")
async def asks_three(call: Call) -> Reply:
    """Sends three requests in one round."""
    questions: dict[str, InputRequest] = {
        "user_name": form("What is your name?", NAME),
        "greeting": sampling("Generate a greeting"),
        "client_roots": ListRootsRequest(),
    }
    if questions.keys() <= call.answers.keys():
        return said("All inputs received")
    return InputRequiredResult(input_requests=questions, request_state="three")


@tool("test_input_required_result_multi_round")
async def asks_twice(call: Call) -> Reply:
    """Sends a round, another one, and then the result."""
    known = json.loads(call.state) if call.state else {}
    if "name" in known and (color := filled(call, "step2", "color")):
        return said(f"{known['name']} likes {color}")
    if known and (name := filled(call, "step1", "name")):
        return InputRequiredResult(
            input_requests={"step2": form("Your favorite color?", COLOR)}, request_state=json.dumps({"name": name})
        )
    return InputRequiredResult(
        input_requests={"step1": form("Your name?", NAME)}, request_state=json.dumps({"round": 1})
    )


@tool("test_input_required_result_capabilities")
async def asks_what_is_declared(call: Call) -> Reply:
    """Sends only requests that the client declared."""
    declared = call.context.session.client_capabilities
    questions: dict[str, InputRequest] = {}
    if declared is not None and declared.sampling is not None:
        questions["sample"] = sampling("Say hello")
    if declared is not None and declared.elicitation is not None:
        questions["ask"] = form("What is your name?", NAME)
    return InputRequiredResult(input_requests=questions, request_state="declared")
