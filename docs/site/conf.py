"""Sphinx's configuration of the documentation site, whose pages are the repository's Markdown files (`make site`)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "proxy")]

from docs.site.pages import STRUCTURE, contents, source  # noqa: E402
from samplegate import __version__  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "samplegate"
author = "the samplegate developers"
copyright = author
release = version = __version__
html_title = f"samplegate {__version__}"

extensions = ["myst_parser"]
root_doc = "README"
include_patterns = [
    *("README.md", "SECURITY.md", "CHANGELOG.md", "proxy/README.md", "bench/README.md", "action/README.md"),
    *("policies/*.md", "policies/recipes/*.md", "deploy/*.md", "deploy/helm/samplegate/README.md", "docs/*.md"),
]
nitpicky = True
myst_heading_anchors = 6
myst_enable_extensions = ["attrs_inline"]
smartquotes = False  # commands are copied from the pages

html_theme = "furo"
html_theme_options: dict[str, list[str]] = {
    "top_of_page_buttons": []
}  # they lead to a repository, which has no address yet
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "site" / "scorer.js")
html_favicon = str(ROOT / "docs" / "images" / "icon.svg")
html_baseurl = ""
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Read each page as docs/site/pages.py changes it for Sphinx, and begin the site with the first page."""

    def read(_: Sphinx, name: str, content: list[str]) -> None:
        content[0] = source(f"{name}.md", content[0], Path(app.srcdir))
        if name == root_doc:
            content[0] += contents(STRUCTURE)

    def begin(_: Sphinx, problem: Exception | None) -> None:
        if problem is None:
            shutil.copyfile(app.outdir / f"{root_doc}.html", app.outdir / "index.html")

    app.connect("source-read", read)
    app.connect("build-finished", begin)
