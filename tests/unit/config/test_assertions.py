"""Settings for sign-in by a proxy's signed assertion: every problem at its place, with what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.config import SettingsError, load
from samplegate.config.assertions import AssertionSettings, GroupRole, ListedPerson
from samplegate.config.identities import (
    CallerSettings,
    JwtSettings,
    PeopleSettings,
    approval_warnings,
    reviewer_warnings,
    shared_audience_errors,
)
from samplegate.config.serve import load_serve
from samplegate.policy.schema import Reviewer
from tests.unit.config.test_people import ADMIN, NOBODY

BASE: Final[dict[str, Any]] = {
    "header": "X-Goog-Iap-Jwt-Assertion",
    "issuer": "https://cloud.google.com/iap",
    "audience": ["/projects/1/global/backendServices/2"],
    "jwks_url": "https://www.gstatic.com/iap/verify/public_key-jwk",
    "people": {"ann@example.com": {"role": "reviewer", "reviewers": ["ops"]}},
}
EXAMPLE: Final = "use the header with the proxy's signed JWT, for example x-goog-iap-jwt-assertion"
PLAIN: Final = f"header: names a plain user header, which anyone who reaches the listener can set; {EXAMPLE}"
TAKEN: Final = f"header: has another meaning; {EXAMPLE}"
ALB: Final = (
    "header: is AWS ALB's, whose JWTs have no audience and no key set; put a proxy with assertions in between, such as"
    " Pomerium"
)
PLAIN_HEADERS: Final = (
    "X-Forwarded-User X-Forwarded-Email x-forwarded-preferred-username X-Forwarded-Access-Token "
    "Remote-User Remote-Email Remote-Groups X-Auth-Request-User X-Auth-Request-Email X-Auth-Request-Groups "
    "X-Goog-Authenticated-User-Email X-Goog-Authenticated-User-Id Cf-Access-Authenticated-User-Email "
    "X-Amzn-Oidc-Identity X-WebAuth-User Tailscale-User-Login X-Remote-User X-Pomerium-Claim-Email User "
    "X-MS-CLIENT-PRINCIPAL-NAME"
).split()


def written(assertion: dict[str, Any], folder: Path) -> Path:
    file = folder / "s.yaml"
    settings = {
        "policy": "p",
        "servers": {"docs": {"command": "x"}},
        "reviews_listen": "127.0.0.1:0",
        "people": {"assertion": {key: value for key, value in assertion.items() if value is not None}},
    }
    file.write_text(json.dumps(settings))
    return file


def problems(assertion: dict[str, Any], folder: Path) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load_serve({"HOME": "/srv/u"}, file=written(assertion, folder))
    return [
        problem.partition(": people.assertion")[2].lstrip(".").removeprefix(": ") for problem in refused.value.problems
    ]


def test_an_assertion_is_read_with_its_file_and_its_header_in_lower_case(tmp_path: Path) -> None:
    wanted = {**BASE, "jwks_url": None, "jwks_file": "keys.json", "groups": "groups", "algorithms": ["ES256"]}
    wanted["roles"] = {"sre": {"role": "admin"}}
    loaded = load_serve({"HOME": "/srv/u"}, file=written(wanted, tmp_path))
    assert (
        AssertionSettings(
            header="x-goog-iap-jwt-assertion",
            issuer=BASE["issuer"],
            audience=tuple(BASE["audience"]),
            jwks_file=tmp_path / "keys.json",
            algorithms=("ES256",),
            groups="groups",
            roles={"sre": GroupRole("admin")},
            people={"ann@example.com": ListedPerson("reviewer", ("ops",))},
        )
        == loaded.settings.people.assertion
    )
    assert tmp_path / "keys.json" in loaded.files, "a change of it is a reload"
    assert () == loaded.warnings


CASES: Final[list[tuple[dict[str, Any], list[str]]]] = [
    *(({"header": header}, [PLAIN]) for header in PLAIN_HEADERS),
    *(({"header": header}, [TAKEN]) for header in ("Authorization", "Cookie", "Host", "Origin", "Sec-Fetch-Site")),
    (
        {"header": "x_goog_iap_jwt_assertion"},
        ["header: contains _, which some proxies and servers confuse with -; use a name with - only"],
    ),
    ({"header": "x jwt"}, [f"header: is not the name of a header; {EXAMPLE}"]),
    ({"header": ""}, [f"header: is not the name of a header; {EXAMPLE}"]),
    ({"header": "X-Amzn-Oidc-Data"}, [ALB]),
    (
        {"issuer": ""},
        [
            "issuer: is not 1 to 512 printable characters without spaces; use the `iss` of the proxy's assertions",
        ],
    ),
    ({"audience": []}, ["audience: names no audience, or an empty one; use the `aud` of the assertions for this page"]),
    (
        {"audience": ["a", ""]},
        ["audience: names no audience, or an empty one; use the `aud` of the assertions for this page"],
    ),
    ({"jwks_file": "k"}, ["jwks_file: cannot be combined with jwks_url; remove one of them"]),
    ({"jwks_url": None}, ["has no keys to verify assertions with; set jwks_url to the proxy's key set, or jwks_file"]),
    ({"people": None}, ["gives nobody a role; add people by email, or groups and roles"]),
    (
        {"roles": {"sre": {"role": "admin", "reviewers": ["ops"]}}},
        ["roles: need the claim with the groups; set groups to its name", f"roles.sre.reviewers: {ADMIN}"],
    ),
    (
        {"people": {"ann": {"role": "viewer", "reviewers": []}}},
        [
            f"people.ann.reviewers: {NOBODY}",
            "people.ann: is not an email address in ASCII; use the `email` of the person's assertions",
        ],
    ),
]


@pytest.mark.parametrize(("wanted", "says"), CASES)
def test_every_problem_is_told_at_its_place(wanted: dict[str, Any], says: list[str], tmp_path: Path) -> None:
    assert says == problems({**BASE, **wanted}, tmp_path)


def test_other_problems_name_the_value(tmp_path: Path) -> None:
    (algorithm,) = problems({**BASE, "algorithms": ["HS256"]}, tmp_path)
    assert algorithm.startswith("algorithms.0: 'HS256' is not ")
    (url,) = problems({**BASE, "jwks_url": "http://keys.example.com/"}, tmp_path)
    assert url.startswith("jwks_url: ")
    people = {"Ann@example.com": {"role": "viewer"}, "ann@example.com": {"role": "admin", "callers": [""]}}
    assert [True, True] == [
        text in said
        for text, said in zip(
            ("is the same email as", "callers: contains an entry without a name; remove it"),
            problems({**BASE, "people": people}, tmp_path),
            strict=True,
        )
    ]


def test_run_has_no_assertions(tmp_path: Path) -> None:
    text = json.dumps({"assertion": BASE})
    with pytest.raises(SettingsError) as refused:
        load({"HOME": "/srv/u", "SAMPLEGATE_PEOPLE": text, "SAMPLEGATE_REVIEWS_LISTEN": "127.0.0.1:0"})
    assert "needs `samplegate serve`; remove it, or give these people tokens" in str(refused.value)


def with_people(**more: Any) -> PeopleSettings:
    return PeopleSettings(assertion=AssertionSettings("x-jwt", "i", ("a",), **more))


def test_what_does_not_go_together_with_the_policy_is_told() -> None:
    ann, ben = ListedPerson("reviewer", ("ops", "opps")), ListedPerson("reviewer", ("ops",), ("leads",))
    listed = with_people(people={"ann@example.com": ann, "ben@example.com": ben})
    assert [
        "people: opps is not a reviewer in the policy, so this has no effect",
        "people: no user may decide for the reviewer legal; only a webhook, a command or `samplegate reviews` can",
    ] == reviewer_warnings(listed, {"ops", "legal"})
    needs = {"ops": Reviewer(approvals=2), "three": Reviewer(approvals=3)}
    (few,) = approval_warnings(listed, needs)
    assert "the reviewer three needs 3 approvals, but 0 users may decide for it" in few
    assert [] == approval_warnings(listed, {"ops": Reviewer(groups=["leads"])})
    assert [] == approval_warnings(with_people(groups="g", roles={"x": GroupRole("reviewer")}), needs)


@pytest.mark.parametrize(
    ("jwt", "shared"),
    [
        ({"issuer": "https://i.example", "audience": ("a",)}, True),
        ({"issuer": "https://i.example"}, False),
        ({"issuer": "https://i.example", "audience": ("b",)}, False),
        ({"issuer": "https://other.example", "audience": ("a",)}, False),
    ],
)
def test_a_callers_token_is_no_assertion(jwt: dict[str, Any], shared: bool) -> None:
    """Otherwise the caller could approve its own requests."""
    assertion = AssertionSettings("x-jwt", "https://i.example", ("a",), jwks_url="https://i.example/keys")
    callers = CallerSettings(jwt=JwtSettings(**jwt), resource="https://gate.example")
    found = shared_audience_errors(PeopleSettings(assertion=assertion), callers)
    assert shared == bool(found)
