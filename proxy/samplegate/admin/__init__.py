"""The operators' listener of the daemon: metrics, health, readiness, reload. Never on the port that clients use, and it
carries no MCP frame.

It decides nothing and knows nothing of the daemon: what it tells and what it sets off is handed in as plain callables.
"""
