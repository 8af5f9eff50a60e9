"""`make sbom`: a CycloneDX document of a wheel with its locked dependencies, in dist/.

cyclonedx-py reads requirements.lock (names, versions, hashes) and the environment (licenses, dependencies); this module
joins the two. cyclonedx-py has an environment of its own, because it brings jsonschema's optional formats, which add
1.5 seconds of CPU time to each import of jsonschema. A package that the lock names for other platforms only has no
license in the document. The same wheel, lock and environment give the same bytes: the document has no time and no
serial number.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements.lock"
TOOLS: Final = ROOT / "docs" / ".sbom" / "bin" / "python"
"""The interpreter of the environment with cyclonedx-py (`make sbom` creates it)."""
SPEC: Final = "1.6"
VALIDATE: Final = f"""
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

print(JsonStrictValidator(SchemaVersion.from_version("{SPEC}")).validate_str(sys.stdin.read()) or "", end="")
"""
WHEEL: Final = re.compile(r"samplegate-([^-]+)-py3-none-any\.whl")


class SbomError(Exception):
    """The wheel or the environment is not what the document would describe."""


def normal(name: str) -> str:
    """A package name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(*words: str | Path) -> dict[str, Any]:
    """A document of cyclonedx-py."""
    options: list[str | Path] = [
        "--output-reproducible",
        "--spec-version",
        SPEC,
        "--pyproject",
        ROOT / "pyproject.toml",
    ]
    found: dict[str, Any] = json.loads(run("-W", "ignore", "-m", "cyclonedx_py", *words, *options))
    return found


def run(*words: str | Path, text: str = "") -> str:
    """The output of the tools' interpreter."""
    command = [str(word) for word in (TOOLS, *words)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SbomError(f"cyclonedx-py: {done.stderr.strip()}")
    return done.stdout


def schema_problem(text: str) -> str:
    """Why a document is not valid by CycloneDX's schema; empty if it is."""
    return run("-c", VALIDATE, text=text)


def join(locked: dict[str, Any], installed: dict[str, Any], wheel: Path) -> dict[str, Any]:
    """The document of a wheel: the locked packages, each with what the environment knows about it."""
    named = WHEEL.fullmatch(wheel.name)
    if named is None:
        raise SbomError(f"{wheel.name}: not a wheel of samplegate")
    here = {normal(each["name"]): each for each in installed["components"]}
    needs = {each["ref"]: each.get("dependsOn", []) for each in installed["dependencies"]}
    names = {each["bom-ref"]: normal(each["name"]) for each in installed["components"]}
    refs = {normal(each["name"]): f"{normal(each['name'])}@{each['version']}" for each in locked["components"]}
    root = {
        **locked["metadata"]["component"],
        "version": named[1],
        "purl": f"pkg:pypi/samplegate@{named[1]}",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}],
    }
    components, graph = [], []
    for each in sorted(locked["components"], key=lambda each: normal(each["name"])):
        name = normal(each["name"])
        found = here.get(name, {})
        if found and found["version"] != each["version"]:
            raise SbomError(f"{name}: {found['version']} is installed, {each['version']} is locked; run 'make dev'")
        about = {key: found[key] for key in ("description", "licenses") if key in found}
        components.append({key: each[key] for key in each if key != "description"} | about | {"bom-ref": refs[name]})
        wanted = {names[ref] for ref in needs.get(found.get("bom-ref", ""), []) if ref in names} & refs.keys()
        graph.append({"ref": refs[name], "dependsOn": sorted(refs[other] for other in wanted)})
    own = {names[ref] for ref in needs.get(root["bom-ref"], []) if ref in names} & refs.keys()
    graph.append({"ref": root["bom-ref"], "dependsOn": sorted(refs[name] for name in own)})
    metadata = {**locked["metadata"], "component": root}
    return {**locked, "metadata": metadata, "components": components, "dependencies": graph}


def document(wheel: Path) -> str:
    """The document of a wheel as JSON, valid by CycloneDX's schema."""
    joined = join(read("requirements", LOCK), read("environment", sys.executable), wheel)
    text = json.dumps(joined, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if problem := schema_problem(text):
        raise SbomError(f"the document is not valid CycloneDX {SPEC}: {problem}")
    return text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make sbom", description="Write the SBOM of a wheel beside it")
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args(arguments).wheel
    try:
        text = document(wheel)
    except (SbomError, OSError) as problem:
        print(f"sbom: {problem}", file=sys.stderr)
        return 1
    path = wheel.with_suffix(".cdx.json")
    path.write_text(text, "utf-8")
    print(f"sbom: wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
