"""The npm reference server behind a gate that serves HTTP; it offers its asking tools only to a client that declares
the capabilities."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tests.real.http_peers import Places
from tests.real.peers import Client, Seen, call, drive
from tests.real.test_everything import FORM, PAGE, PAGE_ERROR, SAMPLE
from tests.real.test_transparency import CAPABLE

pytestmark = pytest.mark.parametrize("client", ["python1", "typescript1", "typescript2-auto"], indirect=True)
STEPS = [
    {"do": "tools"},
    call("echo", message="hello"),
    call("get-sum", a=1, b=2),
    SAMPLE,
    FORM,
    PAGE,
    PAGE_ERROR,
    call("get-roots-list"),
]
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def comparable(seen: Seen) -> Seen:
    """Ids are random, and it asks for roots by itself at a time of its own, once or twice."""
    results, asked = json.loads(
        ID.sub("...", json.dumps([seen.results, [one for one in seen.asked if one["kind"] != "roots"]]))
    )
    return replace(seen, results=results, asked=asked, notifications=[], logs=[])


@pytest.mark.parametrize("kind", ["http", "stdio"])
def test_a_capable_client_sees_the_same_with_a_gate_that_forwards(client: Client, kind: str, places: Places) -> None:
    content = {"name": "somebody", "check": True}
    alone = drive(client, places.server("everything"), None, STEPS, declare=CAPABLE, content=content)
    gate = places.gate("everything", kind, "forwards")
    gated = drive(client, gate.server, None, STEPS, declare=CAPABLE, content=content)
    assert comparable(alone) == comparable(gated), gate.program.said()
    assert {"sampling", "elicitation"} <= set(gated.kinds())


@pytest.mark.parametrize("kind", ["http", "stdio"])
def test_its_asking_tools_complete_for_a_client_that_declares_nothing(
    client: Client, kind: str, places: Places
) -> None:
    gate = places.gate("everything", kind, "answers")
    gate.rules()
    sampled, filled = drive(client, gate.server, None, [SAMPLE, FORM]).results
    assert '"text": "from the policy"' in sampled["text"], gate.program.said()
    assert '"name": "policy"' in filled["text"]
    assert ["sampling is answered", "the big form is answered"] == gate.rules()
