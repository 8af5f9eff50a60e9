"""What settings there are: the one list of names, types, defaults, bounds and meanings. Every reader of settings is derived from it.

Bounds and meanings stand in the outermost ``Annotated`` of a setting, where msgspec and the model for pydantic-settings both find them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from samplegate.core.policyfile.tree import is_secret, quoted
from samplegate.core.record import ContentMode

MIB: Final = 1024 * 1024


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of ``samplegate run``. A name here is a key of the settings file, and in capitals behind SAMPLEGATE_ a variable.

    ``path`` marks text that is a path, or a template of one; ``but`` is the word that is none.
    """

    server: Annotated[str, Meta(min_length=1, description="What the rules call the wrapped server.")] = "default"
    state: Annotated[Path, Meta(description="The folder for what outlives the process; the platform's own place by default.")] = Path()
    decision_log: Annotated[
        str | None,
        Meta(description="A path, `none`, or nothing for the daily file in the state folder.", extra={"path": True, "but": "none"}),
    ] = None
    record_content: Annotated[ContentMode, Meta(description="What the decision log keeps of what was asked and answered.")] = "hash"
    metrics_file: Annotated[
        str | None,
        Meta(description="Where Prometheus text is written; `{server}` and `{pid}` expand.", extra={"path": True}),
    ] = None
    metrics_interval: Annotated[
        int, Meta(ge=0, le=86_400, description="Seconds between two writings of the metrics file; 0 writes it at the end only.")
    ] = 15
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="The least grave event that is told on stderr.")] = "info"
    log_format: Annotated[Literal["json", "text"] | None, Meta(description="Nothing: text where stderr is a terminal, else JSON.")] = None
    max_frame_bytes: Annotated[
        int,
        Meta(ge=64 * 1024, le=1024 * MIB, description="The longest line read from either side; images and sounds make tens of MiB."),
    ] = 64 * MIB
    env_file: Annotated[
        Path | None,
        Meta(description="Variables for the policy and the models, for clients that start the gate with a bare environment."),
    ] = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, taken apart. ``kind`` is its type without bounds and without None, ``meta`` what its outermost Annotated says."""

    name: str
    type: Any
    default: Any
    kind: Any
    meta: Meta

    @property
    def is_path(self) -> bool:
        """Whether it is a path, or text that one is made of."""
        return self.kind is Path or bool((self.meta.extra or {}).get("path"))

    @property
    def no_path(self) -> str | None:
        """The word that stands in place of a path."""
        return (self.meta.extra or {}).get("but")


def _setting(field: msgspec.structs.FieldInfo) -> Setting:
    bare, meta = get_args(field.type) if get_origin(field.type) is Annotated else (field.type, Meta())
    kinds = [kind for kind in get_args(bare) if kind is not NoneType]
    kind = kinds[0] if NoneType in get_args(bare) else bare
    return Setting(field.name, field.type, field.default, kind, meta)


SETTINGS: Final = {field.name: _setting(field) for field in msgspec.structs.fields(RunSettings)}


def wrong(name: str, value: Any) -> str:
    """Why ``value`` is none for a setting that refused it, in the same words whoever refused."""
    kind, meta = SETTINGS[name].kind, SETTINGS[name].meta
    if get_origin(kind) is Literal:
        return f"{_shown(name, value)} is not one of {', '.join(get_args(kind))}"
    if kind is int:
        return f"{_shown(name, value)} is no whole number from {meta.ge} to {meta.le}"
    if isinstance(value, str):
        return "is empty; give it a value, or leave it out"
    return f"{_shown(name, value)} is no text; put it in quotes"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, list | dict):  # what is in it has names of its own, and may be anything
        return "a list" if isinstance(value, list) else "a mapping"
    return "this value" if is_secret((name,)) else quoted(str(value))
