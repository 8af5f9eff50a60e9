"""A server on the Python SDK 2.3, both eras: pushed requests after a handshake, `input_required` rounds else. Runs in
the environment sdk2."""

import json
import warnings
from typing import Annotated

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
)
from pydantic import BaseModel

warnings.simplefilter("ignore")  # sampling is deprecated, and is what we are here for
server = MCPServer("counterpart-sdk2", log_level="CRITICAL")

FORM = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean"}, "reason": {"type": "string", "minLength": 1}},
    "required": ["confirm", "reason"],
}


class Confirmation(BaseModel):
    confirm: bool
    reason: str


def sampling(text: str) -> CreateMessageRequest:
    messages = [SamplingMessage(role="user", content=TextContent(type="text", text=text))]
    return CreateMessageRequest(
        params=CreateMessageRequestParams(
            messages=messages, max_tokens=200, system_prompt="You classify.", temperature=0.1
        )
    )


def form(message: str) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=FORM))


def said(result) -> str:
    """One line for a sampling result or an elicitation result."""
    if isinstance(result, CreateMessageResult):
        return f"{result.model}|{result.stop_reason}|{result.content.text}"
    return result.action + (f"|{result.content['confirm']}|{result.content['reason']}" if result.content else "")


@server.tool()
def add(a: int, b: int) -> int:
    """Asks nothing."""
    return a + b


async def ask_classify(text: str) -> Sample:
    return Sample(
        [SamplingMessage(role="user", content=TextContent(type="text", text=f"classify: {text}"))],
        max_tokens=200,
        system_prompt="You classify.",
    )


async def ask_confirm() -> Elicit[Confirmation]:
    return Elicit("Delete 3 accounts?", Confirmation)


@server.tool()
async def classify(text: str, result: Annotated[CreateMessageResult, Resolve(ask_classify)]) -> str:
    """Asks a model, in either era."""
    return said(result)


@server.tool()
async def confirm(result: Annotated[Confirmation, Resolve(ask_confirm)]) -> str:
    """Asks a person, in either era; whatever is no acceptance ends the call."""
    return f"accept|{result.confirm}|{result.reason}"


ends: list[str] = []


@server.tool()
async def erase(what: str, ctx: Context) -> str | InputRequiredResult:
    """2026-07-28: asks a person, and notes how it ended."""
    if not ctx.input_responses:
        return InputRequiredResult(input_requests={"go": form(f"Erase {what}?")}, request_state=what)
    end = said(ctx.input_responses["go"])
    ends.append(f"{ctx.request_state}: {end}")
    return end


@server.tool()
def erased() -> str:
    """How the calls of `erase` ended that were carried out."""
    return ", ".join(ends)


@server.tool()
async def review(subject: str, ctx: Context) -> str | InputRequiredResult:
    """2026-07-28: one round of two questions."""
    answers = ctx.input_responses or {}
    if {"risk", "go"} <= answers.keys():
        return f"{said(answers['risk'])} & {said(answers['go'])} & {ctx.request_state}"
    return InputRequiredResult(
        input_requests={"risk": sampling(f"classify: {subject}"), "go": form(f"Go on with {subject}?")},
        request_state="state of review",
    )


WEATHER = Tool(
    name="weather.now",
    description="The weather of a town",
    input_schema={"type": "object", "properties": {"town": {"type": "string"}}},
)


@server.tool()
async def loop(town: str, ctx: Context) -> str | InputRequiredResult:
    """2026-07-28: asks a model that may use a tool, and uses it as often as the model wants; requestState holds the
    conversation."""
    first = SamplingMessage(role="user", content=TextContent(type="text", text=f"How is the weather in {town}?"))
    messages = (
        [SamplingMessage.model_validate(one) for one in json.loads(ctx.request_state)] if ctx.request_state else [first]
    )
    for result in (ctx.input_responses or {}).values():
        blocks = result.content if isinstance(result.content, list) else [result.content]
        uses = [block for block in blocks if block.type == "tool_use"]
        if not uses:
            used = [
                f"{b.name}({b.input['town']})"
                for m in messages
                if isinstance(m.content, list)
                for b in m.content
                if b.type == "tool_use"
            ]
            return f"{','.join(used)}|{result.stop_reason}|{blocks[0].text}"
        messages.append(SamplingMessage(role="assistant", content=blocks))
        answers = [
            ToolResultContent(
                type="tool_result", tool_use_id=use.id, content=[TextContent(type="text", text="12 degrees")]
            )
            for use in uses
        ]
        messages.append(SamplingMessage(role="user", content=answers))
    params = CreateMessageRequestParams(
        messages=messages, max_tokens=200, tools=[WEATHER], tool_choice=ToolChoice(mode="auto")
    )
    state = json.dumps([message.model_dump(by_alias=True, mode="json", exclude_none=True) for message in messages])
    return InputRequiredResult(input_requests={"next": CreateMessageRequest(params=params)}, request_state=state)


