"""``samplegate init``: writes a starter policy with its test. The starter forwards all that a client can answer by itself."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Final

from samplegate.commands import FAILED, OK, UNREADABLE
from samplegate.commands.files import complain, is_test, test_of

NAME: Final = "samplegate.yaml"
SUFFIXES: Final = (".yaml", ".yml")

POLICY: Final = """\
# Which of a server's requests are answered, and by whom. The first rule that matches wins; a request that no rule takes is answered by nobody.
#   samplegate check {name}      every problem, and what each server is told that it may ask
#   samplegate test {name}       runs the cases of {test}
#   samplegate run --policy {name} -- your-server --its-options
version: 1

{models}
# What models may cost, all runs together: drop the hashes here and in the rule. One without a price in litellm needs `price: {{input: , output: }}`.
# limits:
#   a day: {{usd: 1.00, per: day, tz: UTC}}

{reviewers}
rules:
{forms}
{sampling}
  # A form may be answered in place of a person, by the operator's own words, for one server and exactly these fields:
  # - name: my server may go on
  #   match: {{kind: elicitation, mode: form, server: my-server, fields: [confirm]}}
  #   effect: answer
  #   content: {{confirm: true}}
{last}"""

REVIEWERS: Final = """\
# People who decide what a rule escalates to them, with `samplegate reviews` or at the page of `samplegate serve`.
# reviewers:
#   me: {timeout: 15m}
"""
REVIEWERS_HEADLESS: Final = """\
# The reviewer decides what a rule escalates, with `samplegate reviews` or on the page of `samplegate serve`.
reviewers:
  me: {timeout: 15m, late_verdict: 1h}
"""
FORMS: Final = """\
  # Whatever the client can answer it goes on answering. `otherwise: next` is for the client that cannot: the rules below are asked.
  # Headless agents (claude -p, codex exec) declare forms and then refuse them without a person: for them use `samplegate init --headless`.
  - name: the client answers what it can
    effect: forward
    otherwise: next
  - name: the client opens links
    match: {mode: url}                # a rule covers links only if it says so
    effect: forward
"""
FORMS_HEADLESS: Final = """\
  # Forms are never forwarded: headless agents (claude -p, codex exec) declare forms and then refuse them without a person. A reviewer fills
  # them in. To answer a form without a reviewer, put a rule like the commented one below above this rule.
  - name: a reviewer fills in forms
    match: {kind: elicitation, mode: form}
    effect: escalate
    reviewer: me

  # Sampling stays with a client that has a model; `otherwise: next` is for the client that has none.
  - name: the client samples if it can
    match: {kind: sampling}
    effect: forward
    otherwise: next
"""
LAST: Final = """\
  # Or a person fills it in:
  # - name: forms wait for me
  #   match: {kind: elicitation, mode: form}
  #   effect: escalate
  #   reviewer: me
"""

MODELS: Final = """\
models:
  - name: {name}
    model: {model}{key}
"""
NO_MODELS: Final = """\
# The model that answers for a client without one; `model` is what litellm calls it.
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
    # limits: [a day]
"""

TESTS: Final = """\
# The cases of {name}: samplegate test {name}
cases:
  - name: a client that samples does so itself
    client: [sampling]
    sampling: Summarize this page
    expect: {{effect: forward, rule: {samples}}}

  - name: {sampling}
    sampling: {{text: Summarize this page, maxTokens: 5000}}
    expect: {expect}

  - name: {shown}
    client: [elicitation.form]
    elicitation: {{message: Go on?, fields: {{confirm: boolean}}}}
    expect: {{{forwarded}}}

  - name: {unshown}
    elicitation: {{message: Go on?, fields: {{confirm: boolean}}}}
    expect: {{{unforwarded}}}

  - name: {link}
    client: [elicitation.url]
    elicitation: {{message: Sign in, url: "https://login.example.com/"}}
    expect: {{{opened}}}
