"""The reader of the settings of `samplegate serve`: a pydantic-settings model with one source per origin.

The model is derived from ``serve_settings``, which `reviews` reads without pydantic. `run` never imports this module. A
value keeps its place (file, line and column, variable or flag) until its field is validated. Sections use the same
validator as policies. Every problem is reported at once, with its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from pydantic import (
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    create_model,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from samplegate.config import SettingsError
from samplegate.config.identities import (
    CallerSettings,
    PeopleSettings,
    callers_of,
    people_of,
    shared_audience_errors,
    shared_token_errors,
)
from samplegate.config.serve_settings import SERVE_SETTINGS, ServeSettings
from samplegate.config.servers import NAME, NAME_ERROR, ServerSettings, secret_variables, server_at_url, servers_of
from samplegate.config.settings import Setting, value_error
from samplegate.config.sources import (
    NO_STATE,
    PREFIX,
    GatheredSettings,
    Layer,
    Section,
    SourceValue,
    converted_value,
    read_layers,
)
from samplegate.config.values import address
from samplegate.protocol.frames import Protocol
from samplegate.urls import is_open


class OriginSource(PydanticBaseSettingsSource):
    """The values of one origin with their places: the command line, the environment, the settings file or the
    platform."""

    def __init__(self, settings_cls: type[BaseSettings], layer: Layer) -> None:
        super().__init__(settings_cls)
        self.layer = layer

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self.layer.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(self.layer)


class OriginSettings(BaseSettings):
    """The base of the settings models, filled from the layers of a reading. Each value is converted as its origin
    requires."""

    model_config = SettingsConfigDict(
        strict=True, extra="forbid", arbitrary_types_allowed=True, validate_default=False, hide_input_in_errors=True
    )
    reading: GatheredSettings = Field(repr=False)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        assert isinstance(init_settings, InitSettingsSource)
        return init_settings, *(
            OriginSource(settings_cls, layer) for layer in init_settings.init_kwargs["reading"].layers
        )

    @field_validator("*", mode="wrap")
    @classmethod
    def _value(cls, value: Any, convert: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        if not isinstance(value, SourceValue):
            return convert(value)
        setting = SERVE_SETTINGS[str(info.field_name)]
        return (
            convert(info.data["reading"].section(value))
            if setting.section
            else converted_value(setting, value, convert)
        )


def _servers(
    value: Section | Mapping[str, ServerSettings] | None, info: ValidationInfo
) -> Mapping[str, ServerSettings]:
    """The server of the command line, or the servers of the section and of the client's file."""
    return value if isinstance(value, Mapping) else servers_of(value, info.data["servers_file"], info.data["reading"])


def _value_field(setting: Setting) -> Any:
    """The type, default and bounds of a setting for pydantic. Paths and tuples are not strict, because their sources
    are strings and lists."""
    lax = setting.path or get_origin(setting.kind) is tuple
    meta = setting.meta
    bounds = Field(
        getattr(_defaults, setting.name),
        ge=meta.ge,
        le=meta.le,
        strict=False if lax else None,
        description=meta.description,
    )
    return get_args(setting.type)[0], bounds


_defaults: Final = ServeSettings()
_values: Final[dict[str, Any]] = {
    name: _value_field(setting) for name, setting in SERVE_SETTINGS.items() if not setting.section
}
_sections: Final[dict[str, Any]] = {
    "servers": (Annotated[dict[str, ServerSettings], PlainValidator(_servers)], Field(None, validate_default=True)),
    "callers": (Annotated[CallerSettings, PlainValidator(callers_of)], CallerSettings()),
    "people": (Annotated[PeopleSettings, PlainValidator(people_of)], PeopleSettings()),
}
ServeValues: Final = create_model("ServeValues", __base__=OriginSettings, **_values)
ServeTree: Final = create_model("ServeTree", __base__=ServeValues, **_sections)


