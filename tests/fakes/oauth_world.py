"""An authorization server and an MCP server that it protects, on two ports of loopback, correct by default.

A test makes them misbehave: a member of ``edits`` changes one document or response, and an entry of ``faults`` replaces
the answers of one endpoint. Every secret that the two issue begins with ``MARK``, so that a leak can be searched for.

    with oauth_world() as world:  # in a thread of its own; `async with world.serving()` is the same in a test's loop
        world.edits["metadata"] = {"issuer": "https://evil.example"}
        world.faults["token"] = huge

The grants are the authorization code with PKCE (the user consents at once), the refresh token, which is replaced at
each use, and client credentials. Clients register dynamically, by a client ID metadata document, or with ``register``.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from aiohttp import BasicAuth, web
from multidict import CIMultiDict

MARK: Final = "tst-secret-"
REVISION: Final = "2025-11-25"
START: Final = 10.0  # seconds until the thread listens
WAIT: Final = 50.0
ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ENDPOINTS: Final = ("resource", "metadata", "register", "authorize", "token", "revoke", "mcp")
"""The names of endpoints in ``faults`` and ``Seen``. ``resource`` and ``metadata`` are the two metadata documents."""


@dataclass
class Seen:
    """A request that arrived."""

    endpoint: str
    verb: str
    path: str
    headers: Mapping[str, str]
    given: Mapping[str, Any]
    """The query, the form or the JSON body."""


@dataclass
class Client:
    """A registered client."""

    id: str
    secret: str | None = None
    method: str = "none"
    redirect_uris: tuple[str, ...] = ()
    key: Any = None
    """The public key of ``private_key_jwt``."""


@dataclass
class Grant:
    """One consent, and the family of refresh tokens that continue it."""

    client: str
    scope: str
    resource: str
    revoked: bool = False


@dataclass
class Token:
    """An access token."""

    grant: Grant
    scope: str
    ends: float


@dataclass
class Code:
    """An authorization code."""

    grant: Grant
    redirect_uri: str
    challenge: str
    used: bool = False


class Refused(Exception):
    """An OAuth error response."""

    def __init__(self, error: str, status: int = 400) -> None:
        super().__init__(error)
        self.error = error
        self.status = status


Fault: TypeAlias = "Callable[[World, web.Request], Awaitable[web.StreamResponse]]"


@dataclass
class World:
    """The two servers: how they behave, and what they have seen."""

    edits: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Members to replace, and with None to remove, in ``resource``, ``metadata``, the responses of ``register`` and
    ``token``, and the parameters of the authorization response, ``redirect``."""

    faults: dict[str, Fault] = field(default_factory=dict)
    """What answers in place of an endpoint."""

    lifetime: float = 3600.0
    """Seconds that an access token is valid."""

    told_lifetime: int | None = 3600
    """``expires_in``; None leaves it out."""

    scopes: dict[str, str] = field(default_factory=dict)
    """The scope that a method needs, or a tool as ``tools/call NAME``."""

    supported_scopes: tuple[str, ...] = ()
    """In the resource's metadata; empty leaves it out."""

    open_methods: set[str] = field(default_factory=set)
    """Methods that need no token."""

    challenges: list[str] | None = None
    """The values of WWW-Authenticate in place of the right one."""

    registers: bool = True
    """Whether clients can register."""

    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Client ID metadata documents by URL. If there is one, the metadata declares support."""

    rotates: bool = True
    """Whether a refresh token is replaced at each use."""

    path: str = ""
    """The path of the issuer, such as ``/tenant``."""

    metadata_at: tuple[str, ...] = ("oauth-authorization-server",)
    """Which well-known documents exist, with the path inserted. ``/openid-configuration`` is appended to the path, as
    OpenID Connect does."""

    resource_at: tuple[str, ...] = ("/mcp",)
    """For which paths of the MCP server its metadata exists; ``""`` is the root."""

    token_delay: float = 0.0
    """Seconds before the token endpoint answers, after it has decided."""

    seen: list[Seen] = field(default_factory=list)
    clients: dict[str, Client] = field(default_factory=dict)
    access: dict[str, Token] = field(default_factory=dict)
    refresh: dict[str, Grant] = field(default_factory=dict)
    spent: dict[str, Grant] = field(default_factory=dict)
    """Refresh tokens that were replaced."""

    reuses: int = 0
    """How often a spent refresh token came again, which revokes its grant."""

    streamed: int = 0
    """Bytes of the bodies that ``huge`` and ``drip`` have written."""

    issuer_port: int = 0
    mcp_port: int = 0
    _codes: dict[str, Code] = field(default_factory=dict)
    _assertions: set[str] = field(default_factory=set)
    _answers: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    _came: threading.Condition = field(default_factory=threading.Condition)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _sites: dict[str, web.TCPSite] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop | None = None

    # --- addresses ----------------------------------------------------------------------------------------------------

    @property
    def origin(self) -> str:
        """Of the authorization server."""
        return f"http://127.0.0.1:{self.issuer_port}"

    @property
    def issuer(self) -> str:
        return self.origin + self.path

    @property
    def mcp_origin(self) -> str:
        return f"http://127.0.0.1:{self.mcp_port}"

    @property
    def url(self) -> str:
        """Of the MCP server."""
        return f"{self.mcp_origin}/mcp"

    @property
    def resource_metadata_url(self) -> str:
        return (
            f"{self.mcp_origin}/.well-known/oauth-protected-resource{self.resource_at[0] if self.resource_at else ''}"
        )

    # --- what tests do and ask ----------------------------------------------------------------------------------------

    def register(
        self, id: str, *, secret: str | None = None, method: str = "none", key: Any = None, redirect: str = ""
    ) -> Client:
        """Add a client that the operator has registered. Any loopback address is its redirect URI by default."""
        uris = (redirect or "http://127.0.0.1/callback",)
        self.clients[id] = Client(id, secret, method, uris, key)
        return self.clients[id]

    def of(self, endpoint: str, **given: Any) -> list[Seen]:
        """The requests to an endpoint with these parameters."""
        return [
            one
            for one in list(self.seen)
            if one.endpoint == endpoint and all(one.given.get(name) == value for name, value in given.items())
        ]

    def until(self, count: int, endpoint: str, **given: Any) -> None:
        """Wait for this many requests, in another thread than that of the servers."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.of(endpoint, **given)) >= count, WAIT), self.seen

    def expire_tokens(self) -> None:
        """Make every access token that was issued so far invalid. Refresh tokens stay valid."""
        for token in list(self.access.values()):
            token.ends = 0.0

    def stop(self, which: str = "issuer") -> None:
        """Close the listener of ``issuer`` or ``mcp``: connections are refused from now on."""
        assert self._loop is not None
        stopping = self._sites.pop(which).stop()
        asyncio.run_coroutine_threadsafe(stopping, self._loop).result(START)

    def token_of(self, scope: str = "", *, client: str = "test") -> str:
        """A valid access token without a flow."""
        return self._new_token(Grant(client, scope, self.url), scope)

    # --- the two servers ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[World]:
        """Serve both on free ports of loopback."""
        self._loop = asyncio.get_running_loop()
        runners = []
        for which, routes in (("issuer", self._issuer_routes()), ("mcp", self._mcp_routes())):
            app = web.Application(client_max_size=2**24)
            app.router.add_routes(routes)
            # a handler ends when its client has gone
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self._sites[which] = site
            setattr(self, f"{which}_port", runner.addresses[0][1])
            runners.append(runner)
        try:
            yield self
        finally:
            self._closing.set()
            for runner in runners:
                await runner.cleanup()

    def _issuer_routes(self) -> list[web.RouteDef]:
        return [
            web.get("/{tail:.*well-known/.*}", self._handler("metadata", self._metadata)),
            web.post("/register", self._handler("register", self._register)),
            web.get("/authorize", self._handler("authorize", self._authorize)),
            web.post("/token", self._handler("token", self._token)),
            web.post("/revoke", self._handler("revoke", self._revoke)),
        ]

    def _mcp_routes(self) -> list[web.RouteDef]:
        return [
            web.get("/.well-known/oauth-protected-resource{tail:.*}", self._handler("resource", self._resource)),
            web.route("*", "/mcp", self._handler("mcp", self._mcp)),
            web.get("/.well-known/{tail:.*}", self._handler("metadata", self._metadata)),
        ]

    def _handler(
        self, endpoint: str, answer: Callable[[web.Request, Mapping[str, Any]], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            given = await _given(request)
            with self._came:
                self.seen.append(Seen(endpoint, request.method, request.path, dict(request.headers), given))
                self._came.notify_all()
            fault = self.faults.get(endpoint)
            try:
                return await (answer(request, given) if fault is None else fault(self, request))
            except Refused as refused:
                return web.json_response({"error": refused.error}, status=refused.status)

        return handle

    def _edited(self, name: str, members: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in {**members, **self.edits.get(name, {})}.items() if value is not None}

    # --- metadata -----------------------------------------------------------------------------------------------------

    async def _resource(self, request: web.Request, _given: Mapping[str, Any]) -> web.StreamResponse:
        """RFC 9728."""
        if request.match_info["tail"] not in self.resource_at:
            return web.Response(status=404)
        members = {"resource": self.url, "authorization_servers": [self.issuer], "bearer_methods_supported": ["header"]}
        if self.supported_scopes:
            members["scopes_supported"] = list(self.supported_scopes)
        return web.json_response(self._edited("resource", members))

    async def _metadata(self, request: web.Request, _given: Mapping[str, Any]) -> web.StreamResponse:
        """RFC 8414."""
        places = {
            f"{self.path}/.well-known/openid-configuration"
            if name.startswith("/")
            else f"/.well-known/{name}{self.path}"
            for name in self.metadata_at
        }
        if request.path not in places or f":{self.issuer_port}" not in request.host:
            return web.Response(status=404)
        return web.json_response(self.metadata())

    def metadata(self) -> dict[str, Any]:
        """The authorization server's metadata."""
        return self._edited(
            "metadata",
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.origin}/authorize",
                "token_endpoint": f"{self.origin}/token",
                "revocation_endpoint": f"{self.origin}/revoke",
                "registration_endpoint": f"{self.origin}/register" if self.registers else None,
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
                "token_endpoint_auth_methods_supported": [
                    "none",
                    "client_secret_basic",
                    "client_secret_post",
                    "private_key_jwt",
                ],
                "token_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
                "client_id_metadata_document_supported": True if self.documents else None,
            },
        )

    # --- the authorization server -------------------------------------------------------------------------------------

    async def _register(self, _request: web.Request, given: Mapping[str, Any]) -> web.StreamResponse:
        """RFC 7591."""
        if not self.registers:
            return web.Response(status=404)
        uris = given.get("redirect_uris")
        if not isinstance(uris, list) or not uris:
            raise Refused("invalid_redirect_uri")
        method = given.get("token_endpoint_auth_method") or "client_secret_basic"
        secret = None if method == "none" else _secret("client")
        client = Client(f"client-{len(self.clients) + 1}", secret, method, tuple(uris))
        self.clients[client.id] = client
        members = {**given, "client_id": client.id, "client_secret": secret, "token_endpoint_auth_method": method}
        if secret is not None:
            members["client_secret_expires_at"] = 0
        return web.json_response(self._edited("register", members), status=201)

    async def _authorize(self, _request: web.Request, given: Mapping[str, Any]) -> web.StreamResponse:
        """Consents at once. Errors go to the client only if it and its redirect URI are known (RFC 6749, 4.1.2.1)."""
        client = self._client_named(given.get("client_id", ""))
        target = given.get("redirect_uri", "")
        if client is None or not any(_is_registered(target, uri) for uri in client.redirect_uris):
            return web.Response(status=400, text="unknown client or redirect_uri")
        answer: dict[str, Any] = {"state": given.get("state"), "iss": self.issuer}
        if given.get("response_type") != "code":
            answer["error"] = "unsupported_response_type"
        elif given.get("code_challenge_method") != "S256" or len(given.get("code_challenge", "")) != 43:
            answer["error"] = "invalid_request"
        elif given.get("resource") != self.url:
            answer["error"] = "invalid_target"
        else:
            code = _secret("code")
            grant = Grant(client.id, given.get("scope", ""), self.url)
            self._codes[code] = Code(grant, target, given["code_challenge"])
            answer["code"] = code
        answer = self._edited("redirect", answer)
        raise web.HTTPFound(f"{target}{'&' if '?' in target else '?'}{urlencode(answer)}")

    def _client_named(self, id: str) -> Client | None:
        document = self.documents.get(id)
        if document is not None and document.get("client_id") == id:
            return Client(id, redirect_uris=tuple(document.get("redirect_uris", ())))
        return self.clients.get(id)

    async def _token(self, request: web.Request, given: Mapping[str, Any]) -> web.StreamResponse:
        client = self._authenticated(request, given)
        grants = {
            "authorization_code": self._by_code,
            "refresh_token": self._by_refresh_token,
            "client_credentials": self._by_credentials,
        }
        by = grants.get(given.get("grant_type", ""))
        if by is None:
            raise Refused("unsupported_grant_type")
        answer = self._edited("token", by(client, given))
        if self.token_delay:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self.token_delay)
        return web.json_response(answer, headers={"Cache-Control": "no-store"})

    def _authenticated(self, request: web.Request, given: Mapping[str, Any]) -> Client:
        """The client, which must use the method that it was registered with, and no other at the same time."""
        basic = request.headers.get("Authorization")
        used = [
            method
            for method, given_so in (
                ("client_secret_basic", basic is not None),
                ("client_secret_post", "client_secret" in given),
                ("private_key_jwt", "client_assertion" in given),
            )
            if given_so
        ] or ["none"]
        id = given.get("client_id", "")
        secret = given.get("client_secret")
        if basic is not None:
            try:
                pair = BasicAuth.decode(basic)
            except ValueError:
                raise Refused("invalid_client", 401) from None
            id, secret = (next(iter(parse_qs(f"x={part}").get("x", [""]))) for part in (pair.login, pair.password))
        elif used == ["private_key_jwt"] and not id:
            id = str(_unverified(given["client_assertion"]).get("sub", ""))
        client = self._client_named(id)
        if client is None or used != [client.method] or given.get("client_id", id) != id:
            raise Refused("invalid_client", 401)
        if client.method == "private_key_jwt":
            self._check_assertion(client, given)
        elif client.secret is not None and not secrets.compare_digest(client.secret, secret or ""):
            raise Refused("invalid_client", 401)
        return client

    def _check_assertion(self, client: Client, given: Mapping[str, Any]) -> None:
        """RFC 7523: one use, for this server."""
        try:
            claims = jwt.decode(
                given["client_assertion"],
                client.key,
                algorithms=["ES256", "RS256"],
                audience=[self.issuer, f"{self.origin}/token"],
                options={"require": ["iss", "sub", "aud", "exp", "jti"]},
            )
        except jwt.InvalidTokenError:
            raise Refused("invalid_client", 401) from None
        if given.get("client_assertion_type") != ASSERTION or not client.id == claims["iss"] == claims["sub"]:
            raise Refused("invalid_client", 401)
        if claims["jti"] in self._assertions:
            raise Refused("invalid_client", 401)
        self._assertions.add(claims["jti"])

    def _by_code(self, client: Client, given: Mapping[str, Any]) -> dict[str, Any]:
        code = self._codes.get(given.get("code", ""))
        verifier = hashlib.sha256(str(given.get("code_verifier", "")).encode()).digest()
        if code is None or code.used:
            if code is not None:
                code.grant.revoked = True
            raise Refused("invalid_grant")
        code.used = True
        if code.grant.client != client.id or code.redirect_uri != given.get("redirect_uri"):
            raise Refused("invalid_grant")
        if base64.urlsafe_b64encode(verifier).rstrip(b"=").decode() != code.challenge:
            raise Refused("invalid_grant")
        if given.get("resource") != code.grant.resource:
            raise Refused("invalid_target")
        return self._issued(code.grant, code.grant.scope)

    def _by_refresh_token(self, client: Client, given: Mapping[str, Any]) -> dict[str, Any]:
        token = given.get("refresh_token", "")
        if token in self.spent:
            self.reuses += 1
            self.spent[token].revoked = True
            raise Refused("invalid_grant")
        grant = self.refresh.get(token)
        if grant is None or grant.revoked or grant.client != client.id:
            raise Refused("invalid_grant")
        if given.get("resource", grant.resource) != grant.resource:
            raise Refused("invalid_target")
        scope = given.get("scope", grant.scope)
        if not set(scope.split()) <= set(grant.scope.split()):
            raise Refused("invalid_scope")
        if not self.rotates:
            return self._issued(grant, scope, refresh=False)
        self.spent[token] = self.refresh.pop(token)
        return self._issued(grant, scope)

    def _by_credentials(self, client: Client, given: Mapping[str, Any]) -> dict[str, Any]:
        if client.method == "none":
            raise Refused("unauthorized_client")
        if given.get("resource", self.url) != self.url:
            raise Refused("invalid_target")
        scope = given.get("scope", "")
        return self._issued(Grant(client.id, scope, self.url), scope, refresh=False)

    def _issued(self, grant: Grant, scope: str, *, refresh: bool = True) -> dict[str, Any]:
        answer: dict[str, Any] = {"access_token": self._new_token(grant, scope), "token_type": "Bearer"}
        if refresh:
            answer["refresh_token"] = _secret("refresh")
            self.refresh[answer["refresh_token"]] = grant
        if self.told_lifetime is not None:
            answer["expires_in"] = self.told_lifetime
        return {**answer, "scope": scope} if scope else answer

    def _new_token(self, grant: Grant, scope: str) -> str:
        token = _secret("access")
        self.access[token] = Token(grant, scope, time.monotonic() + self.lifetime)
        return token

    async def _revoke(self, request: web.Request, given: Mapping[str, Any]) -> web.StreamResponse:
        """RFC 7009: a refresh token with its whole grant. An unknown token is no error."""
        client = self._authenticated(request, given)
        token = given.get("token", "")
        if token in self.access and self.access[token].grant.client == client.id:
            self.access[token].ends = 0.0
        grant = self.refresh.get(token)
        if grant is not None and grant.client == client.id:
            grant.revoked = True
        return web.Response(status=200)

    # --- the MCP server -----------------------------------------------------------------------------------------------

    async def _mcp(self, request: web.Request, given: Mapping[str, Any]) -> web.StreamResponse:
        """A legacy server with the tools ``work``, ``admin`` and ``ask``, which asks for a form during its call."""
        method = str(given.get("method", ""))
        params = given.get("params", {})
        name = f"{method} {params.get('name', '')}" if method == "tools/call" else method
        if method not in self.open_methods or "Authorization" in request.headers:
            refusal = self._refusal(request, self.scopes.get(name, self.scopes.get(method, "")))
            if refusal is not None:
                return refusal
        if request.method != "POST":
            return web.Response(status=405 if request.method == "GET" else 204)
        if "id" in given and "method" not in given:
            waiting = self._answers.pop(str(given["id"]), None)
            if waiting is not None:
                waiting.set_result(given.get("result"))
            return web.Response(status=202)
        if "id" not in given:
            return web.Response(status=202)
        if name == "tools/call ask":
            return await self._ask(request, given)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": REVISION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "protected", "version": "1"},
            },
            "ping": {},
            "tools/list": {
                "tools": [{"name": tool, "inputSchema": {"type": "object"}} for tool in ("work", "admin", "ask")]
            },
            "tools/call": {"content": [{"type": "text", "text": f"did {params.get('name')}"}]},
        }
        if method not in results:
            unknown = {"code": -32601, "message": "unknown method"}
            return web.json_response({"jsonrpc": "2.0", "id": given["id"], "error": unknown})
        headers = {"Mcp-Session-Id": "session-1"} if method == "initialize" else {}
        answer = {"jsonrpc": "2.0", "id": given["id"], "result": results[method]}
        return web.json_response(answer, headers=headers)

    def _refusal(self, request: web.Request, needed: str) -> web.StreamResponse | None:
        """The answer to a request without a sufficient token (RFC 6750)."""
        given = request.headers.getall("Authorization", [])
        token = self.access.get(given[0].removeprefix("Bearer ")) if len(given) == 1 else None
        told = {"resource_metadata": self.resource_metadata_url}
        if token is None or token.ends < time.monotonic() or token.grant.revoked or token.grant.resource != self.url:
            return self._challenge(401, {**({"error": "invalid_token"} if given else {}), "scope": needed, **told})
        if not set(needed.split()) <= set(token.scope.split()):
            return self._challenge(403, {"error": "insufficient_scope", "scope": needed, **told})
        return None

    def _challenge(self, status: int, members: Mapping[str, str]) -> web.StreamResponse:
        ours = "Bearer " + ", ".join(f'{name}="{value}"' for name, value in members.items() if value)
        headers: CIMultiDict[str] = CIMultiDict()
        for value in [ours] if self.challenges is None else self.challenges:
            headers.add("WWW-Authenticate", value)
        return web.json_response({"error": members.get("error", "no token")}, status=status, headers=headers)

    async def _ask(self, request: web.Request, given: Mapping[str, Any]) -> web.StreamResponse:
        """Ask for a form in the stream of the call. The result is the client's answer, as text."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        id = secrets.token_hex(4)
        self._answers[id] = asyncio.get_running_loop().create_future()
        form = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}
        asked = {"message": "sure?", "requestedSchema": form}
        frame = {"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": asked}
        await response.write(f"data: {json.dumps(frame)}\n\n".encode())
        answer = await self._answers[id]
        result = {"content": [{"type": "text", "text": json.dumps(answer)}]}
        frame = {"jsonrpc": "2.0", "id": given["id"], "result": result}
        await response.write(f"data: {json.dumps(frame)}\n\n".encode())
        await response.write_eof()
        return response


# --- faults of an endpoint --------------------------------------------------------------------------------------------


async def never(world: World, _request: web.Request) -> web.StreamResponse:
    """Does not answer."""
    await world._closing.wait()
    return web.Response(status=503)


async def huge(world: World, request: web.Request) -> web.StreamResponse:
    """100 MB of JSON, as fast as it is read."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"issuer": "')
    with suppress(ConnectionError):
        for _ in range(1600):
            await response.write(b"x" * 65_536)
            world.streamed += 65_536
    return response


