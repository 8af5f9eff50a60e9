"""msgspec's information on the structs of reviews is complete before threads use them."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import msgspec
from samplegate.reviews import sql_schema
from samplegate.reviews.review import Delivery, Review, ReviewEvent, Verdict

called = []
sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_filename) if event == "call" else None)
for struct in (Review, Verdict, ReviewEvent, Delivery):
    try:
        msgspec.convert({}, struct)
    except msgspec.ValidationError:
        pass
sys.setprofile(None)
print(*(name for name in called if "msgspec" in name))
"""


def test_the_structs_of_reviews_are_complete_before_two_threads_read_them() -> None:
    """msgspec 0.22 crashes the process if two threads use a struct for the first time at once."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert "" == done.stdout.strip()
