"""Other parsers of frames: pydantic with the Python SDK's models, the TypeScript SDK's schemas, and a parser that folds
case and converts types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import mcp_types
import pydantic
from mcp_types import jsonrpc

from tests.acceptance.sdk import node
from tests.paths import PROGRAMS

Reading: TypeAlias = dict[str, Any] | None
"""The members that decide, by name, as far as they are there; None where the parser refuses the frame."""
Kind: TypeAlias = Literal["sampled", "elicited", "other"]
"""What a result answers: one of the two requests of servers, or anything else."""
Read: TypeAlias = Callable[[bytes, Kind], Reading]
SAMPLING: Final = ("messages", "maxTokens", "systemPrompt", "tools")
ELICITATION: Final = ("mode", "message", "url", "requestedSchema")
SAMPLED: Final = ("role", "content", "model", "stopReason")
ELICITED: Final = ("action", "content")
MEMBERS: Final = (
    *(
        "id",
        "method",
        "code",
        "name",
        "uri",
        "arguments",
        "_meta",
        "inputResponses",
        "requestState",
        "resultType",
        "inputRequests",
    ),
    *(*SAMPLING, *ELICITATION, *SAMPLED, "action"),
)
CALLS: Final[dict[str, type[pydantic.BaseModel]]] = {
    "tools/call": mcp_types.CallToolRequestParams,
    "prompts/get": mcp_types.GetPromptRequestParams,
    "resources/read": mcp_types.ReadResourceRequestParams,
    "sampling/createMessage": mcp_types.CreateMessageRequestParams,
}
_results: Final[pydantic.TypeAdapter[Any]] = pydantic.TypeAdapter(
    mcp_types.InputRequiredResult | mcp_types.CallToolResult
)
_answers: Final[dict[str, type[pydantic.BaseModel]]] = {
    "sampled": mcp_types.CreateMessageResult,
    "elicited": mcp_types.ElicitResult,
}
_elicitation: Final[pydantic.TypeAdapter[Any]] = pydantic.TypeAdapter(mcp_types.ElicitRequestParams)


KEYS: Final = ("progressToken", "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities")
"""The members of ``_meta`` that decide."""


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """The members that are present and that the gate's decision may depend on."""
    if isinstance(meta := found.get("_meta"), dict):
        found = {**found, "_meta": {name: meta[name] for name in KEYS if name in meta}}
    return {name: found[name] for name in MEMBERS if found.get(name) is not None}


def deciding(line: bytes, kind: Kind) -> tuple[str, ...]:
    """The members that the gate's decision may depend on in a frame of this kind."""
    frame = json.loads(line)
    if "error" in frame:
        return ("id", "code")
    if "result" in frame:
        answered = {"sampled": SAMPLED, "elicited": ELICITED, "other": ("resultType", "inputRequests", "requestState")}
        return ("id", *answered[kind])
    if frame.get("method") in ("sampling/createMessage", "elicitation/create"):
        return ("id", "method", *(SAMPLING if frame["method"].startswith("sampling") else ELICITATION))
    target = ("uri",) if frame.get("method") == "resources/read" else ("name", "arguments")
    return ("id", "method", *target, "_meta", "inputResponses", "requestState")


def exact(line: bytes) -> dict[str, Any]:
    """The gate's reading of a frame: the members with exactly these names."""
    frame = json.loads(line)
    params, result = frame.get("params", {}), frame.get("result") or {}
    return plain(
        {
            **result,
            **params,
            "id": frame.get("id"),
            "method": frame.get("method"),
            "code": frame.get("error", {}).get("code"),
        }
    )


