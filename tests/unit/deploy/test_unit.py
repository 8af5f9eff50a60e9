"""The systemd unit and its settings agree with each other and with the daemon. `test_systemd.py` starts it."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
import yaml

from samplegate.config import SettingsError
from samplegate.config.serve import load_serve
from samplegate.config.serve_settings import ServeSettings
from tests.fakes.system_programs import DEPLOY
from tests.fakes.systemd_unit import UNIT, directives

TEXT: Final = UNIT.read_text("utf-8")
SAID: Final = directives(TEXT)
SETTINGS: Final = DEPLOY / "systemd" / "samplegate.yaml"
CREDENTIALS: Final = "/run/credentials/samplegate.service"


def test_a_stop_leaves_the_drain_its_time_and_reaches_the_gate_alone() -> None:
    shipped: dict[str, Any] = yaml.safe_load(SETTINGS.read_text("utf-8"))
    longest = sum(max(getattr(ServeSettings(), name), shipped[name]) for name in ("drain_delay", "drain_timeout"))
    assert longest + 10 < int(SAID["TimeoutStopSec"][0])
    assert (["mixed"], ["notify"]) == (SAID["KillMode"], SAID["Type"])


def test_the_settings_beside_the_unit_are_none_but_for_their_secrets() -> None:
    with pytest.raises(SettingsError) as refused:
        load_serve({"SAMPLEGATE_STATE": "/var/lib/samplegate"}, file=SETTINGS)
    assert [] == [problem for problem in refused.value.problems if CREDENTIALS not in problem]


def test_every_secret_that_the_settings_name_is_handed_to_the_unit() -> None:
    named = re.findall(rf"{CREDENTIALS}/([\w-]+)", SETTINGS.read_text("utf-8"))
    assert sorted(named) == sorted(credential.partition(":")[0] for credential in SAID["LoadCredential"])


def test_every_variable_of_the_unit_is_a_setting() -> None:
    lines = [
        line
        for line in (DEPLOY / "systemd" / "samplegate.env").read_text("utf-8").splitlines()
        if not line.startswith("#")
    ]
    assert {line.partition("=")[0].removeprefix("SAMPLEGATE_").lower() for line in lines} <= set(
        ServeSettings.__struct_fields__
    )
