"""What a server asked, whichever door it came in by: one sampling or elicitation request, checked, with where it came from.

Not the wire: the same values come from a pushed request, from a key of an ``input_required`` result and from a -32042 error (T3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from samplegate.core.eras import Era


class Call(msgspec.Struct, frozen=True):
    """A client request in flight during which a server may ask: tools/call, prompts/get or resources/read."""

    method: str
    tool: str | None
    """The tool's name for tools/call, else None."""


class Origin(msgspec.Struct, frozen=True):
    """Who asked, during what. Every name comes from our configuration, never from a peer (T36)."""

    server: str
    caller: str
    era: Era
    revision: str
    calls: tuple[Call, ...] = ()
    """The client requests it may belong to: one is known, several are candidates, none is none in flight."""
    trace: str = ""
    """The trace context of that request (W3C), for the record only."""


class SamplingRequest(msgspec.Struct, frozen=True):
    """``sampling/createMessage``. ``params`` is the decoded, checked JSON object; lists and dicts in it are not to be changed."""

    origin: Origin
    params: Mapping[str, Any]
    size: int
    """Bytes of the params as JSON."""
    kind: Literal["sampling"] = "sampling"


class ElicitationRequest(msgspec.Struct, frozen=True):
    """``elicitation/create``. ``mode`` is resolved (absent means form, R30)."""

    origin: Origin
    params: Mapping[str, Any]
    size: int
    mode: Literal["form", "url"]
    kind: Literal["elicitation"] = "elicitation"


Request: TypeAlias = SamplingRequest | ElicitationRequest


class BadRequest(msgspec.Struct, frozen=True):
    """A request that no rule is asked about: what is wrong with it, as the JSON-RPC error the specification names."""

    code: int
    message: str
    """Names the place and the fault, never the content."""


class ClientCapabilities(msgspec.Struct, frozen=True):
    """What the client itself declared, at the grain at which requests are asked (R113, T24: ``elicitation: {}`` is form only)."""

    sampling: bool = False
    sampling_tools: bool = False
    sampling_context: bool = False
    form: bool = False
    url: bool = False
    roots: bool = False
