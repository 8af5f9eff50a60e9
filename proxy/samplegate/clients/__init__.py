"""Configuration files of MCP clients: where they are, their servers, and edits that put the gate before a server.

An edit replaces spans of the text, so every other byte stays. ``text`` reads a file to servers with positions,
``wrapper`` decides what to change, ``journal`` keeps what was replaced, and ``store`` writes files.
"""
