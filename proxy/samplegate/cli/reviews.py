"""`samplegate reviews`: lists, shows, watches and decides the reviews of all processes with the same store.

It needs the store, but no listener. Everyone who can read the store's file sees all content; there are no roles.
Nothing is logged.

Typed values are converted to the types of the form's fields; ``reviews/verdict.py`` validates them.
"""

from __future__ import annotations

import argparse
import getpass
import io
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, get_args

from msgspec.structs import replace

from samplegate.cli import FAILED, OK, UNREADABLE
from samplegate.cli.database_argument import database_argument
from samplegate.cli.files import print_error
from samplegate.cli.files import read as read_file
from samplegate.cli.review_text import current_state, harmless, history, line, lines, moment, summary, table
from samplegate.config.serve_settings import SERVE_SETTINGS
from samplegate.config.settings import SETTINGS, ProcessSettings
from samplegate.config.sources import NO_STATE, gather
from samplegate.errors import InputError, Unavailable
from samplegate.policy.conditions import short_value
from samplegate.protocol.elicitation_schema import Field, NotFlat, read_form
from samplegate.protocol.strictjson import JsonFault, decode
from samplegate.reviews import sign_in_links
from samplegate.reviews.review import Conflict, Filter, Review, ReviewEvent, State, Verdict, VoteRefused
from samplegate.reviews.sql_store import SqlReviewStore
from samplegate.reviews.verdict import MAX_BYTES, MAX_DEPTH, read
from samplegate.reviews.views import choices, span, to_view, withdrawn_for
from samplegate.reviews.votes import progress, version

MAX_MATCHES: Final = 5
MAX_NAME: Final = 100
NO_PENDING: Final = "no pending reviews"
POLL_INTERVAL: Final = 0.5  # seconds between two polls of `watch`
AT_A_TIME: Final = 200
_QUIET: Final = frozenset({"joined", "told", "untold"})
"""Events that mean no change for reviewers; --json shows them, too."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}\Z", re.ASCII)
_BOOLEANS: Final = {"true": True, "yes": True, "false": False, "no": False}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of each subcommand."""
    actions = parser.add_subparsers(dest="what", metavar="ACTION", required=True)
    for name, (_, help_text) in _COMMANDS.items():
        description, formatter = f"{help_text[0].upper()}{help_text[1:]}.", argparse.RawDescriptionHelpFormatter
        action = actions.add_parser(
            name,
            allow_abbrev=False,
            help=help_text,
            description=description,
            formatter_class=formatter,
        )
        if name == "open":
            action.add_argument("id", metavar="ID", nargs="?", help="review ID or a unique prefix (default: the queue)")
        elif name not in ("list", "watch"):
            action.add_argument("id", metavar="ID", help="review ID or a unique prefix")
        action.add_argument(
            "--store", metavar="sqlite:PATH", help="review store of the gate (default: in the state folder)"
        )
        action.add_argument("--state", type=Path, metavar="DIR", help="state folder of the gate")
        database_argument(action)
        action.add_argument(
            "--settings", type=Path, metavar="FILE", help="settings file of the gate, to find its review store"
        )
        if name in ("approve", "reject", "answer"):
            action.add_argument(
                "--digest", metavar="sha256:HEX", help="decide only if the review still has this digest"
            )
            action.add_argument(
                "--as",
                dest="as_",
                metavar="NAME",
                help="reviewer's name to record (default: the current user)",
            )
        _own_arguments(name, action)


