"""The assertions in force: a reload changes who has a role, and keeps the keys of an unchanged issuer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from samplegate.config.assertions import AssertionSettings, ListedPerson
from samplegate.errors import Unavailable
from samplegate.reviews.web.context import Asserted
from samplegate.server.assertions import ProxyAssertions
from tests.fakes.issuer import AUDIENCE, ISSUER, key_set, mint, public
from tests.fakes.reviewers_listener import Log

pytestmark = pytest.mark.anyio
ANN: Final = "ann@example.com"


class InForce:
    """The assertions of a daemon whose proxy's keys are in a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.json"
        self.log = Log()
        self.counted: list[tuple[str, dict[str, Any]]] = []
        self.settings = AssertionSettings(
            "x-jwt", ISSUER, (AUDIENCE,), jwks_file=self.file, people={ANN: ListedPerson("reviewer")}
        )
        self.assertions = ProxyAssertions(self.log, lambda name, **labels: self.counted.append((name, labels)))

    def header(self) -> str | None:
        return None if self.assertions.header is None else self.assertions.header.header

    async def role(self, name: str = "k", email: str = ANN) -> str:
        """The role of a person, or the reason of the refusal."""
        assert self.assertions.header is not None
        found = await self.assertions.header.person(mint(name, email=email))
        return found.person.role if isinstance(found, Asserted) else found


@pytest.fixture
def at(tmp_path: Path) -> InForce:
    return InForce(tmp_path)


async def test_a_reload_changes_people_and_keys_at_once(at: InForce) -> None:
    assert at.header() is None
    at.file.write_bytes(key_set(public("k", "ES256")))
    at.assertions.put(at.settings)
    await at.assertions.warm()
    assert ["reviewer", "unknown_key", "no_role"] == [
        await at.role(), await at.role("other"), await at.role(email="ben@example.com")
    ]  # fmt: skip
    at.file.write_bytes(key_set(public("other", "ES256")))
    at.assertions.put(replace(at.settings, header="x-other", people={ANN: ListedPerson("viewer")}))
    assert ("x-other", "unknown_key", "viewer") == (at.header(), await at.role(), await at.role("other"))
    at.assertions.put(None)
    assert at.header() is None
    at.assertions.stop()


async def test_the_keys_of_the_same_issuer_outlive_a_reload_and_those_of_another_do_not(at: InForce) -> None:
    at.file.write_bytes(key_set(public("k", "ES256")))
    at.assertions.put(at.settings)
    assert "reviewer" == await at.role()
    at.file.unlink()
    at.assertions.put(replace(at.settings, people={ANN: ListedPerson("admin")}))
    assert "admin" == await at.role()
    assert "issuer_keys.failed" in [event for event, _ in at.log.events]
    at.assertions.put(replace(at.settings, audience=(AUDIENCE, "another")))
    with pytest.raises(Unavailable):
        await at.role()
    fetches = [labels["result"] for name, labels in at.counted if name == "samplegate_issuer_key_fetches_total"]
    assert ["ok", "failed", "failed"] == fetches
