"""The hash of the settings in records: it changes with the settings, and knows no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.config import RunSettings
from samplegate.config.identities import CallerSettings, Token
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.servers import ServerSettings
from samplegate.config.settings import ProcessSettings, settings_hash


def serve(**server: object) -> ServeSettings:
    return ServeSettings(servers={"docs": ServerSettings(name="docs", **server)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (RunSettings(run="1-1-test"), RunSettings(run="2-1-test")),
        (serve(env={"KEY": "a"}, args=("--token", "a")), serve(env={"KEY": "b"}, args=("--token", "b"))),
        (serve(headers={"authorization": "a"}), serve(headers={"authorization": "b"})),
        (serve(url="https://u:a@x.example/mcp?key=a"), serve(url="https://u:b@x.example/mcp?key=b#c")),
    ],
)
def test_secrets_and_the_run_do_not_change_it(one: ProcessSettings, other: ProcessSettings) -> None:
    assert settings_hash(one) == settings_hash(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (RunSettings(), RunSettings(state=Path("/x"))),
        (RunSettings(), RunSettings(record_content="full")),
        (serve(env={"KEY": "a"}), serve(env={"OTHER": "a"})),
        (serve(url="https://x.example/mcp"), serve(url="https://y.example/mcp")),
        (serve(), ServeSettings(callers=CallerSettings(tokens=(Token("ci", "0" * 64),)))),
    ],
)
def test_any_other_change_changes_it(one: ProcessSettings, other: ProcessSettings) -> None:
    assert 12 == len(settings_hash(one))
    assert settings_hash(one) != settings_hash(other)
