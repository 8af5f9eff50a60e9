"""The tasks of the known-good server (extension io.modelcontextprotocol/tasks): their tools, and the three methods.

No task runs in the background: its state follows from the clock and from what the client answered. In 2025-11-25 and
older, and for clients that do not declare the extension, the tools return their result with the call.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import anyio
from mcp.server import Server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    ElicitRequest,
    InputRequiredResult,
    RequestParams,
    SubscriptionsListenRequestParams,
)
from mcp_types.jsonrpc import HEADER_MISMATCH

from tests.conformance.known_good.asking import asked, filled, form
from tests.conformance.known_good.content import NAME, OK, TEXT
from tests.conformance.known_good.lists import Context
from tests.conformance.known_good.offers import BUS, MODERN, Call, Reply, said, tool

EXTENSION: Final = "io.modelcontextprotocol/tasks"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
TTL, POLL = 300_000, 100  # milliseconds
LISTEN: Final = ListenHandler(BUS)
Answers: TypeAlias = Mapping[str, Any]


@dataclass
class Task:
    """A task, which ends at a monotonic time once all that it asks is answered."""

    due: float
    end: Callable[[Answers], CallToolResult]
    asks: dict[str, ElicitRequest] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    cancelled: bool = False
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    updated: str = ""

    @property
    def over(self) -> bool:
        return self.cancelled or (not self.asks and time.monotonic() >= self.due)

    def head(self, status: str) -> dict[str, Any]:
        """The members that every view of a task has."""
        return {
            "taskId": self.id,
            "status": status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated or self.created,
            "ttlMs": TTL,
            "pollIntervalMs": POLL,
        }

    def view(self) -> dict[str, Any]:
        """What ``tasks/get`` returns now."""
        if self.cancelled:
            return self.head("cancelled")
        if self.asks:
            asks = {key: _wire(ask) for key, ask in self.asks.items()}
            return {**self.head("input_required"), "inputRequests": asks}
        if not self.over:
            return self.head("working")
        try:
            return {**self.head("completed"), "result": {**_wire(self.end(self.answers)), "resultType": "complete"}}
        except MCPError as failed:
            return {**self.head("failed"), "error": {"code": failed.error.code, "message": failed.error.message}}

    def changed(self) -> None:
        self.updated = datetime.now(UTC).isoformat()


TASKS: Final[dict[str, Task]] = {}


def _wire(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def declared(context: Context) -> bool:
    """Whether this request declares the extension. Another request of the same client does not count."""
    capabilities = ((context.params or {}).get("_meta") or {}).get(CAPABILITIES) or {}
    return context.protocol_version >= MODERN and EXTENSION in (capabilities.get("extensions") or {})


def require(context: Context) -> None:
    """Refuse a request that does not declare the extension."""
    if not declared(context):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"the client must declare {EXTENSION}", needed)


def begun(task: Task) -> dict[str, Any]:
    """The result of a call that goes on as this task."""
    TASKS[task.id] = task
    return {"resultType": "task", **task.head("working")}


# --- the tools
# -----------------------------------------------------------------------------------------------------------------


@tool("greet", NAME)
async def greet(call: Call) -> Reply:
    """Never a task."""
    return said(f"Hello, {call.arguments['name']}!")


@tool(
    "slow_compute",
    {"type": "object", "properties": {"seconds": {"type": "number"}, "label": TEXT}, "required": ["seconds"]},
)
async def slow_compute(call: Call) -> Reply:
    """Takes this many seconds, but lets no call wait longer than one."""
    seconds, result = float(call.arguments["seconds"]), said(f"computed {call.arguments.get('label', '')}")
    if declared(call.context):
        return begun(Task(time.monotonic() + seconds, lambda _: result))
    await anyio.sleep(min(seconds, 1))
    return result


@tool("failing_job")
async def failing_job(call: Call) -> Reply:
    """Fails as a tool. Always a task."""
    require(call.context)
    return begun(Task(time.monotonic() + 0.5, lambda _: said("the job failed").model_copy(update={"is_error": True})))


def crashed(_answers: Answers) -> CallToolResult:
    raise MCPError(INTERNAL_ERROR, "the job crashed")


@tool("protocol_error_job")
async def protocol_error_job(call: Call) -> Reply:
    """Fails with an error of JSON-RPC."""
    return begun(Task(0.0, crashed)) if declared(call.context) else crashed({})


@tool("confirm_delete", {"type": "object", "properties": {"filename": TEXT}})
async def confirm_delete(call: Call) -> Reply:
    """Sends a form."""
    question = f"Delete {call.arguments.get('filename', 'it')}?"
    if not declared(call.context):
        return await asked(call, question, OK)
    return begun(Task(0.0, lambda answers: said(f"answered: {answers['confirm']}"), {"confirm": form(question, OK)}))


@tool("multi_input")
async def multi_input(call: Call) -> Reply:
    """Sends two forms at once."""
    asks = {"first": form("The first?", OK), "second": form("The second?", OK)}
    if declared(call.context):
        return begun(Task(0.0, lambda answers: said(f"answered: {sorted(answers)}"), dict(asks)))
    if not call.modern:
        return await asked(call, "Both?", OK)
    return said("answered") if asks.keys() <= call.answers.keys() else InputRequiredResult(input_requests={**asks})


@tool("test_tool_with_task")
async def asks_then_works(call: Call) -> Reply:
    """Sends a form in a round, and then goes on as a task. Always a task."""
    require(call.context)
    if name := filled(call, "user_name", "name"):
        return begun(Task(time.monotonic() + 0.2, lambda _: said(f"Hello, {name}!")))
    return InputRequiredResult(input_requests={"user_name": form("What is your name?", NAME)})


# --- the methods
# ---------------------------------------------------------------------------------------------------------------


class TaskParams(RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


def known(context: Context, id: str) -> Task:
    """The task that a request names, if the request is in order."""
    if context.protocol_version < MODERN:
        raise MCPError(METHOD_NOT_FOUND, "Method not found")
    require(context)
    if context.request is not None and decode_header_value(context.request.headers.get(MCP_NAME_HEADER)) != id:
        raise MCPError(HEADER_MISMATCH, f"{MCP_NAME_HEADER} does not name the task of the body")
    if id not in TASKS:
        raise MCPError(INVALID_PARAMS, "no such task")
    return TASKS[id]


async def get(context: Context, params: TaskParams) -> dict[str, Any]:
    return known(context, params.task_id).view()


async def update(context: Context, params: UpdateParams) -> dict[str, Any]:
    task = known(context, params.task_id)
    if outstanding := task.asks.keys() & params.input_responses.keys():
        task.answers |= {key: params.input_responses[key] for key in outstanding}
        task.asks = {key: ask for key, ask in task.asks.items() if key not in outstanding}
        task.changed()
    return {}


async def cancel(context: Context, params: TaskParams) -> dict[str, Any]:
    task = known(context, params.task_id)
    if not task.over:
        task.cancelled = True
        task.changed()
    return {}


async def listen(context: Context, params: SubscriptionsListenRequestParams) -> Any:
    """Subscriptions without those to tasks, which a server need not offer."""
    if "taskIds" in ((context.params or {}).get("notifications") or {}):
        require(context)
    return await LISTEN(context, params)


def offer(server: Server[Any]) -> None:
    """Advertises the extension, and serves its methods."""
    server.extensions[EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskParams, get)
    server.add_request_handler("tasks/update", UpdateParams, update)
    server.add_request_handler("tasks/cancel", TaskParams, cancel)
