"""`make site`: build the documentation site, where every warning is an error: `python -m docs.site FOLDER [SOURCE]`.

Broken links, missing anchors and pages that are not in the navigation are warnings of Sphinx.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.cmd.build import main

ROOT = Path(__file__).resolve().parents[2]


def build(folder: Path, source: Path = ROOT) -> int:
    """Build the site of a checkout in a folder, anew. The exit code is 0 if there is no warning."""
    options = ["--quiet", "--fail-on-warning", "--keep-going", "--fresh-env", "--conf-dir", str(ROOT / "docs" / "site")]
    code: int = main([*options, "--doctree-dir", str(folder / ".doctrees"), str(source), str(folder)])
    return code


if __name__ == "__main__":
    sys.exit(build(*map(Path, sys.argv[1:])))
