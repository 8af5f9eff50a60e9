"""`samplegate serve`: servers by name, listeners, reload, drain, and notifications to a supervisor.

This package wires the edges and reads no MCP frame. The policy decides what is allowed, and the gate carries it out.
"""
