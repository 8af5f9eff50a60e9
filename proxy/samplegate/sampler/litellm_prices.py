"""litellm's table of prices and abilities, for a policy's models. Its file is read as data, without importing litellm.

The file is the installed litellm's, so prices change only when the operator upgrades it. A missing or unreadable entry
is unknown, and never prevents a start.
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
MAX_BYTES: Final = 64 * 1024 * 1024  # it has 4 MB today; a much larger file is a different one

_EXAMPLE: Final = "sample_spec"
"""The file's example of an entry, which is no model."""
_FAMILIES: Final = ("vertex_ai", "fireworks_ai", "bedrock")
"""Providers whose entries name one of their services, such as vertex_ai-anthropic_models."""

Entries = Mapping[str, msgspec.Raw]


def read_prices(models: Sequence[Model], folder: Path | None = None) -> Table:
    """The entries of these models that litellm lists, by their ``model``. ``folder`` is litellm's, by default the
    installed one.

    ``api_base`` does not matter: the model is assumed to cost the same there, unless the policy sets a price.
    """
    wanted = [model.model for model in models if model.model != SCRIPTED]
    if not wanted:
        return {}
    entries = _entries(_installed() if folder is None else folder)
    folded = {key.lower(): key for key in entries}
    found = {name: _entry(entries, folded, name) for name in wanted}
    return {name: entry for name, entry in found.items() if entry is not None}


def _installed() -> Path | None:
    """litellm's folder, or None. Finding a top-level package imports nothing."""
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
    """A model's entry, found as litellm finds it: by the whole name, then by the name without its provider if the entry
    has that provider; in upper or lower case.

    Unlike litellm, it accepts no entry for another date of the model or for another provider, whose price may differ.
    """
    for key, provider in _names(name):
        entry = _decoded(entries.get(key if key in entries else folded.get(key.lower(), key)))
        if entry is not None and (provider is None or _is_of(provider, entry.get("litellm_provider"))):
            return entry
    return None


def _names(name: str) -> Iterator[tuple[str, str | None]]:
    """Possible names of an entry, each with the provider that it must have (None: any)."""
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
