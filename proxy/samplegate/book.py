"""A policy's text made ready to decide, with all that stands beside it: litellm's table, the patterns of secrets, the
files of cases.

One way for `run` and for the commands, so that what is tested is what runs. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from samplegate import detectors
from samplegate.core import load, redaction
from samplegate.core.matching.match import Rulebook, compile_policy
from samplegate.sampler import table
from samplegate.sampler.scripts import load_rule_scripts


def load_policy(
    text: str, *, file: str, environment: Mapping[str, str], missing: Literal["warn", "error"] = "warn"
) -> load.Loaded:
    """Read and check a policy against what is known of its models. Raises PolicyError with every problem."""
    return load.load(text, file=file, environment=environment, missing=missing, look_up=table.read)


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
        detectors=detectors.known() if redaction.looks(policy) else {},
        scripts=load_rule_scripts(policy, folder),
    )
