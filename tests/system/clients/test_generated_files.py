"""What `wrap` and `unwrap` promise, for generated files of both formats. ``nightly`` tries 10,000 files of each."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samplegate.clients.gate_call import Gate
from samplegate.clients.plan import Plan, Source, unwrap, wrap
from samplegate.clients.shapes import SHAPES
from samplegate.clients.wrapper import Rules
from tests.fakes.client_files import ClientFile, json_file, toml_file
from tests.profiles import EXAMPLES, share

GATE: Final = Gate(command="/opt/with space/samplegate", policy='/etc/"policy".yaml', options=("--strict",))
AT_NIGHT: Final = 10_000
"""The number of files that the guarantee is given for."""

examples = settings(max_examples=AT_NIGHT if settings().max_examples >= EXAMPLES["nightly"] else share(1))
seeds = given(st.integers(0, 2**64), st.integers(0, 8))


@dataclass(frozen=True)
class Kind:
    """A format: how a file is generated, read by us, and read by another parser."""

    generate: Callable[[int, int], ClientFile]
    source: Source
    parse: Callable[[str], Any]
    dump: Callable[[Any], str] | None = None
    """Writes the file anew, as a client does."""


def _parse_jsonc(text: str) -> Any:
    token = r'("(?:[^"\\]|\\.)*")|//[^\r\n]*|/\*.*?\*/'
    plain = re.sub(token, lambda found: found[1] or " ", text.removeprefix("\ufeff"), flags=re.DOTALL)
    commas = re.sub(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', lambda found: found[1] or "", plain)
    return json.loads(commas)


JSON: Final = Kind(
    json_file,
    Source(format="json", keys=(("mcpServers",),), rules=Rules(shape=SHAPES["command-args"], remote=True)),
    _parse_jsonc,
    lambda plain: json.dumps(plain, indent=3, ensure_ascii=False),
)
TOML: Final = Kind(
    toml_file,
    Source(format="toml", keys=(("mcp_servers",),), rules=Rules(shape=SHAPES["codex"], remote=True)),
    tomllib.loads,
)

each_kind = pytest.mark.parametrize("kind", [JSON, TOML], ids=["json", "toml"])


def is_around(pieces: list[str], text: str) -> bool:
    """Whether a text consists of these pieces, in this order, with something between them."""
    at = 0
    for number, piece in enumerate(pieces):
        found = text.find(piece, at)
        if found < 0 or (number == 0 and found > 0):
            return False
        at = found + len(piece)
    return text.endswith(pieces[-1])


def without_servers(kind: Kind, plain: Any, plan: Plan) -> Any:
    """What a file means, but for the members of changed servers that `wrap` may change."""
    copy = json.loads(json.dumps(plain))
    for change in plan.changes:
        members = copy[change.entry.key[0]][change.entry.name]
        for name in ("command", "args", "url", "type", "env", "headers", "http_headers"):
            members.pop(name, None)
    return copy


def assert_wrapped(before: dict[str, Any], after: dict[str, Any]) -> None:
    """A client starts the gate with what the server had."""
    assert GATE.command == after["command"]
    if "url" not in before:
        assert [before["command"], *before.get("args", [])] == after["args"][after["args"].index("--") + 1 :]
        return
    assert not {"url", "headers", "http_headers"} & set(after), "clients refuse these beside a command"
    words = after["args"]
    assert before["url"] == words[words.index("--url") + 1]
    variables = dict(pair.split("=", 1) for option, pair in pairwise(words) if option == "--header-env")
    headers = before.get("headers", before.get("http_headers", {}))
    assert headers == {header: after["env"][variable] for header, variable in variables.items()}


@each_kind
@examples
@seeds
def test_unwrap_restores_every_byte_and_a_second_wrap_changes_nothing(kind: Kind, seed: int, size: int) -> None:
    file = kind.generate(seed, size)
    assert file.plain == kind.parse(file.text)
    plan = wrap(file.text.encode(), kind.source, GATE)
    wrapped = plan.after.text
    assert wrapped == wrap(wrapped.encode(), kind.source, GATE).after.text
    assert file.text == unwrap(wrapped.encode(), kind.source, plan.records).after.text
    # nothing else has changed, to us and to another parser
    pieces, at = list[str](), 0
    for change in sorted(plan.changes, key=lambda one: one.span.start):
        pieces.append(file.text[at : change.span.start])
        at = change.span.end
    assert is_around([*pieces, file.text[at:]], wrapped)
    before, after = kind.parse(file.text), kind.parse(wrapped)
    for change in plan.changes:
        (key,) = change.entry.key
        assert_wrapped(before[key][change.entry.name], after[key][change.entry.name])
    assert without_servers(kind, before, plan) == without_servers(kind, after, plan)
    assert all(one in wrapped for one in file.comments)


def meant(plain: Any, key: str) -> Any:
    """Servers as they are without a journal: `unwrap` cannot tell a missing list from an empty one."""
    found = {}
    for name, one in plain.get(key, {}).items():
        found[name] = one
        if isinstance(one, dict) and ("command" in one) != ("url" in one):
            found[name] = {"args": [], **{member: value for member, value in one.items() if value != {}}}
            if "url" in one and "type" in one:
                found[name]["type"] = "http"
    return found


@each_kind
@examples
@seeds
def test_without_a_journal_unwrap_inverts_the_structure(kind: Kind, seed: int, size: int) -> None:
    file = kind.generate(seed, size)
    plan = wrap(file.text.encode(), kind.source, GATE)
    text = plan.after.text
    if kind.dump is not None and seed % 2:
        text = kind.dump(kind.parse(text))  # the client has written the file anew
    back = unwrap(text.encode(), kind.source, ())
    (key,) = kind.source.keys[0]
    refused = {row.entry.name for row in back.rows if row.refused}
    expected, found = (meant(kind.parse(one), key) for one in (file.text, back.after.text))
    assert {n: v for n, v in expected.items() if n not in refused} == {
        n: v for n, v in found.items() if n not in refused
    }
    assert len(plan.changes) == len(back.changes) + len(refused)