def _own_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    match name:
        case "list":
            some = parser.add_mutually_exclusive_group()
            some.add_argument("--all", action="store_true", help="include completed reviews")
            states = get_args(State)
            some.add_argument(
                "--state-of",
                action="append",
                choices=states,
                metavar="STATE",
                help=f"only this state, repeatable: {', '.join(states)}",
            )
            parser.add_argument("--reviewer", metavar="NAME", help="only reviews for this reviewer of the policy")
            parser.add_argument("--server", metavar="NAME", help="only requests from this server")
            which = (
                "maximum number of reviews to show: the oldest if only pending ones are listed, otherwise the newest"
                " (default: %(default)s)"
            )
            parser.add_argument("--limit", type=_limit, default=50, metavar="N", help=which)
            parser.add_argument("--json", action="store_true", help="print one JSON array, without content")
        case "show":
            parser.add_argument("--json", action="store_true", help="print one JSON object")
        case "watch":
            parser.add_argument("--reviewer", metavar="NAME", help="only reviews for this reviewer of the policy")
            parser.add_argument("--json", action="store_true", help="print each review or change as a line of JSON")
        case "open":
            parser.add_argument(
                "--print",
                action="store_true",
                dest="print_link",
                help="print the sign-in link (default: open the browser if stdout is a terminal, otherwise print)",
            )
        case "approve":
            parser.add_argument("--model", metavar="M", help="use this model (must be allowed by the rule)")
            parser.add_argument("--max-tokens", type=int, metavar="N", help="maximum output tokens")
            parser.add_argument("--temperature", type=float, metavar="T", help="sampling temperature")
            parser.add_argument(
                "--system-prompt", metavar="TEXT", help="replace the system prompt; an empty string removes it"
            )
            parser.add_argument(
                "--messages", metavar="FILE", help="replace the messages with this JSON array; - for stdin"
            )
        case "reject":
            parser.add_argument("--reason", default="", metavar="TEXT", help="reason to record")
            parser.add_argument("--tell-server", action="store_true", help="also send the reason to the server")
        case "answer":
            one = parser.add_mutually_exclusive_group(required=True)
            filled = "accept a form with these values (list: m=p,q or m=p m=q; boolean: b=yes or b=no), or accept a URL"
            one.add_argument("--accept", nargs="*", action="extend", metavar="name=value", help=filled)
            one.add_argument(
                "--json",
                metavar="FILE",
                help="values of a form, or content blocks of a sampling answer, as JSON; - for stdin",
            )
            one.add_argument("--text", metavar="TEXT", help="text of a sampling answer")
            one.add_argument("--decline", action="store_true", help="decline a form or URL request")
            one.add_argument(
                "--cancel", action="store_true", help="dismiss a form or URL request without accepting or declining it"
            )


def _limit(text: str) -> int:
    """An integer from 1 to 999. Raises argparse.ArgumentTypeError."""
    if not text.isdecimal() or not 1 <= int(text[:4]) <= 999:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 999, got {text!r}")
    return int(text)


