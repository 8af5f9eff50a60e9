"""samplegate: a headless gate that answers the sampling and elicitation requests of MCP servers by policy."""

from typing import Final

HOME_PAGE: Final = ""
"""Address of the project's home page; empty while there is none. A test keeps README.md and pyproject.toml equal."""
SCHEMAS: Final = f"{HOME_PAGE}/schemas/" if HOME_PAGE else "urn:samplegate:schema:"
"""How the IDs of the JSON Schemas begin."""
RELEASED: Final = ""
"""Newest version in the package index; empty while there is none. README.md has the command for it."""
__version__: Final = "0.1.0"
