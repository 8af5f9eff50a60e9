"""``samplegate check``: validates policies, their tests, the scripts they name, and settings, and shows which
capabilities each server sees.

Runs nothing, and asks models only with ``--live``.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from samplegate import config
from samplegate.ci.annotations import Annotation, Level, annotation_lines
from samplegate.cli import FAILED, OK, UNREADABLE
from samplegate.cli.files import (
    FileKind,
    count,
    environment,
    file_kind,
    files_of,
    is_for_run,
    json_text,
    print_error,
    print_lines,
    read,
    workspace_path,
)
from samplegate.cli.progress import counted
from samplegate.config.settings import kept_elsewhere
from samplegate.config.values import check_networks
from samplegate.durations import duration_text
from samplegate.errors import InputError, Unavailable
from samplegate.money import dollars
from samplegate.policy import claims
from samplegate.policy.capabilities import Asker, CapabilityReport, describe_offer, first_to_forward_forms
from samplegate.policy.conditions import globs, is_glob, names_call, short_value
from samplegate.policy.decide import CompiledPolicy, compile_policy
from samplegate.policy.file.load import LoadedPolicy, PolicyError, Problem
from samplegate.policy.file.timeouts import Wait, waits
from samplegate.policy.ledger import SCALE
from samplegate.policy.schema import AnswerRule, Match, Names, Policy
from samplegate.policy.script import parse as parse_script
from samplegate.policytest.load import load_cases
from samplegate.protocol.frames import LEGACY, MODERN, Era
from samplegate.runtime.model_probe import TIMEOUT, ModelProbe, probe_models
from samplegate.runtime.preflight import preflight
from samplegate.runtime.process import load_policy
from samplegate.runtime.run import loop_options, open_decision_log
from samplegate.yamlfile.tree import Mark, Unreadable, compose, dotted, find
from samplegate.yamlfile.tree import Path as Place

ANY_SERVER: Final = "any server"
OTHER_SERVERS: Final = "any other server"
LOCAL: Final = "local"
MAX_TIMEOUT: Final = 600
"""Seconds for each model."""
TITLE: Final = "samplegate check"
"""Title of the annotations."""

_ERAS: Final[tuple[tuple[Era, str], ...]] = (("legacy", LEGACY[-1]), ("modern", MODERN[-1]))


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """Servers for which a policy has the same capability reports."""

    servers: tuple[str, ...]
    requests: tuple[CapabilityReport, ...]

    def __str__(self) -> str:
        return ", ".join(self.servers)


@dataclass(slots=True)
class CheckResult:
    """Result of checking one file."""

    file: Path
    kind: FileKind = "policy"
    loaded: LoadedPolicy | None = None
    problems: list[Problem] = field(default_factory=list)
    server_groups: list[ServerGroup] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    """Probable mistakes."""
    notes: list[Problem] = field(default_factory=list)
    """Findings that may be intended."""
    unreadable: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The variables of a policy and its models. Secret."""
    probes: list[ModelProbe] | None = None
    """Answers of the policy's models; None if they were not asked."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "policies",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="a policy, a *_test.yaml file, a script, a settings file (with the policy that it names), or a folder",
    )
    parser.add_argument(
        "--env-file", type=Path, metavar="FILE", help="file of NAME=value lines: values for ${VAR} in the policy"
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="also ask each model of the policies for one token, which costs its price; exit with 1 if one fails",
    )
    parser.add_argument(
        "--live-timeout",
        type=_seconds,
        default=TIMEOUT,
        metavar="SECONDS",
        help=f"timeout for each model (default: {TIMEOUT:g})",
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "github"),
        default="text",
        help="text, one JSON object, or text and annotations for GitHub (default: text)",
    )
    parser.add_argument("--json", action="store_const", dest="format", const="json", help="the same as --format json")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_TIMEOUT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.001 to {MAX_TIMEOUT}")
    return value


def command(args: argparse.Namespace) -> int:
    """Check all files. Returns 0 without problems (warnings are allowed), 1 with problems or with models that do not
    answer, 2 if a file is unreadable."""
    try:
        variables = environment(args.env_file)
        files = _check_all(files_of(args.policies), variables, args.env_file)
    except InputError as problem:
        print_error(str(problem))
        return UNREADABLE
    if args.live:
        _ask_models(files, args.live_timeout)
    if args.format == "json":
        print(json_text({"files": [_json(result) for result in files]}))
    else:
        print_lines(line for result in files for line in _report(result))
    if args.format == "github":
        print("".join(f"{line}\n" for line in annotation_lines(chain.from_iterable(map(_annotations, files)))), end="")
    unreadable = [result.unreadable for result in files if result.unreadable is not None]
    for message in unreadable:
        print_error(message)
    return UNREADABLE if unreadable else FAILED if any(result.problems or _failed(result) for result in files) else OK


def _ask_models(files: Sequence[CheckResult], timeout: float) -> None:
    """Ask the models of the policies without problems."""
    for result in counted(files, "files: asking models", total=len(files)):
        if result.loaded is not None and not result.problems:
            ask = partial(
                probe_models,
                result.loaded,
                folder=result.file.parent,
                environment=result.environment,
                timeout=timeout,
            )
            result.probes = anyio.run(ask, backend_options=loop_options())


def _failed(result: CheckResult) -> list[ModelProbe]:
    """The models that did not answer."""
    return [probe for probe in result.probes or () if probe.failure is not None]


def _probe_line(file: Path, probe: ModelProbe) -> str:
    head, seconds = f"{file}: model {short_value(probe.model)}", duration_text(probe.seconds)
    if probe.failure is not None:
        return f"{head}: no answer ({probe.failure}, {seconds}): {probe.message}"
    if probe.message and probe.input_tokens is None:
        return f"{head}: {probe.message}"
    counts = [
        count(number, f"{kind} token")
        for number, kind in ((probe.input_tokens, "input"), (probe.output_tokens, "output"))
        if number is not None
    ]
    price = "price unknown" if probe.usd is None else dollars(probe.usd)
    return f"{head}: {', '.join([f'answered in {seconds}', *counts, price])}{probe.message and f'; {probe.message}'}"


def _check_all(files: Sequence[Path], variables: Mapping[str, str], env_file: Path | None) -> list[CheckResult]:
    """Results of all files, and of the policies that settings name. Such a policy is checked once, as `serve` does."""
    found: list[CheckResult] = []
    named: dict[Path, CheckResult] = {}
    for path in files:
        result = _check(path, variables)
        found.append(result)
        if result.kind == "settings" and result.unreadable is None:
            policy = _check_settings(result, env_file)
            if policy is not None:
                found.append(policy)
                named[policy.file.absolute()] = policy
    return [result for result in found if named.get(result.file.absolute(), result) is result]


def _check_settings(result: CheckResult, env_file: Path | None) -> CheckResult | None:
    """Check settings as `serve` or `run` does at its start. Returns the result of the policy that they name."""
    text = read(result.file)
    if is_for_run(text):
        result.problems += [_of_settings(result.file, problem) for problem in _problems_of_run(result, env_file)]
        return None
    from samplegate.server.start_check import check_start, settings_arguments

    checked = check_start(settings_arguments(result.file, env_file))
    result.problems += [_of_settings(result.file, problem) for problem in checked.problems]
    result.warnings += [_of_settings(result.file, warning) for warning in checked.warnings]
    result.notes += [_of_settings(result.file, note) for note in kept_elsewhere(checked.settings)]
    if checked.policy is None:
        return None
    policy = CheckResult(checked.policy)
    try:
        _check_policy(policy, read(policy.file), checked.environment, checked.settings.webhook_networks)
    except InputError as problem:
        policy.unreadable = str(problem)
    except PolicyError as error:
        policy.problems.extend(error.problems)
    if checked.policy_problems:  # `serve` is stricter: an unset variable prevents its start
        policy.problems = list(checked.policy_problems)
        policy.warnings = [one for one in policy.warnings if one not in checked.policy_problems]
    return policy


def _problems_of_run(result: CheckResult, env_file: Path | None) -> list[str]:
    try:
        settings = config.load(os.environ, file=result.file, flags={"env_file": env_file}).settings
        result.notes += [_of_settings(result.file, note) for note in kept_elsewhere(settings)]
        if settings.state != Path() or settings.decision_log is not None:
            open_decision_log(settings, settings.server)
    except config.SettingsError as error:
        return error.problems
    except Unavailable as problem:
        return [str(problem)]
    return []


def _of_settings(file: Path, message: str) -> Problem:
    """A message about settings. One without a line, such as a missing setting, is at the first."""
    found = (
        re.match(r":([0-9]+):([0-9]+): ", message.removeprefix(str(file))) if message.startswith(str(file)) else None
    )
    if found is None:
        return Problem(str(file), 1, 1, "", message.removeprefix(f"{file}: "))
    return Problem(str(file), int(found[1]), int(found[2]), "", message[len(str(file)) + found.end() :])


def _check(path: Path, variables: Mapping[str, str]) -> CheckResult:
    result = CheckResult(path)
    try:
        text = read(path)
        result.kind = file_kind(path, text)
        match result.kind:
            case "tests":
                load_cases(text, file=str(path))
            case "script":
                parse_script(text, file=str(path))
            case "settings":
                pass
            case "policy":
                _check_policy(result, text, variables)
    except InputError as problem:
        result.unreadable = str(problem)
    except PolicyError as error:
        result.problems.extend(error.problems)
    return result


def _check_policy(
    result: CheckResult, text: str, variables: Mapping[str, str], networks: Sequence[str] | None = None
) -> None:
    if networks is None:  # no settings file is known, but the variable may be set
        networks = _networks(variables)
    result.environment = variables
    result.loaded = load_policy(text, file=str(result.file), environment=variables)
    policy = result.loaded.policy
    surroundings = preflight(result.loaded, text, file=result.file, environment=variables, networks=networks)
    result.warnings = [*result.loaded.warnings, *surroundings]
    compiled = compile_policy(policy, variables, catalogue=result.loaded.catalogue)
    result.server_groups = server_groups(compiled)
    forwarding = forwards_forms_first(compiled)
    result.notes = [
        _note(result.file, text, index) for index, rule in enumerate(policy.rules) if rule.name in forwarding
    ]
    for index, model in enumerate(policy.models):
        if model.cases is not None:
            result.problems.extend(_script_problems(result.file, text, ("models", index, "cases"), model.cases))
    for index, rule in enumerate(policy.rules):
        if isinstance(rule, AnswerRule) and rule.cases is not None:
            result.problems.extend(_script_problems(result.file, text, ("rules", index, "cases"), rule.cases))


def _networks(variables: Mapping[str, str]) -> list[str]:
    """The setting `webhook_networks` from its variable; empty if it is invalid."""
    networks = [text.strip() for text in variables.get("SAMPLEGATE_WEBHOOK_NETWORKS", "").split(",") if text.strip()]
    try:
        check_networks(networks)
    except ValueError:
        return []
    return networks


HEADLESS: Final = (
    "is the first rule to match forms, and forwards them; headless agents (claude -p, codex exec) declare form support"
    " but decline forms without asking a user. For such clients, put a rule that answers or escalates forms above it,"
    " or start from `samplegate init --headless`"
)


def _problem_at(file: Path, place: Place, what: str) -> Problem:
    """A problem at a place of a policy, or at the first line of one that has changed since."""
    try:
        node = find(compose(read(file))[0], place)
    except (InputError, Unreadable):
        node = None
    mark = Mark(1, 1) if node is None else node.mark
    return Problem(str(file), mark.line, mark.column, dotted(place), what)


def _note(file: Path, text: str, rule: int) -> Problem:
    place: Place = ("rules", rule)
    node = find(compose(text)[0], place)
    mark = Mark(1, 1) if node is None else node.mark
    return Problem(str(file), mark.line, mark.column, dotted(place), HEADLESS)


def _script_problems(policy: Path, text: str, place: Place, name: str) -> tuple[Problem, ...]:
    """Problems of the script that a scripted model or an answer names. An unreadable script is reported at its place in
    the policy."""
    script = policy.parent / name
    try:
        parse_script(read(script), file=str(script))
    except InputError as problem:
        node = find(compose(text)[0], place)
        mark = Mark(1, 1) if node is None else node.mark
        return (
            Problem(
                str(policy),
                mark.line,
                mark.column,
                dotted(place),
                f"{problem}; the path is relative to the policy",
            ),
        )
    except PolicyError as error:
        return error.problems
    return ()


def _report(result: CheckResult) -> Iterator[str]:
    yield from map(str, result.problems)
    yield from (_finding_line(warning) for warning in result.warnings)
    yield from (_finding_line(note, "note") for note in result.notes)
    if result.problems or result.unreadable is not None:
        return
    yield f"{result.file}: ok{_summary(result)}"
    if state := _persistent_limits(result):
        yield (
            f"{result.file}: needs a state folder (--state) or a database for the limits {', '.join(state)}; processes"
            " with the same one share them"
        )
    if per_run := ", ".join(_limits_per_run(result)):
        yield f"{result.file}: needs a run ID (--run, SAMPLEGATE_RUN or the CI job's) for the limits {per_run}"
    yield from (f"{result.file}: {wait}" for wait in _review_deadlines(result))
    yield from (_probe_line(result.file, probe) for probe in result.probes or ())
    for group in result.server_groups:
        yield from (f"{result.file}: {group}: {coverage}" for coverage in group.requests)
    yield from (f"{result.file}: {line}" for line in _version_notes(result))


def _annotations(result: CheckResult) -> Iterator[Annotation]:
    if result.unreadable is not None:
        yield Annotation("error", result.unreadable, TITLE, workspace_path(result.file))
    yield from (_annotation("error", problem, str(problem)) for problem in result.problems)
    for probe in _failed(result):
        problem = _problem_at(result.file, ("models", probe.index), probe.message)
        yield _annotation("error", problem, _probe_line(result.file, probe))
    yield from (_annotation("warning", warning, _finding_line(warning)) for warning in result.warnings)
    yield from (_annotation("notice", note, _finding_line(note, "note")) for note in result.notes)


def _annotation(level: Level, problem: Problem, line: str) -> Annotation:
    """The line of text about a problem, at its place."""
    return Annotation(level, line, TITLE, workspace_path(Path(problem.file)), problem.line, problem.column)


def _persistent_limits(result: CheckResult) -> list[str]:
    """Names of the limits that are kept in the state folder."""
    return (
        []
        if result.loaded is None
        else [name for name, one in claims.limit_specs(result.loaded.policy).items() if one.shared]
    )


def _limits_per_run(result: CheckResult) -> list[str]:
    """Names of the limits that count per run; a gate without a run ID does not start with them."""
    return (
        [] if result.loaded is None else [name for name, one in result.loaded.policy.limits.items() if one.per == "run"]
    )


def _review_deadlines(result: CheckResult) -> list[Wait]:
    """The reviewers that each rule asks, with their deadlines."""
    return [] if result.loaded is None else list(waits(result.loaded.policy))


def _version_notes(result: CheckResult) -> Iterator[str]:
    """Differences in 2026-07-28, where capabilities are declared with each call."""
    policy = None if result.loaded is None else result.loaded.policy
    if policy is not None and any(names_call(rule.match) for rule in policy.rules):
        yield (
            "with 2026-07-28, a rule with tool or method advertises its capability only during calls that it can match"
        )
    if any(
        "error" in answer
        for group in result.server_groups
        for one in group.requests
        for denial in one.denials
        for answer in denial.wire
    ):
        yield "with 2026-07-28, the client's call fails in cases where an older server would get an error"


def _finding_line(problem: Problem, kind: str = "warning") -> str:
    where = f"{problem.file}:{problem.line}:{problem.column}"
    return f"{where}: {kind}: {problem.place}{': ' if problem.place else ''}{problem.what}"


def _summary(result: CheckResult) -> str:
    if result.loaded is None:
        return ""
    policy = result.loaded.policy
    return f", {count(len(policy.rules), 'rule')}, {count(len(policy.models), 'model')}, hash {result.loaded.hash}"


def _json(result: CheckResult) -> dict[str, Any]:
    return {
        "file": str(result.file),
        "sort": result.kind,
        "hash": None if result.loaded is None else result.loaded.hash,
        "unreadable": result.unreadable,
        "problems": [msgspec.to_builtins(problem) for problem in result.problems],
        "warnings": [msgspec.to_builtins(warning) for warning in result.warnings],
        "notes": [msgspec.to_builtins(note) for note in result.notes],
        **({} if result.probes is None else {"live": [_probe_json(probe) for probe in result.probes]}),
        "state": _persistent_limits(result),
        "reviews": [msgspec.to_builtins(wait) for wait in _review_deadlines(result)],
        "servers": [_group_json(group) for group in result.server_groups],
    }


def _probe_json(probe: ModelProbe) -> dict[str, Any]:
    """The result of asking a model, with its cost in dollars, as in the decision log."""
    found: dict[str, Any] = msgspec.to_builtins(probe)
    units = found.pop("usd")
    return {**found, "cost_usd": None if units is None else units / SCALE["usd"]}


def _group_json(group: ServerGroup) -> dict[str, Any]:
    return {"servers": list(group.servers), "requests": [msgspec.to_builtins(coverage) for coverage in group.requests]}


# -- capabilities for each server, caller and era, grouped where they are the same
# -------------------------------


def server_groups(compiled: CompiledPolicy) -> list[ServerGroup]:
    """Capability reports for each server in the policy and for any other. Callers and eras appear only where they
    differ."""
    groups: dict[tuple[CapabilityReport, ...], list[str]] = {}
    for label, server in _servers(compiled.policy):
        usual, _ = _eras(compiled, server, LOCAL)
        groups.setdefault(usual, []).append(label)
        for caller in _callers(compiled.policy):
            legacy, modern = _eras(compiled, server, caller)
            called = label if caller == LOCAL else f"{label} for caller {caller}"
            if legacy != usual:
                groups.setdefault(legacy, []).append(called)
            if modern != legacy:
                groups.setdefault(modern, []).append(f"{called} with 2026-07-28")
    return [ServerGroup(tuple(servers), requests) for requests, servers in groups.items()]


def forwards_forms_first(compiled: CompiledPolicy) -> list[str]:
    """Names of the rules that are the first to match forms, and forward them, for some server and caller."""
    askers = (
        Asker(server, caller, era, None)
        for _, server in _servers(compiled.policy)
        for caller in _callers(compiled.policy)
        for era, _ in _ERAS
    )
    return list(
        dict.fromkeys(rule for asker in askers if (rule := first_to_forward_forms(compiled, asker)) is not None)
    )


def _eras(compiled: CompiledPolicy, server: str, caller: str) -> tuple[tuple[CapabilityReport, ...], ...]:
    return tuple(
        describe_offer(compiled, server=server, caller=caller, era=era, revision=revision) for era, revision in _ERAS
    )


def _servers(policy: Policy) -> Iterator[tuple[str, str]]:
    """Label and example name of each server in the policy, and of any other server."""
    named = dict.fromkeys([*policy.servers, *(name for rule in policy.rules for name in _names(rule.match, "server"))])
    for name in named:
        if (example := _example(name)) is not None:
            yield f"server {name}", example
    yield (
        OTHER_SERVERS if named else ANY_SERVER,
        next(
            name for name in ("default", *(f"default{number}" for number in range(len(named) + 1))) if name not in named
        ),
    )


def _callers(policy: Policy) -> list[str]:
    names = [LOCAL, *(name for rule in policy.rules for name in _names(rule.match, "caller"))]
    return list(dict.fromkeys(example for name in names if (example := _example(name)) is not None))


def _names(match: Match, condition: str) -> Iterator[str]:
    names: Names | None = getattr(match, condition)
    yield from [names] if isinstance(names, str) else names or []
    if match.not_ is not None:
        yield from _names(match.not_, condition)


def _example(name: str) -> str | None:
    """A name that matches a glob, or None if none was found. A plain name is its own example."""
    if not is_glob(name):
        return name
    example = re.sub(r"\[([^]!])[^]]*\]", r"\1", name).replace("*", "x").replace("?", "x")
    return example if globs(name)[0](example) else None
