"""The ``*_test.yaml`` file: what it may say, as typed values, and its text -> the cases of a policy. Not their outcome (``trial.py``).

A case is one moment: a scene, a request and what is expected. Later moments of one story (time, sequences) are further members of ``Case``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from samplegate.core.load import PolicyError, problems
from samplegate.core.policy import Strict
from samplegate.core.policyfile import tree
from samplegate.core.policyfile.nodes import compose
from samplegate.core.policyfile.walk import convert, type_of
from samplegate.core.trials import scenes
from samplegate.core.trials.scenes import Scene

Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class Raw(Strict, frozen=True):
    """The request as the server wrote it; ``jsonrpc`` and ``id`` may stay in."""

    method: str
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    jsonrpc: Any = None
    id: Any = None


class Sampling(Strict, frozen=True):
    """``sampling/createMessage`` in short: its params by MCP's names, ``text`` for one user message, ``hints`` for the names of model hints."""

    text: str | None = None
    messages: list[dict[str, Any]] | None = None
    max_tokens: Any = msgspec.field(default=1000, name="maxTokens")
    system_prompt: str | None = msgspec.field(default=None, name="systemPrompt")
    temperature: float | int | None = None
    stop_sequences: list[str] | None = msgspec.field(default=None, name="stopSequences")
    include_context: str | None = msgspec.field(default=None, name="includeContext")
    hints: list[str] | None = None
    model_preferences: dict[str, Any] | None = msgspec.field(default=None, name="modelPreferences")
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = msgspec.field(default=None, name="toolChoice")
    metadata: dict[str, Any] | None = None


class Elicitation(Strict, frozen=True):
    """``elicitation/create`` in short: a form by its ``fields``, or a ``url``."""

    message: str = "Please fill this in"
    fields: dict[str, str | dict[str, Any]] | None = None
    """Each by its name: the name of a type, or a schema."""
    required: list[str] | None = None
    """Default all of them."""
    url: str | None = None


class Expect(Strict, frozen=True, rename={"as_": "as"}):
    """What must come of the request; only what is given is compared."""

    effect: Literal["allow", "answer", "forward", "deny", "none"]
    rule: str | None = None
    reason: Literal["rule", "no_rule", "cannot", "malformed"] | None = None
    model: str | None = None
    """The model that is asked first."""
    models: list[str] | None = None
    """All that would be asked, in order."""
    max_tokens: Tokens | None = None
    params: dict[str, Any] | None = None
    """What a model is asked, by MCP's names; null for what must not be there."""
    content: Any = None
    """What is answered: text or content blocks, or the values of a form."""
    as_: Literal["cancel", "decline"] | None = None
    """What a denied elicitation is answered."""
    shadows: list[str] | None = None
    """The rules on trial that would have taken it, in order."""


class Case(Scene, frozen=True, kw_only=True):
    """One request and what must come of it: exactly one of ``request``, ``sampling``, ``elicitation``. The scene's members override the defaults."""

    name: str
    expect: Expect
    request: Raw | None = None
    sampling: str | Sampling | None = None
    elicitation: str | Elicitation | None = None


class Suite(Strict, frozen=True):
    """A test file."""

    cases: list[Case]
    policy: str | None = None
    """The policy's file, beside this one; default is this file's name without ``_test``."""
    defaults: Scene = Scene()


class Placed(msgspec.Struct, frozen=True):
    """A case with the defaults of its file, and the line where it stands."""

    case: Case
    line: int


class Cases(msgspec.Struct, frozen=True):
    """A test file that is as it should be. ``policy`` is as the file says it, None where it says nothing."""

    policy: str | None
    cases: tuple[Placed, ...]


def load_cases(text: str, *, file: str) -> Cases:
    """The cases in ``text``; ``file`` is its name in messages. Raises PolicyError with every problem."""
    try:
        root, faults = compose(text)
    except tree.Unreadable as broken:
        raise PolicyError(problems(file, [broken.fault])) from None
    value, walk = convert(root, type_of(Suite))
    if faults := [*faults, *walk.faults]:
        raise PolicyError(problems(file, faults))
    suite = msgspec.convert(value, Suite)
    placed = tuple(_placed(suite, root))
    if faults := [*_contradictions(placed, root)]:
        raise PolicyError(problems(file, faults))
    return Cases(suite.policy, placed)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the test file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Suite)}


def _placed(suite: Suite, root: tree.Node) -> Iterator[Placed]:
    for index, case in enumerate(suite.cases):
        scene = scenes.over(case, suite.defaults)
        merged = msgspec.structs.replace(case, **{name: getattr(scene, name) for name in Scene.__struct_fields__})
        yield Placed(merged, _mark(root, ("cases", index)).line)


def _contradictions(placed: tuple[Placed, ...], root: tree.Node) -> Iterator[tree.Fault]:
    if not placed:
        yield _fault(root, ("cases",), "there is no case; give at least one")
    first: dict[str, int] = {}
    for index, (case, line) in enumerate((each.case, each.line) for each in placed):
        path: tree.Path = ("cases", index)
        if case.name in first:
            twice = f"{tree.quoted(case.name)} is the name of the case in line {first[case.name]} too; give each its own"
            yield _fault(root, (*path, "name"), twice)
        first.setdefault(case.name, line)
        if (what := scenes.fault(case)) is not None:
            yield _fault(root, path, what)
        if (what := _request_fault(case)) is not None:
            yield _fault(root, path, what)


def _request_fault(case: Case) -> str | None:
    given = [name for name in ("request", "sampling", "elicitation") if getattr(case, name) is not None]
    if len(given) != 1:
        return f"a case has one of request, sampling and elicitation, not {' and '.join(given) or 'none'}"
    match case.sampling or case.elicitation:
        case Sampling(text=text, messages=messages) if (text is None) == (messages is None):
            return "sampling has one of text and messages"
        case Sampling(hints=hints, model_preferences=preferences) if hints is not None and preferences is not None:
            return "sampling has one of hints and modelPreferences"
        case Elicitation(url=str(), fields=fields, required=required) if fields is not None or required is not None:
            return "elicitation has one of url and fields"
        case _:
            return None


def _fault(root: tree.Node, path: tree.Path, what: str) -> tree.Fault:
    return tree.Fault(_mark(root, path), path, what)


def _mark(root: tree.Node, path: tree.Path) -> tree.Mark:
    node = tree.find(root, path)
    return tree.Mark(1, 1) if node is None else node.mark