def _without_invalid(layer: Layer, reading: GatheredSettings) -> Layer:
    """A layer without its invalid values. Each one is reported, even if another origin overrides it. Sections are
    unchanged."""
    try:
        values = {name: source for name, source in layer.items() if not SERVE_SETTINGS[name].section}
        ServeValues(reading=msgspec.structs.replace(reading, layers=[values]))
    except ValidationError as refused:
        errors = {str(error["loc"][0]): error for error in refused.errors()}
        for name in (name for name in layer if name in errors):
            why = errors[name].get("ctx", {}).get("error") or value_error(SERVE_SETTINGS[name], layer[name].value)
            reading.problems.append(f"{layer[name].where}: {why}")
        return {name: source for name, source in layer.items() if name not in errors}
    return layer


class LoadedServe(msgspec.Struct, frozen=True):
    """The settings of `serve`, and the environment they were read from.

    ``warnings`` do not prevent the start. ``files`` are the files to watch for changes.
    """

    settings: ServeSettings
    environment: Mapping[str, str]
    """Secret."""
    warnings: tuple[str, ...]
    files: tuple[Path, ...]
    places: Mapping[str, str]
    """The place of each server's command, by the server's name; a server of the command line has none."""
    named: frozenset[str]
    """The variables that servers' ``env``, ``url`` and ``headers`` refer to. Each is for that server alone."""
    origins: Mapping[str, str] = {}
    """The place or variable or flag of each setting that has a value."""

    def __repr__(self) -> str:
        return f"LoadedServe({self.settings!r})"


def load_serve(
    environ: Mapping[str, str],
    *,
    file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    command: Sequence[str] = (),
    url: str | None = None,
    headers_from: Sequence[str] = (),
    headers_env: Sequence[str] = (),
    oauth: Mapping[str, object] = {},
    name: str = "default",
    protocol: Protocol | None = None,
) -> LoadedServe:
    """Read the settings of `serve`, as ``read_serve`` does. Raises SettingsError with every problem."""
    loaded, problems = read_serve(
        environ,
        file=file,
        flags=flags,
        command=command,
        url=url,
        headers_from=headers_from,
        headers_env=headers_env,
        oauth=oauth,
        name=name,
        protocol=protocol,
    )
    if problems:
        raise SettingsError(problems)
    return loaded


