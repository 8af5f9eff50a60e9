"""Where a request that nobody really sent comes from: the origin and the client's capabilities of a test case or of `explain`. Not a live session."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from samplegate.core.eras import LEGACY, MODERN, Era, era_of
from samplegate.core.matching.conditions import NO_CALL_NAME
from samplegate.core.policy import Strict
from samplegate.core.requests import Call, ClientCapabilities, Origin

Declared: TypeAlias = Literal["sampling", "sampling.tools", "sampling.context", "elicitation.form", "elicitation.url", "roots"]
"""What a client may have declared. ``sampling.tools`` and ``sampling.context`` say ``sampling`` too."""

TOOL_CALL: Final = "tools/call"


class Scene(Strict, frozen=True):
    """Who asks, during what, and what the client can do. What is left out comes from a file's ``defaults`` and then from here."""

    server: str | None = None
    """Default ``default``."""
    caller: str | None = None
    """Default ``local``."""
    era: Era | None = None
    """Default legacy, or that of ``revision``."""
    revision: str | None = None
    """Default the newest of the era."""
    tool: str | list[str] | None = None
    """The tool being called; several are candidates of which one asks; ``none``, the default, is no call in flight."""
    method: str | list[str] | None = None
    """Calls in flight that are no tool's: ``prompts/get``, ``resources/read``."""
    client: list[Declared] | None = None
    """Default nothing."""
    environment: dict[str, str] | None = None
    """What ``${VAR}`` in the policy stands for; the real environment is not looked at."""


def over(scene: Scene, defaults: Scene) -> Scene:
    """``scene`` with what it leaves out taken from ``defaults``; environments are merged, and a call or an era replaces the default one whole."""
    during = scene if scene.tool is not None or scene.method is not None else defaults
    time = scene if scene.era is not None or scene.revision is not None else defaults
    return Scene(
        server=defaults.server if scene.server is None else scene.server,
        caller=defaults.caller if scene.caller is None else scene.caller,
        era=time.era,
        revision=time.revision,
        tool=during.tool,
        method=during.method,
        client=defaults.client if scene.client is None else scene.client,
        environment={**(defaults.environment or {}), **(scene.environment or {})},
    )


def fault(scene: Scene) -> str | None:
    """What is contradictory in a scene that has its defaults, None if nothing is."""
    if scene.revision is not None and scene.revision not in (*LEGACY, *MODERN):
        return f"revision: {scene.revision!r} is not one of {', '.join((*LEGACY, *MODERN))}"
    if scene.era is not None and scene.revision is not None and era_of(scene.revision) != scene.era:
        return f"era: {scene.era} does not have revision {scene.revision}; leave one of them out"
    return None


def origin(scene: Scene) -> Origin:
    """The origin of a scene that has its defaults and no fault."""
    revision = scene.revision or (MODERN if scene.era == "modern" else LEGACY)[-1]
    return Origin(scene.server or "default", scene.caller or "local", era_of(revision), revision, _calls(scene))


def _calls(scene: Scene) -> tuple[Call, ...]:
    tools = [Call(TOOL_CALL, tool) for tool in _names(scene.tool) if tool != NO_CALL_NAME]
    return (*tools, *(Call(method, None) for method in _names(scene.method) if method != TOOL_CALL))


def _names(names: str | list[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else names or []


def capabilities(declared: list[Declared]) -> ClientCapabilities:
    """The same as the gate reads from a client's own words."""
    return ClientCapabilities(
        sampling=any(name.startswith("sampling") for name in declared),
        sampling_tools="sampling.tools" in declared,
        sampling_context="sampling.context" in declared,
        form="elicitation.form" in declared,
        url="elicitation.url" in declared,
        roots="roots" in declared,
    )
