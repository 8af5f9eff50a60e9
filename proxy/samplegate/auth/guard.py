"""The caller guard of the clients' listener: an ASGI application around another that authenticates each request.

It puts the caller's identity into the scope and removes the token. The order of the checks is: Host and Origin, CORS
preflight, protected-resource metadata, token, server, and whether the server accepts the caller.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from samplegate.auth.http import (
    App,
    AuthReply,
    Receive,
    Resources,
    Scope,
    Send,
    challenge,
    deliver,
    preflight,
    refusal,
    with_cors,
)
from samplegate.auth.origins import HostPolicy, host_policy
from samplegate.auth.tokens import LOCAL, Bearers, Caller, InsufficientScope, StaticTokens, Unauthenticated, allowed
from samplegate.config.identities import JwtSettings
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.servers import ServerSettings
from samplegate.config.values import Address
from samplegate.errors import Log, Unavailable
from samplegate.request_headers import RequestHeaders

if TYPE_CHECKING:
    from samplegate.auth.jwt import Keys

SECRET: Final = frozenset({b"authorization", b"proxy-authorization"})
"""Headers with credentials, which are for the gate alone."""
CALLER: Final = "samplegate.caller"
"""The key of the caller's ``Identity`` in the scope."""
Kind: TypeAlias = Literal["auth", "origin", "host", "headers", "path"]
LOG_INTERVAL: Final = 10.0
"""Minimum seconds between two log lines with the same reason, because any client can cause any number of refusals."""

_token68: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")

ServerAt: TypeAlias = Callable[[str], ServerSettings | None]
"""Finds the server at a URL path, with the same table as the router."""


def preload(settings: ServeSettings) -> None:
    """Import the modules that these settings need: about 0.8 s if callers have JWTs. May run in a thread."""
    if settings.callers.jwt is not None:
        import mcp.server.auth.handlers.metadata
        import mcp.server.auth.routes  # noqa: F401

        import samplegate.auth.jwt
    if settings.people.assertion is not None:
        import samplegate.auth.assertions  # noqa: F401


class AuthObserver:
    """Metrics and logs of refused requests and of key fetches. All are counted and some logged, without data from
    callers.

    ``count`` takes a metric's name and labels. ``clock`` is in monotonic seconds.
    """

    def __init__(self, log: Log, count: Callable[..., None], *, clock: Callable[[], float]) -> None:
        self._log = log
        self._count = count
        self._clock = clock
        self._logged: dict[str, float] = {}
        self._omitted: dict[str, int] = {}
        self._failing = False

    def refused(self, kind: Kind, reason: str, status: int, *, server: str, peer: str) -> None:
        """Count and log a refused request: the check, the reason, the server (empty if none) and the client's
        address."""
        self._count("samplegate_http_refused_total", server=server or None, reason=kind)
        now = self._clock()
        if now - self._logged.get(reason, float("-inf")) < LOG_INTERVAL:
            self._omitted[reason] = self._omitted.get(reason, 0) + 1
            return
        self._logged[reason] = now
        fields = {
            "server": server,
            "reason": reason,
            "status": status,
            "peer": peer,
            "more": self._omitted.pop(reason, 0),
        }
        self._log.warning("caller.refused", **{name: value for name, value in fields.items() if value})

    def keys(self, problem: str | None) -> None:
        """Count a fetch of the issuer's keys, and log changes between success and failure. ``problem`` is None on
        success."""
        self._count("samplegate_issuer_key_fetches_total", result="ok" if problem is None else "failed")
        if problem is not None and not self._failing:
            self._log.warning("issuer_keys.failed", problem=problem)
        elif problem is None and self._failing:
            self._log.info("issuer_keys.recovered")
        self._failing = problem is not None


