"""Authentication of the daemon's callers: Host and Origin checks, static bearer tokens, and JWTs of an issuer.

These checks come before any other code reads a request. The MCP SDK provides the protected-resource metadata. The ASGI
layer is our own, because the SDK's layer puts the token itself into the scope, knows only one resource, and accepts the
first of two Authorization headers.
"""
