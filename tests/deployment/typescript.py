"""Data against published TypeScript types: the compiler reads a module that declares each part with its type."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.acceptance.sdk import node
from tests.fakes.system_programs import run

_ERROR: Final = re.compile(r"check\.ts\((\d+),\d+\): error (.+)")


def problems(module: Path, parts: Mapping[str, tuple[str, Any]], folder: Path) -> dict[str, str]:
    """The first problem of each part that has one. ``parts``: a type that ``module`` exports, and a value of it, by
    name."""
    checker = module.parent / "node_modules" / "typescript" / "lib" / "tsc.js"
    assert checker.exists(), "run 'make deployment', which installs TypeScript and the types from npm"
    kinds = sorted({kind for kind, _ in parts.values()})
    lines = [f"import type {{ {', '.join(kinds)} }} from {json.dumps(str(module.with_suffix('')))};"]
    lines += [f"export const {name}: {kind} = {json.dumps(value)};" for name, (kind, value) in parts.items()]
    (folder / "check.ts").write_text("\n".join(lines) + "\n", "utf-8")
    options: dict[str, Any] = json.loads((module.parent / "tsconfig.json").read_text("utf-8"))
    (folder / "tsconfig.json").write_text(json.dumps({**options, "files": ["check.ts"]}), "utf-8")
    code, said = run(*node.command("node"), checker, "--pretty", "false", "-p", folder / "tsconfig.json", seconds=60)
    names = list(parts)
    found: dict[str, str] = {}
    for line, what in _ERROR.findall(said):
        found.setdefault(names[int(line) - 2], what)
    assert (code == 0) == (not said.strip()) == (not found), said
    return found
