"""``python -m samplegate``: the same as the ``samplegate`` command."""

import sys

from samplegate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
