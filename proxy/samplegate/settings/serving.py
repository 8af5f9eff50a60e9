"""The settings of `samplegate serve`, the daemon: what `run` has, and its listeners, servers, callers and bounds. Never imported by `run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from samplegate.core.eras import Protocol
from samplegate.core.policyfile.tree import Mapping as Tree
from samplegate.settings import SettingsError
from samplegate.settings.definition import MIB, ProcessSettings, settings_of
from samplegate.settings.identities import CallerSettings, PeopleSettings, callers_of, people_of, shared_with
from samplegate.settings.servers import NAME, NO_NAME, ServerSettings, at_url, server_of
from samplegate.settings.sources import NO_STATE, PREFIX, Gathered, Part, gather, tree_of
from samplegate.settings.values import Address, address, check_hosts, check_origins
from samplegate.urls import is_open

_SECTION: Final = {"section": True}
_ADDRESS: Final = {"check": address}


class ServeSettings(ProcessSettings, frozen=True, kw_only=True):
    """What the daemon is told. Sizes in bytes, times in seconds."""

    policy: Annotated[Path | None, Meta(description="The rules.")] = None
    listen: Annotated[
        str, Meta(description="HOST:PORT of the clients' listener; only this machine's own unless callers need a token.", extra=_ADDRESS)
    ] = "127.0.0.1:8080"
    servers: Annotated[dict[str, ServerSettings], Meta(description="The servers by name, in the shape of clients' mcpServers.", extra=_SECTION)] = (
        msgspec.field(default_factory=dict)
    )
    servers_file: Annotated[Path | None, Meta(description="A client's JSON file whose mcpServers are added.")] = None
    callers: Annotated[CallerSettings, Meta(description="How callers are known: tokens, JWTs of an issuer.", extra=_SECTION)] = CallerSettings()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Host headers that are taken, `NAME:*` with any port; this machine's names by default, any where tokens are needed.",
            extra={"check": check_hosts},
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(
            description="Origin headers that are taken, `https://NAME:*` with any port; by default those of this machine.",
            extra={"check": check_origins},
        ),
    ] = ()
    max_body_bytes: Annotated[int, Meta(ge=1024, le=1024 * MIB, description="The largest body of a request.")] = 16 * MIB
    max_header_bytes: Annotated[int, Meta(ge=4096, le=MIB, description="The longest request line and headers together.")] = 32 * 1024
    max_connections: Annotated[int, Meta(ge=1, le=100_000, description="Connections of clients at a time.")] = 2_000
    max_sessions: Annotated[int, Meta(ge=1, le=100_000, description="Sessions of clients of the legacy eras at a time.")] = 2_000
    max_sessions_per_caller: Annotated[int, Meta(ge=1, le=100_000, description="The same for one caller.")] = 256
    session_idle: Annotated[int, Meta(ge=1, le=604_800, description="Seconds after which a session without a word is ended.")] = 1_800
    body_timeout: Annotated[int, Meta(ge=1, le=3_600, description="Seconds that a client has to send its request.")] = 30
    max_children: Annotated[int, Meta(ge=1, le=100_000, description="Processes of servers at a time.")] = 256
    admin_listen: Annotated[
        str | None, Meta(description="HOST:PORT of the operators' listener, for metrics, health and reload; none by default.", extra=_ADDRESS)
    ] = None
    admin_token_file: Annotated[Path | None, Meta(description="The file with the token that a reload over HTTP needs.")] = None
    reviews_listen: Annotated[
        str | None,
        Meta(description="HOST:PORT of the reviewers' listener, for the page and the API; none by default. It needs `people`.", extra=_ADDRESS),
    ] = None
    people: Annotated[PeopleSettings, Meta(description="Who may look at reviews and decide them: tokens, and what they are for.", extra=_SECTION)] = (
        PeopleSettings()
    )
    seal_key_file: Annotated[
        Path | None,
        Meta(
            description="A file of 32 bytes or more that seals what modern clients take along, so that it holds at other gates and after a restart."
        ),
    ] = None
    watch: Annotated[bool, Meta(description="Whether a change of the files is a reload.")] = True
    drain_delay: Annotated[
        int, Meta(ge=0, le=3_600, description="Seconds at a shutdown during which the gate is not ready but still accepts traffic.")
    ] = 5
    drain_timeout: Annotated[int, Meta(ge=0, le=3_600, description="Seconds that what is under way has to end at a shutdown.")] = 30

    @property
    def listens_at(self) -> Address:
        """``listen``, taken apart."""
        return address(self.listen)


SERVE_SETTINGS: Final = settings_of(ServeSettings)


class LoadedServe(msgspec.Struct, frozen=True):
    """The settings and the environment they were read from. ``warnings`` keep nothing from running; ``files`` are those whose change matters."""

    settings: ServeSettings
    environment: Mapping[str, str]
    """Secret."""
    warnings: tuple[str, ...]
    files: tuple[Path, ...]
    places: Mapping[str, str]
    """Where each server's command stands, by the server's name; a server of the command line has no place."""
    named: frozenset[str]
    """The variables that servers' ``env``, ``url`` and ``headers`` name: each is for that server alone."""

    def __repr__(self) -> str:
        return f"LoadedServe({self.settings!r})"


