"""Settings for reviews: who may see and decide them, and all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from samplegate.config import SettingsError, load
from samplegate.config.identities import PeopleSettings, PersonToken
from samplegate.config.serve import LoadedServe, load_serve

A, B, C, D, E = "ab" * 32, "cd" * 32, "12" * 32, "34" * 32, "56" * 32
BASE = "policy: p\nservers: {docs: {command: x}}\n"
ANN = f"{{tokens: [{{name: ann, role: admin, sha256: {A}}}]}}"
HASH = "is not a SHA-256 hash; write the 64 digits 0-9 a-f that `samplegate token` prints"
NAME = "is not a valid user name; use at most 64 letters, digits and . _ @ -"
ADMIN = "cannot be combined with the role admin, which covers all reviewers; remove it, or choose another role"
SAME = "give them all the same role, reviewers, groups and callers"
NOBODY = (
    "names no reviewer, or one without a name; list reviewers of the policy, or leave them out to allow all of them"
)


def loaded(text: str, folder: Path, environ: dict[str, str] | None = None) -> LoadedServe:
    (folder / "s.yaml").write_text(BASE + text)
    return load_serve({"HOME": "/srv/u", **(environ or {})}, file=folder / "s.yaml")


def people(section: str, folder: Path) -> PeopleSettings:
    return loaded(f"people: {section}\n", folder).settings.people


def problems(text: str, folder: Path, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        loaded(text, folder, environ)
    return [problem.replace(f"{folder}/", "").removeprefix("s.yaml:3:") for problem in refused.value.problems]


def test_people_stand_in_the_settings_and_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "people").write_text(
        f"# people\n\nben reviewer {B.upper()} ops,legal\ncleo  viewer\t{C}  \n"
        f"dora reviewer {D} * leads,night\nemil reviewer {E} ops leads\n"
    )
    found = people(
        f"{{tokens: [{{name: ann, role: reviewer, sha256: {A}, reviewers: [ops]}}], tokens_file: people}}", tmp_path
    )
    assert tmp_path / "people" == found.tokens_file
    assert (
        PersonToken("ann", "reviewer", A, ("ops",)),
        PersonToken("ben", "reviewer", B, ("ops", "legal")),
        PersonToken("cleo", "viewer", C),
        PersonToken("dora", "reviewer", D, None, ("leads", "night")),
        PersonToken("emil", "reviewer", E, ("ops",), ("leads",)),
    ) == found.tokens
    assert tmp_path / "people" in loaded("people: {tokens_file: people}\n", tmp_path).files
    assert A not in repr(found)


def test_nobody_is_named_by_default(tmp_path: Path) -> None:
    assert PeopleSettings() == loaded("", tmp_path).settings.people


def test_a_variable_holds_the_whole_section(tmp_path: Path) -> None:
    found = loaded("", tmp_path, {"SAMPLEGATE_PEOPLE": ANN, "SAMPLEGATE_REVIEWS_LISTEN": "127.0.0.1:8090"})
    assert (["ann"], "127.0.0.1:8090", ()) == (
        [each.name for each in found.settings.people.tokens],
        found.settings.reviews_listen,
        found.warnings,
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "ann",
            (
                "expected a name, a role and a SHA-256 hash, separated by spaces. Reviewers (or *) and groups may"
                " follow, each separated by commas"
            ),
        ),
        (
            f"ann {A}",
            (
                "expected a name, a role and a SHA-256 hash, separated by spaces. Reviewers (or *) and groups may"
                " follow, each separated by commas"
            ),
        ),
        (
            f"ann admin {A} a b c",
            (
                "expected a name, a role and a SHA-256 hash, separated by spaces. Reviewers (or *) and groups may"
                " follow, each separated by commas"
            ),
        ),
        (f"ann owner {A}", "has no valid role after the name; use one of viewer, reviewer, admin"),
        ("ann viewer s3cret", HASH),
        (f"a/b viewer {A}", NAME),
        (f"{'a' * 65} viewer {A}", NAME),
        (f"ann admin {A} ops", ADMIN),
        (f"ann viewer {A} ops,", NOBODY),
    ],
)
def test_a_bad_line_is_told_without_what_stands_in_it(line: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "people").write_text(f"# people\n{line}\n")
    assert [f"people:2: {why}"] == problems("people: {tokens_file: people}", tmp_path)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    text = "people: {tokens_file: people}"
    assert ["people: cannot be read: no such file or directory; correct the path"] == problems(text, tmp_path)
    (tmp_path / "people").write_bytes(b"\xff\xfe")
    assert ["people: cannot be read: it is not UTF-8 text"] == problems(text, tmp_path)
    (tmp_path / "people").write_text("#" * (3 * 1024 * 1024))
    assert ["people: is larger than 2097152 bytes; keep only tokens in it"] == problems(text, tmp_path)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{}", "9: people: has no users; add tokens, tokens_file or assertion"),
        ("{token: []}", "10: people.token: unknown key; did you mean 'tokens'?"),
        (
            f"{{tokens: [{{name: ann, sha256: {A}}}]}}",
            "19: people.tokens.0.role: the key is required; set it to one of admin, reviewer, viewer",
        ),
        (f"{{tokens: [{{name: a b, role: admin, sha256: {A}}}]}}", f"26: people.tokens.0.name: {NAME}"),
        ("{tokens: [{name: ann, role: admin, sha256: s3cret}]}", f"52: people.tokens.0.sha256: {HASH}"),
        (
            f"{{tokens: [{{name: ann, role: viewer, sha256: {A}, reviewers: []}}]}}",
            f"130: people.tokens.0.reviewers: {NOBODY}",
        ),
        (
            f"{{tokens: [{{name: ann, role: admin, sha256: {A}, reviewers: [ops]}}]}}",
            f"129: people.tokens.0.reviewers: {ADMIN}",
        ),
        (
            "{tokens_file: ~no-such-user-here/t}",
            "23: people.tokens_file: begins with ~, but that home folder is unknown; write the full path",
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_place(section: str, expected: str, tmp_path: Path) -> None:
    assert [expected] == problems(f"people: {section}\n", tmp_path)


def test_a_token_is_one_persons_and_a_name_is_one_person(tmp_path: Path) -> None:
    (tmp_path / "people").write_text(f"ann viewer {A}\nben viewer {A}\ncleo viewer {B}\ncleo admin {C}\n")
    assert [
        "9: people: ann and ben have the same token; create one for each",
        f"9: people: 'cleo' has tokens with different rights; {SAME}",
    ] == problems("people: {tokens_file: people}\n", tmp_path)
    (tmp_path / "people").write_text(f"ann viewer {A}\nann viewer {B}\n")
    assert 2 == len(people("{tokens_file: people}", tmp_path).tokens)


def test_no_caller_approves_what_is_asked_of_itself(tmp_path: Path) -> None:
    text = f"people: {ANN}\ncallers: {{tokens: [{{name: ci, sha256: {A}}}]}}\n"
    assert [
        (
            "people: ann and the caller ci have the same token, so the caller could approve its own requests;"
            " create another token"
        )
    ] == problems(text, tmp_path)


def test_too_many_tokens_are_told(tmp_path: Path) -> None:
    (tmp_path / "people").write_text("".join(f"ann viewer {number:064x}\n" for number in range(10_001)))
    assert ["9: people: has more than 10000 tokens; remove unused ones"] == problems(
        "people: {tokens_file: people}", tmp_path
    )


def test_a_listener_that_nobody_can_sign_in_at_is_told(tmp_path: Path) -> None:
    assert ["1: reviews_listen: no users are configured; add `people`, or remove reviews_listen"] == problems(
        "reviews_listen: 127.0.0.1:80\n", tmp_path
    )
    (told,) = problems(f"reviews_listen: :80\npeople: {ANN}\n", tmp_path)
    assert told.startswith("1: reviews_listen: ':80' has no host")


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("reviews_listen: 127.0.0.1:80\n", None),
        ("reviews_listen: 0.0.0.0:80\nreviews_url: https://reviews.example.com\n", None),
        ("reviews_listen: 127.0.0.1:80\nreviews_url: http://localhost:8090\n", None),
        (
            "reviews_listen: 0.0.0.0:80\n",
            (
                "reviews_listen: 0.0.0.0:80 is reachable from other machines; put a TLS proxy in front of it, and"
                " set reviews_url"
            ),
        ),
        (
            "reviews_listen: 127.0.0.1:80\nreviews_url: http://reviews\n",
            "reviews_url: is plain http, so tokens and answers travel unencrypted",
        ),
        ("", "people: has no effect, because reviews_listen is not set"),
    ],
)
def test_what_travels_unencrypted_or_is_of_no_use_is_warned_of(text: str, warned: str | None, tmp_path: Path) -> None:
    found = loaded(f"{text}people: {ANN}\n", tmp_path).warnings
    assert [] == list(found) if warned is None else [True] == [warned in each for each in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("store: reviews.db", "1: store: is not a supported store; write sqlite:PATH"),
        ("store: postgresql://u:s3cret@db/reviews", "1: store: is not a supported store; write sqlite:PATH"),
        ("store: 'sqlite:'", "1: store: has no path; write sqlite:PATH"),
        (
            "reviews_url: reviews",
            "1: reviews_url: is not an http or https URL with a host; use a URL such as https://mcp.example.com/mcp",
        ),
        (
            "reviews_url: https://reviews.example.com/gate",
            (
                "1: reviews_url: contains a path; write only scheme and host, such as"
                " https://reviews.example.com (the page is at /reviews)"
            ),
        ),
        (
            "reviews_url: https://ann:s3cret@x",
            "1: reviews_url: contains a user name or a password; put credentials in a header",
        ),
        (
            "webhook_networks: [10.0.0.0/8, 10.1.0]",
            "1: webhook_networks: '10.1.0' is not a network; use a value such as 10.1.0.0/16 or fd00::/8",
        ),
        (
            "webhook_networks: [10.1.2.3/16]",
            "1: webhook_networks: '10.1.2.3/16' has host bits set; write the network address",
        ),
        ("keep_reviews: 0", "1: keep_reviews: '0' is not a whole number from 1 to 36500"),
        ("max_pending_reviews: 0", "1: max_pending_reviews: '0' is not a whole number from 1 to 1000000"),
    ],
)
def test_a_setting_of_reviews_that_cannot_be_is_told_with_the_remedy(text: str, expected: str, tmp_path: Path) -> None:
    assert [expected] == problems(f"{text}\n", tmp_path)


def test_run_has_the_settings_of_reviews_and_is_told_the_same(tmp_path: Path) -> None:
    environ = {
        "HOME": "/srv/u",
        "SAMPLEGATE_STORE": f"sqlite:{tmp_path}/r.db",
        "SAMPLEGATE_WEBHOOK_NETWORKS": "10.0.0.0/8, fd00::/8",
    }
    found: Any = load(environ).settings
    assert (f"sqlite:{tmp_path}/r.db", ("10.0.0.0/8", "fd00::/8"), 30, 10_000) == (
        found.store,
        found.webhook_networks,
        found.keep_reviews,
        found.max_pending_reviews,
    )
    with pytest.raises(SettingsError, match="SAMPLEGATE_STORE: is not a supported store"):
        load({**environ, "SAMPLEGATE_STORE": "r.db"})


def test_a_relative_store_is_beside_the_file_that_names_it(tmp_path: Path) -> None:
    assert f"sqlite:{tmp_path / 'r.db'}" == loaded("store: sqlite:r.db\n", tmp_path).settings.store
