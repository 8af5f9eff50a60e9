"""The assertions of identity-aware proxies: who they identify, with which rights, and which are refused."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from typing import Any, Final

import jwt
import pytest
from msgspec.structs import replace

from samplegate.auth.assertions import AssertedPerson, Assertions
from samplegate.auth.jwt import GRACE, UNKNOWN, Keys, KeySet, parse
from samplegate.auth.tokens import Unauthenticated
from samplegate.config.assertions import AssertionSettings, GroupRole, ListedPerson
from samplegate.errors import Unavailable
from tests.fakes.issuer import key_set, mint, public

pytestmark = pytest.mark.anyio

ISSUER, AUDIENCE = "https://cloud.google.com/iap", "/projects/1/global/backendServices/2"
SETTINGS: Final = AssertionSettings(
    header="x-goog-iap-jwt-assertion",
    issuer=ISSUER,
    audience=(AUDIENCE, "other"),
    jwks_url="https://keys.example.com/jwks",
    people={"Ann@Example.com": ListedPerson("reviewer", ("ops",), ("night",), ("laptop",))},
    leeway=10,
)
GROUPED: Final = replace(
    SETTINGS,
    groups="groups",
    roles={
        "sre": GroupRole("reviewer", ("ops",)),
        "leads": GroupRole("reviewer", ("legal",)),
        "staff": GroupRole("viewer"),
        "root": GroupRole("admin"),
        "all": GroupRole("reviewer"),
    },
)


class Proxy:
    """A proxy with its keys and a clock."""

    def __init__(self, settings: AssertionSettings = SETTINGS, *names: tuple[str, str]) -> None:
        self.settings = settings
        self.answer: KeySet | Exception = keys(*(names or (("k", "ES256"), ("r", "RS256"))))
        self.now, self.asked = 0.0, 0
        self.keys = Keys(self._source, clock=lambda: self.now, on_fetch=lambda _: None)
        self.assertions = Assertions(settings, self.keys)

    async def _source(self) -> KeySet:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def person(self, name: str = "k", algorithm: str = "ES256", **claims: Any) -> AssertedPerson:
        return await self.assertions.person_of(assertion(name, algorithm, **claims))

    async def refused(self, text: str) -> str:
        with pytest.raises(Unauthenticated) as problem:
            await self.assertions.person_of(text)
        return problem.value.reason


def keys(*names: tuple[str, str]) -> KeySet:
    return parse(key_set(*(public(name, algorithm) for name, algorithm in names)))


def assertion(name: str = "k", algorithm: str = "ES256", **claims: Any) -> str:
    iap = {"iss": ISSUER, "aud": AUDIENCE, "sub": "accounts.google.com:1", "email": "ann@example.com"}
    return mint(name, algorithm, **{**iap, **claims})


async def test_iap_identifies_a_person_who_is_listed_by_email() -> None:
    found = await Proxy().person(hd="example.com", google={"access_levels": []})
    id = hashlib.sha256(f"{ISSUER}\0accounts.google.com:1".encode()).hexdigest()
    assert ("ann@example.com", id, "reviewer", ("ops",)) == (found.name, found.subject, found.role, found.reviewers)
    own = {"ann@example.com", "jwt:ann@example.com", "accounts.google.com:1", "jwt:accounts.google.com:1", "laptop"}
    assert (frozenset({"night"}), frozenset(own)) == (found.groups, found.callers)
    assert 310 == pytest.approx(found.until - time.time(), abs=5), "the time of the assertion and the leeway"


async def test_cloudflare_sends_a_list_of_audiences_with_rs256() -> None:
    cloudflare: dict[str, Any] = {"iss": "https://team.cloudflareaccess.com", "aud": ["x", "32eafc76"], "type": "app"}
    settings = replace(SETTINGS, issuer=cloudflare["iss"], audience=("32eafc76",), algorithms=("RS256",))
    proxy = Proxy(settings)
    found = await proxy.person("r", "RS256", **cloudflare, sub="7335d417-61da", nbf=int(time.time()))
    assert "ann@example.com" == found.name
    assert "algorithm" == await proxy.refused(assertion(**cloudflare))
    service = {**cloudflare, "sub": "", "email": None, "common_name": "x.access"}
    assert "subject" == await proxy.refused(assertion("r", "RS256", **service)), "a service token names no person"


async def test_pomerium_names_its_host_as_issuer_and_audience_and_sends_groups() -> None:
    host = "reviews.example.com"
    proxy = Proxy(replace(GROUPED, issuer=host, audience=(host,)))
    groups: dict[str, Any] = {"groups": ["sre", "anything"], "email": "ben@example.com"}
    found = await proxy.person(iss=host, aud=host, **groups)
    assert ("ben@example.com", "reviewer", ("ops",)) == (found.name, found.role, found.reviewers)
    assert frozenset({"sre", "anything"}) == found.groups


ROLES: Final[list[tuple[Any, tuple[str, tuple[str, ...] | None] | None]]] = [
    (["sre"], ("reviewer", ("ops",))),
    ("sre", ("reviewer", ("ops",))),
    (["leads", "sre"], ("reviewer", ("ops", "legal"))),
    (["staff", "sre"], ("reviewer", ("ops",))),
    (["staff"], ("viewer", None)),
    (["sre", "all"], ("reviewer", None)),
    (["sre", "root"], ("admin", None)),
    (["SRE"], None),
    ([], None),
    (None, None),
    (["sre", 1], None),
    ({"sre": True}, None),
    (["sre"] * 201, None),
]


@pytest.mark.parametrize(("groups", "rights"), ROLES)
async def test_the_highest_role_of_the_groups_counts(groups: Any, rights: Any) -> None:
    proxy, text = Proxy(GROUPED), assertion(groups=groups, email="ben@example.com")
    if rights is None:
        assert "no_role" == await proxy.refused(text)
    else:
        found = await proxy.assertions.person_of(text)
        assert rights == (found.role, found.reviewers)


async def test_without_the_groups_claim_only_listed_people_have_rights() -> None:
    """Entra leaves it out for people with many groups, so its absence says nothing."""
    proxy = Proxy(GROUPED)
    found = await proxy.person(groups=None)
    assert ("reviewer", ("ops",), frozenset({"night"})) == (found.role, found.reviewers, found.groups)
    listed = await proxy.person(groups=["root"])
    assert ("reviewer", frozenset({"night", "root"})) == (listed.role, listed.groups), "the entry takes precedence"
    assert "no_role" == await proxy.refused(assertion(groups=None, email="ben@example.com"))


NAMES: Final[list[tuple[dict[str, Any], bool]]] = [
    ({"email": "Ann@Example.COM"}, True),
    ({"email_verified": True}, True),
    ({"email": None}, False),
    ({"email": "ann+x@example.com"}, False),
    ({"email": "änn@example.com"}, False),
    ({"email": f"{'a' * 60}@example.com"}, False),
]


@pytest.mark.parametrize(("claims", "is_email"), NAMES)
async def test_the_name_is_the_email_if_it_can_be_one(claims: dict[str, Any], is_email: bool) -> None:
    found = await Proxy(GROUPED).person(groups=["sre"], **claims)
    assert ("ann@example.com" if is_email else f"sub-{found.subject[:32]}") == found.name


async def test_a_name_without_an_email_is_of_issuer_and_subject() -> None:
    other = replace(GROUPED, issuer="https://other.example.com")
    people = [
        await Proxy(settings).person(groups=["sre"], email=None, sub=subject, iss=settings.issuer)
        for settings, subject in ((GROUPED, "1"), (GROUPED, "1"), (GROUPED, "2"), (other, "1"))
    ]
    assert 3 == len({one.name for one in people}) == len({one.subject for one in people})


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(algorithm: str) -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "1", "email": "ann@example.com", "exp": int(time.time()) + 300}
    return f"{part({'alg': algorithm, 'kid': 'k', 'typ': 'JWT'})}.{part(claims)}.{'' if algorithm == 'none' else 'AA'}"


NOW: Final = int(time.time())
REFUSED: Final[list[tuple[str, str]]] = [
    ("malformed", ""),
    ("malformed", "ann@example.com"),
    ("malformed", "accounts.google.com:ann@example.com"),
    ("malformed", assertion() + ", " + assertion()),
    ("algorithm", unsigned("none")),
    ("algorithm", unsigned("HS256")),
    ("algorithm", jwt.encode({"iss": ISSUER, "aud": AUDIENCE}, "k" * 32, algorithm="HS256", headers={"kid": "k"})),
    ("signature", unsigned("ES256")),
    ("signature", assertion(header={"kid": "k"}, name="k2")),
    ("unknown_key", assertion("gone")),
    ("issuer", assertion(iss=ISSUER + "/")),
    ("claims", assertion(iss=None)),
    ("claims", assertion(aud=None)),
    ("claims", assertion(exp=None)),
    ("audience", assertion(aud="x")),
    ("audience", assertion(aud=[])),
    ("audience", assertion(aud={"aud": AUDIENCE})),
    ("audience", assertion(aud=["x", 1])),
    ("expired", assertion(exp=NOW - 3600)),
    ("not_yet", assertion(iat=NOW + 3600)),
    ("not_yet", assertion(nbf=NOW + 3600)),
    ("subject", assertion(sub=None)),
    ("subject", assertion(sub="")),
    ("subject", assertion(sub="s" * 513)),
    ("email", assertion(email_verified=False)),
    ("email", assertion(email_verified="true")),
    ("email", assertion(email=["ann@example.com"])),
    ("email", assertion(email="e" * 255)),
    ("no_role", assertion(email="eve@example.com")),
    ("no_role", assertion(email=None)),
    ("no_role", assertion(email="ann@example.com\n")),
    ("no_role", assertion(email="ann@e\u212aample.com")),
    ("no_role", assertion(email="ann@example.com.evil.net")),
    ("bound", assertion(cnf={"jkt": "x"})),
]


@pytest.mark.parametrize(("reason", "text"), REFUSED)
async def test_others_are_refused_with_a_reason_from_a_finite_set(reason: str, text: str) -> None:
    assert reason == await Proxy().refused(text)


async def test_rotated_keys_are_fetched_at_once_but_not_for_every_unknown_key() -> None:
    proxy = Proxy(SETTINGS, ("old", "ES256"))
    await proxy.person("old")
    proxy.answer = keys(("new", "ES256"))
    assert "ann@example.com" == (await proxy.person("new")).name
    assert ("unknown_key", 2) == (await proxy.refused(assertion("old")), proxy.asked)
    proxy.now += UNKNOWN
    assert ("unknown_key", 3) == (await proxy.refused(assertion("old")), proxy.asked)


async def test_keys_outlive_an_issuer_that_is_down_for_the_grace_time() -> None:
    proxy = Proxy()
    await proxy.person()
    proxy.answer = Unavailable("down")
    proxy.now = GRACE - 1
    await proxy.person()
    proxy.now = GRACE + 1
    with pytest.raises(Unavailable, match="the issuer's keys are not available"):
        await proxy.person()
    proxy.answer, proxy.now = keys(("k", "ES256")), GRACE + 60
    await proxy.person()


@pytest.mark.parametrize("email", ["\u017fam@example.com", "sam@wor\u212a.com", "SAM@WOR\u212a.COM"])
async def test_a_letter_whose_lower_case_is_in_ascii_gives_no_rights_of_another_person(email: str) -> None:
    people = {name: ListedPerson("admin") for name in ("sam@example.com", "sam@work.com")}
    assert "no_role" == await Proxy(replace(SETTINGS, people=people)).refused(assertion(email=email))
