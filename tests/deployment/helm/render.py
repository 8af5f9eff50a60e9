"""Renders the chart with Helm's library and checks the objects against Kubernetes' schemas, strictly.

It runs in an environment of its own (helm.in). stdin has JSON: the chart's folder, and values by name. stdout has, for
each name: the objects, what lint says, and the schemas' problems, or the reason why Helm refuses the values.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import helm_python
import kubernetes_validate
import yaml

VERSIONS: Final = ("1.33", "1.37")
"""Versions of Kubernetes: the oldest that Chart.yaml permits, and the newest with schemas."""
RELEASE: Final = {"name": "gate", "namespace": "mcp"}
INFO: Final = 1
"""The severity of lint's advice."""


def rendered(folder: str, values: dict[str, Any]) -> dict[str, Any]:
    """The chart as these values render it."""
    with helm_python.Chart.load(folder) as chart:
        try:
            texts = chart.render(values, **RELEASE)
        except (helm_python.HelmValuesError, helm_python.HelmRenderError) as refused:
            return {"refused": str(refused)}
    objects = [one for text in texts.values() for one in yaml.safe_load_all(text) if one is not None]
    lint = helm_python.lint(folder, values, namespace=RELEASE["namespace"], strict=True)
    return {
        "objects": objects,
        "lint": [*lint["errors"], *(line["error"] for line in lint["messages"] if line["severity"] > INFO)],
        "problems": [problem for one in objects for version in VERSIONS for problem in problems(one, version)],
    }


def problems(thing: dict[str, Any], version: str) -> list[str]:
    """What the schema of a version of Kubernetes says against an object. Custom resources have none."""
    try:
        kubernetes_validate.validate(thing, version, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return []
    except kubernetes_validate.ValidationError as problem:
        return [f"{version}: {thing['kind']} {thing['metadata']['name']}: {list(problem.path)}: {problem.message}"]
    return []


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    json.dump({name: rendered(asked["chart"], values) for name, values in asked["values"].items()}, sys.stdout)
