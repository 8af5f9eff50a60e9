"""The patterns of secrets that are known without a policy's saying: those of bc-detect-secrets, read from the package,
and a few of ours.

Nothing of the package's own search is used, nor its guesses by randomness; no secret is ever tried out against its
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
    # a whole block, or a header with what looks like its beginning: also where its line ends are written as \n in JSON,
    # or it was cut off
    "private-key": (
        rf"-{{4,5}} ?BEGIN {_KEY}(?:(?s:.*?)-{{4,5}} ?END {_KEY}|(?:\s|\\[nr])*[A-Za-z0-9+/]{{16}}[A-Za-z0-9+/=\\\s]*)"
    ),
    "putty-private-key": (
        r"PuTTY-User-Key-File-[0-9]+: ?\S{1,40}(?:\s|\\[nr])+Encryption:(?s:.*?Private-MAC: ?[0-9A-Fa-f]+|.*)"
    ),
    # what the keys of those look like whom a gate for models deals with, by their published prefixes
    "anthropic-key": r"\bsk-ant-[a-z]+[0-9]+-[A-Za-z0-9_-]{40}[A-Za-z0-9_-]*",
    "openai-key": r"\bsk-[A-Za-z0-9_-]*T3BlbkFJ[A-Za-z0-9_-]{20}[A-Za-z0-9_-]*",
    "google-key": r"\bAIza[0-9A-Za-z_-]{35}",
    "hugging-face-token": r"\bhf_[A-Za-z]{34}\b",
    "github-fine-grained-token": r"\bgithub_pat_[0-9A-Za-z]{22}_[0-9A-Za-z]{59}",
    "gitlab-token": r"\bgl(?:pat|dt|rt|ptt|soat|cbt|ft|agent|oas|imt)-[0-9A-Za-z_-]{20}[0-9A-Za-z_.-]*",
    "pypi-token": r"\bpypi-AgE[0-9A-Za-z_-]{50}[0-9A-Za-z_-]*",
    "azure-storage-key": rf"AccountKey=(?P<{GROUP}>[A-Za-z0-9+/]{{86}}==)",
}
"""Under the name of one of the package's, ours stands in its place."""

LEFT_OUT: Final = frozenset({"azure-storage-account-access-key", "cloudant-credentials-3", "cloudant-credentials-4"})
"""The first takes the end of much base64 and every sha512 in a package lock; ours asks for what stands before it. The
others are passwords in addresses, of which `basic-auth-credentials` takes all."""

_NAMES: Final = {
    "aws-access-key-2": "aws-secret-key",
    "slack-token-2": "slack-webhook",
    "private-key-2": "putty-private-key",
}
"""Where one detector of the package has several patterns and a word says more than a number."""

_NARROW: Final = frozenset(
    {"artifactory-credentials-2", "aws-secret-key", "basic-auth-credentials", "softlayer-credentials-2"}
)
"""Whose one group is the secret itself; elsewhere a group is anything, such as a prefix, and the whole match is taken.
"""

_OPEN: Final = re.compile(r"(?<!\\)\((?!\?)")


def known() -> Mapping[str, str]:
    """RE2 patterns by names such as ``aws-access-key`` or ``github-token``, which stay the same from run to run: the
    package's and ours.

    The first call imports the package, about a tenth of a second. A pattern that RE2 cannot compile is left out.
    """
    theirs = {name: pattern for name, expression in _theirs() if (pattern := _as_re2(name, expression)) is not None}
    return {name: pattern for name, pattern in {**theirs, **OURS}.items() if name not in LEFT_OUT}


def _theirs() -> Iterator[tuple[str, re.Pattern[str]]]:
    """The patterns of each detector that has any, named for what it says it finds."""
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
                yield from _of_one(sort)


def _of_one(detector: Any) -> Iterator[tuple[str, re.Pattern[str]]]:
    listed = detector.denylist  # of a class without any, the property itself
    for number, expression in enumerate(listed if isinstance(listed, (list, tuple)) else (), start=1):
        name = _slug(detector.secret_type) + (f"-{number}" if number > 1 else "")
        yield _NAMES.get(name, name), expression


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _as_re2(name: str, expression: re.Pattern[str]) -> str | None:
    """The expression with its flags written into it, None where RE2 has no such thing."""
    pattern = expression.pattern
    flags = re.RegexFlag(expression.flags) & ~re.UNICODE
    if flags & re.VERBOSE and not re.search(r"[\s#]", pattern):
        flags &= ~re.VERBOSE  # there is nothing to leave out
    if name in _NARROW and expression.groups == 1:
        pattern = _OPEN.sub(f"(?P<{GROUP}>", pattern, count=1)
    if flags & re.IGNORECASE:
        pattern = f"(?i){pattern}"
    try:
        compiled(pattern)
    except (re2.error, UnicodeEncodeError):
        return None
    return None if flags & ~re.IGNORECASE else pattern
