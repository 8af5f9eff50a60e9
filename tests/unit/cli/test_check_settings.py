"""`samplegate check` of settings files and folders, and `samplegate serve --check`: all problems at once, with nothing
started, bound or created."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Final

import pytest

from samplegate.cli.files import is_for_run
from tests.fakes.github_runner import commands
from tests.fakes.shell import Ended, Run, Write

POLICY = "version: 1\nrules:\n  - {name: x, match: {kind: sampling, server: docs}, effect: deny}\n"
SETTINGS = "policy: p.yaml\nlisten: 127.0.0.1:18080\nservers: {docs: {command: sh}}\n"
WRONG = """\
policy: gone.yaml
listen: 127.0.0.1:18080
admin_listen: 127.0.0.1:18080
reviews_listen: 999.1.1.1:80
admin_token_file: nope
lisen: x
servers:
  docs: {command: none-such}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return tmp_path / "home"


def both(run: Run, *flags: str) -> tuple[Ended, Ended]:
    return run("check", "s.yaml"), run("serve", "--settings", "s.yaml", *flags, "--check")


def test_good_settings_are_ok_and_so_is_their_policy(run: Run, write: Write, tmp_path: Path) -> None:
    write("p.yaml", POLICY)
    write("s.yaml", SETTINGS)
    checked, served = both(run)
    assert (0, "") == (checked.code, checked.err)
    first, second, *_ = checked.out.splitlines()
    assert ("s.yaml: ok", True) == (first, second.startswith("p.yaml: ok, 1 rule, "))
    assert Ended(0, "ok, 1 server, policy p.yaml\n", "") == served
    assert ["p.yaml", "s.yaml"] == sorted(path.name for path in tmp_path.iterdir())


def test_all_problems_of_settings_are_told_at_once(run: Run, write: Write, tmp_path: Path) -> None:
    write("s.yaml", WRONG)
    told = [
        "s.yaml:6:1: lisen: unknown setting; did you mean listen?",
        "s.yaml:4:1: reviews_listen: no users are configured; add `people`, or remove reviews_listen",
        (
            "s.yaml:1:1: policy: gone.yaml: cannot be read: no such file or directory; the path is relative to"
            f" {tmp_path}; correct it, or write the full path"
        ),
        "s.yaml:8:19: servers.docs.command: 'none-such' was not found in PATH; install it, or give its full path",
        "s.yaml:3:1: admin_listen: 127.0.0.1:18080 overlaps with listen (127.0.0.1:18080); choose another port",
        "s.yaml:4:1: reviews_listen: '999.1.1.1' is not an IP address; write four numbers from 0 to 255",
        "s.yaml:5:1: admin_token_file: nope cannot be read: no such file or directory",
    ]
    checked, served = both(run)
    problems = [line for line in checked.out.splitlines() if ": warning: " not in line]
    assert (1, sorted(told)) == (checked.code, sorted(problems))
    refused = [line for line in served.err.splitlines() if not line.startswith("samplegate: warning: ")]
    assert (2, "", sorted(f"samplegate: {line}" for line in told)) == (served.code, served.out, sorted(refused))
    assert ["s.yaml"] == [path.name for path in tmp_path.iterdir()]


def test_the_policy_of_settings_is_checked_as_serve_reads_it(run: Run, write: Write) -> None:
    write("p.yaml", POLICY + "  - {name: fixed, match: {kind: sampling}, effect: answer, content: '${UNSET_HERE}'}\n")
    write("s.yaml", SETTINGS)
    assert 0 == run("check", "p.yaml").code
    unset = "p.yaml:4:69: rules.1.content: ${UNSET_HERE} is not set in the environment, so the rule cannot answer"
    for one in both(run):
        assert 0 != one.code
        assert 1 == (one.out + one.err).count(unset), one
    assert 1 == run("check", "p.yaml", "s.yaml").out.count(unset)
    assert 1 == run("check", "s.yaml", "p.yaml").out.count(unset)
    assert 1 == run("check", "s.yaml", "./p.yaml").out.count(unset)


