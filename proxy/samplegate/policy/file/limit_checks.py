"""Pure. Checks of limits and loop detection, and of the rules that draw on limits.

``check`` needs the file only. ``check_prices`` needs facts about the models. Time zones other than ``UTC`` are looked
up in the system's database.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias, TypeGuard

from samplegate.money import exact_dollars
from samplegate.policy import cost
from samplegate.policy.catalogue import Catalogue, ModelFacts
from samplegate.policy.claims import amounts, units
from samplegate.policy.file import timeouts
from samplegate.policy.file.draft import Draft
from samplegate.policy.file.reviewer_checks import asks_no_model
from samplegate.policy.ledger import MAX_UNITS, SCALE, Window, zone
from samplegate.policy.prompt import max_output_tokens
from samplegate.policy.schema import AllowRule, AnswerRule, EscalateRule, ForwardRule, Limit, Model, ModelRule, Rule
from samplegate.yamlfile.tree import Path, quoted
from samplegate.yamlfile.validate import did_you_mean

Drawing: TypeAlias = AllowRule | AnswerRule | ForwardRule | EscalateRule

AMOUNTS: Final = tuple(SCALE)
CALENDAR: Final[tuple[Window, ...]] = ("day", "month")
UNWAITED: Final = ("call", "run", "process")
"""Windows that do not end while a request waits."""
BY_A_MODEL: Final = ("input_tokens", "output_tokens", "usd")
"""Quantities that only a model uses."""


def check(draft: Draft) -> None:
    """Check every limit, loop detection, and every rule's limits."""
    for name, limit in draft.policy.limits.items():
        if draft.sound("limits", name):
            _limit(draft, ("limits", name), limit)
    _brakes(draft)
    for index, rule in enumerate(draft.policy.rules):
        if isinstance(rule, Drawing) and draft.sound("rules", index, "effect"):
            _rule(draft, ("rules", index), rule)
    _unused(draft)


def check_prices(draft: Draft, catalogue: Catalogue) -> None:
    """Check that the cost of an allowed request is known for its limits, and that the smallest request fits."""
    for index, rule in enumerate(draft.policy.rules):
        if not _asks_a_model(rule) or not draft.sound("rules", index, "limits") or not draft.sound("models"):
            continue
        models = _models(draft, rule)
        for path, name in _listed(("rules", index), rule):
            limit = draft.policy.limits.get(name)
            if limit is None or not models or not draft.sound("limits", name):
                continue
            _priced(
                draft,
                path,
                name,
                limit,
                [model for model in models if catalogue.get(model.name, _NOTHING).rates is None],
            )
            if rule.match.kind == "sampling":
                _fits(
                    draft,
                    path,
                    name,
                    limit,
                    [_least(rule, model, catalogue.get(model.name, _NOTHING)) for model in models],
                )


def _asks_a_model(rule: Rule) -> TypeGuard[ModelRule]:
    """Whether the rule may use tokens and dollars."""
    return isinstance(rule, AllowRule) or (isinstance(rule, EscalateRule) and not asks_no_model(rule.match))


def _limit(draft: Draft, path: Path, limit: Limit) -> None:
    given = amounts(limit)
    if not given:
        draft.problem(path, f"the limit has no amount; set one of {', '.join(AMOUNTS)}")
    for quantity in list(given)[1:]:
        draft.problem(
            (*path, quantity),
            f"{next(iter(given))} is also set; split this into two limits, and list both in the rules",
            key=True,
        )
    for quantity, amount in given.items():
        counted = units(quantity, amount)
        if counted < 1:
            draft.problem((*path, quantity), f"{amount:g} is too small; use at least {1 / SCALE[quantity]:g}")
        elif counted > MAX_UNITS:
            draft.problem((*path, quantity), f"{amount:g} is too large; use at most {MAX_UNITS // SCALE[quantity]:g}")
    _window(draft, path, limit)
    for index, by in enumerate(limit.by):
        if by in limit.by[:index]:
            draft.problem((*path, "by", index), f"{by} is listed twice; remove one")


def _window(draft: Draft, path: Path, limit: Limit) -> None:
    if limit.concurrent is not None:
        for name, what in (
            ("per", "counts simultaneous requests, not requests over a period"),
            ("warn_at", "limits have no warning"),
        ):
            if draft.has_value(*path, name):
                draft.problem((*path, name), f"`concurrent` {what}; remove the key", key=True)
    elif limit.per is None:
        draft.problem(
            path,
            "the period is missing; add `per: 1m` or another duration, day, month, call, run or process",
        )
    elif limit.per not in CALENDAR and limit.per not in UNWAITED:
        timeouts.check_span(draft, (*path, "per"), limit.per)
    if limit.per in CALENDAR:
        _zone(draft, path, limit.per, limit.tz)
    elif limit.tz is not None:
        draft.problem(
            (*path, "tz"), "only `per: day` and `per: month` have a time zone; remove the key or change `per`", key=True
        )


def _zone(draft: Draft, path: Path, per: str, tz: str | None) -> None:
    if tz is None:
        draft.problem(
            path,
            f"`per: {per}` needs a time zone; add `tz: UTC`, or your own such as `tz: Europe/Berlin`",
        )
        return
    try:
        zone(tz)
    except ValueError:
        draft.problem((*path, "tz"), f"unknown time zone {quoted(tz)}{_other_zone(tz)}")


def _other_zone(tz: str) -> str:
    from zoneinfo import available_timezones

    known = available_timezones()
    if not known:
        return ": this machine has no time zone database; install the package tzdata, or use UTC"
    return did_you_mean(tz, known) or "; use a name such as Europe/Berlin, or UTC"


