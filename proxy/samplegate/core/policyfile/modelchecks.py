"""What must hold among the models and hints of a policy. Does not call a model, look for a key or know litellm's names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from samplegate.core.policy import Model
from samplegate.core.policyfile.draft import Draft
from samplegate.core.policyfile.leaves import did_you_mean
from samplegate.core.policyfile.tree import UNSEEN, Path, quoted

SCRIPTED: Final = "scripted"

VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check(draft: Draft) -> None:
    """Every model and every hint."""
    for index, model in enumerate(draft.policy.models):
        _model(draft, ("models", index), model)
    _hints(draft)


def known_models(draft: Draft, path: Path, names: Iterable[str]) -> None:
    """That every name in the list at ``path`` is a model's."""
    models = [model.name for model in draft.policy.models]
    for index, name in enumerate(names):
        at = (*path, index) if draft.says(*path, index) else path
        if draft.sound(*at) and name not in models:
            there = did_you_mean(name, models) or (f"; the models are {', '.join(map(quoted, models[:20]))}" if models else "; add it under models")
            draft.problem(at, f"{quoted(name)} is no model of this policy{there}")


def _hints(draft: Draft) -> None:
    for hint, names in draft.policy.hints.items():
        path: Path = ("hints", hint)
        if not hint:
            draft.problem(path, "the hint is empty and would be found in every name; write `*` if that is meant", key=True)
        listed = [names] if isinstance(names, str) else names
        if not listed and draft.sound(*path):
            draft.problem(path, "the list is empty; name a model or remove the hint")
        known_models(draft, path, listed)


def _model(draft: Draft, path: Path, model: Model) -> None:
    if not draft.sound(*path, "model"):
        return
    if not model.model.strip():
        draft.problem((*path, "model"), f"the model is empty; name one as litellm does, or {SCRIPTED}")
    elif model.model == SCRIPTED:
        _scripted(draft, path, model)
    elif model.cases is not None:
        draft.problem((*path, "cases"), f"the key belongs to model: {SCRIPTED}, and this model is {quoted(model.model)}; remove the key", key=True)
    _key(draft, path, model)
    if model.api_base is not None and (why := _bad_address(model.api_base)) is not None:
        draft.problem((*path, "api_base"), why)


def _scripted(draft: Draft, path: Path, model: Model) -> None:
    if model.cases is None and draft.sound(*path, "cases"):
        draft.problem(path, f"model: {SCRIPTED} has no cases; add `cases: FILE`, relative to this file")
    if model.cases == "":
        draft.problem((*path, "cases"), "the file's name is empty; give one, relative to this file")
    for name in ("api_base", "api_key_env", "api_key_file", "warm"):
        if getattr(model, name) not in (None, False):
            draft.problem((*path, name), f"model: {SCRIPTED} is built in and calls nobody; remove the key", key=True)


def _key(draft: Draft, path: Path, model: Model) -> None:
    """Where the provider's key comes from. What stands there is never shown: it may be the key itself."""
    if model.api_key_env is not None and model.api_key_file is not None:
        draft.problem((*path, "api_key_file"), "api_key_env is given too; keep one of the two", key=True)
    if model.api_key_env is not None and not VARIABLE_NAME.match(model.api_key_env):
        draft.problem((*path, "api_key_env"), "this is not the name of an environment variable; give the variable's name, never the key itself")
    if model.api_key_file is not None and (not model.api_key_file.strip() or UNSEEN.search(model.api_key_file)):
        draft.problem((*path, "api_key_file"), "this is not the name of a file; give the file's name, never the key itself")


def _bad_address(address: str) -> str | None:
    """Why an api_base is none. It is not shown: it may carry a password."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return "this is not a URL; write it like http://127.0.0.1:8000/v1"
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        return "this is not an http or https URL; write it like http://127.0.0.1:8000/v1"
    if parts.username is not None or parts.password is not None:
        return "the URL carries a user or password; put the key into a file and name it as api_key_file"
    if parts.query or parts.fragment:
        return "the URL carries a query or fragment; end it with the path"
    return None
