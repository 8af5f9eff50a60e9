"""The environment that a command goes by: the process's own, over the variables of an env file. Not its syntax: ``core/policyfile/envfile.py``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from samplegate.commands.files import Unreadable, read
from samplegate.core.policyfile import envfile


def environment(env_file: Path | None) -> Mapping[str, str]:
    """As `run` has it: what is set in the process goes before the file. Raises Unreadable with every problem of the file."""
    if env_file is None:
        return os.environ
    try:
        return {**envfile.parse(read(env_file), file=str(env_file)), **os.environ}
    except envfile.EnvFileError as error:
        raise Unreadable("\n".join(error.problems)) from None
