"""The time limit of a review between client and server of different protocol versions: in a run, and as `check` prints
it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.cli import main
from tests.fakes.version_runs import INITIALIZE, Run, call, legacy

pytestmark = pytest.mark.timeout(120)
POLICY: Final = """
version: 1
client: {peer_timeout: 2s}
servers: {default: {peer_timeout: none}}
reviewers: {ops: {timeout: 1h, late_verdict: 0s}}
rules: [{name: r, match: {kind: sampling}, effect: escalate, reviewer: ops}]
"""
PAIRS: Final[dict[str, tuple[str, list[dict[str, Any]]]]] = {
    "both speak 2026-07-28": ("error", [call(1, "round")]),
    "only the server": ("new", [INITIALIZE, legacy(1, "tools/call", name="round", arguments={})]),
}


def test_check_promises_ten_waits_only_where_both_speak_2026_07_28(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY.replace("2s", "4s"))
    assert 0 == main.main(["check", str(tmp_path / "policy.yaml")])
    words = "reviewer ops has 3s to decide, or 30s if client and server both speak 2026-07-28"
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("pair", PAIRS)
def test_a_review_is_put_off_only_where_both_speak_2026_07_28(tmp_path: Path, pair: str) -> None:
    sign, requests = PAIRS[pair]
    answer = Run(tmp_path, sign, POLICY)(*requests)[-1]
    if pair == "both speak 2026-07-28":
        assert "input_required" == answer["result"]["resultType"]
        return
    said = json.dumps(answer)
    assert "requestState" not in said
    assert "not answered in time" in said or "refused with -1" in said
