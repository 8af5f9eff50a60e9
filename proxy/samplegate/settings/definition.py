"""The settings of every process and of `run`: names, types, defaults, bounds and descriptions. The reader and the
schema are derived from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Meta

from samplegate.core.eras import Protocol
from samplegate.core.policyfile.tree import is_secret, quoted
from samplegate.core.record import ContentMode
from samplegate.settings.values import check_networks, check_page, check_store

MIB: Final = 1024 * 1024
START_TIMEOUT: Final = "Seconds that the server has to answer its first request."
CALL_TIMEOUT: Final = (
    "Seconds that the server has to answer a request; then the client gets an error and the server a cancellation. 0:"
    " no limit. Time in which the server itself waits for an answer does not count."
)


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What every process of ours can be told. A name here is a key of the settings file, and in capitals behind
    SAMPLEGATE_ a variable.

    ``path`` marks text that is a path, or a template of one; ``but`` is the word that is none, ``store`` what the path
    of a database begins with. ``check`` says why a value of the right type is none all the same; ``section`` marks a
    mapping with keys of its own.
    """

    state: Annotated[
        Path, Meta(description="The folder for what outlives the process; the platform's own place by default.")
    ] = Path()
    decision_log: Annotated[
        str | None,
        Meta(
            description=(
                "A path, `sqlite:PATH` for a database, `none`, or nothing for the daily file in the state folder."
            ),
            extra={"path": True, "but": "none", "store": "sqlite:"},
        ),
    ] = None
    decision_log_durability: Annotated[
        Literal["written", "synced"],
        Meta(description="When a decision counts as recorded: handed to the system, or on the disk."),
    ] = "written"
    decision_log_max_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1024 * 1024 * MIB,
            description="The size at which a file of the decision log is put aside and a new one begun; 0: never.",
        ),
    ] = 0
    decision_log_keep: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="How many files of the decision log are kept besides the one being written; 0: all.",
        ),
    ] = 0
    record_content: Annotated[
        ContentMode, Meta(description="What the decision log keeps of what was asked and answered.")
    ] = "hash"
    metrics_file: Annotated[
        str | None,
        Meta(description="Where Prometheus text is written; `{server}` and `{pid}` expand.", extra={"path": True}),
    ] = None
    metrics_interval: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="Seconds between two writings of the metrics file; 0 writes it at the end only.",
        ),
    ] = 15
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The least grave event that is told on stderr.")
    ] = "info"
    log_format: Annotated[
        Literal["json", "text"] | None, Meta(description="Nothing: text where stderr is a terminal, else JSON.")
    ] = None
    store: Annotated[
        str | None,
        Meta(
            description="Where reviews are kept: `sqlite:PATH`, or nothing for `reviews.db` in the state folder.",
            extra={"path": True, "store": "sqlite:", "check": check_store},
        ),
    ] = None
    reviews_url: Annotated[
        str | None,
        Meta(
            description="How people reach the page of `reviews_listen`, for links: `https://reviews.example.com`.",
            extra={"check": check_page},
        ),
    ] = None
    webhook_networks: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Private networks that reviewers' webhooks may be in, such as `10.1.0.0/16`; none by default, so that"
                " nobody is led inside."
            ),
            extra={"check": check_networks},
        ),
    ] = ()
    keep_reviews: Annotated[int, Meta(ge=1, le=36_500, description="Days that a review is kept after it ended.")] = 30
    max_pending_reviews: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="Reviews that may wait at a time; beyond it requests stay unanswered."),
    ] = 10_000
    max_frame_bytes: Annotated[
        int,
        Meta(
            ge=64 * 1024,
            le=1024 * MIB,
            description="The longest line read from either side; images and sounds make tens of MiB.",
        ),
    ] = 64 * MIB
    env_file: Annotated[
        Path | None,
        Meta(
            description=(
                "Variables for the policy and the models, for clients that start the gate with a bare environment."
            )
        ),
    ] = None

    @property
    def reviews(self) -> str:
        """The store of reviews: ``store``, or the file in the state folder."""
        return self.store or f"sqlite:{self.state / 'reviews.db'}"


class RunSettings(ProcessSettings, frozen=True, kw_only=True):
    """The settings of ``samplegate run``, which wraps one server."""

    server: Annotated[str, Meta(min_length=1, description="What the rules call the wrapped server.")] = "default"
    protocol: Annotated[
        Protocol,
        Meta(
            description=(
                "The protocol version for the wrapped server: `auto` finds it out, `legacy` is 2025-11-25 and older,"
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
                "Seconds after the end of the client's input to wait for answers to requests in flight; 0: none. A"
                " signal ends the wait."
            ),
        ),
    ] = 60
    metrics_port: Annotated[
        int,
        Meta(
            ge=-1,
            le=65_535,
            description=(
                "The port of this machine's own address at which Prometheus finds the metrics; 0: any, -1: none."
            ),
        ),
    ] = -1


class Setting(msgspec.Struct, frozen=True):
    """One setting, taken apart. ``kind`` is its type without bounds and without None; what follows ``meta`` is its
    Meta's ``extra``."""

    name: str
    type: Any
    kind: Any
    meta: Meta
    path: bool = False
    """It is a path, or text that one is made of."""
    but: str | None = None
    """The word that stands in place of a path."""
    store: str = ""
    """What stands before a path that is a database's; empty where none can be."""
    check: Callable[[Any], object] | None = None
    """Raises ValueError for a wrong value of the right type."""
    section: bool = False
    """It is a mapping with places of its own, which no reader of plain values takes."""


Table: TypeAlias = Mapping[str, Setting]
"""The settings of one command, by name."""


def settings_of(struct: type[ProcessSettings]) -> dict[str, Setting]:
    """All settings of a command, sections too."""
    found = {}
    for field in msgspec.structs.fields(struct):
        bare, meta = get_args(field.type)
        kinds = [kind for kind in get_args(bare) if kind is not NoneType]
        kind = kinds[0] if NoneType in get_args(bare) else bare
        found[field.name] = Setting(field.name, field.type, kind, meta, **{"path": kind is Path, **(meta.extra or {})})
    return found


SETTINGS: Final = settings_of(RunSettings)


def wrong(setting: Setting, value: Any) -> str:
    """Why ``value`` is none for a setting that refused it, in the same words whoever refused."""
    kind, meta, shown = setting.kind, setting.meta, _shown(setting.name, value)
    if get_origin(kind) is Literal:
        return f"{shown} is not one of {', '.join(get_args(kind))}"
    if kind is int:
        return f"{shown} is no whole number from {meta.ge} to {meta.le}"
    if kind is bool:
        return f"{shown} is not one of true, false"
    if get_origin(kind) is tuple:
        return f"{shown} is no list of texts; write them as [one, two]"
    if isinstance(value, str):
        return "is empty; give it a value, or leave it out"
    return f"{shown} is no text; put it in quotes"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, list | dict):  # what is in it has names of its own, and may be anything
        return "a list" if isinstance(value, list) else "a mapping"
    return "this value" if is_secret((name,)) else quoted(str(value))
