"""Preflight checks: what a policy names outside of itself, with places, remedies and near names, without secrets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samplegate.runtime.preflight import preflight, ui_warnings
from samplegate.runtime.process import load_policy
from samplegate.runtime.run import without_webhooks

HEAD = "version: 1\nmodels:\n  - "
TAIL = "\nrules: [{name: r, match: {kind: sampling}, effect: allow}]\n"
KEYS = {"OPENAI_API_KEY": "sk-secret", "ANTHROPIC_API_KEY": "sk-secret"}


def findings(folder: Path, text: str, *networks: str, **environment: str) -> list[str]:
    """The warnings of a policy in ``folder``, without the folder's name."""
    loaded = load_policy(text, file="p.yaml", environment=environment)
    found = preflight(loaded, text, file=folder / "p.yaml", environment=environment, networks=networks)
    return [f"{one.line}:{one.column}: {one.place}: {one.what}".replace(str(folder), "FOLDER") for one in found]


def of_model(folder: Path, model: str, **environment: str) -> list[str]:
    return findings(folder, f"{HEAD}{model}{TAIL}", **environment)


@pytest.mark.parametrize(
    ("model", "what"),
    [
        ("openi/gpt-5-mini", "litellm does not know the provider 'openi'; did you mean 'openai'?"),
        ("gpt-5-mini", "'gpt-5-mini' has no provider; write provider/model, such as 'openai/gpt-5-mini'"),
        ("whatever", "'whatever' has no provider; write provider/model, such as 'openai/whatever'"),
        ("openai/", "'openai/' has no provider; write provider/model, such as 'openai/gpt-5-mini'"),
        (
            "anthropic/claude-sonnet-45",
            (
                "litellm's table has no model 'claude-sonnet-45' of anthropic, so it may not exist, and its price is"
                " unknown; did you mean 'claude-sonnet-4-5'? (for a model that is newer than the table, set price)"
            ),
        ),
    ],
)
def test_a_name_that_litellm_does_not_know_is_told_with_near_names(tmp_path: Path, model: str, what: str) -> None:
    assert [f"3:22: models.0.model: {what}"] == of_model(tmp_path, f"{{name: a, model: {model}}}", **KEYS)


@pytest.mark.parametrize(
    "model",
    [
        "model: openai/gpt-5-mini",
        "model: OpenAI/GPT-5-mini",
        "model: openai/ft:gpt-4o:us::id",
        "model: openai/responses/gpt-5-mini",
        "model: anthropic/claude-new, price: {input: 1, output: 1}",
        "model: openai/qwen3, api_base: 'http://127.0.0.1:1/v1'",
        "model: azure/my-deployment",
        "model: hosted_vllm/x",
        "model: ollama/x",
        "model: scripted, cases: cases.yaml",
    ],
)
def test_other_names_are_not_mentioned(tmp_path: Path, model: str) -> None:
    assert [] == of_model(tmp_path, f"{{name: a, {model}}}", **KEYS)


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("", "3:5: models.0: no API key: set OPENAI_API_KEY, or add api_key_env or api_key_file to the model"),
        (
            ", api_key_env: NOT_THERE",
            "3:54: models.0.api_key_env: variable NOT_THERE (api_key_env) is not set; set it to the provider's key",
        ),
        (
            ", api_key_file: openai.kye",
            (
                "3:55: models.0.api_key_file: file openai.kye (api_key_file) does not exist; paths in a policy are"
                " relative to FOLDER; did you mean 'openai.key'?"
            ),
        ),
        (
            ", api_key_file: ~/key",
            (
                "3:55: models.0.api_key_file: file ~/key (api_key_file) does not exist; ~ is not replaced by the home"
                " folder; write the full path"
            ),
        ),
        (
            ", api_key_file: empty",
            "3:55: models.0.api_key_file: file empty (api_key_file) is empty; put the provider's key there",
        ),
        (
            ", api_key_file: .",
            "3:55: models.0.api_key_file: file . (api_key_file) cannot be read: is a directory; check api_key_file",
        ),
    ],
)
def test_a_missing_key_is_told_at_its_place(tmp_path: Path, key: str, what: str) -> None:
    (tmp_path / "openai.key").write_text("sk-secret")
    (tmp_path / "empty").write_text(" \n")
    assert [what] == of_model(tmp_path, f"{{name: a, model: openai/gpt-5-mini{key}}}")


def test_a_key_of_its_own_or_of_the_provider_is_enough(tmp_path: Path) -> None:
    (tmp_path / "openai.key").write_text("sk-secret")
    assert [] == of_model(tmp_path, "{name: a, model: openai/gpt-5-mini, api_key_file: openai.key}")
    assert [] == of_model(tmp_path, "{name: a, model: openai/gpt-5-mini}", OPENAI_API_KEY="x")


def of_reviewer(folder: Path, reviewer: str, *networks: str, **environment: str) -> list[str]:
    rules = "rules: [{name: r, match: {kind: elicitation}, effect: escalate, reviewer: ops}]\n"
    return findings(folder, f"version: 1\nreviewers:\n  ops: {{{reviewer}}}\n{rules}", *networks, **environment)


