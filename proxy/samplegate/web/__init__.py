"""The reviewers' listener: a REST API and a page, over whatever store of reviews it is given. MCP clients never meet
it."""
