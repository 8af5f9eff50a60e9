"""``samplegate docs``: prints a page or a section of the documentation, which is in the wheel."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from typing import Final

from samplegate import HOME_PAGE
from samplegate.cli import OK, UNREADABLE
from samplegate.cli.bundled import CI_FILES, PAGES, POLICIES, bundled
from samplegate.cli.files import print_error, report_error
from samplegate.cli.manual import Manual, names_topics
from samplegate.errors import InputError
from samplegate.yamlfile.tree import quoted

START: Final = "readme"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "topic",
        nargs="?",
        default=START,
        metavar="TOPIC",
        help="page (policies), heading (limits), heading of a page (settings/callers), command (wrap) or shipped file"
        " (ci.yaml, report/action.yml); default: the overview",
    )
    parser.add_argument("--list", action="store_true", help="list the topics instead")


def command(args: argparse.Namespace) -> int:
    """Print the topic, or the list of topics (``--list``)."""
    try:
        manual = Manual(PAGES, {path: bundled(path) for path in (*PAGES.values(), *POLICIES, *CI_FILES)})
    except InputError as problem:
        return report_error(problem)
    if args.list:
        _show("".join(f"{line}\n" for line in manual.topics()))
        return OK
    found = manual.find(args.topic)
    if found is None:
        print_error(f"docs: unknown topic {quoted(args.topic)}{manual.suggestion(args.topic)}")
        return UNREADABLE
    notes = ["Links name topics: samplegate docs TOPIC"] if names_topics(found.text) else []
    notes += [f"Also: {', '.join(f'samplegate docs {topic}' for topic in found.others)}"] if found.others else []
    notes += [f"Home page: {HOME_PAGE}"] if HOME_PAGE else []
    _show(found.text + ("\n---\n\n" + "\n".join(notes) + "\n" if notes else ""))
    return OK


def _show(text: str) -> None:
    """Print text, on a terminal through the pager that PAGER names."""
    if sys.stdout is None:
        return
    pager = os.environ.get("PAGER", "").strip()
    if pager and sys.stdout.isatty() and _paged(pager, text):
        return
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def _paged(pager: str, text: str) -> bool:
    """Show text in a pager. False if it cannot be started."""
    try:
        process = subprocess.Popen(shlex.split(pager), stdin=subprocess.PIPE)
    except (OSError, ValueError):
        return False
    assert process.stdin is not None
    try:
        process.stdin.write(text.encode("utf-8"))
        process.stdin.close()
    except OSError:  # the user left the pager before the end
        pass
    while True:
        try:
            process.wait()
            return True
        except KeyboardInterrupt:  # the pager's own: it is still there
            continue