def by_pydantic(line: bytes, kind: Kind) -> Reading:
    """Read in lax mode, by field names as well as aliases."""
    try:
        frame = jsonrpc.jsonrpc_message_adapter.validate_json(line)
        out = frame.model_dump(include={"id", "method"})
        if isinstance(frame, jsonrpc.JSONRPCError):
            out["code"] = frame.error.code
        elif isinstance(frame, jsonrpc.JSONRPCResponse) and kind != "other":
            out |= (
                _answers[kind].model_validate(frame.result).model_dump(by_alias=True, mode="json", exclude_unset=True)
            )
        elif isinstance(frame, jsonrpc.JSONRPCResponse):
            read = _results.validate_python(frame.result)
            stated = read.model_fields_set & {"result_type"} or isinstance(read, mcp_types.InputRequiredResult)
            out |= read.model_dump(by_alias=True, mode="json", exclude_unset=True)
            out["resultType"] = read.result_type if stated else None
        elif frame.method == "elicitation/create":
            out |= _elicitation.validate_python(frame.params).model_dump(by_alias=True, mode="json", exclude_unset=True)
        elif frame.method in CALLS:
            out |= (
                CALLS[frame.method]
                .model_validate(frame.params)
                .model_dump(by_alias=True, mode="json", exclude_unset=True)
            )
        return plain(out)
    except (pydantic.ValidationError, ValueError):
        return None


def by_folding(line: bytes, kind: Kind) -> Reading:
    """Read names in any case, the last of duplicates, and convert between numbers and texts, as parsers in Go, .NET and
    Java can do."""

    def folded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        known = {name.casefold(): name for name in (*MEMBERS, *KEYS, "jsonrpc", "params", "result", "error", "text")}
        return {known.get(name.partition("\0")[0].casefold(), name): value for name, value in pairs}

    try:
        frame = json.loads(line, object_pairs_hook=folded)
        params, result, error = frame.get("params") or {}, frame.get("result") or {}, frame.get("error") or {}
        out = {**result, **params, "id": frame.get("id"), "method": frame.get("method")}
        if "code" in error:
            out["code"] = int(float(error["code"])) if not isinstance(error["code"], list) else int(error["code"][0])
        if isinstance(out.get("maxTokens"), str):
            out["maxTokens"] = int(float(out["maxTokens"]))
        for name in ("name", "uri", "resultType", "method", "mode", "url", "action"):
            if isinstance(out.get(name), int | float):
                out[name] = str(out[name])
            if isinstance(out.get(name), str):
                out[name] = out[name].partition("\0")[0]
        for name, values in (
            ("resultType", ("input_required", "complete")),
            ("action", ("accept", "decline", "cancel")),
            ("mode", ("form", "url")),
        ):
            if isinstance(out.get(name), str) and out[name].lower() in values:
                out[name] = out[name].lower()
        return plain(out)
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError):
        return None


@contextmanager
def typescript(module: str) -> Iterator[Read]:
    """The schemas of an npm module, in one node process."""
    command = [*node.command("node"), str(PROGRAMS / "readings.mjs"), str(Path(node.__file__).parent), module]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    def read(line: bytes, kind: Kind) -> Reading:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            return None
        stdin.write(json.dumps({"text": text, "kind": kind}).encode() + b"\n")
        stdin.flush()
        said = json.loads(stdout.readline())
        return None if said is None else plain(said)

    try:
        yield read
    finally:
        process.kill()
        process.communicate()


DIFFERS: Final = "another"
"""A reader finds another value than the gate, ``-`` that it refuses the frame, ``=`` that it reads the same."""


MARKS: Final = {
    "<CR>": "\r",
    "<TAB>": "\t",
    "<LS>": "\u2028",
    "<NEL>": "\u0085",
    "<BOM>": "\ufeff",
    "<long s>": "\u017f",
    "<dotless i>": "\u0131",
}
"""Signs that the table names."""


def compared(read: Reading, line: bytes, kind: Kind = "other") -> str:
    """The difference between this reading and the gate's."""
    if read is None:
        return "-"
    try:
        meant = exact(line)
        return "=" if all(_same(name, read.get(name), meant.get(name)) for name in deciding(line, kind)) else DIFFERS
    except ValueError:
        return DIFFERS


def _same(name: str, one: object, other: object) -> bool:
    if name == "inputResponses" and one is None and other == {}:
        return True  # a reader without input rounds omits the member; no answers are equal to an empty object
    return one == other or json.dumps(one) == json.dumps(other)  # NaN is not equal to itself
