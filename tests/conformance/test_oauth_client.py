"""The official client suite's scenarios about OAuth, with the gate as the client: `samplegate run --url`, and
`samplegate login` where an error asks for it. The driver follows the printed URL, as a user's browser does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.sdk import node
from tests.conformance.expected import expected
from tests.conformance.suite import PROGRAM, client_output, client_scenario

DRIVER: Final = (sys.executable, "-m", "tests.conformance.oauth_driver")
CURRENT: Final = (
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "basic-cimd",
    "scope-from-www-authenticate",
    "scope-from-scopes-supported",
    "scope-omitted-when-undefined",
    "scope-step-up",
    "scope-retry-limit",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-post",
    "token-endpoint-auth-none",
    "pre-registration",
    "resource-mismatch",
    "offline-access-scope",
    "offline-access-not-supported",
    "authorization-server-migration",
    "iss-supported",
    "iss-not-advertised",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "metadata-issuer-mismatch",
    "client-credentials-jwt",
    "client-credentials-basic",
)
OLDER: Final = (
    # where the protocol versions differ: the handshake and the registration, and a server without resource metadata
    ("2025-11-25", "metadata-default"),
    ("2025-03-26", "2025-03-26-oauth-metadata-backcompat"),
)
REFUSED: Final = {
    # the server, the authorization server or its answer is not to be trusted, so no request is answered
    "scope-retry-limit",
    "resource-mismatch",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "metadata-issuer-mismatch",
}


@pytest.mark.parametrize(("revision", "scenario"), [*(("2026-07-28", name) for name in CURRENT), *OLDER])
def test_the_gate_passes_every_check_of_an_oauth_client(revision: str, scenario: str, tmp_path: Path) -> None:
    found = client_scenario(DRIVER, f"auth/{scenario}", revision, tmp_path, seconds=140)
    ended = found["client-ended-well"]
    checks = [check for check in found.values() if check is not ended]
    bad = [str(check) for check in checks if check.status in ("FAILURE", "WARNING")]
    assert [] == bad, client_output(tmp_path)
    assert any(check.status == "SUCCESS" for check in checks)
    assert (scenario in REFUSED) == (ended.status == "FAILURE"), ended.said


def test_every_oauth_scenario_is_run_or_has_a_reason_why_not() -> None:
    words = [str(node.node()), str(PROGRAM), "list", "--client"]
    listed = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    ran = {f"auth/{name}" for name in CURRENT} | {f"auth/{name}" for _, name in OLDER}
    assert {word for word in listed if word.startswith("auth/")} == ran | set(expected("auth"))
    assert set() == ran & set(expected("auth"))
