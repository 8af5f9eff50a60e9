"""The settings of `samplegate serve`: those of every process, and its listeners, servers, callers and bounds. Never
imported by `run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from samplegate.settings.definition import MIB, ProcessSettings, settings_of
from samplegate.settings.identities import CallerSettings, PeopleSettings
from samplegate.settings.servers import ServerSettings
from samplegate.settings.values import Address, address, check_hosts, check_origins

_SECTION: Final = {"section": True}
_ADDRESS: Final = {"check": address}


class ServeSettings(ProcessSettings, frozen=True, kw_only=True):
    """What the daemon is told. Sizes in bytes, times in seconds."""

    policy: Annotated[Path | None, Meta(description="The rules.")] = None
    listen: Annotated[
        str,
        Meta(
            description="HOST:PORT of the clients' listener; only this machine's own unless callers need a token.",
            extra=_ADDRESS,
        ),
    ] = "127.0.0.1:8080"
    servers: Annotated[
        dict[str, ServerSettings],
        Meta(description="The servers by name, in the shape of clients' mcpServers.", extra=_SECTION),
    ] = msgspec.field(default_factory=dict)
    servers_file: Annotated[Path | None, Meta(description="A client's JSON file whose mcpServers are added.")] = None
    callers: Annotated[
        CallerSettings, Meta(description="How callers are known: tokens, JWTs of an issuer.", extra=_SECTION)
    ] = CallerSettings()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Host headers that are taken, `NAME:*` with any port; this machine's names by default, any where tokens"
                " are needed."
            ),
            extra={"check": check_hosts},
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Origin headers that are taken, `https://NAME:*` with any port; by default those of this machine."
            ),
            extra={"check": check_origins},
        ),
    ] = ()
    max_body_bytes: Annotated[int, Meta(ge=1024, le=1024 * MIB, description="The largest body of a request.")] = (
        16 * MIB
    )
    max_header_bytes: Annotated[
        int, Meta(ge=4096, le=MIB, description="The longest request line and headers together.")
    ] = 32 * 1024
    max_connections: Annotated[int, Meta(ge=1, le=100_000, description="Connections of clients at a time.")] = 2_000
    max_sessions: Annotated[
        int, Meta(ge=1, le=100_000, description="Sessions of clients of the legacy eras at a time.")
    ] = 2_000
    max_sessions_per_caller: Annotated[int, Meta(ge=1, le=100_000, description="The same for one caller.")] = 256
    session_idle: Annotated[
        int, Meta(ge=1, le=604_800, description="Seconds after which a session without a word is ended.")
    ] = 1_800
    body_timeout: Annotated[int, Meta(ge=1, le=3_600, description="Seconds that a client has to send its request.")] = (
        30
    )
    max_children: Annotated[int, Meta(ge=1, le=100_000, description="Processes of servers at a time.")] = 256
    admin_listen: Annotated[
        str | None,
        Meta(
            description="HOST:PORT of the operators' listener, for metrics, health and reload; none by default.",
            extra=_ADDRESS,
        ),
    ] = None
    admin_token_file: Annotated[
        Path | None, Meta(description="The file with the token that a reload over HTTP needs.")
    ] = None
    reviews_listen: Annotated[
        str | None,
        Meta(
            description=(
                "HOST:PORT of the reviewers' listener, for the page and the API; none by default. It needs `people`."
            ),
            extra=_ADDRESS,
        ),
    ] = None
    people: Annotated[
        PeopleSettings,
        Meta(description="Who may look at reviews and decide them: tokens, and what they are for.", extra=_SECTION),
    ] = PeopleSettings()
    seal_key_file: Annotated[
        Path | None,
        Meta(
            description=(
                "A file of 32 bytes or more that seals what modern clients take along, so that it holds at other gates"
                " and after a restart."
            )
        ),
    ] = None
    watch: Annotated[bool, Meta(description="Whether a change of the files is a reload.")] = True
    drain_delay: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600,
            description="Seconds at a shutdown during which the gate is not ready but still accepts traffic.",
        ),
    ] = 5
    drain_timeout: Annotated[
        int, Meta(ge=0, le=3_600, description="Seconds that what is under way has to end at a shutdown.")
    ] = 30

    @property
    def listens_at(self) -> Address:
        """``listen``, taken apart."""
        return address(self.listen)


SERVE_SETTINGS: Final = settings_of(ServeSettings)
