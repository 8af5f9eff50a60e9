"""Definitions of the settings of every process and of `run`: names, types, defaults, bounds and descriptions.

The reader and the schema are derived from them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Meta

from samplegate.audit.record import ContentMode
from samplegate.ci.run_id import check_run_id
from samplegate.config.values import address, check_networks, check_reviews_url, check_store
from samplegate.postgres.url import DATABASE, check_database
from samplegate.protocol.frames import Protocol
from samplegate.yamlfile.tree import is_secret, quoted

MIB: Final = 1024 * 1024
START_TIMEOUT: Final = (
    "Timeout in seconds for the server's first answer. After it the client gets an error; `run` exits with 2."
)
CALL_TIMEOUT: Final = (
    "Timeout in seconds for the server's other answers; 0: no limit. After it the client gets an error that names the"
    " setting, and the server gets a cancellation. Time in which the server itself waits for an answer does not count."
    " With `extends_on_progress` in the policy, progress notifications reset the timeout."
)

SERVER_ONLY: Final = frozenset({"protocol", "start_timeout", "call_timeout", "end_of_input_timeout"})
"""Settings of `run` that `serve` has for each server."""


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of every process.

    A field's name is its key in the settings file; in capitals after SAMPLEGATE_ it is the environment variable. The
    extra data of ``Meta`` are described at ``Setting``.
    """

    state: Annotated[
        Path,
        Meta(description="The folder for persistent state: shared limits, reviews and, by default, the decision log."),
    ] = Path()
    database: Annotated[
        str | None,
        Meta(
            description=(
                "The PostgreSQL database that gates on several machines share, for shared limits and reviews:"
                " `postgresql://USER@HOST/NAME`. Needs the extra `postgres`. Default: files in the state folder."
            ),
            extra={"check": check_database},
        ),
    ] = None
    database_key_file: Annotated[
        Path | None,
        Meta(
            description=(
                "A file with a key of at least 32 bytes, the same for all gates that share the `database`. Callbacks,"
                " page sessions and content hashes then need this key besides the one in the database."
            )
        ),
    ] = None
    run: Annotated[
        str | None,
        Meta(
            description=(
                "The ID of the run to which this process belongs, for limits per run and `report --run`. Default: the"
                " ID of the CI job, on GitHub Actions, GitLab CI and Jenkins."
            ),
            extra={"check": check_run_id},
        ),
    ] = None
    decision_log: Annotated[
        str | None,
        Meta(
            description=(
                "A path, `sqlite:PATH` for a database file, `database` for the shared `database`, or `none`. Default:"
                " one file a day in the state folder."
            ),
            extra={"path": True, "keywords": ("none", DATABASE), "store": "sqlite:"},
        ),
    ] = None
    decision_log_durability: Annotated[
        Literal["written", "synced"],
        Meta(
            description=(
                "When a decision counts as recorded: `written` to the operating system, or `synced` to the disk."
            )
        ),
    ] = "written"
    decision_log_max_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1024 * 1024 * MIB,
            description="The size at which a file of the decision log is rotated; 0: never.",
        ),
    ] = 0
    decision_log_keep: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="How many rotated files of the decision log are kept besides the current one; 0: all.",
        ),
    ] = 0
    record_content: Annotated[
        ContentMode,
        Meta(
            description=(
                "What the decision log keeps of requests and answers: `none`, a keyed `hash`, or the `full` content."
            )
        ),
    ] = "hash"
    metrics_file: Annotated[
        str | None,
        Meta(
            description="Where metrics are written in the Prometheus text format; `{server}` and `{pid}` are replaced.",
            extra={"path": True},
        ),
    ] = None
    metrics_interval: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="Seconds between writes of the metrics file; 0: write it only at exit.",
        ),
    ] = 15
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The lowest level of events that are logged on stderr."),
    ] = "info"
    log_format: Annotated[
        Literal["json", "text"] | None,
        Meta(description="The format of the log on stderr. Default: `text` on a terminal, otherwise `json`."),
    ] = None
    store: Annotated[
        str | None,
        Meta(
            description=(
                "The database file of reviews: `sqlite:PATH`. Default: the shared `database`, or `reviews.db` in the"
                " state folder. Processes that name the same file share its reviews."
            ),
            extra={"path": True, "store": "sqlite:", "check": check_store},
        ),
    ] = None
    reviews_url: Annotated[
        str | None,
        Meta(
            description=(
                "The public URL of the review page at `reviews_listen`, for links: `https://reviews.example.com`."
            ),
            extra={"check": check_reviews_url},
        ),
    ] = None
    webhook_networks: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Private networks that reviewers' webhooks may use, such as `10.1.0.0/16`. Without it, webhooks"
                " reach public addresses only."
            ),
            extra={"check": check_networks},
        ),
    ] = ()
    keep_reviews: Annotated[int, Meta(ge=1, le=36_500, description="Days that a completed review is kept.")] = 30
    max_pending_reviews: Annotated[
        int,
        Meta(
            ge=1, le=1_000_000, description="The maximum number of pending reviews. Further requests are not answered."
        ),
    ] = 10_000
    model_workers: Annotated[
        int,
        Meta(
            ge=1,
            le=16,
            description=(
                "The maximum number of processes that call models. Each takes about 230 MiB, and starts when the"
                " others are busy."
            ),
        ),
    ] = 1
    max_frame_bytes: Annotated[
        int,
        Meta(
            ge=64 * 1024,
            le=1024 * MIB,
            description="The longest line that is read from either side; images and audio can take tens of MiB.",
        ),
    ] = 64 * MIB
    env_file: Annotated[
        Path | None,
        Meta(
            description=(
                "A file of `NAME=value` lines: variables for the policy and the models, for clients that start the gate"
                " with a bare environment."
            )
        ),
    ] = None

    @property
    def reviews(self) -> str:
        """The review store: ``store``, the shared database, or the file in the state folder."""
        return self.store or self.database or f"sqlite:{self.reviews_file}"

    @property
    def reviews_file(self) -> Path:
        """The file of the review store, also if the reviews are in the shared database: files beside it belong to this
        machine's pages."""
        return Path(self.store.partition(":")[2]) if self.store else self.state / "reviews.db"


