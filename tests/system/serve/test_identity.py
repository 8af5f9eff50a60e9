"""Groups and claims of callers: two tokens of one subject get different decisions from one daemon."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon import ASK_FORM, asking, client, serving
from tests.fakes.issuer import AUDIENCE, ISSUER, key_set, mint, public
from tests.fakes.shell import samplegate

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
POLICY: Final = r"""
version: 1
rules:
  - {name: suspended, match: {claims: {suspended: true}}, effect: deny, as: decline}
  - name: finance
    match: {kind: elicitation, mode: form, claims: {dept: finance, 'resource_access.app.roles': admin}}
    effect: answer
    content: {confirm: true}
  - {name: operators, match: {kind: elicitation, groups: "ops-*"}, effect: answer, content: {confirm: false}}
"""
CI: Final = "c" * 40
LATER: Final = int(time.time()) + 86_400  # these tokens are made long before they are used


def minted(**claims: Any) -> str:
    return mint(exp=LATER, **claims)


ROLES: Final = {"app": {"roles": ["user", "admin"]}}
SECRET: Final = "ann@private.example"
CASES: Final[list[tuple[str, str | None, Any]]] = [
    (minted(dept="finance", resource_access=ROLES, email=SECRET), "finance", True),
    (minted(dept="hr", resource_access=ROLES, email=SECRET), None, "cancel"),
    (minted(dept="finance", resource_access={"app": {"roles": ["user"]}}), None, "cancel"),
    (minted(dept="finance", resource_access=ROLES, suspended=True), "suspended", "decline"),
    (minted(dept="finance", resource_access=ROLES, suspended="no"), "suspended", "decline"),
    (minted(groups=["dev", "ops-eu"]), "operators", False),
    (minted(groups=[1]), None, "cancel"),
    (minted(), None, "cancel"),
    (CI, "operators", False),
]
"""A token, the rule for it, and the answer or action that the server gets."""


def write(folder: Path) -> None:
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "keys.json").write_bytes(key_set(public("k", "ES256")))
    (folder / "tokens").write_text(f"ci {hashlib.sha256(CI.encode()).hexdigest()} dev,ops-us\n")
    jwt = {"issuer": ISSUER, "audience": [AUDIENCE], "jwks_file": "keys.json", "groups": "groups"}
    settings = {
        "policy": "policy.yaml",
        "decision_log": "log.jsonl",
        "record_content": "full",
        "servers": {era: {"command": asking(era)[0], "args": asking(era)[1:]} for era in ("legacy", "modern")},
        "callers": {"jwt": jwt, "tokens_file": "tokens"},
    }
    (folder / "s.yaml").write_text(json.dumps(settings))


def outcome(frame: dict[str, Any]) -> Any:
    """The answer or the action that the server got."""
    got = frame["result"].get("structuredContent", {}).get("result", {})
    return got["content"]["confirm"] if "content" in got else got.get("action")


@pytest.mark.parametrize(
    ("front", "back"), [("legacy", "legacy"), ("modern", "modern"), ("modern", "legacy"), ("legacy", "modern")]
)
async def test_each_call_is_decided_by_the_token_that_came_with_it(tmp_path: Path, front: str, back: str) -> None:
    write(tmp_path)
    outcomes = []
    async with serving(tmp_path, "--settings", "s.yaml", forked=True) as gate:
        options: dict[str, Any] = {"capabilities": {"elicitation": {"form": {}}}}
        async with (
            client(gate, f"/servers/{back}/mcp", token=minted(), **options) as ann,
            client(gate, f"/servers/{back}/mcp", token=CI, **options) as ci,
        ):
            if front == "legacy":  # all tokens of the subject in one session
                await ann.begin()
                await ci.begin()
            for number, (token, _, _) in enumerate(CASES, 1):
                one = ci if token == CI else ann
                one.headers["authorization"] = f"Bearer {token}"
                outcomes.append(outcome(await one.call(front, number, **ASK_FORM)))
        said = "\n".join(gate.lines)
    assert [expected for _, _, expected in CASES] == outcomes

    log = (tmp_path / "log.jsonl").read_text()
    records = [json.loads(line) for line in log.splitlines()]
    assert [rule for _, rule, _ in CASES] == [record.get("rule") for record in records]
    assert [{"dept": "finance", "resource_access.app.roles": ["user", "admin"], "suspended": None}] == records[0][
        "claims"
    ]
    assert [["dev", "ops-eu"]] == records[5]["groups"]
    assert [["dev", "ops-us"]] == records[8]["groups"]
    assert {"jwt:alice", "ci"} == {record["caller"] for record in records}
    for text in log, said:
        assert SECRET not in text
        assert minted(dept="x").split(".")[0] not in text

    told = await asyncio.to_thread(
        samplegate, tmp_path, "replay", "--log", str(tmp_path / "log.jsonl"), "--policy", "policy.yaml", "--json"
    )
    found = json.loads(told.out)
    assert (len(CASES), 0) == (found["same"], found["changed"])
