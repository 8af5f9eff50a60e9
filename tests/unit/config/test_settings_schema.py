"""The JSON Schema of the daemon's settings file agrees with its reader."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from samplegate.config import SettingsError
from samplegate.config.json_schema import json_schema
from samplegate.config.serve import load_serve
from samplegate.config.serve_settings import SERVE_SETTINGS
from samplegate.yamlfile.tree import compose, plain_value
from tests.paths import ROOT

EXAMPLE = re.findall(
    r"```yaml\n(policy: .*?)```",
    (ROOT / "deploy" / "settings.md").read_text(encoding="utf-8"),
    re.DOTALL,
)[0]
SCHEMA = jsonschema.Draft202012Validator(json_schema())
A = "ab" * 32

GOOD = [
    "policy: p\nservers: {a: {command: x}}\n",
    "policy: p\nservers: {a: {url: 'https://x', callers: [], share: all}}\nlog_format: json\nwatch: false\n",
    (
        f"policy: p\nservers: {{a: {{command: x}}}}\ncallers: {{tokens: [{{name: ci, sha256: {A}}}], resource:"
        " 'https://x'}\n"
    ),
    (
        "policy: p\nservers: {a: {command: x}}\ncallers: {jwt: {issuer: 'https://x', audience: [a], algorithms:"
        " [PS256]}}\nallowed_hosts: [a, b]\n"
    ),
    (
        f"policy: p\nservers: {{a: {{command: x}}}}\npeople: {{tokens: [{{name: ann, role: viewer, sha256: {A},"
        " reviewers: [ops]}]}\nkeep_reviews: 3\n"
    ),
]
BAD = [
    "polcy: p\n",
    "policy: p\nservers: {a: {comand: x}}\n",
    "policy: p\nservers: {a/b: {command: x}}\n",
    "policy: p\nservers: {..: {command: x}}\n",
    "policy: p\nservers: {a: {command: 5}}\n",
    "policy: p\nservers: {a: {command: x, share: some}}\n",
    "policy: p\nservers: {a: {command: x}}\nmax_sessions: 0\n",
    "policy: p\nservers: {a: {command: x}}\nwatch: 'true'\n",
    "policy: p\nservers: {a: {command: x}}\nallowed_hosts: a\n",
    (
        "policy: p\nservers: {a: {command: x}}\ncallers: {jwt: {issuer: 'https://x', audience: [a], algorithms:"
        " [HS256]}}\n"
    ),
    f"policy: p\nservers: {{a: {{command: x}}}}\ncallers: {{tokens: [{{name: ci, sha: {A}}}]}}\n",
    f"policy: p\nservers: {{a: {{command: x}}}}\npeople: {{tokens: [{{name: ann, role: owner, sha256: {A}}}]}}\n",
    "policy: p\nservers: {a: {command: x}}\nwebhook_networks: 10.0.0.0/8\n",
]


def loads(text: str, folder: Path) -> bool:
    (folder / "s.yaml").write_text(text)
    try:
        load_serve({"HOME": "/srv/u"}, file=folder / "s.yaml")
    except SettingsError:
        return False
    return True


@pytest.mark.parametrize("text", GOOD)
def test_what_loads_fits(text: str, tmp_path: Path) -> None:
    assert loads(text, tmp_path)
    assert SCHEMA.is_valid(plain_value(compose(text)[0]))


@pytest.mark.parametrize("text", BAD)
def test_what_does_not_load_for_its_shape_does_not_fit(text: str, tmp_path: Path) -> None:
    assert not loads(text, tmp_path)
    assert not SCHEMA.is_valid(plain_value(compose(text)[0]))


def test_the_documentations_example_fits() -> None:
    assert SCHEMA.is_valid(plain_value(compose(EXAMPLE)[0]))


def test_the_schema_is_one_and_describes_every_key() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert list(SERVE_SETTINGS) == list(schema["properties"])
    assert all(
        property["description"]
        for each in (schema, *schema["$defs"].values())
        for property in each["properties"].values()
    )


def test_the_schema_is_the_one_that_editors_have() -> None:
    assert (
        Path(__file__).with_name("settings_schema.json").read_text("utf-8")
        == json.dumps(json_schema(), indent=2) + "\n"
    )
