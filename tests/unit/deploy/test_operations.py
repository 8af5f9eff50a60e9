"""The example in deploy/settings.md loads, and the data behind its tables is complete."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from samplegate.audit.record import CONTENTS, MEMBERS, Record
from samplegate.config import SettingsError
from samplegate.config.serve import load_serve
from samplegate.server import admin
from samplegate.server.admin import ROUTES
from tests.paths import ROOT

PAGE = (ROOT / "deploy" / "settings.md").read_text(encoding="utf-8")


def test_the_settings_that_stand_there_as_an_example_are_none_but_for_their_files(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(re.findall(r"```yaml\n(policy: .*?)```", PAGE, re.DOTALL)[0])
    with pytest.raises(SettingsError) as refused:
        load_serve({"HOME": "/srv/u", "DOCS_ROOT": "/srv/docs"}, file=tmp_path / "s.yaml")
    assert [] == [problem for problem in refused.value.problems if "/run/secrets/" not in problem]


def test_every_field_of_a_record_is_described() -> None:
    # logged separately, never in a line
    written = {"cost_usd" if field.name == "usd" else field.name for field in fields(Record)} - {
        "asked",
        "redactor",
        "identities",
        "looks_at",
    }
    contents = {f"{name}_hash" for name in ("request", "arguments", "groups", "claims", "result")}
    assert written | {"groups", "claims"} | contents == {*MEMBERS, *CONTENTS}


def test_every_path_of_the_operators_listener_is_described() -> None:
    handled = set(re.findall(r'"(/\w*)": self\.', Path(admin.__file__).read_text("utf-8")))
    assert handled == set(ROUTES)
