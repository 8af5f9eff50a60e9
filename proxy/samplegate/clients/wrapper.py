"""Pure. Edits that put the gate before a server, and that remove it again.

Only the spans of the members that must change are replaced: command and arguments; for a server at a URL also its URL,
headers and type. Its headers become variables of the entry's environment, so that no value is on a command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from samplegate.clients.document import Document, Edit, Entry, Member, Span, applied
from samplegate.clients.faults import FileFault, quoted
from samplegate.clients.gate_call import END, Gate, GateCall, gate_call, is_ours, starts_in_a_shell
from samplegate.clients.shapes import Shape
from samplegate.secret_names import looks_secret

OAUTH: Final = ("oauth", "auth")
"""Members that configure the client's own sign-in."""
LOG_IN: Final = "log the gate in with `samplegate login NAME --url URL`, and wrap it with --remote"
VARIABLE: Final = "MCP_HEADER_"
MAX_WORD: Final = 12  # characters of a value in a URL that is too short to be a key
_letters: Final = re.compile(r"[^A-Z0-9]+")
_expansion: Final = re.compile(r"\$\{|\$[A-Za-z_]|\{env:")
_nested: Final = re.compile(r"\$\{[^{}]*\$\{")
_key_like: Final = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[\w.~-]{20,}\Z", re.ASCII)


@dataclass(frozen=True)
class Wrapped:
    """The entry starts the gate."""

    call: GateCall


@dataclass(frozen=True)
class Open:
    """The entry starts a server without the gate, and can be wrapped."""

    url: Member | None = None
    """The server's URL; None if it is a command."""


@dataclass(frozen=True)
class Skipped:
    """The entry must not be changed, or cannot be."""

    reason: str


State: TypeAlias = Wrapped | Open | Skipped


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What may be wrapped."""

    shape: Shape
    remote: bool = False
    """Also servers that may need the client's own sign-in."""
    joins_words: bool = False
    """Whether the client joins command and arguments to one string, so that a space ends a word."""
    header_fault: Callable[[str, Sequence[str]], str | None] = lambda _, __: None
    """Why the gate cannot send a header of this name, given the names of all headers in lower case."""


def state_of(entry: Entry, rules: Rules) -> State:
    """The state of an entry."""
    shape, members = rules.shape, entry.members
    if not isinstance(entry.plain, dict):
        return Skipped("it is not an object")
    if (name := next((name for name in _edited(entry, shape) if name not in members), None)) is not None:
        return Skipped(f"its {name} is not a value or a table of its own, as with dotted keys; write it as one")
    if "command" in members:
        words = _words(entry, shape)
        if isinstance(words, str):
            return Skipped(words)
        call = gate_call(words[0], words[1:])
        if call is not None:
            return Wrapped(call)
        if is_ours(words[0]) or (len(words) > 2 and words[1:3] == ["-m", "samplegate"]):
            return Skipped("it is samplegate itself, but not `samplegate run`")
        if starts_in_a_shell(words):
            return Skipped("a shell in it starts `samplegate run`; if it is not behind the gate, change it by hand")
        both = next((name for name in (*shape.url, *shape.sse) if name in members), None)
        return Open() if both is None else Skipped(f"it has both command and {both}; remove one of them")
    return _remote_state(entry, rules)


def _edited(entry: Entry, shape: Shape) -> list[str]:
    """The members that an edit of the entry may replace."""
    names: tuple[str, ...] = ("command", "args")
    if "command" not in entry.plain:
        names = (*names, "type", shape.env, shape.headers, *shape.url)
    return [name for name in names if name in entry.plain]


def _words(entry: Entry, shape: Shape) -> list[str] | str:
    """The command and its arguments, or what is wrong with them."""
    command, args = entry.plain["command"], entry.plain.get("args", [])
    if shape.joined:
        command, args = (command[0], command[1:]) if isinstance(command, list) and command else (None, [])
    if not isinstance(command, str) or not command:
        return f"its command is not a {'list' if shape.joined else 'string'}, or is empty"
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        return "its args are not a list of strings"
    return [command, *args]


