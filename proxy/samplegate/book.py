"""A policy's text made ready to decide, with all that stands beside it: litellm's table, the patterns of secrets, the
files of cases.

One way for `run` and for the commands, so that what is tested is what runs. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from samplegate.policy import redaction
from samplegate.policy.file import load
from samplegate.policy.match import Rulebook, compile_policy
from samplegate.runtime import secret_patterns
from samplegate.sampler import litellm_prices
from samplegate.sampler.scripts import load_rule_scripts


def load_policy(
    text: str, *, file: str, environment: Mapping[str, str], missing: Literal["warn", "error"] = "warn"
) -> load.Loaded:
    """Read and check a policy against what is known of its models. Raises PolicyError with every problem."""
    return load.load(text, file=file, environment=environment, missing=missing, look_up=litellm_prices.read)


def compile_book(loaded: load.Loaded, folder: Path, environment: Mapping[str, str] | None = None) -> Rulebook:
    """A policy ready to decide; files that it names are relative to ``folder``. Raises PolicyError for what is wrong in
    them.

    ``environment`` replaces the loaded one, for cases that bring their own.
    """
    policy = loaded.policy
    return compile_policy(
        policy,
        loaded.environment if environment is None else environment,
        catalogue=loaded.catalogue,
        detectors=secret_patterns.known() if redaction.looks(policy) else {},
        scripts=load_rule_scripts(policy, folder),
    )
