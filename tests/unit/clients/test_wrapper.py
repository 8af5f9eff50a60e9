"""Wrapping and unwrapping the text of a client's file: what changes, and that everything else stays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

from samplegate.clients.document import Entry, Key
from samplegate.clients.faults import FileFault
from samplegate.clients.gate_call import Gate
from samplegate.clients.json_file import JsonDocument
from samplegate.clients.plan import Plan, Source, survey, unwrap, wrap
from samplegate.clients.shapes import SHAPES
from samplegate.clients.wrapper import Open, Rules, Skipped, Wrapped

GATE: Final = Gate(command="/opt/samplegate", policy="/etc/policy.yaml")
JSON: Final = Source(format="json", keys=(("mcpServers",),), rules=Rules(shape=SHAPES["command-args"]))
TOML: Final = Source(format="toml", keys=(("mcp_servers",),), rules=Rules(shape=SHAPES["codex"]))
OURS: Final = '"run", "--policy", "/etc/policy.yaml", "--server", "docs"'


def wrapped(text: str, source: Source = JSON) -> str:
    return wrap(text.encode(), source, GATE).after.text


def round_trip(text: str, source: Source) -> str:
    """The text after wrap and unwrap, with the journal."""
    first = wrap(text.encode(), source, GATE)
    return unwrap(first.after.text.encode(), source, first.records).after.text


def reasons(text: str, source: Source = JSON) -> dict[str, str]:
    return {row.entry.name: row.state.reason for row in survey(text.encode(), source) if isinstance(row.state, Skipped)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{"mcpServers": {"docs": {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}}}}',
            '{"mcpServers": {"docs": {"command": "/opt/samplegate", "args": ['
            + OURS
            + ', "--", "npx", "-y", "x"], "env": {"A": "b"}}}}',
        ),
        (
            '// c\r\n{"mcpServers": {\r\n  "docs": {\r\n    "command": "x", // its command\r\n  },\r\n},}\r\n',
            '// c\r\n{"mcpServers": {\r\n  "docs": {\r\n    "command": "/opt/samplegate",\r\n    "args": ['
            + OURS
            + ', "--", "x"], // its command\r\n  },\r\n},}\r\n',
        ),
        (
            '{"mcpServers":{"docs":{"command":"x","args":[]}}}',
            '{"mcpServers":{"docs":{"command":"/opt/samplegate","args":[' + OURS + ', "--", "x"]}}}',
        ),
        (
            '{"mcpServers": {"docs": {"args": [ /* none */ ], "command": "\\u0078"}}}',
            '{"mcpServers": {"docs": {"args": ['
            + OURS
            + ', "--", "\\u0078" /* none */ ], "command": "/opt/samplegate"}}}',
        ),
    ],
)
def test_only_command_and_args_of_an_entry_change(before: str, after: str) -> None:
    assert after == wrapped(before)
    assert before == round_trip(before, JSON)


def test_each_argument_has_a_line_of_its_own_where_the_first_one_has() -> None:
    before = '{"mcpServers": {"docs": {\n\t"command": "npx",\n\t"args": [ // two\n\t\t"-y",\n\t\t"x"\n\t]\n}}}'
    words = ["run", "--policy", "/etc/policy.yaml", "--server", "docs", "--", "npx", "-y", "x"]
    after = wrapped(before)
    assert words == [line.strip(' \t,"') for line in after.splitlines() if line.startswith("\t\t")]
    assert "[ // two\n" in after
    assert before == round_trip(before, JSON)


REMOTE: Final = """\
{"mcpServers": {"docs": {
  "type": "http",
  "url": "https://x.example/mcp",
  "headers": {"Authorization": "Bearer ${TOKEN:-x}", "X-Key": "k"}
}}}
"""


def test_the_headers_of_a_server_at_a_url_become_variables_of_its_environment() -> None:
    after = wrapped(REMOTE)
    entry = json.loads(after)["mcpServers"]["docs"]
    assert {
        "type": "stdio",
        "command": "/opt/samplegate",
        "args": [
            *("run", "--policy", "/etc/policy.yaml", "--server", "docs", "--url", "https://x.example/mcp"),
            *("--header-env", "Authorization=MCP_HEADER_AUTHORIZATION", "--header-env", "X-Key=MCP_HEADER_X_KEY"),
        ],
        "env": {"MCP_HEADER_AUTHORIZATION": "Bearer ${TOKEN:-x}", "MCP_HEADER_X_KEY": "k"},
    } == entry
    assert REMOTE == round_trip(REMOTE, JSON)


def test_a_server_at_a_url_is_unwrapped_without_a_journal() -> None:
    plan = unwrap(wrapped(REMOTE).encode(), JSON, ())
    assert [False] == [change.exact for change in plan.changes]
    assert REMOTE == plan.after.text


def test_an_edited_entry_is_unwrapped_by_its_structure() -> None:
    before = '{"mcpServers": {"docs": {"command": "npx", "args": ["-y"]}}}'
    first = wrap(before.encode(), JSON, GATE)
    edited = first.after.text.replace('"-y"', '"-y", "more"')
    plan = unwrap(edited.encode(), JSON, first.records)
    assert [False] == [change.exact for change in plan.changes]
    assert '{"mcpServers": {"docs": {"command": "npx", "args": ["-y", "more"]}}}' == plan.after.text


def test_a_change_elsewhere_in_the_entry_stays_and_the_original_bytes_return() -> None:
    before = '{"mcpServers": {"docs": {"command": "npx", "env": {"A": "1"}}}}'
    first = wrap(before.encode(), JSON, GATE)
    plan = unwrap(first.after.text.replace('"1"', '"2"').encode(), JSON, first.records)
    assert [True] == [change.exact for change in plan.changes]
    assert before.replace('"1"', '"2"') == plan.after.text


def test_a_wrapped_entry_is_not_wrapped_again() -> None:
    once = wrapped('{"mcpServers": {"docs": {"command": "npx"}}}')
    plan = wrap(once.encode(), JSON, Gate(command="/other", policy="/other.yaml"))
    assert (once, []) == (plan.after.text, plan.changes)
    assert [True] == [isinstance(row.state, Wrapped) for row in plan.rows]


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"url": "https://x.example/mcp"}, "no headers"),
        ({"url": "https://x.example/mcp", "headers": {"A": "b"}, "oauth": {}}, "OAuth"),
        ({"url": "https://x.example/mcp", "headers": {"A": "b"}, "headersHelper": "x"}, "headersHelper"),
        ({"type": "sse", "url": "https://x.example/mcp", "headers": {"A": "b"}}, "SSE"),
        ({"url": "https://x.example/sse", "headers": {"A": "b"}}, "SSE"),
        ({"url": "https://x.example/mcp?api_key=1", "headers": {"A": "b"}}, "key"),
        ({"url": "https://u:p@x.example/mcp", "headers": {"A": "b"}}, "password"),
        ({"url": "https://x.example/${TOKEN}", "headers": {"A": "b"}}, "variable"),
        ({"url": "https://x.example/s/Zj4kd93kDk30dkskdkDKe/mcp", "headers": {"A": "b"}}, "key"),
        ({"url": "https://x.example/mcp", "headers": {"A": "${B:-${C}}"}}, "variable within"),
        ({"url": "https://x.example/mcp", "headers": {"A": 1}}, "not a mapping of names to strings"),
        ({"url": "https://x.example/mcp", "headers": {"A": "b"}, "env": {}}, "both headers and env"),
        ({"url": "https://x.example/mcp", "headers": {"A": "b"}, "args": []}, "both url and args"),
        ({"command": "sh", "args": ["-c", "exec samplegate run --policy p.yaml -- x"]}, "a shell in it"),
        ({"command": 1}, "command is not a string"),
        ({"command": "x", "args": "y"}, "args are not a list"),
        ({"command": "x", "url": "https://x.example"}, "both command and url"),
        ({"command": "/bin/samplegate", "args": ["demo"]}, "samplegate itself"),
        ({}, "neither command nor url"),
        ("x", "not an object"),
    ],
)
def test_an_entry_that_must_not_be_changed_is_skipped_with_its_reason(entry: Any, part: str) -> None:
    text = json.dumps({"mcpServers": {"docs": entry}})
    assert text == wrapped(text)
    assert part in reasons(text)["docs"]


@pytest.mark.parametrize(
    "member",
    [
        'bearer_token_env_var = "TOKEN"',
        'env_http_headers = {"X-Key" = "KEY"}',
        'oauth = {client_id = "x"}',
        'oauth_resource = "x"',
    ],
)
def test_codex_keeps_a_server_whose_members_it_refuses_for_a_command(member: str) -> None:
    text = f'[mcp_servers.docs]\nurl = "https://x.example/mcp"\n{member}\nhttp_headers = {{A = "b"}}\n'
    source = Source(format="toml", keys=(("mcp_servers",),), rules=Rules(shape=SHAPES["codex"], remote=True))
    assert text == wrapped(text, source)
    assert "which the client refuses for a command" in reasons(text, source)["docs"]


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ('[mcp_servers.docs]\nurl = "https://x.example/mcp"\nhttp_headers.A = "b"\n', "http_headers"),
        ('mcp_servers.docs.url = "https://x.example/mcp"\nmcp_servers.docs.http_headers.A = "b"\n', "http_headers"),
        ('[mcp_servers.docs]\nurl = "https://x.example/mcp"\nenv.A = "b"\nhttp_headers = {A = "b"}\n', "env"),
    ],
)
def test_no_header_is_lost_that_toml_has_at_dotted_keys(text: str, member: str) -> None:
    assert text == wrapped(text, TOML)
    assert reasons(text, TOML)["docs"].startswith(f"its {member} is not a value or a table of its own")


@pytest.mark.parametrize(
    ("command", "args", "server"),
    [
        ("uvx", ["--from", "x.whl", "samplegate", "run", "--policy", "p", "--", "y", "z"], ["y", "z"]),
        ("/usr/bin/python3.11", ["-m", "samplegate", "run", "--policy", "p", "--", "y"], ["y"]),
        ("docker", ["run", "-i", "example/samplegate", "run", "--policy", "p", "--", "y"], None),
        ("env", ["A=b", "samplegate", "run", "--policy", "p", "--", "y"], None),
    ],
)
def test_a_server_wrapped_by_hand_is_unwrapped_where_it_runs_in_the_same_place(
    command: str, args: list[str], server: list[str] | None
) -> None:
    text = json.dumps({"mcpServers": {"docs": {"command": command, "args": args}}})
    plan = unwrap(text.encode(), JSON, ())
    entry = json.loads(plan.after.text)["mcpServers"]["docs"]
    assert (server or [command, *args]) == [entry["command"], *entry["args"]]
    assert [f"'{command}' starts samplegate and the server; restore it by hand" if server is None else ""] == [
        row.refused for row in plan.rows
    ]


@pytest.mark.parametrize("source", [JSON, TOML])
def test_a_number_of_any_length_is_read_or_refused(source: Source) -> None:
    for name, text in (("timeout", "1" * 5_000), ("elsewhere", "1" * 100)):
        if source is JSON:
            file = f'{{"mcpServers": {{"docs": {{"command": "x", "{name}": {text}}}}}}}'
        else:
            file = f'[mcp_servers.docs]\ncommand = "x"\n{name} = {text}\n'
        if len(text) < 600:
            assert file == round_trip(file, source)
        else:
            with pytest.raises(FileFault, match="number"):
                wrap(file.encode(), source, GATE)


def test_the_work_grows_with_the_number_of_servers_and_not_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    read_entries = JsonDocument.entries

    def counted(document: JsonDocument, key: Key) -> Sequence[Entry] | None:
        nonlocal reads
        reads += 1
        return read_entries(document, key)

    monkeypatch.setattr(JsonDocument, "entries", counted)
    text = json.dumps({"mcpServers": {f"s{i}": {"command": "x"} for i in range(30)}})
    round_trip(text, JSON)
    assert reads < 15


CODEX: Final = """\
model = "x" # the model