def _remote_state(entry: Entry, rules: Rules) -> State:
    shape, members, plain = rules.shape, entry.members, entry.plain
    url = next((members[name] for name in shape.url if name in members), None)
    kind = plain.get("type", plain.get("transport"))
    if url is None and any(name in members for name in shape.sse):
        return Skipped("it uses SSE, which the gate does not speak; use the server's Streamable HTTP URL")
    if url is None:
        return Skipped(f"it has neither command nor {shape.url[0]}")
    if kind == "sse" or (isinstance(url.plain, str) and url.plain.rstrip("/").endswith("/sse") and kind is None):
        return Skipped("it uses SSE, which the gate does not speak; use the server's Streamable HTTP URL")
    for reason in (
        _url_fault(url.plain),
        f"it has both {url.name} and args; remove one of them" if "args" in members and not shape.joined else None,
        _headers_fault(entry, rules),
        _client_fault(entry, rules),
    ):
        if reason is not None:
            return Skipped(reason)
    return Open(url)


def _url_fault(url: Any) -> str | None:
    """Why a URL cannot go on a command line."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return "its URL is not an http(s) URL"
    if _expansion.search(url):
        return "its URL contains a variable, whose value would be visible on the command line"
    try:
        parts = urlsplit(url)
        words = [*parse_qsl(parts.query, keep_blank_values=True, max_num_fields=100)]
    except ValueError:
        return "its URL is not valid"
    if parts.username is not None or parts.password is not None:
        return "its URL contains a user name or password, which would be visible on the command line"
    if (
        any(looks_secret(name) or len(value) > MAX_WORD for name, value in words)
        or any(_key_like.match(part) for part in parts.path.split("/"))
        or parts.fragment
    ):
        return "its URL seems to contain a key, which would be visible on the command line"
    return None


def _headers_fault(entry: Entry, rules: Rules) -> str | None:
    shape = rules.shape
    for name in shape.ignored:
        if name in entry.members:
            return f"the client ignores its {name}; use {shape.headers}"
    headers = entry.members.get(shape.headers)
    if headers is None:
        return None
    if not isinstance(headers.plain, dict) or not all(isinstance(value, str) for value in headers.plain.values()):
        return f"its {shape.headers} are not a mapping of names to strings"
    if shape.env in entry.members:
        return f"it has both {shape.headers} and {shape.env}; remove {shape.env}"
    names = [name.lower() for name in headers.plain]
    for name, value in headers.plain.items():
        if (fault := rules.header_fault(name, names)) is not None:
            return f"header {quoted(name)} {fault}"
        if _nested.search(value):
            return f"header {quoted(name)} has a variable within a variable, which clients do not replace in env"
    return None


def _client_fault(entry: Entry, rules: Rules) -> str | None:
    """Why only the client itself may be able to reach the server."""
    members = entry.members
    if "headersHelper" in members:
        return "its headers come from a program (headersHelper), which only the client runs"
    if (name := next((name for name in rules.shape.only_at_url if name in members), None)) is not None:
        return (
            f"it has {name}, which the client refuses for a command; by hand, use `samplegate run --url URL` with"
            " --header-env or --header-from"
        )
    if rules.remote:
        return None
    if any(name in members for name in OAUTH):
        return f"it uses the client's own sign-in (OAuth); {LOG_IN}"
    if not entry.plain.get(rules.shape.headers):
        return f"it has no headers, so it may need the client's own sign-in (OAuth); if so, {LOG_IN}"
    return None


# -- edits ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """The edits of one entry."""

    entry: Entry
    edits: tuple[Edit, ...]
    span: Span
    """The edited part of the text."""
    plain: Mapping[str, Any]
    """The entry afterwards."""
    exact: bool = True
    """Whether an unwrapped entry has its original bytes again."""


def wrap_change(document: Document, entry: Entry, state: Open, gate: Gate, rules: Rules) -> Change | Skipped:
    """The edits that put the gate before a server."""
    if not entry.name.isprintable():
        return Skipped("its name has an unprintable character, which cannot be a name in a policy")
    if not entry.name:
        return Skipped("its name is empty")
    words = gate.words(entry.name)
    if rules.joins_words and (spaced := next((word for word in (gate.command, *words) if " " in word), None)):
        return Skipped(f"the client ends a word at each space, but the gate needs {quoted(spaced)}; avoid the space")
    if state.url is not None:
        return _wrap_remote(document, entry, state.url, gate, rules)
    command, args = entry.members["command"], entry.members.get("args")
    original = document.text[slice_of(command.value)]
    plain = dict(entry.plain)
    if rules.shape.joined:
        ours = [document.quote(word) for word in (gate.command, *words, END)]
        edits = [_prepended(document, command, ours)]
        plain["command"] = [gate.command, *words, END, *plain["command"]]
    else:
        ours = [*(document.quote(word) for word in (*words, END)), original]
        edits = [
            Edit(command.value.start, command.value.end, document.quote(gate.command)),
            document.pair(command, "args", f"[{', '.join(ours)}]")
            if args is None
            else _prepended(document, args, ours),
        ]
        plain |= {"command": gate.command, "args": [*words, END, plain["command"], *plain.get("args", [])]}
    return Change(entry, tuple(edits), _union(edits, _spans(entry, _STDIO)), plain)


def _wrap_remote(document: Document, entry: Entry, url: Member, gate: Gate, rules: Rules) -> Change:
    shape, headers = rules.shape, entry.members.get(rules.shape.headers)
    variables = _variables(headers.members if headers is not None else {})
    words = [*gate.words(entry.name), "--url"]
    last = [word for header, variable in variables.items() for word in ("--header-env", f"{header}={variable}")]
    ours = [*map(document.quote, words), document.text[slice_of(url.value)], *map(document.quote, last)]
    edits = [Edit(url.key.start, url.key.end, document.key("command"))]
    plain = dict(entry.plain)
    named = {url.name: "command"}
    if shape.joined:
        edits.append(Edit(url.value.start, url.value.end, f"[{', '.join([document.quote(gate.command), *ours])}]"))
        plain[url.name] = [gate.command, *words, url.plain, *last]
    else:
        edits.append(Edit(url.value.start, url.value.end, document.quote(gate.command)))
        edits.append(document.pair(url, "args", f"[{', '.join(ours)}]"))
        plain |= {url.name: gate.command, "args": [*words, url.plain, *last]}
    if headers is not None:
        edits.append(Edit(headers.key.start, headers.key.end, document.key(shape.env)))
        named[headers.name] = shape.env
        plain[headers.name] = {variables[header]: value for header, value in headers.plain.items()}
        edits += (
            Edit(member.key.start, member.key.end, document.key(variables[header]))
            for header, member in headers.members.items()
        )
    if (kind := entry.members.get("type")) is not None:
        edits.append(Edit(kind.value.start, kind.value.end, document.quote(shape.local)))
        plain["type"] = shape.local
    plain = {named.get(name, name): value for name, value in plain.items()}
    return Change(
        entry, tuple(edits), _union(edits, _spans(entry, ("type", url.name, shape.headers, shape.env))), plain
    )


def _variables(headers: Mapping[str, Member]) -> dict[str, str]:
    """A variable for each header."""
    found: dict[str, str] = {}
    for header in headers:
        name = first = VARIABLE + _letters.sub("_", header.upper()).strip("_")
        number = 1
        while name in found.values():
            number += 1
            name = f"{first}_{number}"
        found[header] = name
    return found


def _prepended(document: Document, member: Member, ours: Sequence[str]) -> Edit:
    """Adds elements at the start of a list: each on its own line if the first one is."""
    if not member.items:
        return Edit(member.value.start + 1, member.value.start + 1, ", ".join(ours))
    at = member.items[0].start
    before = document.text[member.value.start + 1 : at]
    gap = before[len(before.rstrip(" \t\r\n")) :]
    gap = gap if "\n" in gap else " "
    return Edit(at, at, "".join(f"{one},{gap}" for one in ours))


_STDIO: Final = ("command", "args")


def _written(entry: Entry, shape: Shape, call: GateCall) -> Span:
    """The part of a wrapped entry that `wrap` wrote."""
    return _union((), _spans(entry, _STDIO if call.url is None else ("type", *_STDIO, shape.env)))


def _spans(entry: Entry, names: Sequence[str]) -> list[Span]:
    found = [entry.members[name] for name in names if name in entry.members]
    return [span for member in found for span in (member.key, member.value)]


def _union(edits: Sequence[Edit], spans: Sequence[Span]) -> Span:
    every = [*((edit.start, edit.end) for edit in edits), *((span.start, span.end) for span in spans)]
    return Span(min(start for start, _ in every), max(end for _, end in every))


def slice_of(span: Span) -> slice:
    """The slice of a text."""
    return slice(span.start, span.end)


def unwrap_change(
    document: Document, entry: Entry, call: GateCall, rules: Rules, original: Callable[[str], str | None]
) -> Change | Skipped:
    """The edits that remove the gate. ``original`` returns what the journal has for the part that `wrap` wrote."""
    span = _written(entry, rules.shape, call)
    before = original(document.text[slice_of(span)])
    plain = _inverse(entry, rules.shape, call)
    if before is not None:
        return Change(entry, (Edit(span.start, span.end, before),), span, {} if isinstance(plain, Skipped) else plain)
    if isinstance(plain, Skipped):
        return plain
    edits = (
        _unwrap_stdio(document, entry, rules.shape, call)
        if call.wrapped is not None
        else _unwrap_remote(document, entry, rules.shape, call)
    )
    return Change(entry, tuple(edits), _union(edits, [span]), plain, exact=False)


def _inverse(entry: Entry, shape: Shape, call: GateCall) -> dict[str, Any] | Skipped:
    """The entry without the gate, by its structure alone."""
    plain: dict[str, Any] = dict(entry.plain)
    words = _words(entry, shape)
    assert not isinstance(words, str), "a wrapped entry has a command"
    if call.launcher is not None:
        return Skipped(f"{quoted(call.launcher)} starts samplegate and the server; restore it by hand")
    if call.wrapped is not None:
        rest = words[call.wrapped + 1 :]
        return plain | ({"command": rest} if shape.joined else {"command": rest[0], "args": rest[1:]})
    if call.url is None:
        return Skipped("its arguments have neither `--` and a command nor `--url` and a URL; restore it by hand")
    env = plain.get(shape.env, {})
    variables = {variable: header for header, variable in call.header_variables}
    kept = bool(env) and not variables  # the server had no headers, and these variables before
    if not kept and (not isinstance(env, dict) or set(env) != set(variables)):
        return Skipped(
            f"its {shape.env} has other variables than those of its headers, and there is no record of the original;"
            " restore it by hand"
        )
    if any(name in plain and name not in entry.members for name in ("type", shape.env)):
        return Skipped(f"its type or {shape.env} is not a value or a table of its own; restore it by hand")
    if shape.headers in plain or shape.url[0] in plain:
        return Skipped(f"it also has {shape.headers} or {shape.url[0]}; restore it by hand")
    named = {"command": shape.url[0]}
    plain["command"] = words[call.url + 1]
    plain.pop("args", None)
    if shape.env in plain and not kept:
        named[shape.env] = shape.headers
        plain[shape.env] = {variables[name]: value for name, value in env.items()}
    if "type" in plain:
        plain["type"] = shape.remote
    return {named.get(name, name): value for name, value in plain.items()}


def _unwrap_stdio(document: Document, entry: Entry, shape: Shape, call: GateCall) -> list[Edit]:
    assert call.wrapped is not None
    command = entry.members["command"]
    if shape.joined:
        return [_cut(command, call.wrapped + 1)]
    args = entry.members["args"]
    original = document.text[slice_of(args.items[call.wrapped])]
    return [Edit(command.value.start, command.value.end, original), _cut(args, call.wrapped + 1)]


def _cut(member: Member, count: int) -> Edit:
    """Removes the first elements of a list."""
    items = member.items
    end = items[count].start if count < len(items) else items[-1].end
    return Edit(items[0].start, end, "")


def _unwrap_remote(document: Document, entry: Entry, shape: Shape, call: GateCall) -> list[Edit]:
    assert call.url is not None
    members = entry.members
    command = members["command"]
    source = command if shape.joined else members["args"]
    url = document.text[slice_of(source.items[call.url + shape.joined])]
    edits = [
        Edit(command.key.start, command.key.end, document.key(shape.url[0])),
        Edit(command.value.start, command.value.end, url),
    ]
    if not shape.joined:
        edits.append(document.without(entry, members["args"]))
    env = members.get(shape.env)
    if env is not None and (call.header_variables or not env.plain):
        edits.append(Edit(env.key.start, env.key.end, document.key(shape.headers)))
        headers = {variable: header for header, variable in call.header_variables}
        edits += (Edit(one.key.start, one.key.end, document.key(headers[one.name])) for one in env.members.values())
    if (kind := members.get("type")) is not None:
        edits.append(Edit(kind.value.start, kind.value.end, document.quote(shape.remote)))
    return edits


# -- a whole file -----------------------------------------------------------------------------------------------------


def selected(name: str, globs: Sequence[str]) -> bool:
    """Whether a server is one of those that were asked for. Every server is, without globs."""
    return not globs or any(fnmatchcase(name, glob) for glob in globs)


def changed(document: Document, changes: Sequence[Change]) -> str:
    """The text after all changes."""
    return applied(document.text, [edit for change in changes for edit in change.edits])


def written(document: Document, change: Change, entry: Entry | None, rules: Rules) -> str:
    """The part of the new text that a change wrote, from the new document and its entry. Raises FileFault if it is not
    what was intended."""
    state = None if entry is None else state_of(entry, rules)
    if entry is None or not isinstance(state, Wrapped) or entry.plain != change.plain:
        raise FileFault(f"server {quoted(change.entry.name)} is written in a way that cannot be edited; do it by hand")
    return document.text[slice_of(_written(entry, rules.shape, state.call))]