def command(args: argparse.Namespace) -> int:
    """Run a subcommand. Returns 1 if the verdict was refused or too late, 2 without such a review or store."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # without Unicode, the terminal shows escapes
    try:
        kept = _store(args)
        try:
            return _COMMANDS[args.what][0](args, kept)
        finally:
            kept.close()
    except (InputError, Unavailable) as problem:
        print_error(str(problem))
        return UNREADABLE


def _store(args: argparse.Namespace) -> SqlReviewStore:
    """The existing store named by the arguments, variables or settings (of `run` or `serve`).

    Raises InputError.
    """
    problems: list[str] = []
    values, _ = gather(
        {**SERVE_SETTINGS, **SETTINGS},
        os.environ,
        args.settings,
        {"state": args.state, "store": args.store, "database": args.database},
        problems,
    )
    if not values.keys() & {"store", "state", "database"}:
        problems.append(NO_STATE)
    if problems:
        raise InputError("\nsamplegate: ".join(problems))
    settings = ProcessSettings(
        state=values.get("state", Path()), store=values.get("store"), database=values.get("database")
    )
    args.reviews_file = settings.reviews_file
    return SqlReviewStore(settings.reviews, make=False)


def _find_review(kept: SqlReviewStore, typed: str) -> Review:
    """The review with an id or a unique prefix, with or without ``rv_``. Raises InputError or Unavailable."""
    for begin in (typed, f"rv_{typed}"):
        ids = [begin] if kept.get(begin) is not None else kept.ids_with_prefix(begin, MAX_MATCHES + 1)
        if len(ids) > 1:
            raise InputError(
                f"reviews: {short_value(typed)} matches"
                f" {', '.join(ids[:MAX_MATCHES])}{' and more' if len(ids) > MAX_MATCHES else ''}; use a longer prefix"
            )
        if ids and (found := kept.get(ids[0])) is not None:
            return found
    raise InputError(f"reviews: no review matches {short_value(typed)}; list all with: samplegate reviews list --all")


def _list(args: argparse.Namespace, kept: SqlReviewStore) -> int:
    if not kept.database.exists():
        print("[]" if args.json else NO_PENDING)
        return OK
    now = kept.wall()
    states = () if args.all else tuple(args.state_of or ("pending",))
    reviewers = None if args.reviewer is None else (args.reviewer,)
    oldest_first = states == ("pending",)
    wanted = Filter(
        states=states, reviewers=reviewers, server=args.server, limit=args.limit + 1, oldest_first=oldest_first
    )
    found = list(islice(_current(kept, wanted, now), args.limit + 1))
    shown = found[: args.limit]
    if args.json:
        print(json.dumps([to_view(review, show="none", now=now, url=None) for review in shown], indent=2))
        return OK
    print("\n".join(table(shown, now)) if shown else NO_PENDING if oldest_first else "no reviews found")
    if len(found) > args.limit:
        print(f"only the {'oldest' if oldest_first else 'newest'} {args.limit} are shown; use --limit to show more")
    return OK


def _current(kept: SqlReviewStore, wanted: Filter, now: float) -> Iterator[Review]:
    """Reviews in the wanted states, from all pages of the store.

    A review that has expired without a note of it in the store is filtered out, and the next ones take its place.
    """
    while found := kept.list(wanted):
        yield from (
            review
            for review in (current_state(each, now) for each in found)
            if not wanted.states or review.state in wanted.states
        )
        if len(found) < wanted.limit:
            return
        wanted = replace(wanted, before=found[-1].id)


def _show(args: argparse.Namespace, kept: SqlReviewStore) -> int:
    now = kept.wall()
    review = current_state(_find_review(kept, args.id), now)
    if args.json:
        print(json.dumps(to_view(review, show="full", now=now, url=None), indent=2))
    else:
        print("\n".join([*lines(review, now), *history(kept.history(review.id))]))
    return OK


def _open(args: argparse.Namespace, kept: SqlReviewStore) -> int:
    """Sign this user in at the page of a running `samplegate run`, by a link for one use within a minute."""
    review = None if args.id is None else _find_review(kept, args.id)
    folder, now = sign_in_links.folder_of(args.reviews_file), time.time()
    try:
        pages = sign_in_links.open_pages(folder)
    except OSError as problem:
        raise InputError(f"reviews: {folder}: {(problem.strerror or str(problem)).lower()}") from None
    if not pages:
        raise InputError(
            f"reviews: no page is open for the review store {kept.database.place}; start `samplegate run` with"
            " --reviews-listen 127.0.0.1:0, or decide with `samplegate reviews approve`, `reject` or `answer`"
        )
    page, place = pages[0], "/reviews" if review is None else f"/reviews/{review.id}"
    link = sign_in_links.link(page, place, sign_in_links.make_code(page.secret, now=now, random=os.urandom))
    if not args.print_link and sys.stdout.isatty() and _browse(folder, link, now):
        print(f"opened {page.url}{place} in the browser")
        return OK
    print(link)
    if sys.stdout.isatty():
        print(f"samplegate: the link signs in once, within {sign_in_links.VALID} s", file=sys.stderr)
    return OK


def _browse(folder: Path, link: str, now: float) -> bool:
    """Open the link in the browser, without the link on any command line. False if there is no browser."""
    import webbrowser

    try:
        file = sign_in_links.write_opener(folder, link, now=now, random=os.urandom)
        return webbrowser.open(file.as_uri())
    except (OSError, webbrowser.Error):
        return False


def _watch(args: argparse.Namespace, kept: SqlReviewStore) -> int:
    watch(kept, args.reviewer, json_lines=args.json)
    return OK


def _decide(args: argparse.Namespace, kept: SqlReviewStore) -> int:
    """Decide the review as stored, or only if it has the given digest, which an approval of edited content needs."""
    review = _find_review(kept, args.id)
    if args.what != "reject" and review.proposal is not None and args.digest is None:
        print_error(f"{review.id}: somebody edited it; read it with `samplegate reviews show`, and pass its --digest")
        return FAILED
    given = {**_verdict_input(args, review), "digest": args.digest or version(review)}
    verdict = read(given, review, digest="needed")
    if not isinstance(verdict, Verdict):
        for problem in verdict:
            print_error(f"{review.id}: {harmless(str(problem))}")
        return FAILED
    outcome = kept.decide(review.id, verdict, who=_who(args), door="cli", seen=version(review))
    if outcome is None:
        raise InputError(f"reviews: review {review.id} no longer exists")
    if isinstance(outcome, VoteRefused):
        print_error(f"{review.id}: {harmless(outcome.why)}")
        return FAILED
    if isinstance(outcome, Conflict):
        why = withdrawn_for(kept.history(review.id))
        print_error(f"{review.id}: {_conflict_text(outcome.review, why)}")
        return FAILED
    print(f"{outcome.state} {outcome.id}: {harmless(outcome.server)}, {summary(outcome)}")
    print(harmless(progress(outcome)) if outcome.state == "pending" else _effect_text(outcome, kept.wall()))
    return OK


def _who(args: argparse.Namespace) -> str:
    """Name of the person who decides, for the record only."""
    name = args.as_ or os.environ.get("USER")
    if not name:
        try:
            name = getpass.getuser()
        except (OSError, KeyError, ImportError):
            name = "somebody"
    return harmless(name[:MAX_NAME])


def _conflict_text(review: Review, why: str) -> str:
    """Why a verdict came too late: when and by whom the review ended. ``why``: the reason of a withdrawal, or ""."""
    when = "" if review.decided is None else f" at {moment(review.decided)}"
    by = f" by {harmless(review.who)} ({review.door})" if review.who else ""
    reason = f" ({harmless(why)})" if why else ""
    return f"already {review.state}{by}{when}{reason}; nothing was changed"


def _effect_text(review: Review, now: float) -> str:
    """Which request gets the new verdict."""
    if review.waiter is not None and now < review.held_until:
        return "the waiting request now gets this decision"
    if not review.late:
        return (
            "no request is waiting for this decision and late decisions are disabled for this reviewer, so it has no"
            " effect"
        )
    return f"no request is waiting; the next identical request gets this decision, once, within {span(review.late)}"


def _verdict_input(args: argparse.Namespace, review: Review) -> dict[str, Any]:
    """The typed decision as the JSON verdict that the page and the API also send. Raises InputError."""
    if args.what == "approve":
        edits = {
            "model": args.model,
            "maxTokens": args.max_tokens,
            "temperature": args.temperature,
            "systemPrompt": args.system_prompt,
            "messages": None if args.messages is None else _json_of("--messages", args.messages),
        }
        given = {name: value for name, value in edits.items() if value is not None}
        return {"verdict": "approve", **({"edits": given} if given else {})}
    if args.what == "reject":
        return {"verdict": "reject", "reason": args.reason, **({"tell_server": True} if args.tell_server else {})}
    if args.decline or args.cancel:
        return {"verdict": "answer", "action": "decline" if args.decline else "cancel"}
    if args.text is not None:
        content = args.text
    elif args.json is not None:
        content = _json_of("--json", args.json)
    elif review.kind == "sampling":
        raise InputError("--accept: not allowed for a sampling request; answer it with --text or --json")
    else:
        content = None if review.mode == "url" and not args.accept else _fields(args.accept, review)
    if review.kind == "sampling":
        return {"verdict": "answer", "content": content}
    return {"verdict": "answer", "action": "accept", **({} if content is None else {"content": content})}


def _fields(pairs: Sequence[str], review: Review) -> dict[str, Any]:
    """Parse ``name=value`` by the types of the form. A list is ``name=a,b``, or a repeated name. Raises InputError."""
    form = read_form(review.params.get("requestedSchema"), review.revision)
    known: Mapping[str, Field] = {} if isinstance(form, NotFlat) else {field.name: field for field in form.fields}
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"--accept: expected name=value, got {short_value(pair)}")
        field = known.get(name)
        if field is not None and field.type == "multi_enum":
            found.setdefault(name, []).extend(_split_choices(text, field))
        elif name in found:
            raise InputError(f"--accept: field {short_value(name)} is repeated; pass it once")
        else:
            found[name] = _converted(text, "string" if field is None else field.type)
    return found


def _split_choices(text: str, field: Field) -> list[str]:
    """Split a list at commas, except for a choice that contains commas."""
    values = {value for value, _ in choices(field.schema)}
    if not text or text in values:
        return [text] if text else []
    return [part if part in values else part.strip() for part in text.split(",")]


def _converted(text: str, kind: str) -> Any:
    """Convert text to the type of a field. Text that does not fit the type is returned unchanged."""
    if kind == "boolean":
        return _BOOLEANS.get(text.lower(), text)
    if kind not in ("integer", "number"):
        return text
    if _INTEGER.match(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _json_of(option: str, name: str) -> Any:
    """JSON from a file or stdin. Raises InputError."""
    text = sys.stdin.buffer.read(MAX_BYTES + 1) if name == "-" else read_file(Path(name)).encode()
    try:
        return decode(text, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    except (JsonFault, json.JSONDecodeError) as fault:
        raise InputError(f"{option}: {'stdin' if name == '-' else name}: {fault}") from None


def watch(
    store: SqlReviewStore, reviewer: str | None, *, json_lines: bool, pause: Callable[[float], Any] = time.sleep
) -> None:
    """Print pending reviews, then each change, until KeyboardInterrupt. Raises Unavailable if the first read fails."""
    last = store.last_change()
    for text in _pending_lines(store, reviewer, json_lines):
        print(text, flush=True)
    lost = False
    while True:
        pause(POLL_INTERVAL)
        try:
            for number, news in _new_events(store, last, reviewer, json_lines):
                last = number
                if news is not None:
                    print(news, flush=True)
            lost = False
        except Unavailable as problem:
            if not lost:
                print_error(f"{problem}; retrying")
            lost = True


def _pending_lines(store: SqlReviewStore, reviewer: str | None, json_lines: bool) -> Iterator[str]:
    now = store.wall()
    filter = Filter(states=("pending",), reviewers=None if reviewer is None else (reviewer,), limit=AT_A_TIME)
    for review in reversed(store.list(filter)):
        if current_state(review, now).state == "pending":
            yield _json(None, review, now) if json_lines else f"pending    {line(review, now)}"


def _new_events(
    store: SqlReviewStore, last: int, reviewer: str | None, json_lines: bool
) -> Iterator[tuple[int, str | None]]:
    """Number and line of each new event; the line is None for an event that is not shown.

    The numbers of a store that has replaced this one start again from 1.
    """
    newest = store.last_change()
    if newest < last:
        yield newest, None
        return
    while newest > last:
        events = store.changes(last, AT_A_TIME)
        for event in events:
            yield event.number, _event_line(store, event, reviewer, json_lines)
        if not events:
            return
        last = events[-1].number


def _event_line(store: SqlReviewStore, event: ReviewEvent, reviewer: str | None, json_lines: bool) -> str | None:
    review, now = store.get(event.review), store.wall()
    if review is None or reviewer not in (None, review.reviewer) or (event.what in _QUIET and not json_lines):
        return None
    if json_lines:
        return _json(event, review, now)
    by = f"  by {harmless(event.who)} ({event.door})" if event.who else ""
    return f"{event.what:10} {line(review, now)}{by}"


def _json(event: ReviewEvent | None, review: Review, now: float) -> str:
    happened = (
        None
        if event is None
        else {"number": event.number, "what": event.what, "at": event.at, "who": event.who, "door": event.door}
    )
    return json.dumps({"event": happened, "review": to_view(review, show="none", now=now, url=None)})


_COMMANDS: Final[dict[str, tuple[Callable[[argparse.Namespace, SqlReviewStore], int], str]]] = {
    "list": (_list, "list pending reviews"),
    "show": (_show, "show one review with the full request"),
    "open": (_open, "sign in at the page of a running `samplegate run`, by a link for one use"),
    "approve": (_decide, "approve a sampling request, a model's answer, or another reviewer's version"),
    "reject": (_decide, "reject a request, or a model's answer"),
    "answer": (_decide, "answer a request yourself"),
    "watch": (_watch, "print pending reviews, then each change, until interrupted"),
}
