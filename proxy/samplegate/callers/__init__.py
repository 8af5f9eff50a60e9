"""Who calls the daemon: Host and Origin, bearer tokens and JWTs of an issuer, before anything else reads a request. Not what a caller may ask.

Of the SDK: the interface of its token verifiers, and its metadata of a protected resource. The thin ASGI part around
them is ours, since the SDK's puts the token itself into the scope, knows one resource, and takes the first of two Authorization headers.
"""
