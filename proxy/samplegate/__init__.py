"""samplegate: a headless gate that answers the sampling and elicitation requests of MCP servers by policy."""

from typing import Final

HOME_PAGE: Final = ""
"""Address of the project's home page; empty while there is none. A test keeps README.md and pyproject.toml equal."""
__version__: Final = "0.1.0"
