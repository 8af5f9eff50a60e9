"""What users rely on, docs/stable.yaml, against the code: nothing that it lists may be lost unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import stable


@pytest.mark.cpu(2.0)
def test_the_code_has_every_name_that_users_rely_on() -> None:
    assert [] == stable.lost(), "users rely on it: keep it, or follow docs/stability.md and edit docs/stable.yaml"


@pytest.mark.cpu(2.0)
def test_every_name_of_the_code_is_listed() -> None:
    assert [] == stable.missing(), "run `make docs`, which adds it to docs/stable.yaml"


@pytest.mark.cpu(4.0)
def test_a_lost_name_is_noticed_and_stays_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "stable.yaml"
    monkeypatch.setattr(stable, "FILE", file)
    file.write_text("metrics: [samplegate_gone_total counter ()]\nexit codes: [run 3]\n", "utf-8")
    assert ["metrics: samplegate_gone_total counter ()"] == stable.lost()
    assert "record: decision_id" in stable.missing()
    assert 0 == stable.main()
    assert ["metrics: samplegate_gone_total counter ()"] == stable.lost()
    assert [] == stable.missing()
