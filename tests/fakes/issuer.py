"""A JWT issuer for tests: its keys, its tokens, and an HTTP endpoint that answers as configured."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER: Final = "https://login.example.com"
AUDIENCE: Final = "https://gate.example.com"


_CURVES: Final[dict[str, Callable[[], ec.EllipticCurve]]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}


def private(name: str, algorithm: str) -> Any:
    """The private key of that name. All RSA algorithms share one. Keys are generated only once, because RSA keys are
    slow to generate."""
    return _private(name, "RSA" if algorithm.startswith(("RS", "PS")) else algorithm)


@cache
def _private(name: str, kind: str) -> Any:
    if kind == "RSA":
        return rsa.generate_private_key(65_537, 2_048)
    return ec.generate_private_key(_CURVES[kind]()) if kind in _CURVES else ed25519.Ed25519PrivateKey.generate()


def public(name: str, algorithm: str, **more: Any) -> dict[str, Any]:
    """The public key as an entry of a key set."""
    shape: Any = (
        {"E": ECAlgorithm, "R": RSAAlgorithm, "P": RSAAlgorithm}[algorithm[0]] if algorithm != "EdDSA" else OKPAlgorithm
    )
    written: dict[str, Any] = shape.to_jwk(private(name, algorithm).public_key(), as_dict=True)
    return {**{key: value for key, value in written.items() if key != "key_ops"}, "kid": name, "use": "sig", **more}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def mint(
    name: str = "k",
    algorithm: str = "ES256",
    *,
    header: dict[str, Any] | None = None,
    now: float | None = None,
    **claims: Any,
) -> str:
    """A valid token, except for the claims and headers that are given. None leaves one out."""
    at = int(time.time() if now is None else now)
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": at, "exp": at + 300, **claims}
    headers = {"kid": name, **(header or {})}
    payload = {key: value for key, value in said.items() if value is not None}
    named = {key: value for key, value in headers.items() if value is not None}
    return jwt.PyJWS().encode(
        json.dumps(payload).encode(), private(name, algorithm), algorithm=algorithm, headers=named
    )


class Endpoint:
    """The issuer's web server: status and body by path, and the number of requests."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.headers: dict[str, str] = {}
        self.asked: list[str] = []
        self.open = asyncio.Event()
        """While it is clear, answers are decided but not sent."""
        self.open.set()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        status, body = self.answers.get(request.path, (404, b""))
        await self.open.wait()
        return web.Response(status=status, body=body, headers=self.headers)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Endpoint]:
        """Serve the endpoint on a free port of loopback."""
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()
