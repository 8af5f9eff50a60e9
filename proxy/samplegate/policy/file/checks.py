"""Pure. Checks of a policy beyond the types of its values: names, models, peers, numbers, and its secret patterns.

RE2 expressions are valid at this point. Rules, limits, models and reviewers have modules of their own, such as
``rule_checks.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from samplegate.policy.conditions import is_glob, names
from samplegate.policy.file import limit_checks, model_checks, reviewer_checks, rule_checks, timeouts
from samplegate.policy.file.draft import Draft
from samplegate.policy.file.rule_checks import texts
from samplegate.policy.redaction import is_enabled, searches_secrets
from samplegate.policy.schema import AllowRule, EscalateRule, Peer
from samplegate.regex import searcher
from samplegate.yamlfile import envfile
from samplegate.yamlfile.tree import INVISIBLE, Path, plain_value, quoted

MAX_RULES: Final = 1000  # a decision considers each of them; 100 take 100 us
MAX_NAME: Final = 100  # names are in logs, metrics and the `model` of an answer

_EXPRESSIONS: Final = names(lambda row: row.is_expression)
"""Conditions in which `${` may be part of an RE2 expression."""


def check(draft: Draft) -> None:
    """Run every check; problems and warnings are added to the draft."""
    _names(draft, "models", [model.name for model in draft.policy.models])
    _names(draft, "rules", [rule.name for rule in draft.policy.rules])
    _keys(draft, "limits", draft.policy.limits)
    _keys(draft, "reviewers", draft.policy.reviewers)
    model_checks.check(draft)
    _variables(draft)
    _peer(draft, ("client",), draft.policy.client)
    for name, server in draft.policy.servers.items():
        _server(draft, name, server)
    if len(draft.policy.rules) > MAX_RULES:
        draft.problem(("rules", MAX_RULES), f"there are more than {MAX_RULES} rules; merge some")
        return
    if not draft.policy.rules and draft.sound("rules"):
        draft.warn(("rules",), "there are no rules, so no request is answered; add one", key=True)
    rule_checks.check(draft)
    limit_checks.check(draft)
    reviewer_checks.check(draft)
    check_secrets(draft)
    rule_checks.check_reach(draft)


def _names(draft: Draft, table: str, names: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        path: Path = (table, index, "name")
        if not draft.sound(*path):
            continue
        if (why := _bad_name(name)) is not None:
            draft.problem(path, why)
        elif name in first:
            line = draft.line((table, first[name], "name"))
            draft.problem(
                path, f"{quoted(name)} is already the name of {table}.{first[name]} on line {line}; use unique names"
            )
        else:
            first[name] = index


def _keys(draft: Draft, table: str, names: Iterable[str]) -> None:
    """Check names that are keys, which are unique already."""
    for name in names:
        if (why := _bad_name(name)) is not None:
            draft.problem((table, name), why, key=True)


def _bad_name(name: str) -> str | None:
    if not name.strip():
        return "the name is empty; set one"
    if len(name) > MAX_NAME:
        return f"{quoted(name)} is longer than {MAX_NAME} characters; shorten it"
    if INVISIBLE.search(name):
        return f"{quoted(name)} contains an invisible character; remove it"
    return None


def _server(draft: Draft, name: str, server: Peer) -> None:
    path: Path = ("servers", name)
    if (why := _bad_name(name)) is not None:
        draft.problem(path, why, key=True)
    elif is_glob(name):
        draft.problem(
            path,
            f"{quoted(name)} is a glob, but servers are configured by their full names; list them one by one",
            key=True,
        )
    _peer(draft, path, server)


def _peer(draft: Draft, path: Path, peer: Peer) -> None:
    if peer.peer_timeout != "none" and draft.sound(*path, "peer_timeout"):
        timeouts.check_span(draft, (*path, "peer_timeout"), peer.peer_timeout)


def _variables(draft: Draft) -> None:
    """Report `${VAR}` outside an answer's content, because it would not be replaced there."""
    for path, text in texts(plain_value(draft.root), ()):
        if path[0] == "rules" and path[2:3] == ("content",):
            continue
        name = next(envfile.names(text), None)
        if name is None or path[-1] in _EXPRESSIONS or path[0] == "secrets":
            continue
        if path[-1] == "prepend":
            draft.warn(
                path, f"${{{name}}} is sent literally; variables are replaced only in the content of an answer rule"
            )
        elif draft.sound(*path):
            draft.problem(
                path, f"${{{name}}} is not replaced here, only in the content of an answer rule; write the value itself"
            )


MAX_SECRETS: Final = 100  # a text that may contain a secret is searched for each of them
# the name is in redacted texts, as [secret:NAME], and is a label in metrics
SECRET_NAME: Final = re.compile(r"[a-z0-9-]{1,40}\Z")


def check_secrets(draft: Draft) -> None:
    """Check every pattern, and every rule's `secrets`."""
    for number, (name, pattern) in enumerate(draft.policy.secrets.items()):
        if number == MAX_SECRETS:
            draft.problem(
                ("secrets", name), f"there are more than {MAX_SECRETS} secrets; join some patterns with |", key=True
            )
            break
        _secret(draft, ("secrets", name), name, pattern)
    for index, rule in enumerate(draft.policy.rules):
        path: Path = ("rules", index, "with", "secrets")
        if (
            isinstance(rule, AllowRule | EscalateRule)
            and rule.with_.secrets is not None
            and not is_enabled(rule.with_.secrets)
            and draft.sound(*path)
        ):
            draft.warn(
                path,
                "secrets are kept in prompt and answer, so the key has no effect; set one of them to redact or stop,"
                " or remove the key",
                key=True,
            )
    if draft.policy.secrets and not searches_secrets(draft.policy) and draft.sound("rules"):
        draft.warn(
            ("secrets",),
            "no rule searches for secrets, so the patterns have no effect; add `secrets: {}` to the `with` of an allow"
            " rule",
            key=True,
        )


def _secret(draft: Draft, path: Path, name: str, pattern: str) -> None:
    if not SECRET_NAME.match(name):
        draft.problem(
            path, f"{quoted(name)} is not a valid name; use up to 40 lowercase letters, digits and dashes", key=True
        )
    if draft.sound(*path) and (search := searcher(pattern)) and not isinstance(search, str) and search(b"") is not None:
        draft.problem(
            path,
            f"{quoted(pattern)} matches the empty string, so it matches everywhere; require at least one character",
        )