class RunSettings(ProcessSettings, frozen=True, kw_only=True):
    """The settings of ``samplegate run``, which wraps one server."""

    server: Annotated[str, Meta(min_length=1, description="The wrapped server's name in the policy's rules.")] = (
        "default"
    )
    protocol: Annotated[
        Protocol,
        Meta(
            description=(
                "The protocol version for the wrapped server: `auto` detects it, `legacy` is 2025-11-25 and older,"
                " `modern` is 2026-07-28."
            )
        ),
    ] = "auto"
    start_timeout: Annotated[int, Meta(ge=1, le=3_600, description=START_TIMEOUT)] = 30
    call_timeout: Annotated[int, Meta(ge=0, le=86_400, description=CALL_TIMEOUT)] = 0
    end_of_input_timeout: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description=(
                "Seconds to wait for pending answers after the client's input ends; 0 stops the server immediately. The"
                " wait also ends on a signal, or if the client stops reading."
            ),
        ),
    ] = 60
    reviews_listen: Annotated[
        str | None,
        Meta(
            description=(
                "`HOST:PORT` of the reviewers' page of this process; port 0: any free port. A host other than a"
                " loopback address needs `people`. `samplegate reviews open` signs you in."
            ),
            extra={"check": address},
        ),
    ] = None
    people: Annotated[
        Any,
        Meta(description="Who else may see and decide reviews there: tokens and their roles.", extra={"section": True}),
    ] = None
    """``identities.PeopleSettings``, which most processes need not import."""
    metrics_port: Annotated[
        int,
        Meta(
            ge=-1,
            le=65_535,
            description="The port on 127.0.0.1 where Prometheus can scrape the metrics; 0: any free port, -1: none.",
        ),
    ] = -1


