"""Provider keys: the source of each model's key, and the variables that a wrapped server must not see. Keys are read
and passed on, never stored.

A model with ``api_key_env`` or ``api_key_file`` uses only that key. Any other model uses its provider's usual
variables, as in litellm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from samplegate.files import missing_hint
from samplegate.policy.catalogue import SCRIPTED
from samplegate.policy.schema import Model

MAX_KEY_BYTES: Final = 16 * 1024  # the longest real keys are service-account tokens of about 2 KiB

NO_KEY: Final = "none"
"""The key for an OpenAI-compatible endpoint with an ``api_base``, if the policy names no key: never OPENAI_API_KEY,
which belongs to OpenAI."""

# Provider -> prefixes of its variables. A provider that is missing here has its own name as prefix: groq -> GROQ_.
_PREFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "azure": ("AZURE_",),
    "azure_ai": ("AZURE_",),
    "bedrock": ("AWS_", "BEDROCK_"),
    "codestral": ("CODESTRAL_", "MISTRAL_"),
    "cohere": ("COHERE_", "CO_"),
    "cohere_chat": ("COHERE_", "CO_"),
    "dashscope": ("DASHSCOPE_", "QWEN"),
    "fireworks_ai": ("FIREWORKS",),
    "gemini": ("GEMINI_", "GOOGLE_"),
    "github": ("GITHUB_",),
    "hosted_vllm": ("HOSTED_VLLM_", "VLLM_"),
    "huggingface": ("HUGGINGFACE_", "HUGGING_FACE_", "HF_"),
    "openrouter": ("OPENROUTER_", "OR_"),
    "perplexity": ("PERPLEXITY",),
    "sagemaker": ("AWS_", "SAGEMAKER_"),
    "text-completion-openai": ("OPENAI_",),
    "together_ai": ("TOGETHER",),
    "vertex_ai": ("VERTEX", "GOOGLE_"),
    "volcengine": ("VOLCENGINE_", "ARK_"),
    "watsonx": ("WATSONX_", "WX_"),
    "xai": ("XAI_",),
}
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_ANY_KEY: Final = re.compile(r"_API_?KEY\Z")
# Providers that always need one of these variables: only for them is a missing key reported at start.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "cerebras": ("CEREBRAS_API_KEY",),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "deepinfra": ("DEEPINFRA_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "sambanova": ("SAMBANOVA_API_KEY",),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY", "TOGETHER_AI_API_KEY"),
    "xai": ("XAI_API_KEY",),
}


class NoKey(msgspec.Struct, frozen=True):
    """Why a model has no usable key: ``what`` names the variable or file, never its content."""

    what: str


def provider(model: Model) -> str | None:
    """The provider in litellm's name of the model, or None if the name has no prefix."""
    head, slash, _ = model.model.partition("/")
    return head.lower() if slash else None


def key(model: Model, *, folder: Path, environment: Mapping[str, str]) -> str | NoKey | None:
    """The key for calls of ``model``; None if its provider's own variables apply. Reads the key file, relative to
    ``folder``."""
    if model.api_key_env is not None:
        what = f"variable {model.api_key_env} (api_key_env)"
        if model.api_key_env not in environment:
            return NoKey(f"{what} is not set; set it to the provider's key")
        return _checked(environment[model.api_key_env].strip(), what)
    if model.api_key_file is not None:
        return _from_file(folder, model.api_key_file)
    if model.api_base is not None and provider(model) == "openai":
        return NO_KEY
    return None


def problem(model: Model, *, folder: Path, environment: Mapping[str, str]) -> str | None:
    """The problem with this model's key that is known at start, or None."""
    found = key(model, folder=folder, environment=environment)
    if isinstance(found, NoKey):
        return found.what
    needed = _NEEDED.get(provider(model) or "", ())
    if found is None and needed and not any(environment.get(name, "").strip() for name in needed):
        return f"no API key: set {' or '.join(needed)}, or add api_key_env or api_key_file to the model"
    return None


def withheld_names(environment: Mapping[str, str], models: Sequence[Model]) -> frozenset[str]:
    """The names of the variables in ``environment`` that have the gate's own provider keys."""
    names = {model.api_key_env for model in models if model.api_key_env is not None}
    for model in models:
        if model.model != SCRIPTED and model.api_key_env is None and model.api_key_file is None:
            names.update(_of_provider(environment, model))
    return frozenset(names & environment.keys())


DATABASE_URL: Final = "SAMPLEGATE_DATABASE"
"""The variable with the URL of the gates' database, which may have its password."""
DATABASE_PASSWORD: Final = "PGPASSWORD"
"""libpq's variable for a password."""


def child_environment(
    environment: Mapping[str, str], models: Sequence[Model], *, database: bool = False
) -> dict[str, str]:
    """The environment of the wrapped server: ``environment`` without the gate's provider keys, and without the password
    of its database. ``database``: whether the gate has one, so that libpq's variable is the gate's, too.

    A server that uses the same provider keeps its variable if the policy names a different one for the gate
    (``api_key_env``).
    """
    hidden = withheld_names(environment, models) | {DATABASE_URL} | ({DATABASE_PASSWORD} if database else set())
    return {name: value for name, value in environment.items() if name not in hidden}


def _of_provider(environment: Mapping[str, str], model: Model) -> set[str]:
    name = provider(model)
    if name is None:  # litellm guesses the provider from the model's name, so all keys are withheld
        return {variable for variable in environment if _ANY_KEY.search(variable)}
    prefixes = _PREFIXES.get(name, (re.sub(r"[^A-Z0-9]", "_", name.upper()) + "_",))
    return {variable for variable in environment if variable.upper().startswith(prefixes) and _SECRET.search(variable)}


def _from_file(folder: Path, name: str) -> str | NoKey:
    what = f"file {name} (api_key_file)"
    try:
        with (folder / name).open("rb") as file:
            raw = file.read(MAX_KEY_BYTES + 1)
    except FileNotFoundError:
        return NoKey(f"{what} does not exist; {missing_hint(name, folder, 'paths in a policy are')}")
    except (OSError, ValueError) as problem:  # ValueError: a NUL character
        reason = getattr(problem, "strerror", None) or type(problem).__name__
        remedy = "the gate's user needs read access" if isinstance(problem, PermissionError) else "check api_key_file"
        return NoKey(f"{what} cannot be read: {reason.lower()}; {remedy}")
    if len(raw) > MAX_KEY_BYTES:
        return NoKey(f"{what} is larger than {MAX_KEY_BYTES} bytes; it must contain only the key")
    return _checked(raw.decode("utf-8", "replace").strip(), what)


def _checked(found: str, what: str) -> str | NoKey:
    """A valid key, or why it is not: a line break in an HTTP header would start another header."""
    if not found:
        return NoKey(f"{what} is empty; put the provider's key there")
    if not found.isascii() or not found.isprintable():
        return NoKey(
            f"{what} contains a line break or characters other than printable ASCII; it must contain only the key"
        )
    return found
