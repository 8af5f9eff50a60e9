"""ASGI application of the operators' listener: its routes and their authorization. It is raw ASGI, because seven routes
need no framework.

``GET /metrics``, ``/healthz``, ``/readyz``, ``/version`` and ``/`` are open to everyone who can reach the listener, and
contain no secret. ``POST /reload`` needs the configured token, even on loopback, because every user and every web page
of a machine reaches it. ``GET /status`` has the names of callers and tools, which the open routes do not show. It needs
the token if one is configured; otherwise it is answered only on a loopback address.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.errors import Log, Unavailable
from samplegate.request_headers import RequestHeaders, host_name, is_local_name
from samplegate.status.snapshot import GateStatus, as_json
from samplegate.status.table import gate_lines
from samplegate.urls import is_loopback

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_BODY: Final = 65_536  # bytes that a request may announce; no route needs a body, but some clients send `{}`
MAX_LINES: Final = 200  # of one answer; a policy may have more problems than a person reads at once
LINE: Final = 2000  # characters
TEXT: Final = "text/plain; charset=utf-8"
ROUTES: Final[Mapping[str, tuple[Literal["GET", "POST"], str]]] = {
    "/metrics": ("GET", "Metrics in the Prometheus text format, or OpenMetrics if the client accepts it."),
    "/healthz": ("GET", "200 while the event loop runs."),
    "/readyz": (
        "GET",
        "200 `ready`, or 503 with one line for each cause. JSON if the client accepts it.",
    ),
    "/version": ("GET", "The version, policy hash, start time and servers, as JSON."),
    "/": ("GET", "The same as `/version`."),
    "/status": (
        "GET",
        (
            "The live status: servers, sessions, calls, open requests, limits, reviews, the model workers. JSON if the"
            " client accepts it. Needs the token of `admin_token_file` if that is set, otherwise a loopback address."
        ),
    ),
    "/reload": (
        "POST",
        "Reloads all files: 200 with the changes, or 422 with every problem and its place; then nothing changes.",
    ),
}
"""The method and the description of each path, which deploy/metrics.md lists."""
JSON: Final = "application/json"
_CHALLENGE: Final = ("www-authenticate", 'Bearer realm="samplegate admin"')


class AdminRequest(msgspec.Struct, frozen=True):
    """One request without its body, which is never read."""

    method: str
    path: str
    headers: RequestHeaders
    local: str
    """The address that it was sent to."""

    @classmethod
    def of(cls, scope: Scope) -> AdminRequest:
        """Read the request from an ASGI scope of type http."""
        address = scope.get("server") or ("", None)
        return cls(scope["method"], scope["path"], RequestHeaders(scope["headers"]), str(address[0] or ""))

    @property
    def has_body(self) -> bool:
        return self.headers.length() != 0 or self.headers.has(b"transfer-encoding")

    @property
    def is_large(self) -> bool:
        """Whether it announces a body over the bound, or an invalid length."""
        length = self.headers.length()
        return length is None or length > MAX_BODY

    def has_forged_host(self, names: Collection[str]) -> bool:
        """Whether a request to a loopback address has a foreign Host header, as a web page sends through DNS rebinding
        (R96).

        An address as Host is safe, and a client without Host is not a browser. On other addresses the listener may have
        any name.
        """
        if self.headers.is_repeated(b"host"):
            return True
        host = self.headers.single(b"host")
        if host is None or not is_loopback(self.local):
            return False
        return not is_local_name(host_name(host)) and host_name(host) not in names


class AdminResponse(msgspec.Struct, frozen=True):
    """One HTTP response."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    def messages(self, asked: AdminRequest) -> list[dict[str, Any]]:
        """The ASGI messages; for HEAD, the body is left out but its length is sent."""
        headers = {
            "content-type": self.content_type,
            "content-length": str(len(self.body)),
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **({"connection": "close"} if asked.has_body else {}),  # the body was not read
            **dict(self.headers),
        }
        start = {
            "type": "http.response.start",
            "status": self.status,
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        }
        return [start, {"type": "http.response.body", "body": b"" if asked.method == "HEAD" else self.body}]


