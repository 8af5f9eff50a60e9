"""What a gate is forked from: `samplegate` with all that `samplegate serve` imports, before its command line is known.

Its arguments are those of the interpreter: ``-m samplegate ...``, or ``-c CODE ...``.
"""

from __future__ import annotations

import sys

import samplegate.reviews.sql_store
import samplegate.reviews.web.app
import samplegate.server.daemon  # noqa: F401
from samplegate.cli.main import main


def program() -> int | None:
    """Run as the interpreter would."""
    option, what, *arguments = sys.argv[1:]
    sys.argv[:] = ["samplegate" if option == "-m" else option, *arguments]
    if option == "-m":
        assert "samplegate" == what
        return main(arguments)
    exec(what, {"__name__": "__main__"})
    return None
