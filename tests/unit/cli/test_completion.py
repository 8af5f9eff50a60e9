"""Completion scripts: for each shell, from the arguments of all commands."""

from __future__ import annotations

import pytest

from samplegate.cli.completion import SHELLS
from samplegate.cli.main import COMMANDS, main


@pytest.mark.cpu(2.0)
@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_has_every_command_and_its_options(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["completion", shell])
    script = capsys.readouterr().out
    missing = [name for name in COMMANDS if name not in script]
    assert [] == missing
    for option in ("end-of-input-timeout", "admin-listen", "expect-gates", "max-tokens", "legacy"):
        assert option in script
