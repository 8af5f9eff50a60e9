"""What all conversations of one process share: limits, brakes, models, the decision log, the counters, and the policy
in force. It decides nothing.

A reload swaps the policy whole: what is built of the new one is built before anything live is touched, and rounds that
are open end under the one they began with.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from samplegate.audit.cassette import Cassette
from samplegate.audit.decision_log import DecisionLog
from samplegate.audit.record import Record
from samplegate.gate.ports import ReviewPort
from samplegate.limits.brakes import BrakeState
from samplegate.limits.limiter import Admission
from samplegate.policy import redaction
from samplegate.policy.file import load
from samplegate.policy.match import CompiledPolicy, compile_policy
from samplegate.policy.redaction import Redactor
from samplegate.runtime import secret_patterns
from samplegate.sampler import litellm_prices
from samplegate.sampler.client import Models, load_rule_scripts
from samplegate.telemetry.log import EventLog
from samplegate.telemetry.metrics import Metrics
from samplegate.telemetry.observers import Draws, Tally


class Rules(msgspec.Struct, eq=False):
    """One policy with what was built of it. ``open`` rounds still run under it."""

    policy: load.LoadedPolicy
    book: CompiledPolicy
    models: Models
    open: int = 0
    withheld: Redactor | None = None
    """Finds secrets in what reviewers are told; made when it is first needed."""

    @property
    def hash(self) -> str:
        """Names the policy in records and metrics."""
        return self.policy.hash


class ReloadTarget(Protocol):
    """A conversation: what a reload and the memory of all of them need of it."""

    def swap(self) -> None: ...
    @property
    def held(self) -> int: ...


class ProcessContext:
    """One process. ``key`` seals what is handed on to clients (32 bytes; random where none is given, so that no other
    process opens it)."""

    def __init__(
        self,
        rules: Rules,
        *,
        state: Path,
        decisions: DecisionLog,
        log: EventLog,
        tape: Cassette | None = None,
        key: bytes | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.rules = rules
        self.state = state
        self.decisions = decisions
        self.log = log
        self.tape = tape
        self.key = key if key is not None else secrets.token_bytes(32)
        self.metrics = Metrics() if metrics is None else metrics
        self.tally = Tally(self.metrics)
        self.draws = Draws(rules.book.terms, self.metrics)
        self.admission = Admission(rules.book.terms, state=state, clock=time.time, log=log)
        self.brakes = BrakeState(rules.book.policy.brakes)
        self.reviews: ReviewPort | None = None
        """The way to people, where the process has one."""
        self._conversations: set[ReloadTarget] = set()
        self._retired: set[Rules] = set()

    def enter(self, conversation: ReloadTarget) -> None:
        """A conversation begins; it is told of swaps until ``leave``."""
        self._conversations.add(conversation)

    def leave(self, conversation: ReloadTarget) -> None:
        """It is over."""
        self._conversations.discard(conversation)

    def held(self) -> int:
        """Bytes that all conversations remember of requests that are open."""
        return sum(conversation.held for conversation in self._conversations)

    def replace(self, rules: Rules) -> Rules:
        """Put another policy in force; the old one, which is to be retired. Limits and brakes that are the same in both
        go on where they stand."""
        same = self.rules.book.policy.brakes == rules.book.policy.brakes
        brakes = self.brakes if same else BrakeState(rules.book.policy.brakes)
        old, self.rules, self.brakes = self.rules, rules, brakes
        self._retired.add(old)
        self.admission.update_limits(rules.book.terms)
        self.draws.update_limits(rules.book.terms)
        for conversation in list(self._conversations):
            try:
                conversation.swap()
            except Exception:  # the others are not to stay under the old rules for it
                self.log.error("policy.not_swapped", exc_info=True)  # noqa: G201
        return old

    async def retire(self, rules: Rules) -> None:
        """End the models of a policy that is no longer in force, once no round runs under it."""
        if rules is not self.rules and not rules.open and rules in self._retired:
            self._retired.discard(rules)
            await rules.models.aclose()

    def recorded(self, record: Record) -> None:
        """A record stands: count it, and tape it where that is wanted."""
        self.tally.take(record)
        if self.tape is not None:
            self.tape.take_record(record)

    async def aclose(self) -> None:
        """End the models, the limits and the decision log. What is not settled stays at its worst case."""
        for rules in (self.rules, *self._retired):
            await rules.models.aclose()
        await self.admission.aclose()
        await self.decisions.aclose()


# A policy's text made ready to decide, with all that stands beside it: litellm's table, the patterns of secrets, the
# files of cases.
#
# One way for `run` and for the commands, so that what is tested is what runs. Decides nothing.


def load_policy(
    text: str, *, file: str, environment: Mapping[str, str], missing: Literal["warn", "error"] = "warn"
) -> load.LoadedPolicy:
    """Read and check a policy against what is known of its models. Raises PolicyError with every problem."""
    return load.load(text, file=file, environment=environment, missing=missing, look_up=litellm_prices.read_prices)


def compile_book(
    loaded: load.LoadedPolicy, folder: Path, environment: Mapping[str, str] | None = None
) -> CompiledPolicy:
    """A policy ready to decide; files that it names are relative to ``folder``. Raises PolicyError for what is wrong in
    them.

    ``environment`` replaces the loaded one, for cases that bring their own.
    """
    policy = loaded.policy
    return compile_policy(
        policy,
        loaded.environment if environment is None else environment,
        catalogue=loaded.catalogue,
        detectors=secret_patterns.known() if redaction.looks(policy) else {},
        scripts=load_rule_scripts(policy, folder),
    )
