"""Pages of the documentation site: their order, and what Sphinx needs that a repository's host does not.

The pages are the Markdown files of the repository, and stay readable there. Sphinx gets them with three changes: links
to files that are not on the site are text, an anchor in HTML is a target of MyST, and a picture in HTML is two images.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from samplegate.cli.bundled import RECIPES

STRUCTURE: Final[Mapping[str, Sequence[str]]] = {
    "Start": ("docs/tutorial.md", "docs/tour.md", "docs/how-it-works.md", "docs/troubleshooting.md"),
    "Recipes": ("policies/recipes/README.md", *(f"policies/recipes/{name}.md" for name in RECIPES)),
    "Policy reference": (
        "policies/README.md",
        "policies/rules.md",
        "policies/conditions.md",
        "policies/models.md",
        "policies/bounds.md",
        "policies/limits.md",
        "policies/reviewers.md",
        "policies/peers.md",
        "policies/tests.md",
    ),
    "Operation": (
        "deploy/README.md",
        "deploy/pipeline.md",
        "action/README.md",
        "deploy/daemon.md",
        "deploy/database.md",
        "deploy/balancers.md",
        "deploy/operations.md",
        "deploy/oauth.md",
        "deploy/settings.md",
        "deploy/reviews.md",
        "deploy/records.md",
        "deploy/metrics.md",
        "docs/runbook.md",
        "docs/commands.md",
        "docs/stability.md",
    ),
    "Project": (
        "SECURITY.md",
        "proxy/README.md",
        "docs/decisions.md",
        "bench/README.md",
        "CHANGELOG.md",
    ),
}
"""The pages in the order of the site's navigation, by its headings. The first page of the site is README.md."""
PAGES: Final = frozenset(page for pages in STRUCTURE.values() for page in pages) | {"README.md"}
DOWNLOADS: Final = (".yaml", ".yml", ".json")
"""Files that the site has for download where a page links to them."""
_FENCE: Final = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?![a-z]+:)([^)\s]+)\)")
_ANCHOR: Final = re.compile(r'^<a id="([\w-]+)"></a>', re.MULTILINE)
_PICTURE: Final = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)"[^>]*>\s*</picture>'
)


def contents(structure: Mapping[str, Sequence[str]]) -> str:
    """The navigation of the site, as hidden tables of contents of its first page."""
    trees = []
    for caption, pages in structure.items():
        listed = "\n".join(f"/{page}" for page in pages)
        trees.append(f"\n```{{toctree}}\n:caption: {caption}\n:hidden:\n\n{listed}\n```\n")
    return "".join(trees)


def source(page: str, text: str, root: Path) -> str:
    """A page's Markdown as Sphinx gets it. ``page`` is its path in the repository."""
    parts = _FENCE.split(text)
    examples = [*_FENCE.findall(text), ""]
    return "".join(_prose(page, part, root) + example for part, example in zip(parts, examples, strict=True))


def _prose(page: str, text: str, root: Path) -> str:
    text = _ANCHOR.sub(lambda found: f"({_label(page, found[1])})=\n", text)
    text = _PICTURE.sub(r"![\g<alt>](\g<light>){.only-light}\n![\g<alt>](\g<dark>){.only-dark}", text)
    return _LINK.sub(lambda found: _link(page, found, root), text)


def _link(page: str, link: re.Match[str], root: Path) -> str:
    text, target = link.groups()
    path, _, anchor = target.partition("#")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    place = f"{place}/README.md" if f"{place}/README.md" in PAGES else "README.md" if place == "." else place
    if place in PAGES:
        if anchor and f'<a id="{anchor}"></a>' in (root / place).read_text("utf-8"):
            return f"[{text}](#{_label(place, anchor)})"
        return f"[{text}](/{place}{'#' if anchor else ''}{anchor})"
    shown = (root / place).exists() and not place.endswith(DOWNLOADS)
    return text if shown else link[0]  # Sphinx reports a link that leads nowhere


def _label(page: str, anchor: str) -> str:
    """The name of an anchor among those of all pages."""
    return f"{posixpath.basename(page).removesuffix('.md').lower()}-{anchor}"
