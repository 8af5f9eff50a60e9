"""samplegate: a headless gate that answers, by policy, what MCP servers ask of their clients."""

from typing import Final

__version__: Final = "0.1.0"
