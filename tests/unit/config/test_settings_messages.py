"""Messages about wrong settings: every problem at once, with its place and without secrets. The table is in
settings_messages.yaml."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from samplegate.cli.main import main

TABLE: Final[list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_suffix("").with_name("settings_messages.yaml").read_text("utf-8")
)
SECRET: Final = "s3cret"  # no message may contain this, wherever it is in the table
GENERATED: Final = {
    "large:": b"#" * (3 * 1024 * 1024),
    "many callers:": "".join(f"c{index} {index:064x}\n" for index in range(10_001)).encode(),
    "many people:": "".join(f"p{index} viewer {index + 20_000:064x}\n" for index in range(10_001)).encode(),
}


def content(text: str) -> bytes:
    """The content of a file in the table: its text, or the value that its first word names."""
    if text.startswith("latin-1:"):
        return text.removeprefix("latin-1:").encode("latin-1")
    return GENERATED.get(text) or text.encode()


@pytest.mark.parametrize("case", TABLE, ids=[case["name"] for case in TABLE])
def test_every_problem_is_told_at_its_place_and_no_secret(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_STATE_HOME", "USERPROFILE", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "HOME": str(tmp_path / "home"),
        "SAMPLEGATE_LOG_FORMAT": "text",
        **case.get("environ", {}),
    }.items():
        monkeypatch.setenv(name, value)
    for name, text in case.get("files", {}).items():
        (tmp_path / name).write_bytes(content(text))
    code = main(shlex.split(case["line"])[1:])
    out, err = capsys.readouterr()
    assert SECRET not in err
    assert (2, "") == (code, out)
    assert sorted(case["says"]) == sorted(err.replace(f"{tmp_path}/", "").replace(str(tmp_path), "FOLDER").splitlines())
