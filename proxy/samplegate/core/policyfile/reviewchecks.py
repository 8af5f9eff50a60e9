"""What must hold among the reviewers of a policy, and between them and its rules. Where a reviewer is told of reviews: ``webhookchecks.py``."""

from __future__ import annotations

from collections.abc import Iterator

from samplegate.core.policy import AllowRule, EscalateRule, Match, ModelRule, Reviewer, seconds
from samplegate.core.policyfile import timechecks, webhookchecks
from samplegate.core.policyfile.draft import Draft
from samplegate.core.policyfile.leaves import did_you_mean
from samplegate.core.policyfile.tree import Path, quoted
from samplegate.core.policyfile.waits import legacy_patience, modern_patience, said


def check(draft: Draft) -> None:
    """Every reviewer by itself, and every rule that names one."""
    for name, reviewer in draft.policy.reviewers.items():
        if draft.sound("reviewers", name):
            _reviewer(draft, ("reviewers", name), reviewer)
    for index, rule in enumerate(draft.policy.rules):
        path: Path = ("rules", index)
        if isinstance(rule, AllowRule | EscalateRule) and draft.sound(*path, "effect"):
            _rule(draft, path, rule)
    _unused(draft)


def asks_no_model(match: Match) -> bool:
    """Whether a match takes elicitations only, so that no model is ever asked."""
    return match.kind == "elicitation" or (match.kind is None and match.mode is not None)


def _always_can(match: Match) -> bool:
    """Whether what it takes can always be shown: what cannot is a form that is not flat (T16)."""
    return match.kind == "sampling" or match.mode in ("url", ["url"])


def _reviewer(draft: Draft, path: Path, reviewer: Reviewer) -> None:
    timechecks.span(draft, (*path, "timeout"), reviewer.timeout)
    if seconds(reviewer.late_verdict) > timechecks.LONGEST:
        draft.problem((*path, "late_verdict"), f"{quoted(reviewer.late_verdict)} is longer than a year; give at most 8784h, or 0s for never")
    if reviewer.webhook is not None:
        webhookchecks.check(draft, (*path, "webhook"), reviewer.webhook)
    if reviewer.command is not None:
        _command(draft, (*path, "command"), reviewer.command)


def _command(draft: Draft, path: Path, command: list[str]) -> None:
    if not command:
        draft.problem(path, "the list is empty; give a program and its arguments, or remove the key")
    elif not command[0].strip():
        draft.problem((*path, 0), "the program's name is empty; give one")


def _named(rule: ModelRule) -> Iterator[tuple[str, str]]:
    """The keys of a rule that name reviewers, and whom they name."""
    if isinstance(rule, EscalateRule):
        yield "reviewer", rule.reviewer
    if rule.review_answer is not None:
        yield "review_answer", rule.review_answer


def _rule(draft: Draft, path: Path, rule: ModelRule) -> None:
    for key, name in _named(rule):
        _known(draft, (*path, key), name)
    _show(draft, path, rule)
    if isinstance(rule, EscalateRule):
        _escalate(draft, path, rule)
    _too_late(draft, path, rule)


def _known(draft: Draft, path: Path, name: str) -> None:
    reviewers = draft.policy.reviewers
    if name in reviewers or not draft.sound(*path) or not draft.sound("reviewers"):
        return
    there = f"; the reviewers are {', '.join(map(quoted, list(reviewers)[:20]))}" if reviewers else "; add it under reviewers"
    draft.problem(path, f"{quoted(name)} is no reviewer of this policy{did_you_mean(name, reviewers) or there}")


def _show(draft: Draft, path: Path, rule: ModelRule) -> None:
    """``show`` is for a webhook or a command: without one nobody is told."""
    at: Path = (*path, "show")
    if not draft.says(*at) or not draft.sound("reviewers"):
        return
    if isinstance(rule, AllowRule) and rule.review_answer is None:
        if draft.sound(*path, "review_answer"):
            draft.problem(at, "the rule has no review_answer, so nobody is shown anything; add one or remove the key", key=True)
        return
    named = [draft.policy.reviewers.get(name) for _, name in _named(rule)]
    if all(reviewer is not None and reviewer.webhook is None and reviewer.command is None for reviewer in named):
        draft.warn(at, "no webhook or command is told of these reviews, so it makes no difference; give the reviewer one or remove it", key=True)


def _escalate(draft: Draft, path: Path, rule: EscalateRule) -> None:
    timeout: Path = (*path, "timeout")
    if rule.timeout is not None and draft.sound(*timeout):
        timechecks.span(draft, timeout, rule.timeout)
    if asks_no_model(rule.match) and draft.sound(*path, "match"):
        for key in ("with", "review_answer"):
            if draft.says(*path, key):
                draft.problem((*path, key), "the key is for sampling, and the match takes elicitations only; remove one of the two", key=True)
    if draft.says(*path, "otherwise") and _always_can(rule.match) and draft.sound(*path, "match"):
        draft.warn(
            (*path, "otherwise"),
            "only a form may be one that nobody can be shown, and it takes none, so this never happens; remove the key",
            key=True,
        )
    modes = [rule.match.mode] if isinstance(rule.match.mode, str) else rule.match.mode or []
    if "url" in modes:
        draft.warn(  # R45
            (*path, "match", "mode"),
            "whoever reviews a url is not the user whom the server means, and would act in its place; forward urls if the client can show them",
        )


def _too_late(draft: Draft, path: Path, rule: ModelRule) -> None:
    """A reviewer whose late verdicts answer nothing, and whose time the peers do not wait for (T10): a person would decide in vain.

    With late verdicts it is no fault: the next same request has the answer. ``check`` says how long everybody has.
    """
    if not draft.sound("client") or not draft.sound("servers") or not draft.sound(*path, "match"):
        return
    for key, name in _named(rule):
        reviewer = draft.policy.reviewers.get(name)
        if reviewer is None or seconds(reviewer.late_verdict) or not draft.sound("reviewers", name):
            continue
        whole = (rule.timeout if isinstance(rule, EscalateRule) and key == "reviewer" else None) or reviewer.timeout
        who, most = _most(draft, rule.match)
        if seconds(whole) > most:
            what = f"{quoted(name)} has {whole}, {who} wait {said(most)}, and later verdicts are lost with late_verdict: 0s"
            draft.warn((*path, key), f"{what}; raise late_verdict or the peers' peer_timeout, or lower the timeout")


def _most(draft: Draft, match: Match) -> tuple[str, float]:
    """Who gives up first of all that the match can hold for, and after how many seconds at the most."""
    if match.era == "modern":
        return "clients of the modern era", modern_patience(draft.policy)
    return "peers of the legacy eras", legacy_patience(draft.policy, match)[1]


def _unused(draft: Draft) -> None:
    if not draft.sound("rules"):
        return
    used = {name for rule in draft.policy.rules if isinstance(rule, AllowRule | EscalateRule) for _, name in _named(rule)}
    for name in draft.policy.reviewers:
        if name not in used and draft.sound("reviewers", name):
            draft.warn(("reviewers", name), "no rule names this reviewer; add it as the `reviewer` of an escalate rule or remove it", key=True)
