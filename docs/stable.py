"""`make docs`: adds new names to docs/stable.yaml, the names that users rely on. It never removes one.

docs/stability.md says what is promised. To remove or rename something, edit docs/stable.yaml by hand, and tell users in
CHANGELOG.md what to do.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from docs.generate import help_of
from samplegate.audit.record import MEMBERS
from samplegate.audit.verdict import MEANINGS
from samplegate.cli.main import COMMANDS
from samplegate.config.serve_settings import SERVE_SETTINGS
from samplegate.config.settings import SETTINGS
from samplegate.policy.file.load import json_schema
from samplegate.policytest.load import json_schema as tests_schema
from samplegate.protocol.outcomes import Reason
from samplegate.telemetry.definitions import METRICS

FILE: Final = Path(__file__).with_name("stable.yaml")
HEAD: Final = """\
# Names that users rely on: see stability.md. `make docs` adds new ones. Remove one by hand only, with an entry in
# CHANGELOG.md that says what to do.
"""


@cache
def present() -> dict[str, list[str]]:
    """The names that the code has, by section."""
    return {
        "policy": sorted(_keys(json_schema())),
        "tests": sorted(_keys(tests_schema())),
        "settings of run": sorted(SETTINGS),
        "settings of serve": sorted(SERVE_SETTINGS),
        "record": sorted(MEMBERS),
        "reasons": sorted(map(str, Reason)),
        "fail-on": sorted(MEANINGS),
        "metrics": sorted(f"{one.name} {one.type} ({', '.join(sorted(one.labels))})" for one in METRICS),
        "commands": sorted(flag for command in COMMANDS for flag in _flags(command)),
        "exit codes": sorted(code for command in COMMANDS for code in _exit_codes(command)),
    }


def _keys(schema: Mapping[str, Any]) -> Iterator[str]:
    for name, struct in schema["$defs"].items():
        for key in struct.get("properties", {}):
            yield f"{name}.{key}"


def _flags(command: str) -> Iterator[str]:
    """The command, its flags, and those of its actions."""
    yield command
    text = help_of([command])
    usage = text.partition("\n\n")[0]
    for flag in sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", usage))):
        yield f"{command} {flag}"
    for action in re.findall(r"^    (\w+) {2,}\S", text, re.MULTILINE) if "ACTION" in usage else []:
        yield f"{command} {action}"
        usage_of_action = help_of([command, action]).partition("\n\n")[0]
        for flag in sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", usage_of_action))):
            yield f"{command} {action} {flag}"


def _exit_codes(command: str) -> Iterator[str]:
    for code in re.findall(r"^  ([0-9]+)  ", help_of([command]).partition("\nexit codes:\n")[2], re.MULTILINE):
        yield f"{command} {code}"


def recorded() -> dict[str, list[str]]:
    """The names in the file, by section."""
    found: dict[str, list[str]] = yaml.safe_load(FILE.read_text("utf-8")) if FILE.exists() else {}
    return found


def lost() -> list[str]:
    """Names in the file that the code no longer has."""
    now = present()
    return [
        f"{section}: {name}"
        for section, names in recorded().items()
        for name in names
        if name not in now.get(section, ())
    ]


def missing() -> list[str]:
    """Names that the code has and the file does not."""
    before = recorded()
    return [
        f"{section}: {name}"
        for section, names in present().items()
        for name in names
        if name not in before.get(section, ())
    ]


def main() -> int:
    """Add the missing names."""
    before, now = recorded(), present()
    both = {
        section: sorted({*before.get(section, ()), *now.get(section, ())}) for section in dict.fromkeys([*now, *before])
    }
    FILE.write_text(HEAD + yaml.safe_dump(both, sort_keys=False, width=120, allow_unicode=True), "utf-8")
    for name in lost():
        print(f"docs/stable.yaml: {name} is no longer in the code", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
