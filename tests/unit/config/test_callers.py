"""Settings for callers: who may call the daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.config import SettingsError
from samplegate.config.identities import CallerSettings, JwtSettings, Token, caller_warnings
from samplegate.config.serve import load_serve

A, B = "ab" * 32, "cd" * 32
ISSUER = "https://login.example.com"


GROUPS = "contains an invalid name; use 1 to 256 characters without spaces and commas, and no # at the start"


def callers(section: str, folder: Path) -> CallerSettings:
    (folder / "s.yaml").write_text(f"policy: p\nservers: {{docs: {{command: x}}}}\ncallers: {section}\n")
    return load_serve({"HOME": "/srv/u"}, file=folder / "s.yaml").settings.callers


def problems(section: str, folder: Path) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        callers(section, folder)
    return [problem.replace(f"{folder}/", "").removeprefix("s.yaml:3:") for problem in refused.value.problems]


def test_tokens_stand_in_the_settings_and_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"# callers\n\nops {B.upper()}\nops  {'12' * 32}  \n")
    found = callers(f"{{tokens: [{{name: ci, sha256: {A}}}], tokens_file: tokens}}", tmp_path)
    assert (True, (tmp_path / "tokens",)) == (found.required, found.files)
    assert (Token("ci", A), Token("ops", B), Token("ops", "12" * 32)) == found.tokens


def test_a_caller_has_groups_in_the_settings_and_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"ops {B} sre,ops\n")
    found = callers(f"{{tokens: [{{name: ci, sha256: {A}, groups: [ci]}}], tokens_file: tokens}}", tmp_path)
    assert (Token("ci", A, ("ci",)), Token("ops", B, ("sre", "ops"))) == found.tokens


def test_all_tokens_of_a_caller_have_the_same_groups(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"ops {A} sre,ops\nops {B} ops,sre\nci {'12' * 32} a\nci {'13' * 32}\n")
    assert ["10: callers: 'ci' has tokens with different groups; give them all the same groups"] == problems(
        "{tokens_file: tokens}", tmp_path
    )


def test_a_file_without_tokens_lets_nobody_in_and_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("# none yet\n")
    found = callers("{tokens_file: tokens}", tmp_path)
    assert (True, ()) == (found.required, found.tokens)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ci", "expected a name and a SHA-256 hash, separated by a space. Groups may follow, separated by commas"),
        (
            f"ci {A} x y",
            "expected a name and a SHA-256 hash, separated by a space. Groups may follow, separated by commas",
        ),
        (f"ci {A} x,", GROUPS),
        (f"ci {A} #mine", GROUPS),
        (f"ci {A} {'g' * 257}", GROUPS),
        (
            f"ci {A} {','.join(f'g{n}' for n in range(201))}",
            "has more than 200 groups; remove those that no rule names",
        ),
        ("ci s3cret-token", "is not a SHA-256 hash; write the 64 digits 0-9 a-f that `samplegate token` prints"),
        (f"local {A}", "is not a valid caller name; use at most 64 letters, digits and . _ @ -, and not local"),
        (f"jwt:x {A}", "is not a valid caller name; use at most 64 letters, digits and . _ @ -, and not local"),
        (f"{'a' * 65} {A}", "is not a valid caller name; use at most 64 letters, digits and . _ @ -, and not local"),
    ],
)
def test_a_bad_line_of_the_tokens_is_told_without_what_stands_in_it(line: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"# callers\n{line}\n")
    assert [f"tokens:2: {why}"] == problems("{tokens_file: tokens}", tmp_path)


def test_a_tokens_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert ["tokens: cannot be read: no such file or directory; correct the path"] == problems(
        "{tokens_file: tokens}", tmp_path
    )
    (tmp_path / "tokens").write_bytes(b"\xff\xfe")
    assert ["tokens: cannot be read: it is not UTF-8 text"] == problems("{tokens_file: tokens}", tmp_path)
    (tmp_path / "tokens").write_text("#" * (3 * 1024 * 1024))
    assert ["tokens: is larger than 2097152 bytes; keep only tokens in it"] == problems(
        "{tokens_file: tokens}", tmp_path
    )


def test_two_callers_with_one_token_are_told(tmp_path: Path) -> None:
    section = f"{{tokens: [{{name: ci, sha256: {A}}}, {{name: ops, sha256: {A}}}]}}"
    assert ["10: callers: ci and ops have the same token; create one for each"] == problems(section, tmp_path)


def test_an_issuer_is_said_in_full_or_in_short(tmp_path: Path) -> None:
    short = callers(f"{{jwt: {{issuer: {ISSUER!r}}}, resource: 'https://gate.example.com/'}}", tmp_path)
    assert (JwtSettings(ISSUER), "https://gate.example.com") == (short.jwt, short.resource)
    section = (
        f"{{jwt: {{issuer: {ISSUER!r}, audience: [a], jwks_file: keys.json, algorithms: [RS512], scopes: [mcp],"
        " principal: client_id, groups: roles, leeway: 0}}"
    )
    long = callers(section, tmp_path)
    assert (
        JwtSettings(ISSUER, ("a",), None, tmp_path / "keys.json", ("RS512",), ("mcp",), "client_id", "roles", 0)
        == long.jwt
    )
    assert (tmp_path / "keys.json",) == long.files


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{}", "10: callers: defines no way to authenticate; add tokens, tokens_file or jwt"),
        ("{resource: 'https://x'}", "10: callers: defines no way to authenticate; add tokens, tokens_file or jwt"),
        ("{token: []}", "11: callers.token: unknown key; did you mean 'tokens'?"),
        ("{tokens: [{name: ci}]}", "20: callers.tokens.0.sha256: the key is required; set it to a string"),
        (
            f"{{tokens: [{{name: local, sha256: {A}}}]}}",
            (
                "27: callers.tokens.0.name: is not a valid caller name; use at most 64 letters, digits and . _"
                " @ -, and not local"
            ),
        ),
        (
            "{tokens: [{name: ci, sha256: s3cret}]}",
            (
                "39: callers.tokens.0.sha256: is not a SHA-256 hash; write the 64 digits 0-9 a-f that"
                " `samplegate token` prints"
            ),
        ),
        (
            "{jwt: {issuer: 'https://x'}}",
            "16: callers.jwt: has no audience; set `audience`, or `callers.resource`",
        ),
        (
            "{jwt: {issuer: 'https://x', audience: ['']}}",
            "48: callers.jwt.audience: contains an empty string; use the `aud` of tokens for this gate",
        ),
        (
            "{jwt: {issuer: 'http://x', audience: [a]}}",
            (
                "25: callers.jwt.issuer: is plain http to another machine, so others can read and change the"
                " traffic; use https"
            ),
        ),
        (
            "{jwt: {issuer: 'http://127.0.0.1:5', audience: [a], jwks_url: 'http://10.0.0.1/'}}",
            (
                "72: callers.jwt.jwks_url: is plain http to another machine, so others can read and change the"
                " traffic; use https"
            ),
        ),
        ("{jwt: {issuer: 'https://x?y', audience: [a]}}", "25: callers.jwt.issuer: contains a query; remove it"),
        (
            "{jwt: {issuer: 'https://x', audience: [a], algorithms: [none]}}",
            (
                "66: callers.jwt.algorithms.0: this value is not one of ES256, ES384, ES512, EdDSA, PS256, PS384,"
                " PS512, RS256, RS384, RS512"
            ),
        ),
        (
            "{jwt: {issuer: 'https://x', audience: [a], algorithms: [HS256]}}",
            (
                "66: callers.jwt.algorithms.0: this value is not one of ES256, ES384, ES512, EdDSA, PS256, PS384,"
                " PS512, RS256, RS384, RS512; did you mean 'RS256'?"
            ),
        ),
        (
            "{jwt: {issuer: 'https://x', audience: [a], scopes: ['a b']}}",
            "61: callers.jwt.scopes: contains an invalid scope; write each scope as a string without spaces and quotes",
        ),
        (
            "{jwt: {issuer: 'https://x', audience: [a], jwks_url: 'https://x', jwks_file: f}}",
            "87: callers.jwt.jwks_file: cannot be combined with jwks_url; remove one of them",
        ),
        (
            "{jwt: {issuer: 'https://x', audience: [a], leeway: 301}}",
            "61: callers.jwt.leeway: this value is not a whole number from 0 to 300",
        ),
        (
            "{tokens_file: ~no-such-user-here/t}",
            "24: callers.tokens_file: begins with ~, but that home folder is unknown; write the full path",
        ),
        (
            "{tokens_file: t, resource: 'http://gate.example.com'}",
            (
                "37: callers.resource: is plain http to another machine, so others can read and change the"
                " traffic; use https"
            ),
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_place(section: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(f"ci {A}\n")
    assert [expected] == problems(section, tmp_path)


@pytest.mark.parametrize("url", ["http://127.0.0.1:5/realm", "http://localhost:5", "http://[::1]:5"])
def test_an_issuer_on_this_machine_may_speak_plain_http(url: str, tmp_path: Path) -> None:
    found = callers(f"{{jwt: {{issuer: '{url}', audience: [a]}}}}", tmp_path).jwt
    assert found is not None
    assert url == found.issuer


def test_too_many_tokens_are_told(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("".join(f"ci {number:064x}\n" for number in range(10_001)))
    assert ["10: callers: has more than 10000 tokens; use jwt for this many callers"] == problems(
        "{tokens_file: tokens}", tmp_path
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (CallerSettings(), ["groups", "claims"]),
        (CallerSettings(tokens=(Token("ci", A),)), ["groups", "claims"]),
        (CallerSettings(tokens=(Token("ci", A, ("ops",)),)), ["claims"]),
        (CallerSettings(jwt=JwtSettings(ISSUER)), ["groups"]),
        (CallerSettings(jwt=JwtSettings(ISSUER, groups="groups")), []),
    ],
)
def test_rules_on_groups_and_claims_that_no_caller_has_are_warned_of(
    settings: CallerSettings, expected: list[str]
) -> None:
    found = caller_warnings(settings, groups=True, claims=True)
    assert [f"callers: rules name {name}," for name in expected] == [one[: one.index(",") + 1] for one in found]
    assert [] == caller_warnings(settings, groups=False, claims=False)