@server.tool()
async def steps(count: int, ctx: Context) -> str | InputRequiredResult:
    """2026-07-28: ``count`` rounds one after the other, sampling and a form by turns; only requestState remembers."""
    so_far = ctx.request_state.split(";") if ctx.request_state else []
    if ctx.input_responses:
        so_far += [said(result) for result in ctx.input_responses.values()]
    if len(so_far) >= count:
        return ";".join(so_far)
    question = form(f"step {len(so_far)}") if len(so_far) % 2 else sampling(f"step {len(so_far)}")
    return InputRequiredResult(input_requests={f"step-{len(so_far)}": question}, request_state=";".join(so_far) or None)


@server.tool()
async def comes_back(times: int, ctx: Context) -> str | InputRequiredResult:
    """2026-07-28: rounds without a question."""
    been = int(ctx.request_state or 0)
    return f"came back {been} times" if been >= times else InputRequiredResult(request_state=str(been + 1))


@server.tool()
async def open_link(ctx: Context) -> str | InputRequiredResult:
    """2026-07-28: asks a person to open a page."""
    if ctx.input_responses:
        return said(ctx.input_responses["link"])
    return InputRequiredResult(
        input_requests={
            "link": ElicitRequest(
                params=ElicitRequestURLParams(message="Sign in", url="https://login.example.com/start?x=1")
            )
        }
    )


@server.tool()
async def roots(ctx: Context) -> str | InputRequiredResult:
    """2026-07-28: asks for the client's roots and a model in one round."""
    if ctx.input_responses:
        found = ",".join(str(root.uri) for root in ctx.input_responses["roots"].roots)
        return f"{found} & {said(ctx.input_responses['risk'])}"
    return InputRequiredResult(input_requests={"roots": ListRootsRequest(), "risk": sampling("roots")})


@server.tool()
async def declared(ctx: Context) -> str:
    """What the client says it can do, as the server sees it."""
    return (
        ctx.client_capabilities.model_dump_json(by_alias=True, exclude_none=True) if ctx.client_capabilities else "{}"
    )


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Reports progress and logs."""
    for n in range(1, to + 1):
        await ctx.report_progress(n, to, f"{n} of {to}")
        await anyio.sleep(0.02)  # this SDK sends reports and results side by side
    await ctx.info("counted")
    return str(to)


@server.tool()
async def tell(mark: str, times: int, ctx: Context) -> str:
    """Logs the mark with a running number, so that a reader can tell whether one is missing or out of turn."""
    for n in range(times):
        await ctx.info(f"{mark}:{n}")
    return mark


taken_back = 0


@server.tool()
async def slow(ctx: Context) -> str:
    """Reports progress once and ends only by being cancelled."""
    global taken_back
    await ctx.report_progress(1, None, "waiting")
    try:
        await anyio.sleep(3600)
    except anyio.get_cancelled_exc_class():
        taken_back += 1
        again.set()
        raise
    return "never"


told = 0
again = anyio.Event()


@server.tool()
async def cancelled(more: bool = False) -> int:
    """How often `slow` was cancelled; with `more`, once it was again since this was last asked: over HTTP that may come
    after the next call."""
    global told, again
    if more and taken_back <= told:
        again = anyio.Event()
        with anyio.move_on_after(5):
            await again.wait()
    told = taken_back
    return told


@server.tool()
def large(size: int) -> str:
    """Returns a text of that many characters."""
    return "x" * size


@server.resource("counterpart://greeting")
def greeting() -> str:
    return "hello from a resource"


@server.resource("counterpart://asking/{subject}")
async def asking(subject: str, ctx: Context) -> str | InputRequiredResult:
    """2026-07-28: a resource that asks."""
    if ctx.input_responses:
        return said(ctx.input_responses["q"])
    return InputRequiredResult(input_requests={"q": sampling(f"resource {subject}")})


@server.prompt()
async def haiku(about: str, ctx: Context) -> str | InputRequiredResult:
    """Asks a person in 2026-07-28."""
    if ctx.protocol_version and ctx.protocol_version >= "2026-07-28" and not ctx.input_responses:
        return InputRequiredResult(input_requests={"q": form(f"a haiku about {about}?")})
    answer = f" ({said(ctx.input_responses['q'])})" if ctx.input_responses else ""
    return f"Write a haiku about {about}{answer}"


if __name__ == "__main__":
    server.run("stdio")