def test_a_problem_of_the_policy_is_told_with_those_of_the_settings(run: Run, write: Write) -> None:
    write("p.yaml", POLICY.replace("deny", "dney"))
    write("s.yaml", SETTINGS.replace("sh}", "none-such}"))
    for one in both(run):
        assert "p.yaml:3:62: rules.0.effect: 'dney' is not one of" in one.out + one.err
        assert "'none-such' was not found in PATH" in one.out + one.err


def test_rules_on_groups_and_claims_that_no_caller_has_are_warned_of(run: Run, write: Write) -> None:
    write("p.yaml", POLICY + "  - {name: others, match: {not: {groups: ops, claims: {dept: x}}}, effect: deny}\n")
    write("s.yaml", SETTINGS)
    for one in both(run):
        assert 0 == one.code
        assert "callers: rules name groups, but no caller has any; add groups to tokens" in one.out + one.err
        assert "callers: rules name claims, but callers have no JWTs" in one.out + one.err
    token = f"{{name: ci, sha256: {'ab' * 32}, groups: [ops]}}"
    jwt = "{issuer: 'https://login.example.com', audience: [a]}"
    write("s.yaml", SETTINGS + f"callers: {{tokens: [{token}], jwt: {jwt}}}\n")
    assert "callers: rules name" not in run("check", "s.yaml").out


