"""What a server's WWW-Authenticate header tells."""

from __future__ import annotations

import pytest

from samplegate.oauth.challenge import Challenge

METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("headers", "error", "scope", "metadata"),
    [
        ([f'Bearer resource_metadata="{METADATA}", scope="read write"'], None, "read write", METADATA),
        (["Bearer error=insufficient_scope,scope=write"], "insufficient_scope", "write", None),
        (['Basic realm="x"', 'Bearer error="invalid_token"'], "invalid_token", None, None),
        (['bearer Scope="a"'], None, "a", None),
        (['Bearer scope="a", scope="b"'], None, "a", None),
        ([], None, None, None),
        (["Bearer"], None, None, None),
        (['Bearer scope="a\\" b"'], None, None, None),
        (['Bearer scope="a  b"'], None, None, None),
        (['Bearer scope="\u00fc", error="X y", resource_metadata="http://a b"'], None, None, None),
        ([f'Bearer scope="{"a" * 3000}"'], None, None, None),
        ([f'Bearer x="{"," * 20_000}", scope="late"'], None, None, None),
    ],
)
def test_only_valid_members_count(
    headers: list[str], error: str | None, scope: str | None, metadata: str | None
) -> None:
    found = Challenge.of(401, headers)
    assert (error, scope, metadata) == (found.error, found.scope, found.resource_metadata)


def test_only_a_403_with_that_error_asks_for_scopes() -> None:
    header = ['Bearer error="insufficient_scope", scope="write"']
    assert Challenge.of(403, header).insufficient_scope
    assert not Challenge.of(401, header).insufficient_scope
    assert not Challenge.of(403, ['Bearer error="invalid_token"']).insufficient_scope


def test_the_header_for_the_sdk_has_the_valid_members_only() -> None:
    found = Challenge.of(403, [f'Bearer error="insufficient_scope", x=y, scope="a", resource_metadata="{METADATA}"'])
    assert 'Bearer error="insufficient_scope", scope="a"' == found.header(resource_metadata=None)
    assert f'resource_metadata="{METADATA}"' in found.header(resource_metadata=METADATA)
