"""litellm's table of prices and abilities, as far as a policy's models need it. Imports nothing of litellm: its file is
read as data.

The file is the one that is installed with litellm, so that prices change only when the operator upgrades it. What is
missing or cannot be read is unknown, and never keeps anything from starting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from samplegate.policy.catalogue import SCRIPTED, Table
from samplegate.policy.schema import Model

FILE: Final = "model_prices_and_context_window_backup.json"
MAX_BYTES: Final = 64 * 1024 * 1024  # it has 4 MB today; what is much larger is another file

_EXAMPLE: Final = "sample_spec"
"""Stands in the file to tell what an entry may hold: it is no model."""
_FAMILIES: Final = ("vertex_ai", "fireworks_ai", "bedrock")
"""Providers whose entries name one of several services of theirs, such as vertex_ai-anthropic_models."""

Entries = Mapping[str, msgspec.Raw]


def read_prices(models: Sequence[Model], folder: Path | None = None) -> Table:
    """The entries of these models, by their ``model``, as far as litellm lists them. ``folder`` is litellm's, by
    default the installed one.

    An ``api_base`` changes nothing: the model there is taken to cost what its name does, unless the policy gives a
    price.
    """
    wanted = [model.model for model in models if model.model != SCRIPTED]
    if not wanted:
        return {}
    entries = _entries(_installed() if folder is None else folder)
    folded = {key.lower(): key for key in entries}
    found = {name: _entry(entries, folded, name) for name in wanted}
    return {name: entry for name, entry in found.items() if entry is not None}


def _installed() -> Path | None:
    """Where litellm lies. Looking for a package that is not inside of another imports nothing."""
    try:
        spec = find_spec("litellm")
    except (ImportError, ValueError):
        return None
    places = None if spec is None else spec.submodule_search_locations
    return Path(places[0]) if places else None


def _entries(folder: Path | None) -> Entries:
    if folder is None:
        return {}
    try:
        with (folder / FILE).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        entries = {} if len(raw) > MAX_BYTES else msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return {name: entry for name, entry in entries.items() if name != _EXAMPLE}


def _entry(entries: Entries, folded: Mapping[str, str], name: str) -> Mapping[str, Any] | None:
    """As litellm finds it: the whole name, then the name without its provider if that is the entry's; upper case or
    lower.

    Not as litellm finds it: an entry for another date of the model, or for another provider. Theirs may be another
    price.
    """
    for key, provider in _names(name):
        entry = _decoded(entries.get(key if key in entries else folded.get(key.lower(), key)))
        if entry is not None and (provider is None or _is_of(provider, entry.get("litellm_provider"))):
            return entry
    return None


def _names(name: str) -> Iterator[tuple[str, str | None]]:
    """What an entry may be called, and the provider that it must then name."""
    yield name, None
    provider, slash, rest = name.partition("/")
    if slash and rest:
        yield rest, provider


def _is_of(provider: str, listed: Any) -> bool:
    if not isinstance(listed, str):
        return False
    return listed == provider or (provider in _FAMILIES and listed.startswith(provider))


def _decoded(raw: msgspec.Raw | None) -> Mapping[str, Any] | None:
    try:
        entry = None if raw is None else msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
