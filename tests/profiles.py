"""How many examples property tests try: `dev` 25, `ci` 100, `nightly` 2,000.

``HYPOTHESIS_PROFILE`` or ``--hypothesis-profile`` chooses the profile. The default is `ci` where ``CI`` is set, else
`dev`. State machines follow the profile too. A test sets ``max_examples`` only for a reason that it names, as a share
of the profile: ``@settings(max_examples=share(0.2))``."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

EXAMPLES: Final = {"dev": 25, "ci": 100, "nightly": 2_000}


def load() -> None:
    """Register the profiles and load one. ``--hypothesis-profile`` is read later, and wins."""
    for name, examples in EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=examples,
            deadline=None,  # a busy machine takes longer, and a test that hangs has a timeout
            derandomize=False,  # hypothesis would where CI is set; each run shall try other examples
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


def share(factor: float) -> int:
    """The examples of the profile times ``factor``, at least one."""
    return max(1, round(settings().max_examples * factor))


def slowdown() -> float:
    """How many times longer a test may take than with the examples of `ci`."""
    return max(1.0, settings().max_examples / EXAMPLES["ci"])
