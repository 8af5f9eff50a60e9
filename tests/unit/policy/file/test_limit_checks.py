"""Checks of limits against prices, the smallest request and the time zone database. Checks that need only the file are
in bad_policies/limits*.yaml."""

from __future__ import annotations

import zoneinfo
from typing import Any, Final

import msgspec
import pytest

from samplegate.policy.catalogue import Catalogue, ModelFacts, Rates
from samplegate.policy.cost import least
from samplegate.policy.file import limit_checks
from samplegate.policy.file.draft import Draft
from samplegate.policy.ledger import SCALE
from samplegate.policy.schema import Model, Policy
from samplegate.yamlfile.tree import compose
from samplegate.yamlfile.validate import convert, type_of

MODELS: Final = "models: [{name: big, model: a/b}, {name: small, model: c/d, max_tokens: 400}]\n"
CENT: Final = SCALE["usd"] // 100
DEAR: Final = ModelFacts(Rates(input=CENT, output=CENT))
CHEAP: Final = ModelFacts(Rates(input=1, output=1))
KNOWN: Final[Catalogue] = {"big": DEAR, "small": CHEAP}


def draft(limit: str, rule: str = "", models: str = MODELS) -> Draft:
    text = (
        f"version: 1\n{models}limits: {{l: {limit}}}\nrules: [{{name: r, match: {{kind: sampling{rule}, limits:"
        " [l]}]\n"
    )
    root, faults = compose(text)
    assert [] == faults
    value, walk = convert(root, type_of(Policy))
    assert [] == walk.faults
    return Draft(msgspec.convert(value, Policy, strict=True), root, set())


def warnings_of(limit: str, rule: str, catalogue: Catalogue) -> list[str]:
    read = draft(limit, rule)
    limit_checks.check_prices(read, catalogue)
    return [fault.what for fault in read.problems]


ANY: Final = "}, effect: allow"
BIG: Final = "}, effect: allow, with: {models: [big]}"
ASKS: Final = "}, effect: escalate, reviewer: ops"
LONG: Final = ", max_tokens: {min: 1000}}, effect: allow"


def test_an_unknown_price_under_a_dollar_limit_names_limit_models_and_remedy() -> None:
    (what,) = warnings_of("{usd: 5, per: day, tz: UTC}", ANY, {"small": CHEAP})
    assert (
        "'l' is in dollars, but the price of model 'big' is unknown; add `price: {input: , output: }` to the model,"
        " or remove the model from the rule's `with.models`" == what
    )
    (both,) = warnings_of("{usd: 5, per: day, tz: UTC}", ANY, {"small": ModelFacts()})
    assert "the price of models 'big', 'small' is unknown" in both


def test_what_a_person_may_approve_needs_a_price_too() -> None:
    (what,) = warnings_of("{usd: 5, per: day, tz: UTC}", ASKS, {"small": CHEAP})
    assert "the price of model 'big' is unknown" in what


@pytest.mark.parametrize(
    ("limit", "rule", "catalogue"),
    [
        ("{usd: 5, per: day, tz: UTC}", ANY, KNOWN),
        ("{usd: 5, per: day, tz: UTC}", BIG, {"big": CHEAP}),
        ("{requests: 1, per: 1m}", ANY, {}),
        ("{output_tokens: 1, per: 1m}", ANY, {}),
        ("{output_tokens: 400, per: 1m}", LONG, {}),
        ("{concurrent: 1}", ANY, {}),
        ("{usd: 0.01, per: 1m}", ANY, KNOWN),
        ("{requests: 1, per: 1m}", ASKS, {}),
        ("{usd: 5, per: day, tz: UTC}", ASKS, KNOWN),
    ],
    ids=[
        "priced",
        "another model's price",
        "requests",
        "one token",
        "a model that writes no more",
        "slots",
        "one of the models is cheap enough",
        "people and requests",
        "people and prices that are known",
    ],
)
def test_a_limit_that_some_request_fits_into_is_no_problem(limit: str, rule: str, catalogue: Catalogue) -> None:
    assert [] == warnings_of(limit, rule, catalogue)


@pytest.mark.parametrize(
    ("limit", "rule", "needed"),
    [
        ("{usd: 0.01, per: 1m}", BIG, "$0.41"),
        ("{output_tokens: 399, per: 1m}", LONG, "400 output tokens"),
        (
            "{output_tokens: 999, per: 1m}",
            ", max_tokens: {min: 1000}}, effect: allow, with: {models: [big]}",
            "1000 output tokens",
        ),
        ("{input_tokens: 1, per: 1m}", ANY, "input tokens"),
    ],
)
def test_a_limit_that_the_smallest_request_does_not_fit_into_is_a_problem(limit: str, rule: str, needed: str) -> None:
    (what,) = warnings_of(limit, rule, KNOWN)
    assert what.startswith("'l' is too small for any request: the smallest one that matches this rule may need ")
    assert what.endswith(f"{needed}; raise the limit")


def test_the_smallest_request_is_what_its_cost_says() -> None:
    smallest = least(Model(name="big", model="a/b"), DEAR)
    assert [] == warnings_of(f"{{input_tokens: {smallest.input_tokens}, per: 1m}}", BIG, KNOWN)
    assert [] != warnings_of(f"{{input_tokens: {smallest.input_tokens - 1}, per: 1m}}", BIG, KNOWN)


def test_a_machine_without_time_zones_is_told_what_to_install_and_knows_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_name: str) -> Any:
        raise zoneinfo.ZoneInfoNotFoundError

    monkeypatch.setattr("samplegate.policy.ledger.ZoneInfo", gone)
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    read = draft("{requests: 1, per: day, tz: Europe/Berlin}", ANY)
    limit_checks.check(read)
    (what,) = [fault.what for fault in read.problems]
    assert what.endswith("this machine has no time zone database; install the package tzdata, or use UTC")
    read = draft("{requests: 1, per: day, tz: UTC}", ANY)
    limit_checks.check(read)
    assert [] == read.problems
