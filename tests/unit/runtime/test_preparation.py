"""Reading the policy before anything is started: an error names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.errors import Unavailable
from samplegate.runtime.run import read_rules


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: no such file or directory; correct the path"),
        (b"version: 1\n# \xff\n", "cannot be read: byte 13 is not UTF-8; save it as UTF-8 text"),
    ],
    ids=["missing", "another encoding"],
)
def test_a_policy_that_cannot_be_read_is_told_with_its_file(
    content: bytes | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Unavailable) as refused:
        read_rules(file, {}, 1)
    assert f"{file}: {message}" == str(refused.value)


def test_a_folder_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be read: is a directory"):
        read_rules(tmp_path, {}, 1)


def test_a_policy_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_bytes(b"\xef\xbb\xbfversion: 1\nrules: [{name: never, effect: deny}]\n")
    assert "never" == read_rules(tmp_path / "policy.yaml", {}, 1).policy.policy.rules[0].name