def test_a_server_without_a_rule_is_told_with_the_names_of_the_policy(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    write("s.yaml", SETTINGS.replace("docs", "dcos"))
    what = "no rule can match a server named 'dcos'; did you mean 'docs'? Rename it, or add a rule for it"
    checked, served = both(run)
    assert f"s.yaml:1:1: warning: {what}\n" in checked.out
    assert (0, f"samplegate: warning: {what}\n") == (served.code, served.err)
    write("s.yaml", SETTINGS.replace("docs", "zzz"))
    assert "named 'zzz'; the rules name 'docs'; rename it" in run("check", "s.yaml").out


REST: Final = POLICY + "  - {name: the rest, effect: forward}\n"


@pytest.mark.parametrize("name", ["doc", "docss", "dosc", "Docs"])
def test_a_name_like_one_in_the_policy_is_told_where_other_rules_match_any_server(
    run: Run, write: Write, name: str
) -> None:
    write("p.yaml", REST)
    write("s.yaml", SETTINGS.replace("docs", name))
    what = f"no rule names a server '{name}'; did you mean 'docs'? Rename it, or add a rule for it"
    checked, served = both(run)
    assert f"s.yaml:1:1: warning: {what}\n" in checked.out
    assert (0, f"samplegate: warning: {what}\n") == (served.code, served.err)


@pytest.mark.parametrize("servers", ["docs: {}", "docs2: {}", "dots: {}", "doc: {}, docs: {}"])
def test_a_name_that_may_be_meant_is_not_told(run: Run, write: Write, servers: str) -> None:
    write("p.yaml", REST)
    write("s.yaml", SETTINGS.replace("docs: {command: sh}", servers.replace("{}", "{command: sh}")))
    served = both(run)[1]
    assert (0, "") == (served.code, served.err)


def test_files_that_are_mistaken_for_each_other_are_told_in_one_line(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    write("s.yaml", SETTINGS)
    ended = run("serve", "--check", "--settings", "p.yaml", "--policy", "p.yaml", "--", "sh")
    told = "samplegate: p.yaml:1:1: this is a policy, not a settings file; pass it with --policy"
    assert (2, told) == (ended.code, ended.err.splitlines()[0])
    assert "unknown setting" not in ended.err
    ended = run("serve", "--check", "--policy", "s.yaml", "--", "sh")
    told = "s.yaml:1:1: this is a settings file, not a policy; pass it with --settings, and its policy with --policy\n"
    assert (2, f"samplegate: {told}") == (ended.code, ended.err)


def test_networks_of_the_settings_permit_webhooks(run: Run, write: Write) -> None:
    webhook = "reviewers: {r: {webhook: {url: 'https://10.0.0.5/x', secret_env: HOOK}}}\n"
    write("p.yaml", f"{webhook}version: 1\nrules: [{{name: x, effect: escalate, reviewer: r}}]\n")
    write("s.yaml", SETTINGS)
    assert "webhook_networks does not permit it" in run("check", "s.yaml").out
    write("s.yaml", SETTINGS + "webhook_networks: [10.0.0.0/8]\n")
    assert "webhook_networks" not in run("check", "s.yaml").out


def test_a_taken_address_is_no_problem_because_nothing_is_bound(run: Run, write: Write) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        write("p.yaml", POLICY)
        write("s.yaml", SETTINGS.replace("18080", str(taken.getsockname()[1])))
        assert [0, 0] == [one.code for one in both(run)]


def test_the_flags_of_serve_count(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    write("s.yaml", "servers: {docs: {command: sh}}\n")
    checked, served = both(run, "--policy", "p.yaml")
    assert "s.yaml:1:1: policy: not set; use --policy FILE" in checked.out
    assert (1, 0) == (checked.code, served.code)
    assert 2 == run("serve", "--check", "--policy", "p.yaml", "--listen", "nowhere", "--", "sh").code
    assert 0 == run("serve", "--check", "--policy", "p.yaml", "--server", "docs", "--", "sh").code


@pytest.mark.parametrize("kind", ["serve", "run"])
def test_what_is_not_in_the_shared_database_is_a_note(run: Run, write: Write, kind: str) -> None:
    write("p.yaml", POLICY)
    base = SETTINGS if kind == "serve" else "server: docs\nstate: .\n"
    database, key = "database: postgresql://gates@db/gates\n", "database_key_file: key\n"
    write("key", "k" * 32)
    notes = []
    for text in (database + key, key, f"{database}store: sqlite:r.db\ndecision_log: d.jsonl\n"):
        write("s.yaml", base + text)
        ended = run("check", "s.yaml")
        assert (0, "") == (ended.code, ended.err)
        notes.append([line for line in ended.out.splitlines() if "database" in line])
    assert [
        [],
        ["s.yaml:1:1: note: database_key_file: has no effect without `database`"],
        [
            (
                "s.yaml:1:1: note: decision_log: takes precedence over `database`; `decision_log: database` keeps the"
                " decision log there"
            ),
            "s.yaml:1:1: note: store: takes precedence over `database`, so reviews are not shared with other machines",
        ],
    ] == [sorted(each) for each in notes]
    write("key", "short")
    write("s.yaml", base + database + key)
    ended = run("check", "s.yaml")
    assert 1 == ended.code
    assert "database_key_file: " in ended.out
    assert "has 5 bytes, but a key needs at least 32" in ended.out


def test_settings_of_run_are_checked_as_run_reads_them(run: Run, write: Write) -> None:
    write("s.yaml", "server: docs\nstart_timeout: 5\nmetrics_port: 0\n")
    assert (0, "s.yaml: ok\n") == (run("check", "s.yaml").code, run("check", "s.yaml").out)
    write("s.yaml", "server: docs\nstart_timeout: 0\nlog_levl: x\n")
    ended = run("check", "s.yaml")
    assert [
        "s.yaml:2:1: start_timeout: '0' is not a whole number from 1 to 3600",
        "s.yaml:3:1: log_levl: unknown setting; did you mean log_level?",
    ] == sorted(ended.out.splitlines())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("policy: p.yaml\n", "settings"),
        ("servers: {a: {command: x}}\n", "settings"),
        ("servers: {a: {url: 'http://x'}}\n", "settings"),
        ("servers: {a: {peer_timeout: 5s}}\n", "policy"),
        ("listen: x\nservers: {a: 7}\n", "settings"),
        ("version: 1\nlisten: x\nstate: y\n", "policy"),
        ("rules: []\nlisten: x\n", "policy"),
        ("models: []\nlimits: {}\nstate: x\n", "policy"),
        ("[]\n", "policy"),
        ("", "policy"),
    ],
)
def test_settings_are_recognized_by_their_keys(run: Run, write: Write, text: str, kind: str) -> None:
    write("f.yaml", text)
    (told,) = json.loads(run("check", "--json", "f.yaml").out)["files"][:1]
    assert kind == told["sort"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("log_level: debug\n", True), ("server: a\n", True), ("listen: x\n", False), ("server: a\nlisten: x\n", False)],
)
def test_settings_of_run_have_no_key_of_serve(text: str, expected: bool) -> None:
    assert expected == is_for_run(text)