class CallerGuard:
    """Authenticates requests and passes them to ``app``. ``change`` replaces the settings.

    Requests in progress continue with the settings they began with. ``bound`` is the actual listen address; None if it
    is the configured one.
    """

    _rules: _Rules

    def __init__(
        self,
        app: App,
        settings: ServeSettings,
        *,
        server_at: ServerAt,
        observer: AuthObserver,
        bound: Address | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        withdrawn: Callable[[], Container[bytes]] = tuple,
    ) -> None:
        """``withdrawn``: the SHA-256 of static tokens that another gate has withdrawn by now."""
        self._app = app
        self._withdrawn = withdrawn
        self._server_at = server_at
        self._observer = observer
        self._bound = bound
        self._clock = clock
        self._wall = wall
        self._keys: tuple[JwtSettings, Keys] | None = None
        self.change(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(self._rules, scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})  # no WebSocket application

    def change(self, settings: ServeSettings) -> None:
        """Replace the settings. The issuer's keys are fetched again before its next token is accepted."""
        self.prepared(settings)()

    def prepared(self, settings: ServeSettings) -> Callable[[], None]:
        """Prepare new settings, and return a function that activates them and cannot fail.

        The activation also discards the cache of verified tokens.
        """
        before, keys = self._keys, self._keys_of(settings.callers.jwt)
        rules = self._build_rules(settings, None if keys is None else keys[1])

        def put() -> None:
            self._rules, self._keys = rules, keys
            if before is not None and (keys is None or before[0] != keys[0]):
                before[1].stop()

        return put

    async def warm(self) -> None:
        """Fetch the issuer's keys, if there is an issuer. A failure is reported but does not prevent the start."""
        if self._keys is not None:
            await self._keys[1].warm()

    def unready(self) -> str | None:
        """Why no caller can be authenticated now, or None. Static tokens need no issuer. Call this in the event
        loop."""
        return None if self._keys is None or self._rules.has_static else self._keys[1].problem()

    async def aclose(self) -> None:
        """Cancel a running fetch of keys."""
        if self._keys is not None:
            await self._keys[1].aclose()

    def _build_rules(self, settings: ServeSettings, keys: Keys | None) -> _Rules:
        callers = settings.callers
        static = StaticTokens(callers.tokens, self._withdrawn)
        bearers = Bearers(static, None, wall=self._wall)
        if callers.jwt is not None and keys is not None:
            from samplegate.auth.jwt import JwtTokens

            tokens = JwtTokens(callers.jwt, keys)
            bearers = Bearers(static, tokens.caller_of, wall=self._wall, leeway=callers.jwt.leeway)
        resources = Resources(callers, lambda path: self._server_at(path) is not None)
        return _Rules(settings, bearers, resources, host_policy(settings, self._bound))

    def _keys_of(self, settings: JwtSettings | None) -> tuple[JwtSettings, Keys] | None:
        """Keys to fetch before the issuer's next token is accepted. The keys of an unchanged issuer stay valid
        meanwhile."""
        if settings is None:
            return None
        from samplegate.auth.jwt import Keys, source_of

        before = self._keys[1] if self._keys is not None and self._keys[0] == settings else None
        return settings, Keys(source_of(settings), clock=self._clock, on_fetch=self._observer.keys, before=before)

    async def _http(self, rules: _Rules, scope: Scope, receive: Receive, send: Send) -> None:
        seen = RequestHeaders(scope["headers"])
        for name in (b"host", b"origin", b"authorization"):
            if seen.is_repeated(name):
                reply = refusal(400, "invalid_request", f"the header {name.decode()} appears more than once")
                await self._refuse(send, scope, "headers", "twice", reply)
                return
        host, origin = seen.single(b"host"), seen.single(b"origin")
        wrong = rules.hosts.refusal(host, origin)
        if wrong is not None:
            await self._refuse(send, scope, "host" if wrong.status == 421 else "origin", "site", wrong)
            return
        shared = origin.encode("latin-1") if rules.shares and origin is not None else None
        if shared is not None and scope["method"] == "OPTIONS":
            await deliver(send, preflight(shared, seen.all(b"access-control-request-headers")))
            return
        metadata = rules.resources.metadata(scope["path"]) if scope["path"].startswith("/.well-known/") else None
        if metadata is not None:  # this response allows any web page to read it
            await metadata(scope, receive, send)
            return
        if shared is not None:
            send = with_cors(shared, send)
        caller = await self._caller(rules, seen, scope, send) if rules.required else LOCAL
        if caller is not None:
            if seen.has_any(SECRET):  # a caller's credentials go no further (R97)
                scope["headers"] = [header for header in scope["headers"] if header[0] not in SECRET]
            await self._pass_on(caller, scope, receive, send)

    async def _caller(self, rules: _Rules, seen: RequestHeaders, scope: Scope, send: Send) -> Caller | None:
        """The caller of a request; None after a refusal was sent."""
        path = scope["path"]
        token = seen.bearer()
        try:
            if token is None or _token68.fullmatch(token) is None:
                raise Unauthenticated("no_token")
            caller = rules.bearers.known(token) or await rules.bearers.verified(token)
            if caller.audiences is not None and not caller.audiences & rules.resources.audiences(path):
                raise Unauthenticated("audience")
        except Unauthenticated as problem:
            await self._refuse(send, scope, "auth", problem.reason, rules.answer(problem, path))
            return None
        except Unavailable:
            wait = ((b"retry-after", b"10"),)
            reply = refusal(503, "temporarily_unavailable", "the issuer's keys are not available; retry later", wait)
            await self._refuse(send, scope, "auth", "no_keys", reply)
            return None
        return caller

    async def _pass_on(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        server = self._server_at(scope["path"])
        if server is None:
            await self._refuse(
                send, scope, "path", "no_server", refusal(404, "not_found", "there is no server at this path")
            )
        elif not allowed(server, caller.name):
            await self._refuse(
                send,
                scope,
                "auth",
                "not_allowed",
                refusal(403, "access_denied", f"server {server.name} does not allow this caller"),
            )
        else:
            scope[CALLER] = caller.identity  # clients cannot set this key: our own listener makes the scope
            await self._app(scope, receive, send)

    async def _refuse(self, send: Send, scope: Scope, kind: Kind, reason: str, reply: AuthReply) -> None:
        server = self._server_at(scope["path"])
        peer = scope.get("client")
        self._observer.refused(
            kind,
            reason,
            reply.status,
            server="" if server is None else server.name,
            peer="" if peer is None else str(peer[0]),
        )
        await deliver(send, reply)


class _Rules:
    """The state derived from one version of the settings."""

    def __init__(self, settings: ServeSettings, bearers: Bearers, resources: Resources, hosts: HostPolicy) -> None:
        self.required = settings.callers.required
        self.has_static = bool(settings.callers.tokens)
        self.shares = bool(settings.allowed_origins)
        """True if web pages may read responses: only origins listed in the settings may."""
        self.hosts = hosts
        self.bearers = bearers
        self.resources = resources
        self._scopes = settings.callers.jwt.scopes if settings.callers.jwt is not None else ()

    def answer(self, problem: Unauthenticated, path: str) -> AuthReply:
        """The refusal of a token, with the location of the resource metadata (RFC 6750 3.1, RFC 9728 5.1)."""
        metadata = self.resources.metadata_url(path)
        if isinstance(problem, InsufficientScope):
            description = "the token lacks a required scope"
            return refusal(
                403,
                "insufficient_scope",
                description,
                (challenge(metadata, self._scopes, "insufficient_scope", description),),
            )
        if problem.reason == "no_token":
            return refusal(401, "unauthorized", "a bearer token is required", (challenge(metadata, self._scopes),))
        description = f"token rejected: {problem.reason}"
        return refusal(
            401, "invalid_token", description, (challenge(metadata, self._scopes, "invalid_token", description),)
        )
