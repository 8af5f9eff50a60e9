"""litellm's table of prices and abilities, for a policy's models. Its file is read as data, without importing litellm.

The file is the installed litellm's, so prices change only when the operator upgrades it. A missing or unreadable entry
is unknown, and never prevents a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from samplegate.policy.catalogue import SCRIPTED, Table
from samplegate.policy.schema import Model
from samplegate.yamlfile.tree import quoted
from samplegate.yamlfile.validate import did_you_mean

FILE: Final = "model_prices_and_context_window_backup.json"
MAX_BYTES: Final = 64 * 1024 * 1024  # it has 4 MB today; a much larger file is a different one

_EXAMPLE: Final = "sample_spec"
"""The file's example of an entry, which is no model."""
_FAMILIES: Final = ("vertex_ai", "fireworks_ai", "bedrock")
"""Providers whose entries name one of their services, such as vertex_ai-anthropic_models."""

Entries = Mapping[str, msgspec.Raw]

PROVIDER_FILES: Final = ("provider_endpoints_support_backup.json", "llms/openai_like/providers.json")
"""litellm's other lists of providers: the documented ones, and those that are like OpenAI."""
_UNLISTED: Final = frozenset(
    "aiohttp_openai azure_speech gdc langflow litellm_agent modelscope nadir nvidia_riva sagemaker_nova"
    " vertex_ai_beta".split()
)
"""Providers that none of litellm's files list."""
_OWN_NAMES: Final = frozenset(
    "azure azure_ai azure_text bedrock databricks heroku huggingface lemonade oci ollama ollama_chat replicate"
    " sagemaker sagemaker_chat snowflake vertex_ai watsonx".split()
)
"""Providers whose models have names of the user's own, such as deployments and endpoints."""
_FIRST: Final = ("openai", "anthropic", "gemini", "mistral")
"""Providers to suggest before others that have the same model."""
_ANSWERING: Final = frozenset({None, "chat", "completion", "responses"})
"""Modes of models that can be asked for an answer."""


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


class KnownNames(msgspec.Struct, frozen=True):
    """The names that litellm knows. ``models``: by provider, without the provider's prefix."""

    providers: frozenset[str] = frozenset()
    """Empty if litellm's files cannot be read."""
    models: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


@cache
def known_names(folder: Path | None = None) -> KnownNames:
    """The providers and models of litellm's files. ``folder`` as for ``read_prices``."""
    folder = _installed() if folder is None else folder
    providers = {name.partition("/")[0] for file in PROVIDER_FILES for name in _listed_providers(folder, file)}
    models: dict[str, dict[str, None]] = {}
    for name, raw in _entries(folder).items():
        entry = _decoded(raw) or {}
        provider = entry.get("litellm_provider")
        if not isinstance(provider, str):
            continue
        provider = next((family for family in _FAMILIES if provider.startswith(family)), provider)
        providers.add(provider)
        if entry.get("mode") in _ANSWERING:
            models.setdefault(provider, {})[name.removeprefix(f"{provider}/")] = None
    listed = frozenset(providers | _UNLISTED if providers else ())
    return KnownNames(listed, {provider: tuple(names) for provider, names in models.items()})


def unknown_name(model: Model, names: KnownNames) -> str | None:
    """Why litellm may not know this model: it has no provider, or litellm lists no such provider or model. None if it
    may. A model at an ``api_base`` or with a ``price`` may have any name."""
    head, slash, rest = model.model.partition("/")
    provider = head.lower()
    if model.model == SCRIPTED or not names.providers:
        return None
    if not slash or not rest:
        owners = [owner for owner in sorted(names.models) if head in names.models[owner]]
        owner = next((owner for owner in _FIRST if owner in owners), owners[0] if owners else "openai")
        example = f"{owner}/{head}" if head and not slash else "openai/gpt-5-mini"
        return f"{quoted(model.model)} has no provider; write provider/model, such as {quoted(example)}"
    if provider not in names.providers:
        there = did_you_mean(provider, names.providers) or "; write provider/model, as in litellm's documentation"
        return f"litellm does not know the provider {quoted(head)}{there}"
    listed = names.models.get(provider, ())
    if model.api_base is not None or model.price is not None or provider in _OWN_NAMES or not listed:
        return None
    name = rest.removeprefix("responses/")
    if name.lower() in map(str.lower, listed) or name.startswith("ft:"):
        return None
    if read_prices([model]):
        return None
    near = did_you_mean(name, listed)
    there = near or "; correct it"
    return (
        f"litellm's table has no model {quoted(name)} of {provider}, so it may not exist, and its price is unknown"
        f"{there} (for a model that is newer than the table, set price)"
    )


def _listed_providers(folder: Path | None, file: str) -> Iterator[str]:
    """The names in one of ``PROVIDER_FILES``; none if it cannot be read."""
    if folder is None:
        return
    try:
        with (folder / file).open("rb") as opened:
            found = msgspec.json.decode(opened.read(MAX_BYTES))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    entries = found.get("providers", found) if isinstance(found, dict) else {}
    yield from (name for name in (entries if isinstance(entries, dict) else {}) if not name.startswith("_"))


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