[mcp_servers.docs] # documentation
command = "npx" # why
args = [ "-y", # yes
  'x' ]
[mcp_servers.docs.env]
A = "b"
[mcp_servers.docs.tools.search]
approval_mode = "approve"

[mcp_servers.plain]
command='server' # no arguments
[tui]
x = 1
[mcp_servers."at url"]
url = "https://x.example/mcp"
http_headers = { "X-A" = "b", Y='c' }
"""


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_toml_keeps_its_comments_and_comes_back(line_end: str) -> None:
    before = CODEX.replace("\n", line_end)
    after = wrapped(before, TOML)
    assert before == round_trip(before, TOML)
    assert after == wrapped(after, TOML)
    for comment in ("# the model", "# documentation", "# why", "# yes", "# no arguments"):
        assert comment in after


@pytest.mark.parametrize(
    ("source", "text", "message"),
    [
        (JSON, "", "1:1: the file is empty"),
        (JSON, "[]", "1:1: the file is not an object"),
        (JSON, '{"mcpServers": []}', "1:16: key 'mcpServers' is not an object"),
        (JSON, '{"mcpServers": {"a": {}, "a": {}}}', "1:26: key 'a' is already at 1:17; remove one of them"),
        (JSON, '{"mcpServers": {"a" 1}}', "1:21: expected a colon"),
        (TOML, "a = 1\na = 2\n", "2:6: not valid TOML: a key is there twice; remove one"),
        (TOML, "a = ", "not valid TOML: invalid value"),
        (TOML, "mcp_servers = 1\n", "key 'mcp_servers' is not a table"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_place(source: Source, text: str, message: str) -> None:
    with pytest.raises(FileFault) as refused:
        wrap(text.encode(), source, GATE)
    assert message == str(refused.value)


def states(plan: Plan) -> dict[str, bool]:
    return {row.entry.name: isinstance(row.state, Open) for row in plan.rows}


def test_only_the_named_servers_are_wrapped() -> None:
    text = '{"mcpServers": {"docs": {"command": "a"}, "db": {"command": "b"}}}'
    assert {"docs": True} == states(wrap(text.encode(), JSON, GATE, ["doc*"]))
