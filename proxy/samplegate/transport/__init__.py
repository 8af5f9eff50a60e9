"""Transports: the links that carry MCP frames over stdio, to a child process and over HTTP.

A link knows frames, their order, and how many bytes a slow peer has not read yet. It has no rules.
"""