def read_serve(
    environ: Mapping[str, str],
    *,
    file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    command: Sequence[str] = (),
    url: str | None = None,
    headers_from: Sequence[str] = (),
    headers_env: Sequence[str] = (),
    oauth: Mapping[str, object] = {},
    name: str = "default",
    protocol: Protocol | None = None,
) -> tuple[LoadedServe, list[str]]:
    """The settings of `serve` and every problem with them. An invalid value is left out.

    ``flags`` are the options of the command line by name; None means an absent option. ``command`` or ``url`` is the
    single server of the short form, with ``name`` and ``protocol``. ``headers_from`` are NAME=FILE entries and
    ``headers_env`` NAME=VARIABLE entries for a server at a URL, and ``oauth`` has its options of OAuth by name. The
    environment of the result lacks the variables of secrets.
    """
    problems: list[str] = []
    reading = read_layers(SERVE_SETTINGS, environ, file, flags or {}, problems)
    layers = [_without_invalid(layer, reading) for layer in reading.layers]
    if not any(name in layer for layer in layers for name in ("state", "decision_log")):
        problems.append(NO_STATE)
    effective = reading.effective
    if command or url is not None:
        server = _server_of_command_line(
            command,
            url,
            headers_from,
            headers_env,
            reading.environment,
            oauth=oauth,
            name=name,
            problems=problems,
            warnings=reading.warnings,
        )
        server = server if protocol is None else msgspec.structs.replace(server, protocol=protocol)
        beside = [effective[key].where for key in ("servers", "servers_file") if key in effective]
        problems += [
            f"{where}: defines servers, but the command line has one, too; remove one of them" for where in beside
        ]
        layers.insert(0, {"servers": SourceValue("--", {name: server}, Path())})
    elif protocol is not None:
        what = "applies only to a server on the command line; write protocol under the server in the settings"
        problems.append(f"--protocol: {what}")
    tree = ServeTree(reading=msgspec.structs.replace(reading, layers=layers))
    settings = ServeSettings(**{name: getattr(tree, name) for name in SERVE_SETTINGS})
    if settings.callers.jwt is not None and settings.callers.resource is None:
        part = effective["callers"].value
        where = part.where if isinstance(part, Section) else effective["callers"].where
        reading.warnings.append(
            f"{where}: callers: has jwt without resource, so clients without a token cannot find out where to get one"
        )
    problems += shared_token_errors(settings.people, settings.callers.tokens)
    problems += shared_audience_errors(settings.people, settings.callers)
    _check(settings, reading)
    files = [
        file,
        settings.policy,
        settings.servers_file,
        settings.env_file,
        *settings.callers.files,
        settings.people.tokens_file,
        None if settings.people.assertion is None else settings.people.assertion.jwks_file,
    ]
    watched = tuple(dict.fromkeys(path for path in files if path is not None))
    secret_env = oauth.get("oauth_client_secret_env")
    hidden = secret_variables(headers_env, None if secret_env is None else str(secret_env))
    loaded = LoadedServe(
        settings,
        {name: value for name, value in reading.environment.items() if name not in hidden},
        tuple(reading.warnings),
        watched,
        reading.places,
        frozenset(reading.named) | hidden,
        {name: source.where for name, source in effective.items()},
    )
    return loaded, problems


def _server_of_command_line(
    command: Sequence[str],
    url: str | None,
    headers_from: Sequence[str],
    headers_env: Sequence[str],
    environment: Mapping[str, str],
    *,
    oauth: Mapping[str, object],
    name: str,
    problems: list[str],
    warnings: list[str],
) -> ServerSettings:
    """The server of the command line."""
    if command and url is not None:
        problems.append("--url: cannot be combined with a command; remove one of them")
    if NAME.match(name) is None:
        problems.append(f"--server: {NAME_ERROR}")
    if url is None:
        return ServerSettings(name=name, command=command[0], args=tuple(command[1:]))
    return server_at_url(
        name, url, headers_from, headers_env, environment, oauth=oauth, problems=problems, warnings=warnings
    )[0]


def _check(settings: ServeSettings, reading: GatheredSettings) -> None:
    """Cross-field checks: who can connect to the listeners, and whether any user can sign in."""
    effective, problems, warnings = reading.effective, reading.problems, reading.warnings
    if "policy" not in effective:
        problems.append(f"policy: not set; use --policy FILE, {PREFIX}POLICY, or policy: in the settings file")
    if not settings.listens_at.is_loopback and "callers" not in effective:
        what = "is reachable from other machines without a token; add `callers`, or listen on"
        problems.append(f"{effective['listen'].where}: {settings.listen} {what} 127.0.0.1:{settings.listens_at.port}")
    if "people" in effective and "reviews_listen" not in effective:
        warnings.append(f"{effective['people'].where}: has no effect, because reviews_listen is not set")
    reviews, url = settings.reviews_listen, settings.reviews_url
    if reviews is None:
        return
    where = effective["reviews_listen"].where
    if "people" not in effective:
        problems.append(f"{where}: no users are configured; add `people`, or remove reviews_listen")
    if url is None and not address(reviews).is_loopback:
        what = (
            "is reachable from other machines; put a TLS proxy in front of it, and set reviews_url to the proxy's https"
            " URL"
        )
        warnings.append(f"{where}: {reviews} {what}")
    if url is not None and is_open(url):
        what = "is plain http, so tokens and answers travel unencrypted; put a TLS proxy in front of it"
        warnings.append(f"{effective['reviews_url'].where}: {what}")
