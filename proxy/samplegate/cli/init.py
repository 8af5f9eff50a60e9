"""``samplegate init``: writes a policy and its test: a starter from ``starter/``, or a shipped policy (``--template``).

For clients with a user, the starter forwards every request that the client can answer. With ``--headless`` it forwards
no forms.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final

from samplegate.cli import FAILED, OK, UNREADABLE
from samplegate.cli.bundled import TEMPLATES, bundled
from samplegate.cli.files import is_test, print_error, report_error, test_of
from samplegate.errors import InputError

NAME: Final = "samplegate.yaml"
SUFFIXES: Final = (".yaml", ".yml")
SCHEMA: Final = "policy.schema.json"
TESTS_SCHEMA: Final = "policy_test.schema.json"
HINT: Final = "# yaml-language-server: $schema={}\n"

MODELS: Final = """\
models:
  - name: main
    model: {model}{key}
"""
NO_MODELS: Final = """\
# The model that answers for clients without one; `model` is its litellm name.
# models:
#   - name: main
#     model: openai/gpt-5-mini
#     api_key_file: model.key         # or api_key_env: OPENAI_API_KEY
"""
ALLOW: Final = """\
  - name: a model answers sampling
    match: {kind: sampling}
    effect: allow
    with: {models: [main], max_tokens: 2000, timeout: 50s}
    # limits: [daily]
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        default=Path(),
        metavar="DIR|FILE",
        help="folder or policy file to create (default: samplegate.yaml in this folder)",
    )
    parser.add_argument(
        "--model", metavar="M", help="model that answers sampling, by its litellm name, such as openai/gpt-5-mini"
    )
    parser.add_argument("--api-key-file", metavar="F", help="file with the model's API key")
    parser.add_argument(
        "--headless",
        action="store_true",
        help="for clients without a user: escalate forms to a reviewer instead of forwarding them",
    )
    parser.add_argument(
        "--template",
        choices=TEMPLATES,
        help="copy a shipped policy with its tests instead: ci for pipelines, desktop for a client with a user, service"
        " for unattended servers, people with human review",
    )
    parser.add_argument(
        "--schema",
        action="store_true",
        help=f"also write {SCHEMA} and {TESTS_SCHEMA}, and name them in the first line of the files, for completion in"
        " editors; beside an existing policy, write only the schemas",
    )


def command(args: argparse.Namespace) -> int:
    """Write both files, or with --schema beside an existing policy only the schemas, without overwriting anything."""
    policy: Path = args.path if args.path.suffix in SUFFIXES else args.path / NAME
    tests = test_of(policy)
    if args.template is not None and (option := _starter_option(args)) is not None:
        print_error(f"init: --template cannot be combined with {option}; edit the policy that it writes instead")
        return UNREADABLE
    if args.template is None and args.api_key_file is not None and args.model is None:
        print_error("init: --api-key-file needs --model; add it")
        return UNREADABLE
    if is_test(policy):
        print_error(f"init: {policy} is the name of a test file; remove _test")
        return UNREADABLE
    schemas = [policy.with_name(name) for name in (SCHEMA, TESTS_SCHEMA)] if args.schema else []
    only_schemas = args.schema and args.template is None and _starter_option(args) is None and policy.is_file()
    texts = [] if only_schemas else [policy, tests]
    for path in (*texts, *schemas):
        if path.exists():
            print_error(f"init: {path}: already exists; remove it or choose another name")
            return FAILED
    try:
        policy.parent.mkdir(parents=True, exist_ok=True)
        for path, text in zip(texts, () if only_schemas else _texts(args, policy), strict=True):
            _write(path, (_hint(path) if args.schema else "") + text)
        for path in schemas:
            _write(path, f"{json.dumps(_schema(path), indent=2)}\n")
    except InputError as problem:
        return report_error(problem)
    except OSError as problem:
        print_error(f"init: {problem.filename}: cannot be written: {(problem.strerror or str(problem)).lower()}")
        return UNREADABLE
    print("".join(f"wrote {path}\n" for path in (*texts, *schemas)), end="")
    if only_schemas:
        print("".join(_without_hint((policy, tests))), end="")
    else:
        print(f"next: samplegate check {policy}\n      samplegate run --policy {policy} -- your-server --its-options")
    return OK


