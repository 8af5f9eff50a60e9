"""The auth guard as an ASGI app: requests to it and their responses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from samplegate.auth.guard import AuthObserver, CallerGuard
from samplegate.auth.http import Message, Scope, Send
from samplegate.config.identities import CallerSettings
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.servers import ServerSettings

HOST: Final = (b"host", b"127.0.0.1:8080")


class Journal:
    """A log and counters that keep what they receive."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []
        self.counted: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    debug = info = error = warning

    def count(self, name: str, /, **labels: object) -> None:
        self.counted.append((name, labels))


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    scope: Scope | None = None
    """What the app behind the guard was given, None where nothing came through."""

    names: list[str] = field(default_factory=list)
    """Of the headers, as often as they stand there."""

    @property
    def caller(self) -> str | None:
        return None if self.scope is None else self.scope["samplegate.caller"].name

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class GuardedApp:
    """The guard in front of an app that always answers, with the two servers `docs` and `db`."""

    def __init__(self, callers: CallerSettings | None = None, *, clock: Any = lambda: 0.0, **settings: Any) -> None:
        self.servers: dict[str, ServerSettings] = {
            "docs": ServerSettings(name="docs", command="x"),
            "db": ServerSettings(name="db", command="x", callers=("ops", "jwt:*")),
        }
        self.journal = Journal()
        self.scopes: list[Scope] = []
        self.guard = CallerGuard(
            self._app,
            self.settings(callers, **settings),
            server_at=self._at,
            observer=AuthObserver(self.journal, self.journal.count, clock=clock),
            clock=clock,
        )

    @staticmethod
    def settings(callers: CallerSettings | None = None, **settings: Any) -> ServeSettings:
        return ServeSettings(policy=Path("p"), callers=callers or CallerSettings(), **settings)

    def _at(self, path: str) -> ServerSettings | None:
        parts = path.split("/")
        return self.servers.get(parts[2]) if len(parts) == 4 and (parts[1], parts[3]) == ("servers", "mcp") else None

    async def _app(self, scope: Scope, receive: Any, send: Send) -> None:
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"yes"})

    async def ask(
        self,
        headers: Sequence[tuple[bytes, bytes]] = (HOST,),
        *,
        path: str = "/servers/docs/mcp",
        method: str = "POST",
        token: str | None = None,
    ) -> Answer:
        """Make one request, with ``token`` as its bearer token."""
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        bearer = [] if token is None else [(b"authorization", b"Bearer " + token.encode())]
        before = len(self.scopes)
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [*headers, *bearer],
            "client": ("192.0.2.7", 5),
        }
        await self.guard(scope, receive, send)
        start = sent[0]
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        reached = self.scopes[-1] if len(self.scopes) > before else None
        names = [name.decode() for name, _ in start["headers"]]
        return Answer(
            start["status"], found, b"".join(message.get("body", b"") for message in sent[1:]), reached, names
        )

    def refusals(self) -> list[Mapping[str, object]]:
        return [labels for name, labels in self.journal.counted if name == "samplegate_http_refused_total"]
