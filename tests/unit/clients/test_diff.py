"""The diff that `wrap` prints: no secrets, and lines of the file."""

from __future__ import annotations

import json
from typing import Final

import pytest

from samplegate.clients.diff import diff_lines
from samplegate.clients.gate_call import Gate
from samplegate.clients.plan import Source, wrap
from samplegate.clients.shapes import SHAPES
from samplegate.clients.wrapper import Rules

GATE: Final = Gate(command="/opt/samplegate", policy="/etc/policies/a-policy-of-2026-with-a-long-name.yaml")
JSON: Final = Source(format="json", keys=(("mcpServers",),), rules=Rules(shape=SHAPES["command-args"]))
TOML: Final = Source(format="toml", keys=(("mcp_servers",),), rules=Rules(shape=SHAPES["codex"]))


def diff(text: str, source: Source = JSON) -> str:
    return "\n".join(diff_lines("file", wrap(text.encode(), source, GATE), source))


@pytest.mark.parametrize(
    "args",
    [
        ["--password", "sesame"],
        ["--password", "-sesame"],
        ["--token=sesame"],
        ["-e", "API_TOKEN=sesame"],
        ["postgres://me:sesame@db/x"],
        ["--header", "Authorization: Bearer sesame"],
        ["--header=Authorization:Bearer sesame"],
        ["--header", "X-Custom:sesame"],
        ["-H", "sesame"],
        ["--key", "sesame"],
        ["https://x.example/mcp?a=1&api_key=sesame"],
        ["https://x.example/s/sesame4kd93kDk30dkskdkDKe/mcp"],
        ["sk-sesame-4kd93kDk30dkskdkDKe"],
        ["sesame" + "x" * 3_000],
    ],
)
def test_an_argument_that_may_be_a_secret_is_not_shown(args: list[str]) -> None:
    shown = diff(json.dumps({"mcpServers": {"docs": {"command": "npx", "args": ["-y", "mcp-remote@1.2", *args]}}}))
    assert "sesame" not in shown
    assert '"npx", "-y", "mcp-remote@1.2"' in shown
    assert GATE.policy in shown


def test_values_of_headers_and_variables_are_not_shown() -> None:
    remote = {"url": "https://x.example/mcp", "headers": {"X-Region": "sesame"}, "note": "sesame", "list": ["sesame"]}
    local = {"command": "npx", "env": {"PLAIN": "sesame"}}
    shown = diff(json.dumps({"mcpServers": {"a": remote, "b": local}}))
    assert "sesame" not in shown
    assert '"--header-env", "X-Region=MCP_HEADER_X_REGION"' in shown
    text = '[mcp_servers.a]\nurl = "https://x.example/mcp"\nhttp_headers = {A = "sesame"}\nenv_x.y = "sesame"\n'
    assert "sesame" not in diff(text, TOML)


def test_lines_have_the_numbers_of_the_file_and_no_tabs() -> None:
    text = '{\r\n"x": "a\u2028b",\r\n\t"mcpServers": {\r\n\t\t"docs": {\r\n\t\t\t"command": "npx"\r\n}}}\r\n'
    assert [
        "--- file",
        "+++ file",
        "@@ -5 +5,2 @@ /mcpServers/docs",
        '-            "command": "npx"',
        '+            "command": "/opt/samplegate",',
        f'+            "args": ["run", "--policy", "{GATE.policy}", "--server", "docs", "--", "npx"]',
    ] == diff(text).splitlines()
