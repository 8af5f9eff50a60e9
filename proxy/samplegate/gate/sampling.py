"""Sampling: asks the decision's models in order until one answers. The next model is asked only if one fails before its
first token.

Each try is reserved before it is sent, and settled afterwards. An answer passes the rule's content rules before anyone
sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import anyio
import msgspec

from samplegate.audit.record import Attempt, Done
from samplegate.durations import duration_text
from samplegate.errors import Unavailable
from samplegate.gate.ports import offload
from samplegate.gate.request import PendingRequest, Wait, task_drawn
from samplegate.policy import cost, redaction
from samplegate.policy.catalogue import Worst
from samplegate.policy.deadlines import FALLBACK_TIMEOUT
from samplegate.policy.decide import model_params, tool_misfit, worst_of
from samplegate.policy.decisions import Allowed, Decision
from samplegate.policy.prompt import Failure, Sampled, SampleFailed, SampleRequest, SampleResult
from samplegate.policy.schema import AllowRule, EscalateRule
from samplegate.protocol import rawjson, results
from samplegate.protocol.outcomes import Answered, DecidedBy, Outcome, Reason, Unanswered
from samplegate.protocol.rounds import Note

TOKENIZER_MARGIN: Final = 1.25
"""Factor by which an answer may exceed the limit of output tokens and still be passed on, because models count with
their own tokenizers (a deviation from R3)."""
GRACE: Final = 0.25  # seconds for the sampler to report the timeout itself: it knows whether anything was sent
FALLS_BACK: Final[frozenset[Failure]] = frozenset(
    {"bad_key", "rate_limited", "unreachable", "unknown_model", "bad_request", "no_case", "crashed", "error"}
)
"""Failures that do not depend on the request, so another model may succeed. A refusal is an answer, and after a timeout
no time is left."""


async def sample(pending: PendingRequest, decision: Decision, allowed: Allowed) -> Done:
    """Ask the models of a decision, in their order, until one answers."""
    # the wait for room is part of the rule's time
    rule = None if allowed.timeout is None else allowed.timeout - pending.waited
    limit = pending.seconds_left(rule)
    seconds = FALLBACK_TIMEOUT if limit is None else limit
    if seconds <= 0:
        return Done(timed_out("no time left to call a model"), decision, model=allowed.models[0])
    tries = _ModelTries(pending, decision, allowed, pending.ports.clock() + seconds)
    with anyio.move_on_after(seconds + GRACE):
        return await tries.run()
    return tries.done(timed_out(f"model {tries.model} did not answer within {duration_text(seconds)}"), "timeout")


def timed_out(detail: str) -> Unanswered:
    """The outcome of a timeout."""
    return Unanswered(Reason.TIMEOUT, detail=detail)


class _ModelTries:
    """The tries of one request. ``model`` is the one that is being asked or was asked last."""

    def __init__(self, pending: PendingRequest, decision: Decision, allowed: Allowed, until: float) -> None:
        self._pending, self._decision, self._allowed, self._until = pending, decision, allowed, until
        rule = pending.compiled.policy.rules[decision.index]
        assert isinstance(rule, AllowRule | EscalateRule)
        self._rule = rule
        self._params = allowed.params
        self._redacted = dict(allowed.redacted)
        self._refused_by: str | None = None
        self.model = allowed.models[0]

    async def run(self) -> Done:
        """Ask until a model answers or none is left."""
        self._found("prompt", self._redacted)
        if (unpaid := await self._pay()) is not None:
            return self.done(unpaid)
        failed: SampleFailed | None = None
        blocked: Outcome | None = None
        for model in self._allowed.models:
            self.model = model
            if failed is not None:
                blocked = await self._prepare_model(model)
                if blocked is not None:  # no room in a limit: a later model may be cheaper
                    continue
                fields = {
                    "from": self._pending.attempts[-1].model,
                    "to": model,
                    "server": self._pending.round.origin.server,
                    **self._pending.span_ids,
                }
                self._pending.ports.note(Note("model.fallback", fields))
            answer = await self._ask()
            if isinstance(answer, Sampled):
                return await self._answered(answer)
            failed = answer
            if failed.started or failed.failure not in FALLS_BACK:
                break
        assert failed is not None, "a decision to allow names a model"
        if blocked is not None:
            return self.done(blocked)
        again = "" if failed.retry_after is None else f"; retry after {duration_text(failed.retry_after)}"
        reason = Reason.TIMEOUT if failed.failure == "timeout" else Reason.MODEL
        return self.done(Unanswered(reason, detail=f"{failed.failure}: {failed.message}{again}"))

    async def _pay(self) -> Outcome | None:
        """Note that a task's request is about to cost money; the outcome if that fails."""
        pending = self._pending
        if not (pending.round.task or pending.round.own) or pending.ports.pay is None:
            return None
        try:
            await pending.ports.pay(pending.round, pending.key, task_drawn([pending]))
        except Unavailable as problem:
            return Unanswered(Reason.ERROR, detail=f"no model was asked: {problem}")
        return None

    async def _prepare_model(self, model: str) -> Outcome | None:
        """Prepare the next model; the outcome if it cannot be asked."""
        request = self._pending.request
        asked = await offload(request.size, model_params, self._pending.compiled, self._rule, model, request.params)
        if isinstance(asked, str):
            return Unanswered(Reason.CONTENT, detail=asked)
        self._params = asked.params
        if self._pending.hold is None:
            return None
        allowed = msgspec.structs.replace(self._allowed, models=(model,), params=asked.params)
        unreserved = await self._pending.hold.next_try(
            msgspec.structs.replace(self._decision, act=allowed), self._pending.round
        )
        if unreserved is None:
            return None
        why, limit = unreserved
        self._refused_by = limit or self._refused_by
        return Unanswered(Reason.LIMIT, detail=why if limit is None else f"model {model}: {why}")

    async def _ask(self) -> SampleResult:
        pending = self._pending
        pending.begin()
        worst = worst_of(pending.compiled, self.model, self._params).usd
        pending.attempts.append(Attempt(self.model, "cancelled", None, None, worst))
        pending.reserved_usd = None if worst is None or pending.reserved_usd is None else pending.reserved_usd + worst
        rest = max(self._until - pending.ports.clock(), 0.001)
        with pending.waiting(Wait("model", self.model, self._until)):
            answer = await pending.ports.sample(
                SampleRequest(self.model, self._params, rest),
                partial(pending.ports.progress, pending.round.id),
                pending.span,
            )
        spent = self._spent(answer)
        result = answer.failure if isinstance(answer, SampleFailed) else "ok"
        pending.attempts[-1] = Attempt(
            self.model, result, answer.input_tokens, answer.output_tokens, 0 if spent is None else spent.usd
        )
        if pending.hold is not None:
            await pending.hold.settle_try(spent)
        return answer

    def _spent(self, answer: SampleResult) -> Worst | None:
        """The actual cost of a try. A figure that the provider does not report counts at its upper bound."""
        if isinstance(answer, SampleFailed) and answer.free:
            return None
        compiled = self._pending.compiled
        return cost.actual(
            compiled.model(self.model),
            compiled.catalogue[self.model],
            self._params,
            answer.input_tokens,
            answer.output_tokens,
        )

    async def _answered(self, answer: Sampled) -> Done:
        if answer.unknown_stop is not None:
            stop = {"model": self.model, "reason": answer.unknown_stop, **self._pending.span_ids}
            self._pending.ports.note(Note("model.unknown_stop", stop))
        blocks, outcome = await self._checked(answer.content)
        stop_reason = answer.stop_reason
        if outcome is None and (over := self._overrun(answer)) is not None:
            stop_reason = "maxTokens"
            outcome = over if isinstance(over, Unanswered) else None
        model = answer.model or self._pending.compiled.model(self.model).model
        if outcome is None:
            result: dict[str, Any] = {
                "role": "assistant",
                "content": blocks[0] if len(blocks) == 1 else list(blocks),
                "model": model,
            }
            if stop_reason is not None:
                result["stopReason"] = stop_reason
            outcome = shaped(self._pending, result)
        done = self.done(outcome)
        return msgspec.structs.replace(
            done,
            model=model,
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
            dropped=answer.dropped,
        )

    def _overrun(self, answer: Sampled) -> Unanswered | bool | None:
        """None if the answer is within the limit of output tokens (R3), True if it exceeds it but is passed on, else
        the outcome that withholds it."""
        most = int(self._params["maxTokens"])
        tokens = answer.output_tokens
        if tokens is None or tokens <= most:
            return None
        if self._rule.with_.on_overrun == "keep" and tokens <= most * TOKENIZER_MARGIN:
            return True
        detail = (
            f"model {self.model} returned {tokens} output tokens, more than maxTokens ({most});"
            " the answer is withheld; use another model"
        )
        return Unanswered(Reason.MODEL, detail=detail)

    def _found(self, where: str, patterns: Mapping[str, int]) -> None:
        if patterns:
            server = self._pending.round.origin.server
            fields = {"where": where, "patterns": dict(patterns), "server": server, **self._pending.span_ids}
            self._pending.ports.note(Note("secrets.found", fields, warn=False))

    async def _checked(self, blocks: Sequence[Mapping[str, Any]]) -> tuple[Sequence[Mapping[str, Any]], Outcome | None]:
        """The answer after the rule's content rules, and the outcome if they withhold it."""
        if (why := tool_misfit(self._params, blocks)) is not None:
            return blocks, Unanswered(Reason.MODEL, detail=f"model {self.model}: {why}; the answer is withheld")
        with_, redactor = self._rule.with_, self._pending.compiled.redactor
        if with_.secrets is not None and with_.secrets.answer != "keep" and redactor is not None:
            clean, found = await offload(redaction.size_of(blocks), redaction.clean_blocks, redactor, tuple(blocks))
            self._found("answer", found)
            for name, count in found.items():
                self._redacted[name] = self._redacted.get(name, 0) + count
            if found and with_.secrets.answer == "stop":
                return blocks, Unanswered(
                    Reason.CONTENT,
                    detail=f"the answer of model {self.model} contains a secret ({', '.join(sorted(found))})",
                )
            blocks = clean
        if with_.max_answer is not None and (size := redaction.size_of(blocks)) > with_.max_answer:
            what = f"the answer of model {self.model} has {size} bytes, more than max_answer ({with_.max_answer})"
            return blocks, Unanswered(Reason.CONTENT, detail=what)
        return blocks, None

    def done(self, outcome: Outcome, last: Failure | None = None) -> Done:
        """The result with this outcome; ``last`` is why a try ended without an answer."""
        attempts = self._pending.attempts
        if last is not None and attempts and attempts[-1].result == "cancelled":
            attempts[-1] = msgspec.structs.replace(attempts[-1], result=last)
        return Done(outcome, self._decision, model=self.model, redacted=self._redacted, refused_by=self._refused_by)


def shaped(pending: PendingRequest, result: Mapping[str, Any], by: DecidedBy = "policy") -> Outcome:
    """Our result in the shape of the negotiated revision (R6); Unanswered if the revision has no shape for it."""
    revision = pending.round.origin.revision
    shaped = results.sampling_result(result, revision) if pending.item.method.startswith("sampling/") else dict(result)
    if shaped is None:
        return Unanswered(
            Reason.CANNOT,
            detail=f"the answer's content cannot be sent with protocol version {revision or 'unknown'}",
        )
    return Answered(rawjson.dump(shaped), by)
