"""The daemon's settings from all their sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from samplegate.config import RunSettings, SettingsError, load
from samplegate.config.identities import CallerSettings
from samplegate.config.serve import LoadedServe, ServeTree, load_serve
from samplegate.config.serve_settings import SERVE_SETTINGS, ServeSettings
from samplegate.config.servers import ServerSettings
from samplegate.config.settings import MIB
from samplegate.config.sources import gather
from samplegate.config.values import Address

HOME = {"HOME": "/srv/u"}
WHOLE = """\
policy: rules.yaml
listen: 0.0.0.0:8443
admin_listen: "[::1]:9000"
decision_log: sqlite:log.db
allowed_hosts: [gate.example.com, "gate.internal:*"]
watch: false
drain_timeout: 5
servers:
  docs: {command: python, args: [-m, docs]}
callers:
  tokens: [{name: ci, sha256: "%s"}]
""" % ("ab" * 32)


def loaded(text: str | None, folder: Path, environ: dict[str, str] | None = None, **more: Any) -> LoadedServe:
    file = None
    if text is not None:
        file = folder / "s.yaml"
        file.write_text(text)
    return load_serve({**HOME, **(environ or {})}, file=file, **more)


def problems(text: str | None, folder: Path, environ: dict[str, str] | None = None, **more: Any) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        loaded(text, folder, environ, **more)
    return [problem.replace(f"{folder}/", "") for problem in refused.value.problems]


def outcome(environ: dict[str, str], **more: Any) -> ServeSettings | list[str]:
    try:
        return load_serve(environ, **more).settings
    except SettingsError as refused:
        return refused.problems


QUICK: dict[str, Any] = {"command": ["python", "server.py"], "flags": {"policy": Path("p.yaml")}}


def test_the_quick_form_needs_no_file(tmp_path: Path) -> None:
    found = loaded(None, tmp_path, **QUICK).settings
    assert {"default": ServerSettings(name="default", command="python", args=("server.py",))} == found.servers
    assert (Path("p.yaml"), Address("127.0.0.1", 8080), CallerSettings()) == (
        found.policy,
        found.listens_at,
        found.callers,
    )
    remote = loaded(
        None, tmp_path, url="https://x/mcp", name="docs", flags={"policy": "p", "listen": "127.0.0.1:0"}
    ).settings
    assert {"docs": ServerSettings(name="docs", url="https://x/mcp", from_options=True)} == remote.servers
    assert 0 == remote.listens_at.port


def test_a_file_says_everything(tmp_path: Path) -> None:
    found = loaded(WHOLE, tmp_path)
    assert (tmp_path / "rules.yaml", f"sqlite:{tmp_path / 'log.db'}") == (
        found.settings.policy,
        found.settings.decision_log,
    )
    assert (Address("0.0.0.0", 8443), "[::1]:9000") == (found.settings.listens_at, found.settings.admin_listen)
    assert (("gate.example.com", "gate.internal:*"), False, 5) == (
        found.settings.allowed_hosts,
        found.settings.watch,
        found.settings.drain_timeout,
    )
    assert (["docs"], ["ci"]) == (list(found.settings.servers), [token.name for token in found.settings.callers.tokens])
    assert (tmp_path / "s.yaml", tmp_path / "rules.yaml") == found.files


def test_the_same_settings_are_equal_and_others_are_not(tmp_path: Path) -> None:
    assert loaded(WHOLE, tmp_path) == loaded(WHOLE, tmp_path)
    assert loaded(WHOLE, tmp_path).settings != loaded(WHOLE.replace("[-m, docs]", "[-m, docs2]"), tmp_path).settings


def test_the_command_line_wins_over_variables_and_these_over_the_file(tmp_path: Path) -> None:
    environ = {
        "SAMPLEGATE_LISTEN": "127.0.0.1:1",
        "SAMPLEGATE_DRAIN_TIMEOUT": "7",
        "SAMPLEGATE_WATCH": "true",
        "SAMPLEGATE_ALLOWED_HOSTS": "a, b",
    }
    found = loaded(WHOLE, tmp_path, environ, flags={"listen": "127.0.0.1:2", "policy": None}).settings
    assert ("127.0.0.1:2", 7, True, ("a", "b")) == (found.listen, found.drain_timeout, found.watch, found.allowed_hosts)


def test_a_variable_holds_a_whole_section(tmp_path: Path) -> None:
    servers = {"a": {"command": "x"}, "b": {"url": "https://x/mcp"}}
    environ = {
        "SAMPLEGATE_SERVERS": json.dumps(servers),
        "SAMPLEGATE_CALLERS": "{tokens_file: tokens}",
        "SAMPLEGATE_POLICY": "p",
    }
    (tmp_path / "tokens").write_text(f"ci {'0' * 64}\n")
    environ["SAMPLEGATE_CALLERS"] = f"tokens_file: {tmp_path / 'tokens'}"
    found = loaded(None, tmp_path, environ)
    assert (["a", "b"], ["ci"]) == (
        list(found.settings.servers),
        [token.name for token in found.settings.callers.tokens],
    )
    assert tmp_path / "tokens" in found.files
    assert ["SAMPLEGATE_SERVERS:1:6: a.comand: unknown key; did you mean 'command'?"] == problems(
        None, tmp_path, {**environ, "SAMPLEGATE_SERVERS": "{a: {comand: x}}"}
    )


def test_an_empty_environment_is_told_what_is_missing(tmp_path: Path) -> None:
    expected = [
        "servers: none defined; put a command after --, use --url, or add `servers` to the settings file",
        "policy: not set; use --policy FILE, SAMPLEGATE_POLICY, or policy: in the settings file",
    ]
    assert expected == problems(None, tmp_path)


def test_all_problems_are_told_at_once_each_at_its_place(tmp_path: Path) -> None:
    text = """\
