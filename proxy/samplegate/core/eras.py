"""The protocol revisions, and what each of them can say. Not a negotiation: peers negotiate, the gate reads along."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Era: TypeAlias = Literal["legacy", "modern"]
Protocol: TypeAlias = Literal["auto", "legacy", "modern"]
"""The protocol version that the gate speaks to a server, as the settings name it; ``auto`` finds it out."""

LEGACY: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN: Final = ("2026-07-28",)

CALLS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The client requests during which a server may ask something (R59; R26 for the legacy eras)."""

META: Final = "_meta"
META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
UI_EXTENSION: Final = "io.modelcontextprotocol/ui"


def era_of(revision: str) -> Era:
    """The era of a revision. One not known here counts by its date: everything from 2026-07-28 on is stateless."""
    return "legacy" if revision < MODERN[0] else "modern"


def has_batches(revision: str) -> bool:
    """Only 2025-03-26 has JSON-RPC batches that must be received (R92); 2024-11-05 allowed them by JSON-RPC itself."""
    return revision <= "2025-03-26"


def has_elicitation(revision: str) -> bool:
    """From 2025-06-18 on (R29)."""
    return revision >= "2025-06-18"


def has_modes(revision: str) -> bool:
    """Sub-capabilities (``sampling.tools``, ``elicitation.url``), tool blocks and arrays of content: from 2025-11-25 on
    (R6, R114)."""
    return revision >= "2025-11-25"