def test_folders_are_walked(run: Run, write: Write, tmp_path: Path) -> None:
    for folder in ("d", "d/below", "d/.hidden"):
        (tmp_path / folder).mkdir()
    write("d/p.yaml", POLICY)
    write("d/p_test.yaml", "cases: [{name: a, server: docs, sampling: x, expect: {effect: deny}}]\n")
    write("d/s.yaml", SETTINGS)
    write("d/below/broken.yml", "version: 1\nrules: [\n")
    write("d/below/talk.yaml", "cases: [{answer: hello}]\n")
    write("d/below/compose.yaml", "services: {a: {image: x}}\n")
    write("d/below/alerts.yaml", "groups: []\n")
    write("d/.hidden/p.yaml", POLICY)
    found = json.loads(run("check", "--json", "d").out)["files"]
    assert [
        ("d/p_test.yaml", "tests"),
        ("d/s.yaml", "settings"),
        ("d/p.yaml", "policy"),
        ("d/below/broken.yml", "policy"),
        ("d/below/talk.yaml", "script"),
    ] == [(one["file"], one["sort"]) for one in found]
    tested = run("test", "d")
    assert "d/p_test.yaml: 1 case, all passed" in tested.out
    assert "s_test" not in tested.out + tested.err


def test_a_folder_without_files_of_ours_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    message = "samplegate: d: the folder has no policy, test, script or settings file (*.yaml, *.yml)\n"
    for command in ("check", "test"):
        assert Ended(2, "", message) == run(command, "d")


def test_a_loop_of_links_is_not_followed(run: Run, write: Write, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write("d/p.yaml", POLICY)
    (tmp_path / "d" / "again").symlink_to(tmp_path / "d")
    assert ["d/p.yaml"] == [one["file"] for one in json.loads(run("check", "--json", "d").out)["files"]]


@pytest.mark.parametrize("name", ["::error::s.yaml", "a\n::error::b.yaml", "##[error]c.yaml"])
def test_hostile_names_and_values_give_no_commands(run: Run, write: Write, tmp_path: Path, name: str) -> None:
    hostile = json.dumps("::error::x ##[warning]y \u202e\n::stop-commands::z")
    (tmp_path / "d").mkdir()
    write(
        f"d/{name}", f"policy: {hostile}\nlisten: {hostile}\n{hostile}: 1\nservers: {{docs: {{command: {hostile}}}}}\n"
    )
    for line in (["check", f"d/{name}"], ["check", "d"], ["check", "--json", "d"]):
        ended = run(*line)
        assert (1, []) == (ended.code, commands(ended.out + ended.err))
    served = run("serve", "--check", "--settings", f"d/{name}")
    assert (2, []) == (served.code, commands(served.out + served.err))


APPROVALS = """\
version: 1
reviewers: {ops: {approvals: 2, not: caller, groups: [leads]}}
rules: [{name: x, match: {kind: sampling, server: docs}, effect: escalate, reviewer: ops}]
"""
ANN = f"reviews_listen: 127.0.0.1:18081\npeople: {{tokens: [{{name: ann, role: reviewer, sha256: {'ab' * 32}}}]}}\n"


def test_approvals_that_the_settings_cannot_give_are_warned_of(run: Run, write: Write) -> None:
    write("p.yaml", APPROVALS)
    write("s.yaml", SETTINGS + ANN)
    ended = run("check", "s.yaml")
    for warning in (
        "no user is in the groups of the reviewer ops (leads)",
        "the reviewer ops needs 2 approvals, but 0 users may decide for it",
        "`not: caller` of the reviewer ops excludes nobody",
    ):
        assert warning in ended.out + ended.err
