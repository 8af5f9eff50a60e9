"""The edges that carry MCP frames: byte lines over this process' own stdin and stdout, and over those of a server it
started.

Not a reader of JSON and not a place for rules: a link knows lines, their order, and how much a slow peer has not yet
taken.
"""
