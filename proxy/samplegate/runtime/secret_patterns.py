"""Built-in secret patterns: those of bc-detect-secrets, read from the package, and a few of our own.

Only the package's patterns are used, not its search or its entropy heuristics. No secret is ever verified against its
service.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import re2

from samplegate.regex import GROUP, compiled

_KEY: Final = r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}"

OURS: Final[Mapping[str, str]] = {
    # a whole block, or a header with the beginning of a body: the block may be cut off, or have its line ends escaped
    # as \n in JSON
    "private-key": (
        rf"-{{4,5}} ?BEGIN {_KEY}(?:(?s:.*?)-{{4,5}} ?END {_KEY}|(?:\s|\\[nr])*[A-Za-z0-9+/]{{16}}[A-Za-z0-9+/=\\\s]*)"
    ),
    "putty-private-key": (
        r"PuTTY-User-Key-File-[0-9]+: ?\S{1,40}(?:\s|\\[nr])+Encryption:(?s:.*?Private-MAC: ?[0-9A-Fa-f]+|.*)"
    ),
    # keys of model providers and of common development services, by their published prefixes
    "anthropic-key": r"\bsk-ant-[a-z]+[0-9]+-[A-Za-z0-9_-]{40}[A-Za-z0-9_-]*",
    "openai-key": r"\bsk-[A-Za-z0-9_-]*T3BlbkFJ[A-Za-z0-9_-]{20}[A-Za-z0-9_-]*",
    "google-key": r"\bAIza[0-9A-Za-z_-]{35}",
    "hugging-face-token": r"\bhf_[A-Za-z]{34}\b",
    "github-fine-grained-token": r"\bgithub_pat_[0-9A-Za-z]{22}_[0-9A-Za-z]{59}",
    "gitlab-token": r"\bgl(?:pat|dt|rt|ptt|soat|cbt|ft|agent|oas|imt)-[0-9A-Za-z_-]{20}[0-9A-Za-z_.-]*",
    "pypi-token": r"\bpypi-AgE[0-9A-Za-z_-]{50}[0-9A-Za-z_-]*",
    "azure-storage-key": rf"AccountKey=(?P<{GROUP}>[A-Za-z0-9+/]{{86}}==)",
}
"""Our own patterns. One with the name of a pattern of the package replaces it."""

LEFT_OUT: Final = frozenset({"azure-storage-account-access-key", "cloudant-credentials-3", "cloudant-credentials-4"})
"""Patterns that are not used. The first matches the end of much base64 and every sha512 in a package lock; ours
requires the text before the key. The others are passwords in URLs, which `basic-auth-credentials` covers."""

_NAMES: Final = {
    "aws-access-key-2": "aws-secret-key",
    "slack-token-2": "slack-webhook",
    "private-key-2": "putty-private-key",
}
"""Clearer names for detectors with several patterns, which are otherwise numbered."""

_NARROW: Final = frozenset(
    {"artifactory-credentials-2", "aws-secret-key", "basic-auth-credentials", "softlayer-credentials-2"}
)
"""Patterns whose only group is the secret itself. In other patterns a group may be anything, such as a prefix, so the
whole match counts."""

_OPEN: Final = re.compile(r"(?<!\\)\((?!\?)")


def known() -> Mapping[str, str]:
    """RE2 patterns by name, such as ``aws-access-key`` or ``github-token``: the package's and ours. Names are stable
    between runs.

    The first call imports the package, which takes about 0.1 s. Patterns that RE2 cannot compile are left out.
    """
    theirs = {
        name: pattern for name, expression in _package_patterns() if (pattern := _as_re2(name, expression)) is not None
    }
    return {name: pattern for name, pattern in {**theirs, **OURS}.items() if name not in LEFT_OUT}


def _package_patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """The patterns of each detector of the package, with names from its ``secret_type``."""
    import importlib
    import pkgutil

    from detect_secrets import plugins
    from detect_secrets.plugins.base import RegexBasedDetector

    for module in sorted(each.name for each in pkgutil.iter_modules(plugins.__path__)):
        held: Mapping[str, Any] = vars(importlib.import_module(f"{plugins.__name__}.{module}"))
        for sort in held.values():
            if (
                isinstance(sort, type)
                and issubclass(sort, RegexBasedDetector)
                and sort.__module__ == f"{plugins.__name__}.{module}"
            ):
                yield from _detector_patterns(sort)


def _detector_patterns(detector: Any) -> Iterator[tuple[str, re.Pattern[str]]]:
    listed = detector.denylist  # without a list, the class attribute is the property itself
    for number, expression in enumerate(listed if isinstance(listed, (list, tuple)) else (), start=1):
        name = _slug(detector.secret_type) + (f"-{number}" if number > 1 else "")
        yield _NAMES.get(name, name), expression


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _as_re2(name: str, expression: re.Pattern[str]) -> str | None:
    """The expression with its flags inline; None if RE2 does not support it."""
    pattern = expression.pattern
    flags = re.RegexFlag(expression.flags) & ~re.UNICODE
    if flags & re.VERBOSE and not re.search(r"[\s#]", pattern):
        flags &= ~re.VERBOSE  # no whitespace or comment in the pattern
    if name in _NARROW and expression.groups == 1:
        pattern = _OPEN.sub(f"(?P<{GROUP}>", pattern, count=1)
    if flags & re.IGNORECASE:
        pattern = f"(?i){pattern}"
    try:
        compiled(pattern)
    except (re2.error, UnicodeEncodeError):
        return None
    return None if flags & ~re.IGNORECASE else pattern