listen: :80
max_sessions: 0
server: docs
watch: maybe
allowed_hosts: gate
servers:
  a/b: {command: x}
  docs: {command: x, shar: all}
  db: {}
callers: {}
"""
    expected = [
        "s.yaml:3:1: server: unknown setting; did you mean servers?",
        (
            "s.yaml:1:1: listen: ':80' has no host; write 127.0.0.1:80 for this machine only, or 0.0.0.0:80 for"
            " all interfaces"
        ),
        "s.yaml:2:1: max_sessions: '0' is not a whole number from 1 to 100000",
        "s.yaml:4:1: watch: 'maybe' is not one of true, false",
        "s.yaml:5:1: allowed_hosts: 'gate' is not a list of strings; write [one, two]",
        "SAMPLEGATE_MAX_CHILDREN: 'x' is not a whole number from 1 to 100000",
        (
            "s.yaml:7:8: servers.'a/b': is not a valid server name; use at most 64 letters, digits and . _ -,"
            " because it is part of the server's URL"
        ),
        "s.yaml:8:22: servers.docs.shar: unknown key; did you mean 'share'?",
        "s.yaml:9:7: servers.db: has neither command nor url; give exactly one of them",
        "s.yaml:10:10: callers: defines no way to authenticate; add tokens, tokens_file or jwt",
        "policy: not set; use --policy FILE, SAMPLEGATE_POLICY, or policy: in the settings file",
    ]
    assert sorted(expected) == sorted(problems(text, tmp_path, {"SAMPLEGATE_MAX_CHILDREN": "x"}))


@pytest.mark.parametrize(
    "listen",
    ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "gate.example.com:80", "localhost.example.com:80", "[::ffff:10.0.0.1]:80"],
)
def test_what_others_reach_needs_callers_that_are_known(listen: str, tmp_path: Path) -> None:
    (told,) = problems(None, tmp_path, {"SAMPLEGATE_LISTEN": listen}, **QUICK)
    assert told.startswith(
        f"SAMPLEGATE_LISTEN: {listen} is reachable from other machines without a token; add `callers`, or listen on"
    )


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:80", "127.8.8.8:0", "localhost:80", "LOCALHOST:80", "[::1]:80", "[0:0:0:0:0:0:0:1]:65535"]
)
def test_this_machines_own_addresses_need_none(listen: str, tmp_path: Path) -> None:
    assert loaded(None, tmp_path, {"SAMPLEGATE_LISTEN": listen}, **QUICK).settings.listens_at.is_loopback


@pytest.mark.parametrize(
    "listen",
    [
        "80",
        "host",
        "host:",
        ":80",
        "host:80000",
        "host:-1",
        "::1:80",
        "[::1]",
        "[x]:80",
        "a b:80",
        "http://x:80",
        "host:80/",
        "-a:80",
        "h:8\u0660",
    ],
)
def test_what_is_no_address_is_told_with_the_remedy(listen: str, tmp_path: Path) -> None:
    (told,) = problems(None, tmp_path, {"SAMPLEGATE_LISTEN": listen}, **QUICK)
    assert told.startswith("SAMPLEGATE_LISTEN: ")
    assert "; write" in told or "invalid port" in told


def test_an_address_reads_back_as_it_is_written() -> None:
    assert "[::1]:80" == str(Address("::1", 80))
    assert "localhost:80" == str(Address("localhost", 80))


def test_a_clients_file_is_taken_as_it_is(tmp_path: Path) -> None:
    client = {
        "globalShortcut": "x",
        "mcpServers": {
            "fs": {"type": "stdio", "command": "npx", "args": ["-y", "fs"], "env": {"A": "b"}},
            "old": {"command": "x", "disabled": True},
        },
    }
    (tmp_path / "client.json").write_text(json.dumps(client, indent="\t"))
    found = loaded("servers_file: client.json\npolicy: p\nservers: {docs: {command: run}}\n", tmp_path)
    assert {"docs": ("run",), "fs": ("npx", "-y", "fs")} == {
        name: server.argv for name, server in found.settings.servers.items()
    }
    assert tmp_path / "client.json" in found.files


def test_a_clients_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    text = "servers_file: client.json\npolicy: p\nservers: {fs: {command: run}}\n"
    assert ["client.json: cannot be read: no such file or directory; correct the path"] == problems(text, tmp_path)
    (tmp_path / "client.json").write_text("{}")
    assert ["client.json:1:1: has no mcpServers; use a client's configuration file with mcpServers"] == problems(
        text, tmp_path
    )
    (tmp_path / "client.json").write_text('{"mcpServers": {"fs": {"command": "x"}, "b": {"commnd": "x"}}}')
    assert [
        "client.json:1:23: mcpServers.fs: is also a server in the settings; rename one of them",
        "client.json:1:47: mcpServers.b.commnd: unknown key; did you mean 'command'?",
    ] == problems(text, tmp_path)
    (tmp_path / "client.json").write_text('{"mcpServers": [1]}')
    assert [
        "client.json:1:16: mcpServers: is not a mapping; write one name per line, each with its settings"
    ] == problems(text, tmp_path)


def test_the_line_and_the_settings_do_not_both_name_servers(tmp_path: Path) -> None:
    assert ["s.yaml:8:1: servers: defines servers, but the command line has one, too; remove one of them"] == problems(
        WHOLE, tmp_path, command=["x"]
    )
    assert ["--url: cannot be combined with a command; remove one of them"] == problems(
        None, tmp_path, url="https://x", **QUICK
    )
    assert [
        "--url: is not an http or https URL with a host; use a URL such as https://mcp.example.com/mcp"
    ] == problems(None, tmp_path, url="x", flags={"policy": "p"})
    (told,) = problems(None, tmp_path, **QUICK, name="a/b")
    assert told.startswith("--server: is not a valid server name")


@pytest.mark.parametrize(("text", "expected"), [("sqlite:", "has no path; write sqlite:PATH"), ("", "must be a path")])
def test_a_database_for_the_decisions_has_a_path(text: str, expected: str, tmp_path: Path) -> None:
    assert [f"s.yaml:2:1: decision_log: {expected}"] == problems(
        f"policy: p\ndecision_log: '{text}'\n", tmp_path, command=["x"]
    )
    assert "sqlite:/x/log.db" == load(HOME, flags={"decision_log": "sqlite:/x/log.db"}).settings.decision_log


WRITTEN = (
    "x|''|0|7|7.0|-1|99999999999|'7'|true|'true'|none|json|[]|[a]|[1]|[a, b]|{a:"
    " 1}|'sqlite:'|'sqlite:x'|127.0.0.1:1|[10.0.0.0/8]|~no-such-user/x"
)
PLAIN = [name for name, setting in SERVE_SETTINGS.items() if not setting.section]
BESIDE_OTHERS = {"reviews_listen", "servers_file"}  # valid alone, but not together with the settings of the test


@pytest.mark.parametrize("name", PLAIN)
def test_serve_reads_a_value_as_the_commands_do_that_import_no_pydantic(name: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    for text in WRITTEN.split("|"):
        file.write_text(f"{name}: {text}\n")
        told: list[str] = []
        values, _ = gather(SERVE_SETTINGS, HOME, file, {"policy": "p"} if name != "policy" else {}, told)
        found = outcome(HOME, file=file, flags={"policy": "p"} if name != "policy" else {}, command=["x"])
        if isinstance(found, list):
            assert told == found[: len(told)], text
            assert told or name in BESIDE_OTHERS, text
        else:
            assert ([], values[name]) == (told, getattr(found, name)), text


def test_the_daemons_model_has_the_fields_and_the_defaults_of_the_definition() -> None:
    fields = {name: field.get_default(call_default_factory=True) for name, field in ServeTree.model_fields.items()}
    assert {name: getattr(ServeSettings(), name) for name in PLAIN} == {name: fields[name] for name in PLAIN}
    assert {*SERVE_SETTINGS, "reading"} == fields.keys()


def test_the_daemons_model_reads_no_variable_of_the_process_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in ("", "SAMPLEGATE_"):
        monkeypatch.setenv(f"{prefix}MAX_SESSIONS", "7")
        monkeypatch.setenv(f"{prefix}WATCH", "maybe")
    found = load_serve(HOME, **QUICK).settings
    assert (2_000, True) == (found.max_sessions, found.watch)


def test_every_setting_of_the_daemon_says_what_it_is() -> None:
    assert [] == [name for name, setting in SERVE_SETTINGS.items() if not setting.meta.description]


def test_the_daemon_has_what_run_has_but_what_belongs_to_one_server_and_the_metrics_port() -> None:
    of_one_server = {"server", "protocol", "start_timeout", "call_timeout", "end_of_input_timeout"}
    assert {*of_one_server, "metrics_port"} == set(RunSettings.__struct_fields__) - set(ServeSettings.__struct_fields__)


def test_the_bounds_are_what_the_documentation_says() -> None:
    found = ServeSettings()
    assert (16 * MIB, 32 * 1024, 2_000, 2_000, 256, 1_800, 30, 256, 30) == (
        found.max_body_bytes,
        found.max_header_bytes,
        found.max_connections,
        found.max_sessions,
        found.max_sessions_per_caller,
        found.session_idle,
        found.body_timeout,
        found.max_children,
        found.drain_timeout,
    )


@pytest.mark.parametrize("text", ["servers:\n", "servers: {}\n", "servers: {a: {command: x, disabled: true}}\n"])
def test_no_server_at_all_is_told(text: str, tmp_path: Path) -> None:
    (told,) = problems(f"policy: p\n{text}", tmp_path)
    assert told.startswith("servers: none defined")


def test_sections_that_are_no_mappings_are_told(tmp_path: Path) -> None:
    told = problems("policy: p\nservers: [docs]\ncallers: yes please\n", tmp_path)
    assert "s.yaml:2:10: servers: is not a mapping; write one name per line, each with its settings" in told
    assert any(line.startswith("s.yaml:3:10: callers: 'yes please' is not a mapping") for line in told)


@pytest.mark.parametrize("text", ["null", "{", "[" * 50, "\x00", "&a x", "a: 1\na: 2"], ids=repr)
def test_a_variable_that_is_no_section_is_told_by_its_name(text: str, tmp_path: Path) -> None:
    told = problems(None, tmp_path, {"SAMPLEGATE_SERVERS": text, "SAMPLEGATE_POLICY": "p"})
    assert told
    assert all(line.startswith(("SAMPLEGATE_SERVERS", "servers")) for line in told)


@pytest.mark.parametrize(
    "value", ["*", "gate.example.com", "gate.example.com:443", "gate:*", "[::1]:8080", "[::1]:*", "10.0.0.1"]
)
def test_a_host_that_is_taken_is_a_name_with_or_without_a_port(value: str, tmp_path: Path) -> None:
    assert (value,) == loaded(None, tmp_path, {"SAMPLEGATE_ALLOWED_HOSTS": value}, **QUICK).settings.allowed_hosts


@pytest.mark.parametrize("value", ["*.example.com", "https://gate", "gate/", "a b", "::1", "gate:", "gate:x", ","])
def test_what_no_host_header_can_be_is_told(value: str, tmp_path: Path) -> None:
    (told,) = problems(None, tmp_path, {"SAMPLEGATE_ALLOWED_HOSTS": value}, **QUICK)
    assert told.startswith("SAMPLEGATE_ALLOWED_HOSTS: ")
    assert told.endswith("is not a Host header; write NAME, NAME:PORT, NAME:* for any port, or * for any host")


@pytest.mark.parametrize(
    "value",
    [
        "null",
        "https://app.example.com",
        "https://app.example.com/",
        "http://localhost:*",
        "app://x",
        "http://[::1]:3000",
    ],
)
def test_an_origin_that_is_taken_is_a_scheme_and_a_host(value: str, tmp_path: Path) -> None:
    assert (value,) == loaded(None, tmp_path, {"SAMPLEGATE_ALLOWED_ORIGINS": value}, **QUICK).settings.allowed_origins


@pytest.mark.parametrize(
    "value",
    ["*", "https://*.example.com", "app.example.com", "https://app.example.com/path", "https://", "https://u@x"],
)
def test_what_no_origin_header_can_be_is_told(value: str, tmp_path: Path) -> None:
    (told,) = problems(None, tmp_path, {"SAMPLEGATE_ALLOWED_ORIGINS": value}, **QUICK)
    assert told.endswith(
        "is not an Origin header; write https://NAME, https://NAME:PORT, https://NAME:* for any port, or null"
    )


def test_an_issuer_that_clients_are_not_led_to_is_warned_of(tmp_path: Path) -> None:
    def text(more: str) -> str:
        return f"callers: {{jwt: {{issuer: 'https://x', audience: [a]}}{more}}}\npolicy: p\n"

    (warned,) = loaded(text(""), tmp_path, command=["x"]).warnings
    assert warned.endswith(
        "callers: has jwt without resource, so clients without a token cannot find out where to get one"
    )
    assert () == loaded(text(", resource: 'https://gate'"), tmp_path, command=["x"]).warnings
