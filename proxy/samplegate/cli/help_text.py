"""Pure. Examples in the help of each command, and suggestions for misspelled words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

EXAMPLES: Final = {
    "": (
        "samplegate demo                                     # see the gate at work, offline",
        "samplegate init && samplegate check samplegate.yaml # write a policy, and validate it",
        "samplegate run --policy samplegate.yaml -- python server.py",
    ),
    "run": (
        "samplegate run --policy samplegate.yaml --server docs -- npx -y some-mcp-server",
        "samplegate run --policy ci.yaml --strict --url https://example.com/mcp --header-from Authorization=token.txt",
    ),
    "serve": (
        "samplegate serve --policy samplegate.yaml --listen 127.0.0.1:8080 -- python server.py",
        "samplegate serve --settings serve.yaml --check",
    ),
    "demo": ("samplegate demo --era modern", "samplegate demo --review"),
    "check": ("samplegate check samplegate.yaml", "samplegate check --live --env-file keys.env policies/"),
    "test": (
        "samplegate test samplegate.yaml",
        "samplegate test --coverage --fail-under 90 --junit results.xml policies/",
    ),
    "explain": (
        "samplegate explain --policy samplegate.yaml --server docs --tool search request.json",
        "samplegate explain --policy samplegate.yaml --era modern --client elicitation.form - < request.json",
    ),
    "replay": (
        "samplegate replay --log decisions/ --policy new.yaml",
        "samplegate replay --log decisions/ --policy new.yaml --fail-on-change --since 7d",
    ),
    "report": ("samplegate report --since 24h", "samplegate report --run --fail-on denied,unanswered --junit gate.xml"),
    "why": ("samplegate why 5f0c2a9be07d", "samplegate why 5f0c2a9be07d --log decisions/ --json"),
    "reviews": ("samplegate reviews list", "samplegate reviews approve rv_5f0c2a9b --max-tokens 200"),
    "reviews list": ("samplegate reviews list", "samplegate reviews list --all --server docs --json"),
    "reviews show": ("samplegate reviews show rv_5f0c2a9b", "samplegate reviews show rv_5f0c2a9b --json"),
    "reviews open": ("samplegate reviews open", "samplegate reviews open rv_5f0c2a9b --print"),
    "reviews watch": ("samplegate reviews watch", "samplegate reviews watch --reviewer ops --json"),
    "reviews approve": (
        "samplegate reviews approve rv_5f0c2a9b",
        "samplegate reviews approve rv_5f0c2a9b --max-tokens 200 --temperature 0.2",
    ),
    "reviews reject": (
        "samplegate reviews reject rv_5f0c2a9b",
        "samplegate reviews reject rv_5f0c2a9b --reason 'not on a Friday' --tell-server",
    ),
    "reviews answer": (
        "samplegate reviews answer rv_5f0c2a9b --accept confirm=true zones=eu-1,eu-2",
        "samplegate reviews answer rv_5f0c2a9b --decline",
    ),
    "status": ("samplegate status --watch", "samplegate status --settings serve.yaml --json"),
    "database": (
        "samplegate database migrate --settings serve.yaml --gates gates --keep-days 90",
        "samplegate database import --settings serve.yaml",
    ),
    "database migrate": (
        "samplegate database migrate --database postgresql://owner@db/gates --gates gates --readers reports",
        "samplegate database migrate --settings serve.yaml --keep-days 90",
    ),
    "database import": (
        "samplegate database import --settings serve.yaml",
        "samplegate database import --state /var/lib/samplegate --database postgresql://gates@db/gates",
    ),
    "login": (
        "samplegate login docs --url https://mcp.example.com/mcp",
        "samplegate login docs --settings serve.yaml --no-browser",
        "samplegate login --status",
    ),
    "logout": ("samplegate logout docs", "samplegate logout docs --settings serve.yaml"),
    "token": ("samplegate token ci --append tokens", "samplegate token ann --role reviewer --reviewers ops"),
    "schema": ("samplegate schema > policy.schema.json", "samplegate schema --settings"),
    "wrap": (
        "samplegate wrap --policy samplegate.yaml",
        "samplegate wrap --client claude-code --policy samplegate.yaml --only docs --write",
    ),
    "unwrap": ("samplegate unwrap", "samplegate unwrap --client claude-code --write"),
    "clients": ("samplegate clients", "samplegate clients --json"),
    "init": (
        "samplegate init --model openai/gpt-5-mini --api-key-file openai.key",
        "samplegate init --template ci ci.yaml",
    ),
    "docs": ("samplegate docs policies/limits", "samplegate docs --list"),
    "completion": (
        "samplegate completion bash > ~/.local/share/bash-completion/completions/samplegate",
        "samplegate completion fish > ~/.config/fish/completions/samplegate.fish",
    ),
}
"""Command lines for the help of each command; "" is samplegate itself."""


def examples(command: str) -> str:
    """The examples in the help of a command, an action (``reviews list``) or samplegate (``""``)."""
    lines = "".join(f"  {line}\n" for line in EXAMPLES.get(command, ()))
    return f"examples:\n{lines}\n" if lines else ""


_CHOICE: Final = re.compile(r"invalid choice: (.+?) \(choose from (.+)\)\Z", re.DOTALL)
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def suggestion(message: str, usage: str, words: Sequence[str]) -> str:
    """What the user may have meant, to be added to argparse's message: "; did you mean 'check'?", or nothing.
    ``usage`` is that of the command, and ``words`` its command line."""
    from samplegate.yamlfile.validate import did_you_mean

    if (found := _CHOICE.search(message)) is not None:
        return did_you_mean(found[1].strip("'\""), [each.strip("'\"") for each in found[2].split(", ")])
    options = {"--help", *_OPTION.findall(usage.replace("[-V]", "--version"))}
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name not in options and (near := did_you_mean(name, options)):
            return near if "unrecognized arguments" in message else f"; {name} is unknown{near}"
    return ""
