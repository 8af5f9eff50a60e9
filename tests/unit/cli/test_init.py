"""`samplegate init`: the files that it writes are valid and pass their own cases, and it overwrites nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import jsonschema
import pytest
import yaml

from tests.fakes.shell import Run, Write
from tests.paths import ROOT


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--model", "openai/gpt-5-mini"],
        ["--model", "openai/gpt-5-mini", "--api-key-file", "model.key"],
        ["--headless"],
        ["--headless", "--model", "openai/gpt-5-mini"],
        ["--model", 'a "quoted" \\ model: # ü'],
    ],
)
@pytest.mark.parametrize(
    ("where", "policy"),
    [([], "samplegate.yaml"), (["new/folder"], "new/folder/samplegate.yaml"), (["mine.yml"], "mine.yml")],
)
def test_what_it_writes_passes_check_and_test(run: Run, options: list[str], where: list[str], policy: str) -> None:
    assert 0 == run("init", *options, *where).code
    checked = run("check", policy)
    warnings = [line for line in checked.out.splitlines() if "warning" in line]
    assert (0, True) == (checked.code, all(": warning: models.0" in line for line in warnings)), warnings
    tested = run("test", "--require-tests", policy)
    assert (0, True) == (tested.code, "5 cases, 0 failed" in tested.out), tested.out


def test_with_a_model_that_model_answers_sampling(run: Run) -> None:
    run("init", "--model", "openai/x")
    assert "any server: sampling: advertised; " in run("check", "samplegate.yaml").out


def test_without_a_model_only_the_client_answers(run: Run) -> None:
    run("init")
    assert "any server: sampling: advertised if the client declares it; " in run("check", "samplegate.yaml").out


def test_the_rule_that_stands_commented_out_is_good_once_it_is_not(run: Run, tmp_path: Path) -> None:
    run("init")
    policy = tmp_path / "samplegate.yaml"
    text = policy.read_text("utf-8")
    head, rules = text.split("# models:")
    uncommented = [
        line.replace("  # - ", "  - ").replace("  #   ", "    ")
        for line in ("# models:" + rules).splitlines()
        if not line.startswith(("# A budget", "# Reviewers decide"))
    ]
    policy.write_text(head + "\n".join(line.removeprefix("# ").replace("#   ", "  ") for line in uncommented), "utf-8")
    checked = run("check", "samplegate.yaml")
    assert (0, True) == (checked.code, "ok, 5 rules, 1 model" in checked.out), checked.out


def test_a_headless_starter_never_forwards_forms(run: Run) -> None:
    run("init")
    assert "note: rules.0: is the first rule to match forms, and forwards them" in run("check", "samplegate.yaml").out
    run("init", "--headless", "headless.yaml")
    checked = run("check", "headless.yaml").out
    assert "note:" not in checked
    assert "any server: form elicitation: advertised; every request matches a rule" in checked


@pytest.mark.parametrize("there", ["samplegate.yaml", "samplegate_test.yaml"])
def test_nothing_is_overwritten(run: Run, write: Write, tmp_path: Path, there: str) -> None:
    write(there, "mine")
    ended = run("init")
    assert (1, f"samplegate: init: {there}: already exists; remove it or choose another name\n") == (
        ended.code,
        ended.err,
    )
    assert ["mine"] == [path.read_text("utf-8") for path in tmp_path.iterdir()]


def test_the_keys_file_is_meant_from_here_and_written_from_there(run: Run, tmp_path: Path) -> None:
    run("init", "--model", "m", "--api-key-file", "keys/k", "deep/er")
    written = yaml.safe_load((tmp_path / "deep/er/samplegate.yaml").read_text("utf-8"))
    assert "../../keys/k" == written["models"][0]["api_key_file"]


def test_an_absolute_keys_file_stays_so(run: Run, tmp_path: Path) -> None:
    key = str(tmp_path / "k")
    run("init", "--model", "m", "--api-key-file", key)
    assert key == yaml.safe_load((tmp_path / "samplegate.yaml").read_text("utf-8"))["models"][0]["api_key_file"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--api-key-file", "k"], "--api-key-file needs --model; add it"),
        (["a_test.yaml"], "a_test.yaml is the name of a test file; remove _test"),
    ],
)
def test_what_makes_no_sense_leaves_with_two_and_writes_nothing(
    run: Run, tmp_path: Path, options: list[str], complaint: str
) -> None:
    ended = run("init", *options)
    assert (2, f"samplegate: init: {complaint}\n") == (ended.code, ended.err)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="another message")
def test_a_place_that_is_no_folder_leaves_with_two(run: Run, write: Write) -> None:
    write("file", "")
    ended = run("init", "file/below")
    assert 2 == ended.code
    assert "cannot be written: " in ended.err


def test_the_limit_that_stands_commented_out_is_good_once_it_is_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    run("init", "--model", "openai/gpt-5-mini")
    policy = tmp_path / "samplegate.yaml"
    text = policy.read_text("utf-8")
    commented = ("# limits:\n#   daily", "    # limits: [daily]")
    assert all(part in text for part in commented)
    for part in commented:
        text = text.replace(part, part.replace("# ", ""))
    policy.write_text(text, "utf-8")
    checked = run("check", "samplegate.yaml")
    assert (0, "") == (checked.code, checked.err), checked.out
    assert "warning" not in checked.out


@pytest.mark.parametrize("template", ["ci", "desktop", "service", "people"])
@pytest.mark.parametrize("path", ["samplegate.yaml", "new/mine.yml"])
def test_a_template_is_a_shipped_policy_under_the_chosen_name(
    run: Run, tmp_path: Path, template: str, path: str
) -> None:
    policy = tmp_path / path
    assert 0 == run("init", "--template", template, *([] if path == "samplegate.yaml" else [path])).code
    assert 0 == run("check", path).code
    tested = run("test", "--require-tests", path)
    assert (0, True) == (tested.code, ", 0 failed" in tested.out), tested.out
    shipped = ROOT / "policies" / f"{template}.yaml"
    assert yaml.safe_load(shipped.read_text("utf-8")) == yaml.safe_load(policy.read_text("utf-8"))
    tests = policy.with_name(f"{policy.stem}_test{policy.suffix}")
    for written in (policy, tests):
        text = written.read_text("utf-8")
        assert policy.name in text.partition("\nversion:")[0].partition("\ndefaults:")[0]
        assert f"{template}.yaml" not in text


@pytest.mark.parametrize("other", ["--model=m", "--api-key-file=k", "--headless"])
def test_a_template_takes_no_option_of_the_starter(run: Run, tmp_path: Path, other: str) -> None:
    ended = run("init", "--template", "ci", other)
    name = other.partition("=")[0]
    message = f"samplegate: init: --template cannot be combined with {name}; edit the policy that it writes instead\n"
    assert (2, message) == (ended.code, ended.err)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("template", [[], ["--template", "ci"]])
def test_with_schema_editors_find_the_schemas_beside_the_files(run: Run, tmp_path: Path, template: list[str]) -> None:
    assert 0 == run("init", "--schema", *template, "new").code
    for name, schema in (("samplegate", "policy"), ("samplegate_test", "policy_test")):
        text = (tmp_path / "new" / f"{name}.yaml").read_text("utf-8")
        assert f"# yaml-language-server: $schema={schema}.schema.json" == text.splitlines()[0]
        found = json.loads((tmp_path / "new" / f"{schema}.schema.json").read_text("utf-8"))
        jsonschema.Draft202012Validator(found).validate(yaml.safe_load(text))
    assert (0, 0) == (run("check", "new").code, run("test", "new").code)


def test_a_schema_is_not_overwritten(run: Run, write: Write, tmp_path: Path) -> None:
    write("policy.schema.json", "mine")
    assert 1 == run("init", "--schema").code
    assert ["policy.schema.json"] == [path.name for path in tmp_path.iterdir()]


EXISTING: Final = "version: 1\nrules: []\n"
HINTS: Final = (
    "next: put this line first in samplegate.yaml: # yaml-language-server: $schema=policy.schema.json\n",
    "next: put this line first in samplegate_test.yaml: # yaml-language-server: $schema=policy_test.schema.json\n",
)


@pytest.mark.parametrize("path", [".", "samplegate.yaml"])
def test_with_schema_an_existing_policy_gets_the_schemas_beside_it(
    run: Run, write: Write, tmp_path: Path, path: str
) -> None:
    write("samplegate.yaml", EXISTING)
    ended = run("init", "--schema", path)
    assert (0, f"wrote policy.schema.json\nwrote policy_test.schema.json\n{HINTS[0]}") == (ended.code, ended.out)
    assert EXISTING == (tmp_path / "samplegate.yaml").read_text("utf-8")
    assert not (tmp_path / "samplegate_test.yaml").exists()
    assert run("schema").out == (tmp_path / "policy.schema.json").read_text("utf-8")


def test_schemas_for_existing_files_are_named_only_where_they_are_not_yet(run: Run, write: Write) -> None:
    write("samplegate.yaml", "# yaml-language-server: $schema=policy.schema.json\n" + EXISTING)
    write("samplegate_test.yaml", "cases: []\n")
    assert f"wrote policy.schema.json\nwrote policy_test.schema.json\n{HINTS[1]}" == run("init", "--schema").out


def test_an_existing_policy_with_an_existing_schema_changes_nothing(run: Run, write: Write, tmp_path: Path) -> None:
    write("samplegate.yaml", EXISTING)
    write("policy_test.schema.json", "mine")
    ended = run("init", "--schema")
    message = "samplegate: init: policy_test.schema.json: already exists; remove it or choose another name\n"
    assert (1, message) == (ended.code, ended.err)
    assert ["policy_test.schema.json", "samplegate.yaml"] == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--model=m", "--headless", "--template=ci"])
def test_an_existing_policy_is_not_overwritten_by_a_new_one_with_schema(
    run: Run, write: Write, tmp_path: Path, option: str
) -> None:
    write("samplegate.yaml", EXISTING)
    ended = run("init", "--schema", option)
    message = "samplegate: init: samplegate.yaml: already exists; remove it or choose another name\n"
    assert (1, message) == (ended.code, ended.err)
    assert ["samplegate.yaml"] == [path.name for path in tmp_path.iterdir()]