def load_serve(
    environ: Mapping[str, str],
    *,
    file: Path | None = None,
    given: Mapping[str, object] | None = None,
    command: Sequence[str] = (),
    url: str | None = None,
    headers_from: Sequence[str] = (),
    name: str = "default",
    protocol: Protocol | None = None,
) -> LoadedServe:
    """Read the settings of `serve`. ``given`` is the command line: None for what it does not say. Raises SettingsError with every problem.

    ``command`` or ``url`` is the one server of the quick form, under ``name`` and with ``protocol``; ``headers_from``: NAME=FILE, of that at a URL.
    """
    problems: list[str] = []
    warnings: list[str] = []
    found = gather(SERVE_SETTINGS, environ, file, given or {}, problems)
    values = dict(found.values)
    if values["state"] == Path() and "decision_log" not in values:
        problems.append(NO_STATE)
    named: set[str] = set()
    places: dict[str, str] = {}
    if command or url is not None:
        server = _of_line(command, url, headers_from, name=name, problems=problems, warnings=warnings)
        values["servers"] = {name: server if protocol is None else msgspec.structs.replace(server, protocol=protocol)}
        beside = [found.said[key].where for key in ("servers", "servers_file") if key in found.said]
        problems += [f"{where}: names servers, and the command line has one; give one of both" for where in beside]
    else:
        if protocol is not None:
            what = "applies to a server of the command line, and there is none; write protocol under the server in the settings"
            problems.append(f"--protocol: {what}")
        values["servers"] = _servers(found, warnings, named, places)
    callers, people = found.section("callers"), found.section("people")
    values["callers"] = CallerSettings() if callers is None else callers_of(callers)
    values["people"] = PeopleSettings() if people is None else people_of(people)
    if callers is not None and values["callers"].jwt is not None and values["callers"].resource is None:
        warnings.append(f"{callers.where}: callers: has jwt without resource, so a client without a token is not told where to get one")
    problems += shared_with(values["people"], values["callers"].tokens)
    _check(found, warnings)
    if problems:
        raise SettingsError(problems)
    settings = ServeSettings(**values)
    files = [file, settings.policy, settings.servers_file, settings.env_file, *settings.callers.files, settings.people.tokens_file]
    read = tuple(dict.fromkeys(path for path in files if path is not None))
    return LoadedServe(settings, found.environment, tuple(warnings), read, places, frozenset(named))


def _of_line(
    command: Sequence[str], url: str | None, headers_from: Sequence[str], *, name: str, problems: list[str], warnings: list[str]
) -> ServerSettings:
    """The server of the command line."""
    if command and url is not None:
        problems.append("--url: stands beside a command; give one of them")
    if NAME.match(name) is None:
        problems.append(f"--server: {NO_NAME}")
    if url is None:
        return ServerSettings(name=name, command=command[0], args=tuple(command[1:]))
    return at_url(name, url, headers_from, problems, warnings)[0]


def _servers(found: Gathered, warnings: list[str], named: set[str], places: dict[str, str]) -> dict[str, ServerSettings]:
    """The servers of the section and of the file that the settings may name."""
    servers: dict[str, ServerSettings] = {}
    for part in (found.section("servers"), _of_client(found)):
        for name, entry in part.entries().items() if part is not None else ():
            server = server_of(entry, found.environment, warnings, named)
            if name in places:
                entry.problem((), "is a server of the settings too; rename one of both")
            places[name] = entry.place(("command",))
            if server is not None:
                servers[name] = server
    if not servers and not found.problems:
        found.problems.append("servers: there is none; put one behind --, give --url, or write servers: into the settings file")
    return servers


def _of_client(found: Gathered) -> Part | None:
    """The servers in a client's file: what stands beside them there is the client's own."""
    file: Path | None = found.values.get("servers_file")
    root = None if file is None else tree_of(file, found.problems)
    if file is None or root is None:
        return None
    entry = root.entries.get("mcpServers") or root.entries.get("servers") if isinstance(root, Tree) else None
    if entry is None:
        found.problems.append(f"{file}:1:1: has no mcpServers; name a client's file that has them")
        return None
    return Part(str(file), entry.node, ("mcpServers",), file.parent, found.problems)


def _check(found: Gathered, warnings: list[str]) -> None:
    """What no single setting can tell: who can reach the listeners, and whether anybody can sign in."""
    said, problems = found.said, found.problems
    if "policy" not in said:
        problems.append(f"policy: none is named; give --policy FILE, {PREFIX}POLICY, or policy: in the settings file")
    listen = None if "listen" not in found.values else address(found.values["listen"])
    if listen is not None and not listen.is_loopback and "callers" not in said:
        what = "can be reached from other machines, and nobody needs a token; write `callers:`, or listen on"
        problems.append(f"{said['listen'].where}: {found.values['listen']} {what} 127.0.0.1:{listen.port}")
    if "people" in said and "reviews_listen" not in said:
        warnings.append(f"{said['people'].where}: nobody can sign in, since there is no reviews_listen")
    reviews, url = found.values.get("reviews_listen"), found.values.get("reviews_url")
    if reviews is None:
        return
    where = said["reviews_listen"].where
    if "people" not in said:
        problems.append(f"{where}: nobody could sign in; write `people:`, or leave it out")
    if url is None and not address(reviews).is_loopback:
        what = "can be reached from other machines; give reviews_url, the https address of a proxy before it that does TLS"
        warnings.append(f"{where}: {reviews} {what}")
    if url is not None and is_open(url):
        what = "is plain http, so tokens and answers travel unencrypted; put a proxy that does TLS before it"
        warnings.append(f"{said['reviews_url'].where}: {what}")


__all__ = ["SERVE_SETTINGS", "LoadedServe", "ServeSettings", "load_serve"]
