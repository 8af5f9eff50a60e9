"""What must hold of a policy's own patterns of secrets, and of the rules that look for them. That they are RE2 is known by then."""

from __future__ import annotations

import re
from typing import Final

from samplegate.core.matching.regex import searcher
from samplegate.core.policy import AllowRule, EscalateRule
from samplegate.core.policyfile.draft import Draft
from samplegate.core.policyfile.tree import Path, quoted
from samplegate.core.redaction import looks, seeks

MAX_SECRETS: Final = 100  # a text that may hold one of them is searched for each
NAME: Final = re.compile(r"[a-z0-9-]{1,40}\Z")  # it stands in texts as [secret:NAME], and is a label in metrics


def check(draft: Draft) -> None:
    """Every pattern, and every rule's `secrets`."""
    for number, (name, pattern) in enumerate(draft.policy.secrets.items()):
        if number == MAX_SECRETS:
            draft.problem(("secrets", name), f"there are more than {MAX_SECRETS} secrets; join some patterns with |", key=True)
            break
        _secret(draft, ("secrets", name), name, pattern)
    for index, rule in enumerate(draft.policy.rules):
        path: Path = ("rules", index, "with", "secrets")
        if isinstance(rule, AllowRule | EscalateRule) and rule.with_.secrets is not None and not seeks(rule.with_.secrets) and draft.sound(*path):
            draft.warn(path, "secrets are kept in prompt and answer, as without the key; say redact or stop for one of them, or remove it", key=True)
    if draft.policy.secrets and not looks(draft.policy) and draft.sound("rules"):
        draft.warn(
            ("secrets",), "no rule looks for secrets, so the patterns have no effect; add `secrets: {}` to the `with` of an allow rule", key=True
        )


def _secret(draft: Draft, path: Path, name: str, pattern: str) -> None:
    if not NAME.match(name):
        draft.problem(path, f"{quoted(name)} is not a name of up to 40 small letters, digits and dashes; rename it", key=True)
    if draft.sound(*path) and (search := searcher(pattern)) and not isinstance(search, str) and search(b"") is not None:
        draft.problem(path, f"{quoted(pattern)} is found in the empty text, so everywhere; ask for at least one character")