def _brakes(draft: Draft) -> None:
    brakes = draft.policy.brakes
    if brakes is None or not draft.sound("brakes"):
        return
    if brakes.requests_per_call is None and brakes.repeats is None:
        draft.problem(("brakes",), "neither requests_per_call nor repeats is set; set at least one")
    timeouts.check_span(draft, ("brakes", "cooling"), brakes.cooling)


def _rule(draft: Draft, path: Path, rule: Drawing) -> None:
    limits = draft.policy.limits
    seen: set[str] = set()
    if draft.has_value(*path, "limits") and not rule.limits and draft.sound(*path, "limits"):
        draft.problem((*path, "limits"), "the list is empty; add limits or remove the key")
    for at, name in _listed(path, rule):
        if not draft.sound(*at):
            continue
        if name in seen:
            draft.problem(at, f"{quoted(name)} is listed twice; remove one")
        elif name not in limits and draft.sound("limits"):
            there = did_you_mean(name, limits) or (
                f"; the policy's limits are {', '.join(map(quoted, list(limits)[:20]))}"
                if limits
                else "; add it under limits"
            )
            draft.problem(at, f"unknown limit {quoted(name)}{there}")
        elif name in limits and not _asks_a_model(rule):
            _of_no_model(draft, at, name, limits[name])
        seen.add(name)
    _on_limit(draft, path, rule)


def _listed(path: Path, rule: Drawing) -> Iterator[tuple[Path, str]]:
    """The limits of a rule, each with its path."""
    for index, name in enumerate(rule.limits):
        yield (*path, "limits", index), name


def _of_no_model(draft: Draft, at: Path, name: str, limit: Limit) -> None:
    quantity = next((quantity for quantity in amounts(limit) if quantity in BY_A_MODEL), None)
    if quantity is not None:
        draft.problem(
            at,
            f"{quoted(name)} limits {quantity}, but this rule calls no model, so nothing is charged; use a limit on"
            " requests or concurrent",
        )


def _on_limit(draft: Draft, path: Path, rule: Drawing) -> None:
    at: Path = (*path, "on_limit")
    if not draft.has_value(*at) or not draft.sound(*at) or not draft.sound(*path, "limits"):
        return
    if not rule.limits:
        if not draft.has_value(*path, "limits"):
            draft.warn(at, "the rule has no limits, so the key has no effect; add limits or remove the key", key=True)
        return
    if rule.shadow:
        draft.warn(at, "a shadow rule charges no limits, so the key has no effect; remove it", key=True)
    named = [draft.policy.limits.get(name) for name in rule.limits]
    sound = all(draft.sound("limits", name) for name in rule.limits)
    if rule.on_limit == "wait" and sound and all(limit is not None and limit.per in UNWAITED for limit in named):
        draft.problem(
            at,
            "limits per call, run or process never free up while a request waits; use next, unanswered or deny",
        )


def _unused(draft: Draft) -> None:
    if not draft.sound("rules"):
        return
    used = {name for rule in draft.policy.rules if isinstance(rule, Drawing) for name in rule.limits}
    for name in draft.policy.limits:
        if name not in used and draft.sound("limits", name):
            draft.warn(
                ("limits", name),
                "no rule uses this limit, so it has no effect; add it to the `limits` of a rule or remove it",
                key=True,
            )


_NOTHING: Final = ModelFacts()


def _models(draft: Draft, rule: ModelRule) -> list[Model]:
    """The models that a rule may call."""
    return [model for model in draft.policy.models if not rule.with_.models or model.name in rule.with_.models]


def _least(rule: ModelRule, model: Model, facts: ModelFacts) -> dict[str, int | None]:
    """The minimum that a matching request reserves for a model, in units; None if unknown."""
    asked = rule.match.max_tokens.min if rule.match.max_tokens is not None else None
    output = max_output_tokens(rule.with_, model, facts, max(asked or 1, 1))
    least = cost.least(model, facts)
    return {
        "input_tokens": least.input_tokens * SCALE["input_tokens"],
        "output_tokens": output * SCALE["output_tokens"],
        "usd": least.usd,
    }


def _priced(draft: Draft, path: Path, name: str, limit: Limit, unpriced: list[Model]) -> None:
    if limit.usd is None or not unpriced:
        return
    named = ", ".join(quoted(model.name) for model in unpriced)
    which, models = ("model", "the model") if len(unpriced) == 1 else ("models", "these models")
    draft.problem(
        path,
        f"{quoted(name)} is in dollars, but the price of {which} {named} is unknown; add `price: {{input: , output: }}`"
        f" to {models}, or remove {models} from the rule's `with.models`",
    )


def _fits(draft: Draft, path: Path, name: str, limit: Limit, least: list[dict[str, int | None]]) -> None:
    """Check that the limit admits the smallest request with at least one of the models. Skipped if a price is
    unknown."""
    for quantity, amount in amounts(limit).items():
        if quantity not in BY_A_MODEL:
            continue
        smallest = [known for each in least if (known := each[quantity]) is not None]
        if len(smallest) == len(least) and min(smallest) > units(quantity, amount):
            number = f"{min(smallest) / SCALE[quantity]:.12f}".rstrip("0").rstrip(".")
            needed = exact_dollars(min(smallest)) if quantity == "usd" else f"{number} {quantity.replace('_', ' ')}"
            draft.problem(
                path,
                f"{quoted(name)} is too small for any request: the smallest one that matches this rule may need"
                f" {needed}; raise the limit",
            )
