"""``samplegate schema``: prints a JSON Schema, for completion and validation in editors."""

from __future__ import annotations

import argparse
import json

from samplegate.cli import OK
from samplegate.policy.file import load
from samplegate.policytest import load as cases


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--tests", action="store_true", help="print the schema of *_test.yaml files instead")
    parser.add_argument("--settings", action="store_true", help="print the schema of the settings of `serve` instead")


def command(args: argparse.Namespace) -> int:
    """Print the schema of the policy, of the test file (``--tests``) or of the daemon's settings (``--settings``)."""
    if args.settings:
        from samplegate.config import json_schema

        found = json_schema.json_schema()
    else:
        found = cases.json_schema() if args.tests else load.json_schema()
    print(json.dumps(found, indent=2))
    return OK
