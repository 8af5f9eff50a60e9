"""A server on the Python SDK 1.30, handshake revisions only: asks by pushed requests. Runs in the environment sdk1."""

import sys

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent, Tool, ToolChoice, ToolResultContent
from pydantic import BaseModel

server = FastMCP("counterpart-sdk1", log_level="CRITICAL")


class Confirmation(BaseModel):
    confirm: bool
    reason: str = "none given"


@server.tool()
def add(a: int, b: int) -> int:
    """Asks nothing."""
    return a + b


@server.tool()
async def classify(text: str, ctx: Context) -> str:
    """Asks a model."""
    result = await ctx.session.create_message(
        messages=[SamplingMessage(role="user", content=TextContent(type="text", text=f"classify: {text}"))],
        max_tokens=200,
        system_prompt="You classify.",
        temperature=0.1,
        related_request_id=ctx.request_id,
    )
    return f"{result.model}|{result.stopReason}|{result.content.text}"


WEATHER = Tool(
    name="weather.now",
    description="The weather of a town",
    inputSchema={"type": "object", "properties": {"town": {"type": "string"}}},
)


@server.tool()
async def loop(town: str, ctx: Context) -> str:
    """Asks a model that may use a tool, and uses it as often as the model wants."""
    messages = [SamplingMessage(role="user", content=TextContent(type="text", text=f"How is the weather in {town}?"))]
    used = []
    for _ in range(5):
        result = await ctx.session.create_message(
            messages=messages,
            max_tokens=200,
            tools=[WEATHER],
            tool_choice=ToolChoice(mode="auto"),
            related_request_id=ctx.request_id,
        )
        blocks = result.content if isinstance(result.content, list) else [result.content]
        uses = [block for block in blocks if block.type == "tool_use"]
        if not uses:
            return f"{','.join(used)}|{result.stopReason}|{blocks[0].text}"
        used += [f"{use.name}({use.input['town']})" for use in uses]
        messages.append(SamplingMessage(role="assistant", content=blocks))
        answers = [
            ToolResultContent(
                type="tool_result", toolUseId=use.id, content=[TextContent(type="text", text="12 degrees")]
            )
            for use in uses
        ]
        messages.append(SamplingMessage(role="user", content=answers))
    return "never done"


@server.tool()
async def confirm(ctx: Context) -> str:
    """Asks a person."""
    result = await ctx.elicit("Delete 3 accounts?", Confirmation)
    data = f"|{result.data.confirm}|{result.data.reason}" if result.action == "accept" else ""
    return f"{result.action}{data}"


ends: list[str] = []
one_more = anyio.Event()


@server.tool()
async def erase(what: str, ctx: Context) -> str:
    """Asks a person, and notes how it ended."""
    global one_more
    end = "cancelled"
    try:
        result = await ctx.elicit(f"Erase {what}?", Confirmation)
        end = result.action + (f"|{result.data.confirm}|{result.data.reason}" if result.action == "accept" else "")
    finally:
        ends.append(f"{what}: {end}")
        one_more.set()
        one_more = anyio.Event()
    return end


@server.tool()
async def erased(at_least: int) -> str:
    """How the calls of `erase` ended, once so many have: a cancellation may come after the next call."""
    with anyio.move_on_after(20):
        while len(ends) < at_least:
            await one_more.wait()
    return ", ".join(ends)


@server.tool()
async def open_link(ctx: Context) -> str:
    """Asks a person to open a page."""
    result = await ctx.elicit_url("Sign in", "https://login.example.com/start?x=1", "link-1")
    if result.action == "accept":
        await ctx.session.send_elicit_complete("link-1")
    return result.action


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Reports progress, logs, and pings the client."""
    for n in range(1, to + 1):
        await ctx.report_progress(n, to, f"{n} of {to}")
        await ctx.session.send_ping()  # answered: so the client has read what came before it
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


@server.tool()
async def roots(ctx: Context) -> str:
    """Asks for the client's roots."""
    result = await ctx.session.list_roots()
    return ",".join(str(root.uri) for root in result.roots)


@server.tool()
async def both_at_once(ctx: Context) -> str:
    """Asks a model and a person at the same time."""
    answers: dict[str, str] = {}

    async def ask(name: str, tool) -> None:
        answers[name] = await tool()

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "classify", lambda: classify("two", ctx))
        group.start_soon(ask, "confirm", lambda: confirm(ctx))
    return f"{answers['classify']} & {answers['confirm']}"


@server.resource("counterpart://greeting")
def greeting() -> str:
    return "hello from a resource"


@server.prompt()
def haiku(about: str) -> str:
    return f"Write a haiku about {about}"


if __name__ == "__main__":
    # Whoever reads the pipe named here learns by its end that this process is gone.
    held = open(sys.argv[1], "wb") if len(sys.argv) > 1 else None  # noqa: SIM115
    server.run("stdio")
