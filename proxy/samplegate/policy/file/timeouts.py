"""Pure. Timeouts of rules and reviews, checked against the timeouts of the peers (policies/peers.md, "Client and
servers").

The module also computes the time that reviewers really have: their own timeout, limited by the peers' timeouts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from samplegate.durations import duration_text
from samplegate.policy.conditions import globs, is_glob
from samplegate.policy.deadlines import DEFAULT_PEER, MAX_TRIES, usable_time
from samplegate.policy.file.draft import Draft
from samplegate.policy.schema import AllowRule, EscalateRule, Match, Peer, Policy, Rule, Stage, seconds
from samplegate.protocol.requests import Origin
from samplegate.yamlfile.tree import Path, quoted

MAX_DURATION: Final = 366 * 24 * 3600.0  # a longer timeout is a typo


def check_timeout(draft: Draft, rule: Path, match: Match, timeout: str | None, path: Path) -> None:
    """Check that a rule's timeout is valid and can be reached before the peers give up."""
    if timeout is None or not draft.sound(*path):
        return
    before = len(draft.problems)
    check_span(draft, path, timeout)
    if (
        len(draft.problems) > before
        or not draft.sound("client")
        or not draft.sound("servers")
        or not draft.sound(*rule, "match")
    ):
        return
    wanted = seconds(timeout)
    client, server = time_left(draft.policy.client), _most_patient(draft, match)
    if wanted > client:
        draft.warn(
            path,
            f"{timeout} is never reached: the client's peer_timeout leaves {duration_text(client)}; lower it or raise"
            " client.peer_timeout",
        )
    elif wanted > server and match.era != "modern":
        draft.warn(
            path,
            f"{timeout} is never reached with 2025-11-25 and older: the server's peer_timeout leaves"
            f" {duration_text(server)}; lower it or raise the server's peer_timeout",
        )


def _most_patient(draft: Draft, match: Match) -> float:
    """The time that the most patient server of the match leaves."""
    return max(time_left(peer) for peer in peers(draft.policy, match))


def check_span(draft: Draft, path: Path, duration: str) -> None:
    """Check that a duration is above zero and at most MAX_DURATION."""
    if not 0 < seconds(duration) <= MAX_DURATION:
        draft.problem(path, f"{quoted(duration)} is out of range; use more than 0s and at most 8784h")


class Wait(msgspec.Struct, frozen=True):
    """The times of one rule that asks a reviewer, in seconds."""

    rule: str
    reviewer: str
    stage: Stage
    """``answer``: the reviewer sees the model's answer, and the model's time counts in the same round."""
    timeout: float
    """How long the review waits for a verdict, independent of its round."""
    late: float | None
    """How long a verdict answers the next identical request; 0: never. None: no verdict can be late, because the peers
    wait as long as the review."""
    legacy: tuple[float, float] | None
    """The minimum and maximum time that a request waits, over all servers that speak 2025-11-25 or older. None if the
    rule matches no such request."""
    modern: float | None
    """The same if client and server both speak 2026-07-28: the request is put off and the client retries."""
    bridged: float | None
    """The same if only the server speaks 2026-07-28: its client waits on one call all the time."""

    def __str__(self) -> str:
        once = [*(self.legacy or ()), *([] if self.bridged is None else [self.bridged])]
        more = self.modern is not None and self.modern != max(once)
        modern = (
            f", or {duration_text(self.modern)} if client and server both speak 2026-07-28"
            if self.modern is not None and more
            else ""
        )
        task = "check the answer, minus the model's response time" if self.stage == "answer" else "decide"
        time = f"{_span((min(once), max(once)))} to {task}{modern}"
        return (
            f"rule {self.rule!r}: reviewer {self.reviewer} has {time} (the review itself expires after"
            f" {duration_text(self.timeout)}){_later(self.late)}"
        )


def waits(policy: Policy) -> Iterator[Wait]:
    """Every review that the policy may ask for, in the order of its rules. The reviewers must exist."""
    for rule in policy.rules:
        if isinstance(rule, EscalateRule):
            yield _wait(policy, rule, rule.reviewer, "request", rule.timeout)
        if isinstance(rule, AllowRule | EscalateRule) and rule.review_answer is not None:
            yield _wait(policy, rule, rule.review_answer, "answer", None)


def _wait(policy: Policy, rule: Rule, name: str, stage: Stage, timeout: str | None) -> Wait:
    reviewer, era = policy.reviewers[name], rule.match.era
    whole, quick, slow, back = (
        seconds(timeout or reviewer.timeout),
        *legacy_patience(policy, rule.match),
        modern_patience(policy),
    )
    legacy = None if era == "modern" else (min(whole, quick), min(whole, slow))
    one = time_left(policy.client)
    modern, bridged = (None, None) if era == "legacy" else (min(whole, back), min(whole, one))
    least = one if era == "modern" else quick
    late = seconds(reviewer.late_verdict) if can_be_late(stage, whole, least) else None
    return Wait(rule.name, name, stage, whole, late, legacy, modern, bridged)


def review_wait(policy: Policy, origin: Origin, timeout: float) -> float:
    """How long one request really waits for a verdict, in seconds."""
    if origin.era == "modern":
        return min(timeout, modern_patience(policy))
    return min(timeout, time_left(policy.client), time_left(policy.servers.get(origin.server, DEFAULT_PEER)))


def can_be_late(stage: Stage, timeout: float, patience: float) -> bool:
    """Whether a review of ``timeout`` seconds may outlive its request. A model's time also counts against the peers'
    timeouts, however short."""
    return patience < timeout or (stage == "answer" and patience < math.inf)


def legacy_patience(policy: Policy, match: Match) -> tuple[float, float]:
    """The minimum and maximum time that legacy peers leave, over the servers, in seconds."""
    client, servers = time_left(policy.client), [time_left(peer) for peer in peers(policy, match)]
    return min(client, *servers), min(client, max(servers))


def modern_patience(policy: Policy) -> float:
    """The time that a modern client leaves, which retries for a review, in seconds."""
    return time_left(policy.client) * MAX_TRIES


def time_left(peer: Peer) -> float:
    """Seconds that a peer's timeout leaves for a round; infinite if it has none or progress extends it."""
    if peer.peer_timeout == "none" or peer.extends_on_progress:
        return math.inf
    return usable_time(seconds(peer.peer_timeout))


def peers(policy: Policy, match: Match) -> list[Peer]:
    """The servers that a match may apply to; a server without settings counts as the default."""
    servers = policy.servers
    if match.server is None:
        return [DEFAULT_PEER, *servers.values()]
    named = [match.server] if isinstance(match.server, str) else match.server
    test, _ = globs(named)
    found: list[Peer] = [peer for name, peer in servers.items() if test(name)]
    if any(is_glob(name) or name not in servers for name in named):
        found.append(DEFAULT_PEER)
    return found or [DEFAULT_PEER]


def _later(late: float | None) -> str:
    if late is None:
        return ""
    return (
        f"; for {duration_text(late)}, a later decision answers the next identical request"
        if late
        else "; a later decision has no effect"
    )


def _span(span: tuple[float, float]) -> str:
    least, most = span
    return duration_text(most) if least == most else f"{duration_text(least)} to {duration_text(most)}"
