"""Pure. The policy's text -> a Policy, or every problem of it at once with file, line and column. Reads no file and no
environment by itself.

The way: ``yamlfile/tree.py`` parses the text, ``yamlfile/validate.py`` checks it against the structs of
``policy/schema.py``, and ``checks.py`` does the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from samplegate.policy.catalogue import Catalogue, Table, known
from samplegate.policy.file import checks, limit_checks, model_checks, rule_checks
from samplegate.policy.file.draft import Draft
from samplegate.policy.file.json_schema import json_schema
from samplegate.policy.schema import Model, Policy
from samplegate.yamlfile import envfile
from samplegate.yamlfile.tree import Fault, Mark, Node, Path, PolicyError, Problem, Unreadable, compose, problems
from samplegate.yamlfile.validate import convert, type_of

__all__ = ["LoadedPolicy", "PolicyError", "Problem", "json_schema", "load"]


class LoadedPolicy(msgspec.Struct, frozen=True):
    """A policy that can be used."""

    policy: Policy
    hash: str
    """The first 12 hex digits of the SHA-256 of the text: which policy decided, in records and seals."""
    warnings: tuple[Problem, ...]
    environment: Mapping[str, str]
    """Only what the policy names, so that nothing else of the environment travels with it."""
    catalogue: Catalogue = msgspec.field(default_factory=dict)
    """What is known of its models."""


LookUp: TypeAlias = Callable[[Sequence[Model]], Table]
"""litellm's entries for some models: a file is read for it, so it is handed in."""


def load(
    text: str,
    *,
    file: str,
    environment: Mapping[str, str],
    missing: Literal["warn", "error"] = "warn",
    look_up: LookUp | None = None,
) -> LoadedPolicy:
    """Read and check a policy. ``missing`` says what an unset ``${VAR}`` is. Raises PolicyError with every problem.

    ``look_up`` finds what litellm's table says of the models; without it prices and abilities are those of the policy,
    and are not checked.
    """
    try:
        root, faults = compose(text)
    except Unreadable as broken:
        raise PolicyError(problems(file, [broken.fault])) from None
    draft, found = _read(root, faults, look_up)
    unset = [] if draft is None else _unset(draft, environment)
    wrong = [*faults, *found, *(unset if missing == "error" else [])]
    if wrong or draft is None:
        raise PolicyError(problems(file, wrong))
    warnings = problems(file, [*draft.warnings, *(unset if missing == "warn" else [])])
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return LoadedPolicy(draft.policy, digest, warnings, _named(draft.policy, environment), draft.catalogue)


def _read(root: Node, faults: Iterable[Fault], look_up: LookUp | None) -> tuple[Draft | None, list[Fault]]:
    """The policy of a tree as far as it goes, and the problems of its types and its meaning."""
    value, walk = convert(root, type_of(Policy))
    broken: set[Path] = walk.broken | {fault.path for fault in faults}
    try:
        policy = msgspec.convert(value, Policy, strict=True)
    # the walk lets through what msgspec does not: a gap in the walk, told all the same
    except msgspec.ValidationError as problem:
        return None, [*walk.faults, *([] if walk.faults else [Fault(Mark(1, 1), (), str(problem))])]
    if () in broken:
        return None, walk.faults  # no mapping at all: there is nothing to check
    draft = Draft(policy, root, broken)
    checks.check(draft)
    draft.catalogue = known(policy.models, {} if look_up is None else look_up(policy.models))
    if look_up is not None:
        limit_checks.check_prices(draft, draft.catalogue)
        model_checks.check_catalogue(draft, draft.catalogue)
    return draft, [*walk.faults, *draft.problems]


def _unset(draft: Draft, environment: Mapping[str, str]) -> list[Fault]:
    what = "is not set in the environment, so the rule cannot answer; set it or write the value"
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
