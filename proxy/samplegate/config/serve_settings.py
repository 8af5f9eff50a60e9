"""The settings of `samplegate serve`: those of every process, and its listeners, servers, callers and limits.

`run` never imports this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from samplegate.config.identities import CallerSettings, PeopleSettings
from samplegate.config.servers import ServerSettings
from samplegate.config.settings import MIB, ProcessSettings, settings_of
from samplegate.config.values import Address, address, check_hosts, check_origins

_SECTION: Final = {"section": True}

_ADDRESS: Final = {"check": address}


class ServeSettings(ProcessSettings, frozen=True, kw_only=True):
    """The settings of the daemon. Sizes are in bytes, times in seconds."""

    policy: Annotated[Path | None, Meta(description="The policy file.")] = None
    listen: Annotated[
        str,
        Meta(
            description="`HOST:PORT` of the clients' listener. A host other than a loopback address needs `callers`.",
            extra=_ADDRESS,
        ),
    ] = "127.0.0.1:8080"
    servers: Annotated[
        dict[str, ServerSettings],
        Meta(description="The servers by name, in the format of clients' `mcpServers`.", extra=_SECTION),
    ] = msgspec.field(default_factory=dict)
    servers_file: Annotated[Path | None, Meta(description="A client's JSON file whose `mcpServers` are added.")] = None
    callers: Annotated[
        CallerSettings, Meta(description="How callers authenticate: tokens, or JWTs of an issuer.", extra=_SECTION)
    ] = CallerSettings()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Accepted Host headers; `NAME:*` accepts any port. Default: the loopback names if `listen` is a"
                " loopback address, otherwise any, because callers need a token there."
            ),
            extra={"check": check_hosts},
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Accepted Origin headers of web pages: `https://NAME`, or `https://NAME:*` for any port. Default: the"
                " loopback origins if `listen` is a loopback address, and the origin of `resource`."
            ),
            extra={"check": check_origins},
        ),
    ] = ()
    max_body_bytes: Annotated[int, Meta(ge=1024, le=1024 * MIB, description="The largest body of a request.")] = (
        16 * MIB
    )
    max_header_bytes: Annotated[
        int, Meta(ge=4096, le=MIB, description="The maximum size of the request line and headers together.")
    ] = 32 * 1024
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description=(
                "The maximum number of open client connections, idle ones included. Further connections get 503."
            ),
        ),
    ] = 2_000
    max_sessions: Annotated[
        int, Meta(ge=1, le=100_000, description="The maximum number of sessions of clients with 2025-11-25 and older.")
    ] = 2_000
    max_sessions_per_caller: Annotated[
        int, Meta(ge=1, le=100_000, description="The maximum number of such sessions for one caller.")
    ] = 256
    session_idle: Annotated[
        int, Meta(ge=1, le=604_800, description="Seconds of inactivity after which a session ends.")
    ] = 1_800
    body_timeout: Annotated[int, Meta(ge=1, le=3_600, description="Timeout in seconds for receiving a request.")] = 30
    max_children: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description=(
                "The maximum number of server processes. If there are several callers, one caller gets at most three"
                " quarters of them."
            ),
        ),
    ] = 256
    admin_listen: Annotated[
        str | None,
        Meta(
            description="`HOST:PORT` of the operators' listener, for metrics, health, status and reload.",
            extra=_ADDRESS,
        ),
    ] = None
    admin_token_file: Annotated[
        Path | None, Meta(description="The file with the token that `POST /reload` and `GET /status` require.")
    ] = None
    reviews_listen: Annotated[
        str | None,
        Meta(
            description="`HOST:PORT` of the reviewers' listener, for the page and the API. It needs `people`.",
            extra=_ADDRESS,
        ),
    ] = None
    people: Annotated[
        PeopleSettings,
        Meta(
            description="Who may see and decide reviews: tokens and their roles, or a proxy's assertions.",
            extra=_SECTION,
        ),
    ] = PeopleSettings()
    seal_key_file: Annotated[
        Path | None,
        Meta(
            description=(
                "A file with a key of at least 32 bytes that seals the request state modern clients send back, so that"
                " other gates and restarts accept it. A second key below a first one of 64 hex digits opens older"
                " state. By default each process has its own key."
            )
        ),
    ] = None
    watch: Annotated[bool, Meta(description="Whether a change of the files triggers a reload.")] = True
    drain_delay: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600,
            description="Seconds at shutdown during which the gate is not ready but still accepts traffic.",
        ),
    ] = 5
    drain_timeout: Annotated[
        int, Meta(ge=0, le=3_600, description="Seconds at shutdown to complete requests under way.")
    ] = 30

    @property
    def listens_at(self) -> Address:
        """The parsed address of ``listen``."""
        return address(self.listen)


SERVE_SETTINGS: Final = settings_of(ServeSettings)
