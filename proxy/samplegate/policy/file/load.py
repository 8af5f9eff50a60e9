"""Pure. Policy loader: a policy's text becomes a Policy, or every problem at once with file, line and column.

``yamlfile/tree.py`` parses the text, ``yamlfile/validate.py`` checks it against the structs of ``policy/schema.py``,
and ``checks.py`` does the rest. The loader reads no file and no environment by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from samplegate.policy.catalogue import Catalogue, Table, catalogue_of
from samplegate.policy.file import checks, limit_checks, model_checks, rule_checks
from samplegate.policy.file.draft import Draft
from samplegate.policy.file.json_schema import json_schema
from samplegate.policy.schema import Model, Policy
from samplegate.yamlfile import envfile
from samplegate.yamlfile.tree import (
    Fault,
    Mark,
    Node,
    Path,
    PolicyError,
    Problem,
    Unreadable,
    compose,
    problems,
)
from samplegate.yamlfile.tree import Mapping as Tree
from samplegate.yamlfile.validate import convert, type_of

__all__ = ["LoadedPolicy", "PolicyError", "Problem", "json_schema", "load"]


class LoadedPolicy(msgspec.Struct, frozen=True):
    """A valid policy."""

    policy: Policy
    hash: str
    """The first 12 hex digits of the SHA-256 of the text. It identifies the policy in records and seals."""
    warnings: tuple[Problem, ...]
    environment: Mapping[str, str]
    """Only the variables in the policy, so that no other ones are passed along."""
    catalogue: Catalogue = msgspec.field(default_factory=dict)
    """Facts about its models."""


LookUp: TypeAlias = Callable[[Sequence[Model]], Table]
"""Looks up litellm's entries for some models. It reads a file, so it is an argument."""


SETTINGS: Final = {"policy", "listen", "state", "decision_log", "store", "callers", "servers_file", "log_level"}
"""Keys that only files with settings have."""
NO_POLICY: Final = "this is a settings file, not a policy; pass it with --settings, and its policy with --policy"


def load(
    text: str,
    *,
    file: str,
    environment: Mapping[str, str],
    missing: Literal["warn", "error"] = "warn",
    look_up: LookUp | None = None,
) -> LoadedPolicy:
    """Load and check a policy. ``missing`` is the severity of an unset ``${VAR}``. Raises PolicyError with every
    problem.

    ``look_up`` reads litellm's table. Without it, the policy's own prices and abilities apply, and are not checked.
    """
    try:
        root, faults = compose(text)
    except Unreadable as broken:
        raise PolicyError(problems(file, [broken.fault])) from None
    if isinstance(root, Tree) and not {"version", "rules"} & root.entries.keys() and SETTINGS & root.entries.keys():
        raise PolicyError(problems(file, [Fault(root.mark, (), NO_POLICY)]))
    draft, found = _read(root, faults, look_up)
    unset = [] if draft is None else _unset(draft, environment)
    found_faults = [*faults, *found, *(unset if missing == "error" else [])]
    if found_faults or draft is None:
        raise PolicyError(problems(file, found_faults))
    warnings = problems(file, [*draft.warnings, *(unset if missing == "warn" else [])])
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return LoadedPolicy(draft.policy, digest, warnings, _named(draft.policy, environment), draft.catalogue)


def _read(root: Node, faults: Iterable[Fault], look_up: LookUp | None) -> tuple[Draft | None, list[Fault]]:
    """The policy of a tree as far as it is valid, and the problems of its types and its meaning."""
    value, walk = convert(root, type_of(Policy))
    broken: set[Path] = walk.broken | {fault.path for fault in faults}
    try:
        policy = msgspec.convert(value, Policy, strict=True)
    # the validator accepts a value that msgspec rejects: a gap in the validator, reported nonetheless
    except msgspec.ValidationError as problem:
        return None, [*walk.faults, *([] if walk.faults else [Fault(Mark(1, 1), (), str(problem))])]
    if () in broken:
        return None, walk.faults  # the file is not a mapping: there is nothing to check
    draft = Draft(policy, root, broken)
    checks.check(draft)
    draft.catalogue = catalogue_of(policy.models, {} if look_up is None else look_up(policy.models))
    if look_up is not None:
        limit_checks.check_prices(draft, draft.catalogue)
        model_checks.check_catalogue(draft, draft.catalogue)
    return draft, [*walk.faults, *draft.problems]


def _unset(draft: Draft, environment: Mapping[str, str]) -> list[Fault]:
    what = "is not set in the environment, so the rule cannot answer; set it, or replace it with the value"
    return [
        Fault(draft.mark(path), path, f"${{{name}}} {what}")
        for path, name in rule_checks.unset(draft.policy, environment)
    ]


def _named(policy: Policy, environment: Mapping[str, str]) -> dict[str, str]:
    texts = (
        text
        for index, rule in enumerate(policy.rules)
        for _, text in rule_checks.texts(getattr(rule, "content", None), (index,))
    )
    return {name: environment[name] for text in texts for name in envfile.names(text) if name in environment}