async def drip(world: World, request: web.Request) -> web.StreamResponse:
    """Blanks of JSON, five in a second, without an end."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while not world._closing.is_set():
        await response.write(b" ")
        world.streamed += 1
        with suppress(TimeoutError):
            await asyncio.wait_for(world._closing.wait(), 0.2)
    return response


def body(text: bytes, status: int = 200, **headers: str) -> Fault:
    """Always this answer. ``Retry_After`` is the header Retry-After."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(_world: World, _request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=text, headers={"Content-Type": "application/json", **named})

    return answer


def redirect(url: str, status: int = 307) -> Fault:
    """Always a redirect to this URL."""
    return body(b"", status, Location=url)


@contextmanager
def oauth_world(**members: Any) -> Iterator[World]:
    """The two servers in a thread, with these members of ``World``."""
    world = World(**members)
    ready, ending = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with world.serving():
            ready.set()
            await ending.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        assert ready.wait(START), "the servers did not start"
        yield world
    finally:
        if world._loop is not None:
            world._loop.call_soon_threadsafe(ending.set)
        thread.join(START)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _secret(kind: str) -> str:
    return f"{MARK}{kind}-{secrets.token_urlsafe(12)}"


async def _given(request: web.Request) -> dict[str, Any]:
    if request.method == "GET":
        return dict(request.query)
    if request.content_type == "application/x-www-form-urlencoded":
        return dict(await request.post())
    text = await request.read()
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_registered(target: str, uri: str) -> bool:
    """Whether it is the registered redirect URI. The port of a loopback address is free (RFC 8252, 7.3)."""
    given, known = urlsplit(target), urlsplit(uri)
    if known.hostname in ("127.0.0.1", "::1", "localhost"):
        return (given.scheme, given.hostname, given.path) == (known.scheme, known.hostname, known.path)
    return target == uri


def _unverified(assertion: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = jwt.decode(assertion, options={"verify_signature": False})
    except jwt.InvalidTokenError:
        return {}
    return found
