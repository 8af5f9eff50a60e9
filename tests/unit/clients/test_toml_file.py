"""TOML files that are hard to read: huge, deep, and with values that are not equal to themselves."""

from __future__ import annotations

import pytest

from samplegate.clients.faults import FileFault
from samplegate.clients.toml_file import TomlDocument

SERVERS = (("mcp_servers",),)
SERVER = '[mcp_servers.x]\ncommand = "cmd"\n'


def refused(text: str) -> str:
    with pytest.raises(FileFault) as fault:
        TomlDocument(text)
    return str(fault.value)


@pytest.mark.parametrize("number", ["nan", "-nan", "inf", "1e400", "0.1"])
def test_a_file_equals_itself_with_every_number(number: str) -> None:
    one, other = (TomlDocument(f"x = {number}\n{SERVER}") for _ in range(2))
    assert one.others([]) == other.others([])


@pytest.mark.parametrize("line", ["a{} = 1", "[a{}]", "[[a{}]]", "x = {{a{} = 1}}", '"a"{} = 1'])
def test_a_key_with_too_many_parts_is_refused_before_it_is_read(line: str) -> None:
    parts = " . a" * 20_000
    assert "a key has more than 100 parts" in refused(f"y = 1\n{line.format(parts)}\n")


def test_a_key_may_have_100_parts() -> None:
    TomlDocument(f"a{'.a' * 99} = 1\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{SERVER}{SERVER}", "3:15: not valid TOML: key 'mcp_servers.x' is there twice; remove one"),
        (
            f'{SERVER}[mcp_servers."\\u0078"]\n',
            "3:22: not valid TOML: key 'mcp_servers.x' is there twice; remove one",
        ),
    ],
)
def test_a_duplicate_key_is_named(text: str, expected: str) -> None:
    assert expected == refused(text)


def test_the_heads_of_tables_are_read_once() -> None:
    text = "".join(f'[mcp_servers.s{i}]\ncommand = "c"\n[mcp_servers.s{i}.env]\nA = "b"\n' for i in range(20))
    document = TomlDocument(text)
    entries = document.entries(*SERVERS) or ()
    assert [f"env{i}" for i in range(20)] == [
        f"{text[one.members['env'].key.start : one.members['env'].key.end]}{i}" for i, one in enumerate(entries)
    ]


def test_servers_that_are_no_table_are_told() -> None:
    with pytest.raises(FileFault, match="key 'mcp_servers' is not a table"):
        TomlDocument('[[mcp_servers]]\ncommand = "x"\n').entries(("mcp_servers",))