class ReloadReport(msgspec.Struct, frozen=True):
    """Result of a reload, which either succeeds as a whole or changes nothing."""

    policy: str
    """The hash of the policy that is in force now."""
    policy_before: str
    problems: tuple[str, ...] = ()
    """All reasons for a refusal, one line each, with ``file:line:column`` where known."""
    warnings: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    """Servers, by name."""
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Names of other settings that changed."""
    restart: tuple[str, ...] = ()
    """Names of settings that changed in the file but need a restart."""

    @property
    def result(self) -> str:
        """Label of samplegate_reloads_total: ``changed``, ``unchanged`` or ``refused``."""
        if self.problems:
            return "refused"
        other = self.added or self.changed or self.removed or self.settings
        return "changed" if other or self.policy != self.policy_before else "unchanged"

    def lines(self) -> list[str]:
        """The report as text, one line each."""
        warned = [f"warning: {warning}" for warning in self.warnings]
        if self.problems:
            return [f"refused: nothing changed; policy {self.policy} stays in force", *self.problems, *warned]
        policy = f"policy {self.policy_before} -> {self.policy}" if self.policy != self.policy_before else ""
        names = {
            "servers added": self.added,
            "servers changed": self.changed,
            "servers removed": self.removed,
            "settings changed": self.settings,
        }
        restart = f"need a restart to take effect: {', '.join(self.restart)}" if self.restart else ""
        changes = [policy, *(f"{what}: {', '.join(found)}" for what, found in names.items() if found), restart]
        return [self.result, *filter(None, changes), *warned]


class AdminApp(msgspec.Struct, frozen=True, kw_only=True):
    """The ASGI application, for HTTP only."""

    metrics: Callable[[str], Awaitable[tuple[bytes, str]]]
    """Accept header -> page and its content type."""
    ready: Callable[[], Sequence[str]]
    """What is not ready, a line each; empty if ready."""
    unavailable: Callable[[], Sequence[str]] = tuple
    """Servers that are unavailable although the daemon is ready, a line each."""
    reload: Callable[[], Awaitable[ReloadReport]]
    """Reloads; concurrent calls share one reload. Raises Unavailable if a reload is not possible now."""
    about: Callable[[], Mapping[str, object]]
    """Version, policy hash, start time and servers, as plain values without secrets."""
    status: Callable[[], Awaitable[GateStatus]]
    """The current status. Concurrent calls share one."""
    token: Callable[[], bytes | None]
    """The token of the operator, read for each request; None if there is none."""
    log: Log
    hosts: Collection[str] = ()
    """Host names, besides this machine's own, that are allowed on a loopback listener."""

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        asked = AdminRequest.of(scope)
        for message in (await self._answer(asked)).messages(asked):
            await send(message)

    async def _answer(self, asked: AdminRequest) -> AdminResponse:
        """Answer a request. Never raises: an unknown error is logged in full, and the operator gets a fixed
        sentence."""
        handlers: dict[str, Callable[[AdminRequest], Awaitable[AdminResponse]]] = {
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/version": self._version,
            "/": self._version,
            "/status": self._status,
            "/reload": self._reload,
        }
        if asked.has_forged_host(self.hosts):
            remedy = "use an IP address or localhost, or add the name, without a port, to allowed_hosts"
            return lines(403, [f"host: this host name is not allowed; {remedy}"])
        if asked.is_large:
            return lines(413, [f"body: larger than {MAX_BODY} bytes; no request here needs a body"])
        if asked.path not in handlers:
            return lines(404, [f"not found; available paths: {', '.join(sorted(handlers))}"])
        method, _ = ROUTES[asked.path]
        if asked.method != method and (asked.method, method) != ("HEAD", "GET"):
            allowed = "GET, HEAD" if method == "GET" else method
            return lines(405, [f"{asked.path}: method not allowed; use {allowed}"], [("allow", allowed)])
        try:
            return await handlers[asked.path](asked)
        except Exception:
            self.log.error("admin.failed", path=asked.path, exc_info=True)  # noqa: G201
            return lines(500, [f"{asked.path}: internal error in the gate; see the log"])

    async def _metrics(self, asked: AdminRequest) -> AdminResponse:
        return AdminResponse(200, *await self.metrics(",".join(asked.headers.all(b"accept"))))

    async def _healthz(self, asked: AdminRequest) -> AdminResponse:
        """Answer 200. An answer proves that the event loop runs."""
        return json(200, {"alive": True}) if asked.headers.accepts_json() else lines(200, ["alive"])

    async def _readyz(self, asked: AdminRequest) -> AdminResponse:
        """Report readiness. Servers that are unavailable are listed, but do not change the status."""
        missing, unavailable = list(self.ready()), list(self.unavailable())
        status = 503 if missing else 200
        if asked.headers.accepts_json():
            return json(status, {"ready": not missing, "missing": missing, "unavailable": unavailable})
        return lines(status, [*(missing or ["ready"]), *(line for line in unavailable if line not in missing)])

    async def _version(self, asked: AdminRequest) -> AdminResponse:
        return json(200, self.about())

    async def _status(self, asked: AdminRequest) -> AdminResponse:
        refused = self._refused_status(asked)
        if refused is not None:
            return refused
        status = await self.status()
        if asked.headers.accepts_json():
            return AdminResponse(200, as_json(status) + b"\n", JSON)
        text = "".join(f"{line}\n" for line in gate_lines(status))
        return AdminResponse(200, text.encode("utf-8", "backslashreplace"))

    def _refused_status(self, asked: AdminRequest) -> AdminResponse | None:
        """Refusal of the status; None if it is allowed."""
        try:
            wanted = self.token()
        except Unavailable as problem:
            return lines(503, [f"status: {problem}"])
        if wanted:
            return self._wrong_token(asked, wanted)
        if is_loopback(asked.local):
            return None
        return lines(
            403,
            ["status: no token is configured; set admin_token_file, or send the request to a loopback address"],
        )

    async def _reload(self, asked: AdminRequest) -> AdminResponse:
        refused = self._refused_reload(asked)
        if refused is not None:
            self.log.warning("admin.refused", path=asked.path, status=refused.status)
            return refused
        try:
            report = await self.reload()
        except Unavailable as problem:
            return lines(503, [str(problem)])
        status = 422 if report.problems else 200
        plain = {"result": report.result, **msgspec.structs.asdict(report)}
        return json(status, plain) if asked.headers.accepts_json() else lines(status, report.lines())

    def _refused_reload(self, asked: AdminRequest) -> AdminResponse | None:
        """Refusal of a reload without the right token; None if it is allowed."""
        try:
            wanted = self.token()
        except Unavailable as problem:
            return lines(503, [f"reload: {problem}"])
        if not wanted:
            return lines(
                403,
                ["reload: no token is configured; set admin_token_file, or send SIGHUP to the process"],
            )
        return self._wrong_token(asked, wanted)

    def _wrong_token(self, asked: AdminRequest, wanted: bytes) -> AdminResponse | None:
        """Refusal of a request without the operator's token; None if it has the token."""
        given = asked.headers.bearer()
        if given is None or not hmac.compare_digest(
            hashlib.sha256(given.encode("latin-1")).digest(), hashlib.sha256(wanted).digest()
        ):
            fault = "wrong token" if given is not None else "no token"
            return lines(
                401,
                [f"{asked.path[1:]}: {fault}; send `Authorization: Bearer` with the content of admin_token_file"],
                [_CHALLENGE],
            )
        return None


def lines(status: int, found: Sequence[str], headers: Iterable[tuple[str, str]] = ()) -> AdminResponse:
    """A text response with one line for each item; control characters are escaped."""
    cut = (line if len(line) <= LINE else line[: LINE - 1] + "…" for line in found[:MAX_LINES])
    shown = [
        line
        if line.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        for line in cut
    ]
    if len(found) > MAX_LINES:
        shown.append(f"and {len(found) - MAX_LINES} more")
    return AdminResponse(
        status, "".join(f"{line}\n" for line in shown).encode("utf-8", "backslashreplace"), TEXT, tuple(headers)
    )


def json(status: int, value: object) -> AdminResponse:
    """A JSON response from structs or plain values."""
    return AdminResponse(status, msgspec.json.encode(value) + b"\n", JSON)
