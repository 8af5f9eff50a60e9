"""``samplegate database``: creates and migrates the tables in the shared PostgreSQL database, and imports the shared
limits and reviews of a state folder."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from samplegate.cli import OK, UNREADABLE
from samplegate.cli.database_argument import database_argument
from samplegate.cli.files import print_error
from samplegate.config.serve_settings import SERVE_SETTINGS
from samplegate.config.settings import SETTINGS, ProcessSettings
from samplegate.config.sources import NO_STATE, gather
from samplegate.errors import InputError, Unavailable
from samplegate.postgres.driver import check_driver
from samplegate.postgres.url import shown

DESCRIPTIONS: Final = {
    "migrate": (
        "create or migrate the tables, and the decision log's partitions",
        (
            "Creates the tables of the schema `samplegate` in the database, or migrates them to this version. Gates of"
            " the version before it continue to work. Also creates the decision log's partitions of the next days,"
            " drops those that are older than --keep-days, and grants rights. Run it once a day as the role that owns"
            " the tables; the gates then need no other right than those of --gates."
        ),
    ),
    "import": (
        "copy shared limits and reviews from a state folder",
        (
            "Copies the balances of shared limits, the pending reviews, and the decided ones that wait for their use,"
            " from the SQLite files of a state folder into the database. All gates that use either must be stopped."
            " Balances are added to what is drawn in the database. The files are renamed, so that nothing is imported"
            " twice."
        ),
    ),
}
KEEP: Final = 36_500
"""The most days that are kept."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    actions = parser.add_subparsers(dest="what", metavar="ACTION", required=True)
    for name, (text, description) in DESCRIPTIONS.items():
        action = actions.add_parser(name, allow_abbrev=False, help=text, description=description)
        database_argument(action)
        action.add_argument("--settings", type=Path, metavar="FILE", help="settings file of the gates")
        if name == "import":
            action.add_argument("--state", type=Path, metavar="DIR", help="state folder of the gates")
        else:
            action.add_argument("--gates", metavar="ROLE", help="grant the rights of a gate to this role")
            action.add_argument("--readers", metavar="ROLE", help="grant the rights of `report` and `why` to this role")
            action.add_argument(
                "--keep-days", type=_days, metavar="DAYS", help="drop the decision log's partitions of older days"
            )


def _days(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= KEEP:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a number of days from 1 to {KEEP}, got {text!r}")


def command(args: argparse.Namespace) -> int:
    """Run a subcommand. Returns 2 if the database or a file cannot be used."""
    try:
        check_driver()
        return _migrate(args) if args.what == "migrate" else _import(args)
    except (InputError, Unavailable) as problem:
        print_error(str(problem))
        return UNREADABLE


def _settings(args: argparse.Namespace, **named: object) -> tuple[ProcessSettings, str]:
    """The settings, and the database's URL. Raises InputError."""
    problems: list[str] = []
    named = {"database": args.database, **named}
    values, _ = gather({**SERVE_SETTINGS, **SETTINGS}, os.environ, args.settings, named, problems)
    if "database" not in values:
        problems.append("database: no database is known; pass --database, --settings or SAMPLEGATE_DATABASE")
    if "state" in named and "state" not in values:
        problems.append(NO_STATE)
    if problems:
        raise InputError("\nsamplegate: ".join(problems))
    wanted = {name: values[name] for name in ("state", "store", "database") if name in values}
    return ProcessSettings(**wanted), values["database"]


def _migrate(args: argparse.Namespace) -> int:
    _, url = _settings(args)
    from samplegate.postgres.maintenance import maintain

    done = maintain(url, gates=args.gates, readers=args.readers, keep_days=args.keep_days)
    before = "created" if done.before is None else "migrated" if done.before != done.after else "up to date"
    print(f"{shown(url)}: tables {before}, version {done.after}")
    print(f"decision log: {done.made} partitions created, {done.dropped} dropped")
    if done.left:
        print(f"decision log: {done.left} partitions left, because a long transaction uses it; run it again")
    if done.standby is not None:
        print(f"warning: {done.standby}")
    return OK


def _import(args: argparse.Namespace) -> int:
    settings, url = _settings(args, state=args.state)
    from samplegate.runtime.database_import import import_state

    done = import_state(settings, url)
    print(f"{done.accounts} balances and {done.reviews} reviews imported into {shown(url)}")
    for file in done.renamed:
        print(f"renamed {file}")
    if not done.renamed:
        print(f"{settings.state}: no file of limits or reviews was found")
    if settings.store is not None:
        print("store: takes precedence over `database`, so its reviews stay where they are")
    return OK