"""
REVIEWED: Final = "effect: escalate, rule: a reviewer fills in forms, reviewer: me"
EXPECTED: Final = {
    "samples": "the client answers what it can",
    "shown": "a client that shows forms does so itself",
    "forwarded": "effect: forward, rule: the client answers what it can",
    "unshown": "a form for a client that shows none is not answered",
    "unforwarded": "effect: none",
    "link": "a link goes to a client that opens links",
    "opened": "effect: forward, rule: the client opens links",
}
EXPECTED_HEADLESS: Final = {
    "samples": "the client samples if it can",
    "shown": "a form is not forwarded to a client that declares forms",
    "forwarded": REVIEWED,
    "unshown": "a form goes to the reviewer",
    "unforwarded": REVIEWED,
    "link": "a link is not answered",
    "opened": "effect: none",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command line takes."""
    parser.add_argument("path", type=Path, nargs="?", default=Path(), metavar="DIR|FILE", help="where (default: samplegate.yaml in this folder)")
    parser.add_argument("--model", metavar="M", help="the model that answers sampling, as litellm names it, such as openai/gpt-5-mini")
    parser.add_argument("--api-key-file", metavar="F", help="the file that holds its key")
    parser.add_argument("--headless", action="store_true", help="for clients without a person: escalate forms to a reviewer, never forward them")


def command(args: argparse.Namespace) -> int:
    """Write both files; nothing that exists is overwritten."""
    policy: Path = args.path if args.path.suffix in SUFFIXES else args.path / NAME
    tests = test_of(policy)
    if args.api_key_file is not None and args.model is None:
        complain("init: --api-key-file is the key of a model; give --model too")
        return UNREADABLE
    if is_test(policy):
        complain(f"init: {policy} is the name of a test file; leave out _test")
        return UNREADABLE
    for path in (policy, tests):
        if path.exists():
            complain(f"init: {path}: exists already; remove it or name another file")
            return FAILED
    try:
        policy.parent.mkdir(parents=True, exist_ok=True)
        key_file = None if args.api_key_file is None else _from_policy(args.api_key_file, policy.parent)
        _write(policy, policy_text(policy.name, args.model, key_file, headless=args.headless))
        _write(tests, tests_text(policy.name, args.model, headless=args.headless))
    except OSError as problem:
        complain(f"init: {problem.filename}: cannot be written: {(problem.strerror or str(problem)).lower()}")
        return UNREADABLE
    print(f"wrote {policy}\nwrote {tests}\nnext: samplegate check {policy}\n      samplegate run --policy {policy} -- your-server --its-options")
    return OK


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:  # not "w": somebody may have been quicker
        file.write(text)


def _from_policy(key_file: str, folder: Path) -> str:
    """A key's file as the policy says it: relative to itself, where the command line means the current folder."""
    try:
        return key_file if Path(key_file).is_absolute() else Path(os.path.relpath(key_file, folder)).as_posix()
    except ValueError:  # Windows: on another drive
        return str(Path(key_file).absolute())


def policy_text(name: str, model: str | None, api_key_file: str | None, *, headless: bool) -> str:
    """The starter policy, for clients with a person or without; without a model its rule for sampling stands commented out."""
    if model is None:
        models, sampling = NO_MODELS, "".join(f"  # {line[2:]}\n" for line in ALLOW.splitlines())
    else:
        key = "" if api_key_file is None else f"\n    api_key_file: {_quoted(api_key_file)}"
        models, sampling = MODELS.format(name="main", model=_quoted(model), key=key), ALLOW
    reviewers, forms, last = (REVIEWERS_HEADLESS, FORMS_HEADLESS, "") if headless else (REVIEWERS, FORMS, LAST)
    test = test_of(Path(name)).name
    return POLICY.format(name=name, test=test, models=models, sampling=sampling, reviewers=reviewers, forms=forms, last=last)


def tests_text(name: str, model: str | None, *, headless: bool) -> str:
    """The cases of the starter."""
    expected = EXPECTED_HEADLESS if headless else EXPECTED
    sampling, expect = "without a model in the policy, a client that cannot sample gets no answer", "{effect: none}"
    if model is not None:
        sampling = "for a client that cannot, the model does"
        expect = "{effect: allow, rule: a model answers sampling, model: main, max_tokens: 2000}"
    return TESTS.format(name=name, sampling=sampling, expect=expect, **expected)


def _quoted(text: str) -> str:
    """Text from the command line as a YAML string: JSON's is one, and safe whatever is in it."""
    return json.dumps(text, ensure_ascii=False)
