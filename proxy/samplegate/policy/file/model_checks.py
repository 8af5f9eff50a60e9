"""Pure. Checks of models and hints, and of the rules that use them. No model is called and no key is looked up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from samplegate.policy.catalogue import SCRIPTED, Catalogue
from samplegate.policy.file.draft import Draft
from samplegate.policy.model_choice import candidates
from samplegate.policy.schema import AllowRule, EscalateRule, Model, ModelRule, Weights
from samplegate.urls import has_user, split
from samplegate.yamlfile.tree import INVISIBLE, Path, quoted
from samplegate.yamlfile.validate import did_you_mean

MAX_PRICE: Final = 1_000_000.0
"""Dollars per million tokens, which is one dollar per token. The most expensive models cost a thousandth of it."""
MAX_MARGIN: Final = 100.0
MAX_TOKEN_COUNT: Final = 2**31 - 1
"""Tokens; more than any model reads or any image has."""

VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check(draft: Draft) -> None:
    """Check every model, every hint and every rule's `prefer`."""
    for index, model in enumerate(draft.policy.models):
        _model(draft, ("models", index), model)
    _hints(draft)
    for index, rule in enumerate(draft.policy.rules):
        if isinstance(rule, AllowRule | EscalateRule) and draft.sound("rules", index, "with"):
            _prefer(draft, ("rules", index, "with", "prefer"), rule)


def check_catalogue(draft: Draft, catalogue: Catalogue) -> None:
    """Check the content that a match requires against the abilities of its models. ``catalogue`` includes litellm's
    table."""
    for index, rule in enumerate(draft.policy.rules):
        path: Path = ("rules", index)
        if not isinstance(rule, AllowRule | EscalateRule) or not (draft.sound(*path) and draft.sound("models")):
            continue
        takes = {
            model.name: catalogue[model.name].accepts
            for model in candidates(draft.policy, rule)
            if model.name in catalogue
        }
        for extra, place in _demanded(rule):
            if takes and not any(extra in accepted for accepted in takes.values()):
                given = f"add `accepts: [{extra}]` to a model that does, or add another model"
                so = (
                    "such requests are never answered"
                    if isinstance(rule, AllowRule)
                    else "reviewers can answer such requests but not approve them"
                )
                draft.warn(
                    (*path, *place), f"none of the rule's models ({', '.join(takes)}) accepts {extra}, so {so}; {given}"
                )


def _demanded(rule: ModelRule) -> Iterator[tuple[str, Path]]:
    """The abilities that every matching request requires, with the path in the match. A list of types that includes
    text requires none."""
    types = rule.match.content_types or []
    for extra in ("image", "audio"):
        if types and set(types) <= {extra, "tool_use", "tool_result"} and extra in types:
            yield extra, ("match", "content_types")
    if rule.match.tools is True:
        yield "tools", ("match", "tools")


def _prefer(draft: Draft, path: Path, rule: ModelRule) -> None:
    prefer = rule.with_.prefer
    if prefer is None or not draft.sound(*path):
        return
    if isinstance(prefer, Weights) and not (prefer.cost or prefer.speed or prefer.intelligence):
        draft.problem(path, "all weights are 0, so the key has no effect; set one above 0 or remove the key")
        return
    models = candidates(draft.policy, rule)
    for name in ("speed", "intelligence"):
        counts = prefer == name if isinstance(prefer, str) else getattr(prefer, name) > 0
        if counts and models and all(getattr(model, name) is None for model in models) and draft.sound("models"):
            draft.warn(
                path,
                f"none of the rule's models has a rating for {name}, so the key has no effect; add `{name}: 0.5` or"
                " similar to the models",
            )


def known_models(draft: Draft, path: Path, names: Iterable[str]) -> None:
    """Check that every name in the list at ``path`` is a model."""
    models = [model.name for model in draft.policy.models]
    for index, name in enumerate(names):
        at = (*path, index) if draft.has_value(*path, index) else path
        if draft.sound(*at) and name not in models:
            known = list(dict.fromkeys(models))
            there = did_you_mean(name, known) or (
                f"; the policy's models are {', '.join(map(quoted, known[:20]))}" if models else "; add it under models"
            )
            draft.problem(at, f"unknown model {quoted(name)}{there}")


