"""`python bench/run.py`: the same as `python -m bench`, from any folder."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

if __name__ == "__main__":
    from bench.__main__ import main

    sys.exit(main())
