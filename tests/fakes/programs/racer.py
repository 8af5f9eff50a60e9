"""A process whose threads race repeatedly. Each thread has its own connection to a store. All wait for a line, do the
same operation once, and print their outcomes.

``racer.py NUMBER THREADS``; then for each race a line ``decide|vote|use|seek|open|ui|link URL``, and a line when it
begins.
"""

from __future__ import annotations

import json
import sys
import threading

from samplegate.reviews import sql_database
from samplegate.reviews.review import Review
from tests.fakes.review_store import TimedReviews
from tests.fakes.stored_reviews import APP, NOW, READY, YES, filled, review


def act(store: TimedReviews, what: str, name: str) -> str:
    """The outcome in one word."""
    if what == "decide":
        return "won" if isinstance(store.at(NOW + 1).decide("rv_a", YES, who=name, door="page"), Review) else "lost"
    if what == "vote":  # ten people have two votes each, by two tokens
        process, thread = map(int, name.split("x"))
        who = f"person {(5 * process + thread) % 10}"
        said = store.at(NOW + 1).decide("rv_a", YES, who=who, door="page")
        return said.state if isinstance(said, Review) else type(said).__name__
    if what == "use":
        return "won" if store.at(NOW + 2).use([("rv_a", "w", name)]) else "lost"
    if what == "ui":  # the first thread of each process decides
        if name.endswith("x0"):
            said = store.at(NOW + 1).decide("rv_f", filled(user="u"), who=name, door="page")
            return "decided" if isinstance(said, Review) else "late"
        return "attached" if store.at(NOW + 1).attach_ui("rv_f", READY, APP) is not None else "not attached"
    if what == "link":
        return "won" if store.at(NOW + 1).open_ui("rv_f", READY.sha256, token="t", until=NOW + 60) else "lost"
    if what == "open":
        return "won" if store.open(review(f"rv_{name}"), announce=True, most=7) else "lost"
    found = store.at(NOW + 2).seek("sha256:l", stage="request", waiter=name, seconds=10)
    return found.id if found is not None else "none"


def race(url: str, what: str, number: str, threads: int) -> None:
    """Print ``ready``, wait for a line, race, and print the outcomes as JSON."""
    sql_database.PATIENCE = 40.0  # type: ignore[misc] # this is about who wins, not about how soon
    go = threading.Event()
    outcomes: list[str] = []

    def run(name: str) -> None:
        store = TimedReviews(url)
        store.last_change()
        ready.wait()
        go.wait()
        outcomes.append(act(store, what, name))
        store.close()

    ready = threading.Barrier(threads + 1)
    running = [threading.Thread(target=run, args=(f"{number}x{n}",)) for n in range(threads)]
    for thread in running:
        thread.start()
    ready.wait(50)
    print("ready", flush=True)
    sys.stdin.readline()
    go.set()
    for thread in running:
        thread.join()
    print(json.dumps(outcomes), flush=True)


if __name__ == "__main__":
    sql_database.PATIENCE = 40.0  # type: ignore[misc] # this is about who wins, not about how soon
    while line := sys.stdin.readline():
        what, url = line.split(maxsplit=1)
        race(url.strip(), what, sys.argv[1], int(sys.argv[2]))
