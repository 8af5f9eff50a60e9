"""The REST API against its OpenAPI description: every response to valid and invalid requests is one that it describes
(schemathesis, in process)."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Any, Final, get_args, get_type_hints

import httpx2
import jsonschema
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import SchemathesisConfig

from samplegate.policy.schema import Mode, Show, Stage
from samplegate.protocol.frames import Era
from samplegate.protocol.requests import Kind
from samplegate.reviews import verdict
from samplegate.reviews.review import Door, Edits, Review, ReviewEvent, State, Verdict
from samplegate.reviews.web import api
from samplegate.reviews.web.api import ID, ReviewApi, openapi_document
from samplegate.reviews.web.events import Feed
from tests.fakes.reviewers_listener import ADMIN, VIEWER, ReviewersListener, client
from tests.fakes.reviews import NOW, address, form, model_answer, review, text
from tests.profiles import share

LISTENER: Final = ReviewersListener(url="http://testserver")
APP: Final = LISTENER.app(keep_alive=0.01, poll=0.01)
REVIEWS: Final[list[Review]] = [
    msgspec.structs.replace(each, id=f"rv_{number:024d}")
    for number, each in enumerate(
        [
            review(worst_usd=10**9, answers_until=NOW - 1, late=0.0),
            form(port="integer"),
            address("https://\u0430pple.example/"),
            model_answer(text("hi")),
        ]
    )
]
CONFIG: Final = SchemathesisConfig.from_dict(
    {
        "seed": 1,
        "auth": {"openapi": {"person": {"bearer": ADMIN}}},
        "operations": [
            {  # validity depends on the review, which no schema can express: 422 is a valid response
                "include-path": "/v1/reviews/{id}/verdict",
                "checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", 404, 409, 422]}},
            }
        ],
    }
)
DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")
SCHEMA: Final = schemathesis.openapi.from_asgi("/v1/openapi.json", APP, config=CONFIG)


def reopened() -> None:
    """Every example starts with the same store: one review of each kind, and a decided one."""
    LISTENER.store.reviews.clear()
    LISTENER.store.events.clear()
    LISTENER.now += 60  # undo the effects of checks with wrong tokens

    async def fill() -> None:
        for each in REVIEWS:
            await LISTENER.open_review(msgspec.structs.replace(each, created=LISTENER.now, expires=LISTENER.now + 900))
        gone = msgspec.structs.replace(REVIEWS[0], id=f"rv_{len(REVIEWS):024d}")
        await LISTENER.open_review(msgspec.structs.replace(gone, created=LISTENER.now, expires=LISTENER.now + 900))
        LISTENER.store.decide(gone.id, Verdict(word="reject", reason="no"), who="ann", door="cli")

    asyncio.run(fill())


def reached(case: Any) -> None:
    """Replace random ids and digests with ours, because most examples should reach a review."""
    drawn = case.path_parameters.get("id")
    if not isinstance(drawn, str) or not ID.fullmatch(drawn):
        return
    number = sum(map(ord, drawn)) % (len(REVIEWS) + 2)
    case.path_parameters["id"] = f"rv_{number:024d}"
    if isinstance(case.body, dict) and DIGEST.fullmatch(str(case.body.get("digest"))):
        case.body["digest"] = REVIEWS[0].digest


@SCHEMA.exclude(path="/v1/reviews/events").parametrize()
@settings(
    max_examples=share(0.25),  # drawing an example takes 20 ms
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
        HealthCheck.large_base_example,
        HealthCheck.function_scoped_fixture,
        HealthCheck.differing_executors,
        HealthCheck.nested_given,
    ],
)
def test_it_answers_as_it_says(case: Any) -> None:
    reopened()
    reached(case)
    case.call_and_validate()


async def asked_in_vain(status: int) -> httpx2.Response:
    """A response to a verdict that no example reaches."""
    listener = ReviewersListener()
    opened, app = await listener.open_review(), listener.app()
    path, reject = f"/v1/reviews/{opened.id}/verdict", {"verdict": "reject", "digest": opened.digest}
    token, size, headers = {403: VIEWER, 401: "cb1.1." + "a" * 43}.get(status, ADMIN), 0, {}
    match status:
        case 400:
            headers = {"content-length": "x"}
        case 409:
            await client(app, ADMIN).post(path, json=reject)
        case 413:
            size = 2 * 1024 * 1024
        case 429:
            for _ in range(100):
                await client(app, "nobody").get("/v1/reviews")
            token = "nobody"
        case 500:
            listener.store.decide = None  # type: ignore[method-assign,assignment]
        case 503:
            listener.store.fault = "gone"
    return await client(app, token).post(path, json=reject | {"reason": " " * size}, headers=headers)


@pytest.mark.parametrize("status", [400, 401, 403, 409, 413, 429, 500, 503])
def test_what_no_example_comes_to_is_described_too(status: int) -> None:
    found = asyncio.run(asked_in_vain(status))
    whole = openapi_document("1")
    name = whole["paths"]["/v1/reviews/{id}/verdict"]["post"]["responses"][str(found.status_code)]["$ref"].rpartition(
        "/"
    )[2]
    described = whole["components"]["responses"][name]
    assert (status, [found.headers["content-type"]]) == (found.status_code, list(described["content"]))
    assert [] == [each for each in described.get("headers", {}) if each not in found.headers]
    schema = described["content"]["application/problem+json"]["schema"] | {"components": whole["components"]}
    jsonschema.Draft202012Validator(schema).validate(found.json())


def test_every_path_is_described_and_no_other() -> None:
    served = {route.path for route in ReviewApi(LISTENER.web, Feed(LISTENER.web)).routes()}
    assert served == set(openapi_document("1")["paths"])


def test_it_is_public_names_the_release_and_is_the_same_each_time() -> None:
    async def asked() -> list[httpx2.Response]:
        return [await client(APP).get("/v1/openapi.json", headers={"host": "testserver"}) for _ in range(2)]

    first, second = asyncio.run(asked())
    assert (200, "1.2.3", first.content) == (first.status_code, first.json()["info"]["version"], second.content)
    assert [] == first.json()["paths"]["/v1/openapi.json"]["get"]["security"]


def test_the_served_bytes_have_the_recorded_digest() -> None:
    """A change of the description is a change of the API: add it to the changelog, and its digest here."""

    async def asked() -> bytes:
        return (await client(APP).get("/v1/openapi.json", headers={"host": "testserver"})).content

    assert (
        "cb99b12bd185abd5162f1fa22074d893f11bec5b3bb75dcda2d074897fcc7c2c"
        == hashlib.sha256(asyncio.run(asked())).hexdigest()
    )


def test_its_members_values_and_bounds_are_those_that_the_code_reads() -> None:
    schemas = openapi_document("1")["components"]["schemas"]
    assert set(schemas["Verdict"]["properties"]) == verdict.MEMBERS
    assert set(schemas["Edits"]["properties"]) == set(Edits.__struct_encode_fields__)
    assert verdict.MAX_REASON == schemas["Verdict"]["properties"]["reason"]["maxLength"]
    event, view = schemas["Event"]["properties"], schemas["Review"]["properties"]
    listing = openapi_document("1")["paths"]["/v1/reviews"]["get"]["parameters"]
    filters = {each["name"]: each["schema"] for each in listing}
    words = [
        (State, view["state"]),
        (Stage, view["stage"]),
        (Era, view["era"]),
        (Kind, view["kind"]),
        (Show, view["show"]),
    ]
    words += [
        (State, filters["state"]["items"]),
        (Kind, filters["kind"]),
        (Door, event["door"]),
        (get_type_hints(ReviewEvent)["what"], event["what"]),
    ]
    assert [] == [schema for type, schema in words if list(get_args(type)) != schema["enum"]]
    assert [] == [
        schema
        for type, schema in [(Mode, view["mode"]), (Door, view["door"])]
        if [*get_args(type), None] != schema["enum"]
    ]
    many = [filters[name]["maxItems"] for name in ("state", "reviewer")]
    long = [schema["maxLength"] for schema in (filters["reviewer"]["items"], filters["server"])]
    assert ([api.MAX_VALUES] * 2, [api.MAX_NAME] * 2, api.MAX_LIMIT) == (many, long, filters["limit"]["maximum"])
    assert [f"Maximum number of reviews, {api.DEFAULT_LIMIT} by default."] == [
        each["description"] for each in listing if each["name"] == "limit"
    ]