def test_a_command_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    (tmp_path / "plain.sh").write_text("exit")
    (tmp_path / "good.sh").write_text("exit")
    (tmp_path / "good.sh").chmod(0o700)
    place = "3:19: reviewers.ops.command.0: "
    told = {name: of_reviewer(tmp_path, f"command: [{name}]") for name in ("./god.sh", "./plain.sh", "none-such")}
    assert {
        "./god.sh": [
            f"{place}'./god.sh' does not exist; paths in a policy are relative to FOLDER; did you mean 'good.sh'?"
        ],
        "./plain.sh": [f"{place}'./plain.sh' is not executable; make it executable, or run it with its interpreter"],
        "none-such": [f"{place}'none-such' was not found in PATH; install it, or give its full path"],
    } == told
    assert [] == of_reviewer(tmp_path, "command: [./good.sh]")


SIGNED = "secret_env: SECRET"
SECRET = {"SECRET": "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"}


@pytest.mark.parametrize(
    ("url", "what"),
    [
        (
            "https://10.0.0.5/x",
            (
                "'10.0.0.5' is not a public address, and webhook_networks does not permit it; add `webhook_networks:"
                " [10.0.0.5/32]` to the settings of the gate, or use a public address"
            ),
        ),
        (
            "https://localhost/x",
            (
                "'localhost' is not a public address, and webhook_networks does not permit it; add `webhook_networks:"
                " [127.0.0.1/32]` to the settings of the gate, or use a public address"
            ),
        ),
        (
            "http://hooks.internal/x",
            (
                "'hooks.internal' is a name in a private network, which webhooks do not reach; add `webhook_networks:"
                " [NETWORK]` to the settings of the gate, or use a public address"
            ),
        ),
    ],
)
def test_a_webhook_in_a_private_network_is_told_with_the_line_to_add(tmp_path: Path, url: str, what: str) -> None:
    webhook = f"webhook: {{url: '{url}', {SIGNED}}}"
    assert [f"3:24: reviewers.ops.webhook.url: {what}"] == of_reviewer(tmp_path, webhook, **SECRET)
    assert [] == of_reviewer(tmp_path, webhook, "10.0.0.0/8", "127.0.0.0/8", **SECRET)


def test_public_names_are_not_looked_up(tmp_path: Path) -> None:
    assert [] == of_reviewer(tmp_path, f"webhook: {{url: 'https://hooks.example.com/x', {SIGNED}}}", **SECRET)


def test_the_secrets_of_a_message_of_the_policy_are_read(tmp_path: Path) -> None:
    body = "format: json, body: {key: '{secret}'}, secret_env: SECRET, authorization_file: token"
    told = of_reviewer(tmp_path, f"webhook: {{url: 'https://hooks.example.com/x', {body}}}")
    assert ["secret_env SECRET is not set or empty", "authorization_file token cannot be read"] == [
        next(part for part in line.split("; ")[0].split(": ") if " " in part) for line in told
    ]


def test_the_files_and_variables_of_a_webhook_are_read(tmp_path: Path) -> None:
    webhook = "webhook: {url_file: url, secret_env: SECRET}"
    assert [
        (
            "3:29: reviewers.ops.webhook.url_file: url_file url cannot be read: No such file or directory; paths in a"
            " policy are relative to FOLDER; correct it, or write the full path"
        ),
        (
            "3:46: reviewers.ops.webhook.secret_env: secret_env SECRET is not set or empty; reviews are not sent to"
            " this webhook until it is corrected"
        ),
    ] == of_reviewer(tmp_path, webhook)


def test_no_secret_is_in_a_message(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://10.9.8.7/hook/T0PSECRET")
    (tmp_path / "odd").write_text("T0PSECRET")
    told = of_reviewer(tmp_path, f"webhook: {{url_file: url, {SIGNED}}}", SECRET="T0PSECRET")
    told += of_reviewer(tmp_path, f"webhook: {{url_file: odd, {SIGNED}}}", SECRET="T0PSECRET")
    assert 4 == len(told)
    assert not [line for line in told if "T0PSECRET" in line or "10.9.8.7" in line]


def test_servers_do_not_get_the_variables_of_webhooks() -> None:
    """Whoever has them could post in the gate's name."""
    body = "format: json, body: {key: '{secret}'}, secret_env: S, authorization_env: A"
    text = f"version: 1\nreviewers:\n  ops: {{webhook: {{url_env: U, {body}}}}}\nrules: []\n"
    given = dict.fromkeys(("U", "S", "A", "PATH"), "x")
    policy = load_policy(text, file="p", environment=given)
    rules: Any = SimpleNamespace(policy=policy)
    assert {"PATH": "x"} == without_webhooks(given, rules)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (None, ["rules: 'x' shows no server's UI, because reviewers have no page; set reviews_listen or reviews_url"]),
        ("https://reviews.example.com", []),
        ("127.0.0.1:8090", ["http://127.0.0.1:9000"]),
        ("https://ui.example.com:8443/gate", ["https://ui.example.com"]),
        ("unix:/run/reviews.sock", []),
    ],
)
def test_a_ui_that_no_page_can_show_is_told(page: str | None, said: list[str]) -> None:
    rule = "{name: x, match: {mode: form}, effect: escalate, reviewer: ops, ui: show, ui_origins: [%s]}"
    origins = "https://ui.example.com, http://127.0.0.1:9000"
    text = f"version: 1\nreviewers: {{ops: {{}}}}\nrules: [{rule % origins}]\n"
    found = ui_warnings(load_policy(text, file="p.yaml", environment={}).policy, page)
    at_host = "rules: 'x' shows no server's UI from {}, because the review page has the same host; serve the UI"
    assert found == [one if page is None else f"{at_host.format(one)} from another host" for one in said]
