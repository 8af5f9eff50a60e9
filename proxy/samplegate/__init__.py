"""samplegate: a headless gate that answers the sampling and elicitation requests of MCP servers by policy."""

from typing import Final

__version__: Final = "0.1.0"
