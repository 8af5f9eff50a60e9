"""The ASGI application of the operators' listener: its routes and who may use them. Raw ASGI, for six routes need no framework.

``GET /metrics``, ``/healthz``, ``/readyz``, ``/version`` and ``/`` are for whoever reaches the listener, and hold no secret. ``POST /reload`` needs
the token of the settings, from everywhere: every user and every web page of a machine reaches its loopback.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

from samplegate.admin.answers import Answer, json, lines
from samplegate.admin.asked import MAX_BODY, Asked
from samplegate.admin.report import ReloadReport
from samplegate.ports import Log, Unavailable

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Handler: TypeAlias = Callable[[Asked], Awaitable[Answer]]


def admin_app(
    *,
    metrics: Callable[[str], tuple[bytes, str]],
    ready: Callable[[], Sequence[str]],
    reload: Callable[[], Awaitable[ReloadReport]],
    about: Callable[[], Mapping[str, object]],
    token: Callable[[], bytes | None],
    log: Log,
    hosts: Collection[str] = (),
    unavailable: Callable[[], Sequence[str]] = tuple,
) -> App:
    """The application.

    ``metrics``: an Accept header -> a text and its content type. ``ready``: what is not ready, a line each; none: ready. ``reload``: joins those who
    ask at the same time; raises Unavailable where there can be none now. ``about``: the version, the policy's hash, the start, the servers;
    plain values, no secret. ``token``: what a reload needs, asked each time; None: there is none. ``hosts``: names besides this machine's own by
    which a listener on loopback may be called. ``unavailable``: what is not served though the rest is ready, a line each.
    """
    routes = _Routes(metrics=metrics, ready=ready, unavailable=unavailable, reload=reload, about=about, token=token, log=log)
    table: dict[str, tuple[str, Handler]] = {
        "/metrics": ("GET", routes.metrics),
        "/healthz": ("GET", routes.healthz),
        "/readyz": ("GET", routes.readyz),
        "/version": ("GET", routes.version),
        "/": ("GET", routes.version),
        "/reload": ("POST", routes.reload),
    }

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            asked = Asked.of(scope)
            for message in (await _answer(asked, table, hosts, log)).messages(asked):
                await send(message)

    return app


async def _answer(asked: Asked, table: Mapping[str, tuple[str, Handler]], hosts: Collection[str], log: Log) -> Answer:
    """Never raises: a fault is logged whole, and the operator gets a fixed sentence."""
    if asked.is_misled(hosts):
        return lines(403, ["host: this name is not one of the listener's; use an address, or localhost"])
    if asked.is_large:
        return lines(413, [f"body: more than {MAX_BODY} bytes; no request needs a body here"])
    if asked.path not in table:
        return lines(404, [f"nothing is here; there are {', '.join(sorted(table))}"])
    method, handler = table[asked.path]
    if asked.method != method and (asked.method, method) != ("HEAD", "GET"):
        allowed = "GET, HEAD" if method == "GET" else method
        return lines(405, [f"{asked.path} takes {allowed}"], [("allow", allowed)])
    try:
        return await handler(asked)
    except Exception:
        log.error("admin.failed", path=asked.path, exc_info=True)  # noqa: G201
        return lines(500, [f"{asked.path}: a fault in the gate; the log has it"])


class _Routes:
    def __init__(
        self,
        *,
        metrics: Callable[[str], tuple[bytes, str]],
        ready: Callable[[], Sequence[str]],
        unavailable: Callable[[], Sequence[str]],
        reload: Callable[[], Awaitable[ReloadReport]],
        about: Callable[[], Mapping[str, object]],
        token: Callable[[], bytes | None],
        log: Log,
    ) -> None:
        self._metrics = metrics
        self._ready = ready
        self._unavailable = unavailable
        self._reload = reload
        self._about = about
        self._token = token
        self._log = log

    async def metrics(self, asked: Asked) -> Answer:
        return Answer(200, *self._metrics(",".join(asked.all(b"accept"))))

    async def healthz(self, asked: Asked) -> Answer:
        """The event loop turns, or this would not be answered."""
        return json(200, {"alive": True}) if asked.wants_json() else lines(200, ["alive"])

    async def readyz(self, asked: Asked) -> Answer:
        """Not ready only for what is missing; servers that are unavailable are listed and leave the status alone."""
        missing, unavailable = list(self._ready()), list(self._unavailable())
        status = 503 if missing else 200
        if asked.wants_json():
            return json(status, {"ready": not missing, "missing": missing, "unavailable": unavailable})
        return lines(status, [*(missing or ["ready"]), *(line for line in unavailable if line not in missing)])

    async def version(self, asked: Asked) -> Answer:
        return json(200, self._about())

    async def reload(self, asked: Asked) -> Answer:
        refused = self._refused(asked)
        if refused is not None:
            self._log.warning("admin.refused", path=asked.path, status=refused.status)
            return refused
        try:
            report = await self._reload()
        except Unavailable as problem:
            return lines(503, [str(problem)])
        status = 422 if report.problems else 200
        return json(status, {"result": report.result, **_plain(report)}) if asked.wants_json() else lines(status, report.lines())

    def _refused(self, asked: Asked) -> Answer | None:
        """Why this asker sets nothing off."""
        try:
            wanted, given = self._token(), asked.bearer()
        except Unavailable as problem:
            return lines(503, [f"reload: {problem}"])
        if not wanted:
            return lines(403, ["reload: there is no token for it; set admin_token_file in the settings, or send the process SIGHUP"])
        if given is None or not hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(wanted).digest()):
            wrong = "another token" if given is not None else "no token"
            return lines(401, [f"reload: {wrong} was given; send `Authorization: Bearer` and the content of admin_token_file"], [_CHALLENGE])
        return None


_CHALLENGE = ("www-authenticate", 'Bearer realm="samplegate admin"')


def _plain(report: ReloadReport) -> dict[str, object]:
    return {name: getattr(report, name) for name in report.__struct_fields__}


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