def _hints(draft: Draft) -> None:
    for hint, names in draft.policy.hints.items():
        path: Path = ("hints", hint)
        if not hint:
            draft.problem(path, "the hint is empty and would match every name; write `*` to match every name", key=True)
        listed = [names] if isinstance(names, str) else names
        if not listed and draft.sound(*path):
            draft.problem(path, "the list is empty; add a model or remove the hint")
        known_models(draft, path, listed)


def _model(draft: Draft, path: Path, model: Model) -> None:
    if not draft.sound(*path, "model"):
        return
    if not model.model.strip():
        draft.problem(
            (*path, "model"), f"the model is empty; use a litellm name such as openai/gpt-5-mini, or {SCRIPTED}"
        )
    elif model.model == SCRIPTED:
        _scripted(draft, path, model)
    elif model.cases is not None:
        draft.problem(
            (*path, "cases"),
            f"is only valid with `model: {SCRIPTED}`, but this model is {quoted(model.model)}; remove the key",
            key=True,
        )
    _key(draft, path, model)
    _numbers(draft, path, model)
    if model.api_base is not None and (why := _bad_address(model.api_base)) is not None:
        draft.problem((*path, "api_base"), why)


def _scripted(draft: Draft, path: Path, model: Model) -> None:
    if model.cases is None and draft.sound(*path, "cases"):
        draft.problem(path, f"`model: {SCRIPTED}` needs a case file; add `cases: FILE`, relative to this file")
    if model.cases == "":
        draft.problem((*path, "cases"), "the file name is empty; set one, relative to this file")
    for name in ("api_base", "api_key_env", "api_key_file", "warm"):
        if getattr(model, name) not in (None, False):
            draft.problem(
                (*path, name), f"`model: {SCRIPTED}` is built in and calls no provider; remove the key", key=True
            )


def _numbers(draft: Draft, path: Path, model: Model) -> None:
    """Check price, margin, token counts and abilities."""
    for name in ("input", "output"):
        if model.price is not None and draft.sound(*path, "price", name) and getattr(model.price, name) > MAX_PRICE:
            draft.problem(
                (*path, "price", name),
                f"{getattr(model.price, name):g} is more than a dollar per token; prices are in dollars per million"
                " tokens",
            )
    if draft.sound(*path, "margin") and model.margin > MAX_MARGIN:
        draft.problem(
            (*path, "margin"),
            f"{model.margin:g} is too large; use at most {MAX_MARGIN:g} (default: 1.25)",
        )
    for name in ("context", "image_tokens"):
        if draft.sound(*path, name) and (getattr(model, name) or 0) > MAX_TOKEN_COUNT:
            draft.problem(
                (*path, name),
                f"{getattr(model, name)} tokens are more than any model accepts; use at most {MAX_TOKEN_COUNT}",
            )
    both = draft.sound(*path, "context") and draft.sound(*path, "max_tokens")
    if both and model.context is not None and (model.max_tokens or 0) >= model.context:
        draft.problem(
            (*path, "max_tokens"),
            f"{model.max_tokens} leaves no room for input in a context of {model.context}; lower it",
        )
    for index, extra in enumerate(model.accepts or ()):
        if draft.sound(*path, "accepts") and extra in (model.accepts or ())[:index]:
            draft.problem((*path, "accepts", index), f"{extra} is listed twice; remove one")


def _key(draft: Draft, path: Path, model: Model) -> None:
    """Check the source of the provider's key. Messages never show the value, because it may be the key itself."""
    if model.api_key_env is not None and model.api_key_file is not None:
        draft.problem((*path, "api_key_file"), "api_key_env is also set; keep one of the two", key=True)
    if model.api_key_env is not None and not VARIABLE_NAME.match(model.api_key_env):
        draft.problem(
            (*path, "api_key_env"),
            "this is not the name of an environment variable; write the variable's name, never the key itself",
        )
    if model.api_key_file is not None and (not model.api_key_file.strip() or INVISIBLE.search(model.api_key_file)):
        draft.problem(
            (*path, "api_key_file"), "this is not the name of a file; write the file's name, never the key itself"
        )


def _bad_address(address: str) -> str | None:
    """Why an api_base is invalid, None if it is valid. The message does not show it, because it may contain a
    password."""
    parts = split(address)
    if parts is None:
        return "this is not a URL; use a URL such as http://127.0.0.1:8000/v1"
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        return "this is not an http or https URL; use a URL such as http://127.0.0.1:8000/v1"
    if has_user(parts):
        return "the URL contains a user name or password; put the key in a file and set api_key_file"
    if parts.query or parts.fragment:
        return "the URL contains a query or fragment; remove it"
    return None
