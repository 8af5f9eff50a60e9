"""Files that a wheel has besides the code: the documentation, the shipped policies, and the files for CI systems.

A wheel has them in ``samplegate/bundled/`` (pyproject.toml, force-include). In a checkout, and so in an editable
installation, they are the repository's own.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

import samplegate
from samplegate.errors import InputError

RECIPES: Final = (
    "pipeline-budget",
    "headless-agents",
    "hook-or-gate",
    "desktop-forms",
    "slack-review",
    "two-approvals",
    "chat-notifications",
    "long-questions",
    "server-ui",
    "proxy-sign-in",
    "redaction",
    "model-hints",
    "call-arguments",
    "team-budget",
    "tls-callers",
    "groups-and-claims",
)
"""Recipes: each is a page, a policy and its tests in `policies/recipes/`."""
PAGES: Final = {
    "policies": "policies/README.md",
    "rules": "policies/rules.md",
    "conditions": "policies/conditions.md",
    "models": "policies/models.md",
    "bounds": "policies/bounds.md",
    "limits": "policies/limits.md",
    "reviewers": "policies/reviewers.md",
    "peers": "policies/peers.md",
    "tests": "policies/tests.md",
    "deploy": "deploy/README.md",
    "pipeline": "deploy/pipeline.md",
    "daemon": "deploy/daemon.md",
    "kubernetes": "deploy/helm/samplegate/README.md",
    "balancers": "deploy/balancers.md",
    "oauth": "deploy/oauth.md",
    "settings": "deploy/settings.md",
    "reviews": "deploy/reviews.md",
    "records": "deploy/records.md",
    "metrics": "deploy/metrics.md",
    "action": "action/README.md",
    "runbook": "docs/runbook.md",
    "commands": "docs/commands.md",
    "database": "deploy/database.md",
    "operations": "deploy/operations.md",
    "stability": "docs/stability.md",
    "security": "SECURITY.md",
    "tutorial": "docs/tutorial.md",
    "tour": "docs/tour.md",
    "how-it-works": "docs/how-it-works.md",
    "troubleshooting": "docs/troubleshooting.md",
    "recipes": "policies/recipes/README.md",
    **{name: f"policies/recipes/{name}.md" for name in RECIPES},
    "readme": "README.md",
    "proxy": "proxy/README.md",
    "decisions": "docs/decisions.md",
    "bench": "bench/README.md",
    "changelog": "CHANGELOG.md",
}
"""Path of each page of the documentation. The first page with a heading is the one that its name means."""
TEMPLATES: Final = ("ci", "desktop", "service", "people")
"""Shipped policies, as `init --template` names them."""
POLICIES: Final = (
    *(f"policies/{name}{suffix}.yaml" for name in TEMPLATES for suffix in ("", "_test")),
    *(f"policies/recipes/{name}{suffix}.yaml" for name in RECIPES for suffix in ("", "_test")),
    "policies/recipes/nginx.conf",
    "policies/demo.yaml",
    "policies/demo_cases.yaml",
    "policies/demo_test.yaml",
)
CI_FILES: Final = ("action/setup/action.yml", "action/report/action.yml", "templates/samplegate.yml")
"""The GitHub actions and the GitLab component."""
_CHECKOUT: Final = Path(samplegate.__file__).resolve().parents[2]


def bundled(path: str) -> str:
    """Text of a bundled file, by its path in the repository. Raises InputError."""
    for place in (files("samplegate").joinpath("bundled", path), _CHECKOUT / path):
        if place.is_file():
            try:
                return place.read_text("utf-8")
            except OSError as problem:
                reason = (problem.strerror or str(problem)).lower()
                raise InputError(f"{place}: cannot be read: {reason}") from None
    raise InputError(f"{path} is missing from this installation; install samplegate again")