class Setting(msgspec.Struct, frozen=True):
    """The definition of one setting.

    ``kind`` is its type without bounds and without None. The fields after ``meta`` come from ``Meta.extra``.
    """

    name: str
    type: Any
    kind: Any
    meta: Meta
    path: bool = False
    """True for a path or a path template."""
    keywords: tuple[str, ...] = ()
    """Keywords that are allowed in place of a path."""
    store: str = ""
    """The prefix of a database's path; empty if the setting cannot be a database."""
    check: Callable[[Any], object] | None = None
    """Raises ValueError for an invalid value of the right type."""
    section: bool = False
    """True for a mapping with keys of its own, which readers of plain values ignore."""


Table: TypeAlias = Mapping[str, Setting]
"""The settings of one command, by name."""


def settings_of(struct: type[ProcessSettings]) -> dict[str, Setting]:
    """All settings of a command, sections included."""
    found = {}
    for field in msgspec.structs.fields(struct):
        bare, meta = get_args(field.type)
        kinds = [kind for kind in get_args(bare) if kind is not NoneType]
        kind = kinds[0] if NoneType in get_args(bare) else bare
        found[field.name] = Setting(field.name, field.type, kind, meta, **{"path": kind is Path, **(meta.extra or {})})
    return found


SETTINGS: Final = settings_of(RunSettings)


def kept_elsewhere(settings: ProcessSettings) -> list[str]:
    """What is not in the shared database although there is one, because its own setting takes precedence; or which
    setting has no effect without one."""
    if settings.database is None:
        return [] if settings.database_key_file is None else ["database_key_file: has no effect without `database`"]
    found = []
    if settings.store is not None:
        found.append("store: takes precedence over `database`, so reviews are not shared with other machines")
    if settings.decision_log not in (None, "none", DATABASE):
        found.append(
            "decision_log: takes precedence over `database`; `decision_log: database` keeps the decision log there"
        )
    return found


_UNHASHED: Final = frozenset({"run", "env", "headers", "args", "client_secret"})
"""Keys whose values are left out of the hash: the ID of the run, and what may be a credential for a server."""
_url: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)//(?:[^/?#]*@)?([^?#]*)")


def settings_hash(settings: ProcessSettings) -> str:
    """A hash of the effective settings without secrets: equal hashes mean the same settings, except for values of
    environment variables, headers and arguments, users and queries of URLs, and the ID of the run."""
    shown = _without_secrets(msgspec.to_builtins(settings, enc_hook=str))
    text = json.dumps(shown, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: sorted(inner)
            if name in _UNHASHED and isinstance(inner, dict)
            else None
            if name in _UNHASHED
            else _without_secrets(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(inner) for inner in value]
    found = _url.match(value) if isinstance(value, str) else None
    return value if found is None else f"{found[1]}//{found[2]}"


def value_error(setting: Setting, value: Any) -> str:
    """The error text for an invalid ``value``, the same for every reader."""
    kind, meta, shown = setting.kind, setting.meta, _shown(setting.name, value)
    if get_origin(kind) is Literal:
        return f"{shown} is not one of {', '.join(get_args(kind))}"
    if kind is int:
        return f"{shown} is not a whole number from {meta.ge} to {meta.le}"
    if kind is bool:
        return f"{shown} is not one of true, false"
    if get_origin(kind) is tuple:
        if isinstance(value, list):
            return "contains an item that is not a string; write [one, two], with numbers in quotes"
        return f"{shown} is not a list of strings; write [one, two]"
    if isinstance(value, str):
        return "is empty; give it a value, or remove it"
    return f"{shown} is not a string; put it in quotes"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, list | dict):  # its items have names of their own and may be anything
        return "a list" if isinstance(value, list) else "a mapping"
    return "this value" if is_secret((name,)) else quoted(str(value))