def _hint(path: Path) -> str:
    """The first line of a policy or its tests, by which editors find the schema beside it."""
    return HINT.format(TESTS_SCHEMA if is_test(path) else SCHEMA)


def _without_hint(paths: Iterable[Path]) -> Iterator[str]:
    """What to add to existing files, which `init` never changes, so that editors find the schemas."""
    for path in paths:
        with suppress(OSError):
            start = path.read_bytes()[:1000].decode("utf-8", "replace")
            if "# yaml-language-server:" not in start:
                yield f"next: put this line first in {path}: {_hint(path)}"


def _schema(path: Path) -> dict[str, Any]:
    """The JSON Schema for a file of that name."""
    from samplegate.policy.file import load
    from samplegate.policytest import load as cases

    return cases.json_schema() if path.name == TESTS_SCHEMA else load.json_schema()


def _starter_option(args: argparse.Namespace) -> str | None:
    """An option that only the starter has."""
    given = {"--model": args.model, "--api-key-file": args.api_key_file, "--headless": args.headless or None}
    return next((option for option, value in given.items() if value is not None), None)


def _texts(args: argparse.Namespace, policy: Path) -> tuple[str, str]:
    """The policy and its tests. Raises InputError."""
    if args.template is not None:
        return template_text(args.template, policy.name), template_text(f"{args.template}_test", policy.name)
    key_file = None if args.api_key_file is None else _relative_to_policy(args.api_key_file, policy.parent)
    return (
        policy_text(policy.name, args.model, key_file, headless=args.headless),
        tests_text(policy.name, args.model, headless=args.headless),
    )


def template_text(template: str, name: str) -> str:
    """A shipped policy or its tests. Its comments name the new policy. Raises InputError."""
    shipped = re.escape(template.removesuffix("_test"))
    return re.sub(rf"\b(?:policies/)?{shipped}\.yaml\b", lambda _: name, bundled(f"policies/{template}.yaml"))


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:  # not "w": the file may exist by now
        file.write(text)


def _relative_to_policy(key_file: str, folder: Path) -> str:
    """Path of the key file relative to the policy; the command line's is relative to the current folder."""
    try:
        return key_file if Path(key_file).is_absolute() else Path(os.path.relpath(key_file, folder)).as_posix()
    except ValueError:  # Windows: on another drive
        return str(Path(key_file).absolute())


def policy_text(name: str, model: str | None, api_key_file: str | None, *, headless: bool) -> str:
    """Starter policy, interactive or headless. Without a model, its sampling rule is commented out."""
    if model is None:
        models, sampling = NO_MODELS, "".join(f"  # {line[2:]}\n" for line in ALLOW.splitlines())
    else:
        key = "" if api_key_file is None else f"\n    api_key_file: {_yaml_string(api_key_file)}"
        models, sampling = MODELS.format(model=_yaml_string(model), key=key), ALLOW
    test = test_of(Path(name)).name
    return _starter(headless, "").substitute(name=name, test=test, models=models, sampling=sampling)


def tests_text(name: str, model: str | None, *, headless: bool) -> str:
    """Test cases of the starter policy."""
    sampling, expect = (
        "without a model in the policy, a request is not answered for a client without sampling",
        "{effect: none}",
    )
    if model is not None:
        sampling = "the model answers for a client without sampling"
        expect = "{effect: allow, rule: a model answers sampling, model: main, max_tokens: 2000}"
    return _starter(headless, "_test").substitute(name=name, sampling=sampling, expect=expect)


def _starter(headless: bool, suffix: str) -> Template:
    """A template of ``starter/``."""
    name = f"{'headless' if headless else 'interactive'}{suffix}.yaml"
    return Template(files("samplegate.cli").joinpath("starter", name).read_text("utf-8"))


def _yaml_string(text: str) -> str:
    """Text from the command line as a YAML string. A JSON string is one, and safe for any text."""
    return json.dumps(text, ensure_ascii=False)
