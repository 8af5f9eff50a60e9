"""Who calls the daemon: Host and Origin, bearer tokens and JWTs of an issuer, before anything else reads a request.

The metadata of a protected resource is the SDK's. The ASGI layer is ours, because the SDK's puts the token itself into
the scope, knows one resource, and accepts the first of two Authorization headers.
"""
