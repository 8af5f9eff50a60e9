"""Replaying recorded requests under another policy: same, changed or undetermined, with and without contents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from samplegate.audit import replay as replaying
from samplegate.audit.record import MAX_ARGUMENTS, ContentMode
from samplegate.audit.replay import Changed, ReplayedDecision, Same, Undetermined, replay
from samplegate.policy.decide import CompiledPolicy, compile_policy
from samplegate.policy.file.load import load
from samplegate.policy.redaction import of_patterns
from samplegate.policy.schema import AllowRule, AnswerRule, ArgumentTest, DenyRule, EscalateRule, ForwardRule, Match
from samplegate.policytest.compare import step_request
from samplegate.policytest.load import load_cases
from samplegate.protocol.identity import Identity
from samplegate.protocol.requests import BadRequest, ClientCapabilities, Request
from tests.fakes import logged
from tests.fakes.requests import compiled, form, sampling, tool, url
from tests.paths import TESTS

CASES: Final = TESTS / "cases"
SAMPLING: Final = Match(kind="sampling")
FORMS: Final = Match(kind="elicitation")
ALLOW: Final = AllowRule(name="models", match=SAMPLING)
DENY: Final = DenyRule(name="no", match=SAMPLING)
FORWARD: Final = ForwardRule(name="person", match=FORMS)
NOBODY: Final = ReplayedDecision("none", None)
EMPTY: Final = compiled()


ANN: Final = Identity("jwt:ann", frozenset({"ops"}), b'{"sub":"ann","dept":"finance","a.b":{"c":["x","y"]}}')


def refused(name: str, **match: Any) -> DenyRule:
    return DenyRule(name=name, match=Match(**match))


def answers(content: Any, **more: Any) -> AnswerRule:
    return AnswerRule(name="fixed", match=FORMS, content=content, **more)


class TestWithContents:
    """Requests that the log kept in full are decided again."""

    def test_the_same_policy_decides_the_same(self) -> None:
        assert Same() == replay(compiled(ALLOW), logged.line(logged.record(compiled(ALLOW), sampling())))

    def test_another_effect_is_a_change(self) -> None:
        old = logged.line(logged.record(compiled(ALLOW), sampling()))
        assert Changed(ReplayedDecision("allow", "models"), (ReplayedDecision("deny", "no"),)) == replay(
            compiled(DENY, ALLOW), old
        )

    def test_what_no_rule_takes_any_more_is_a_change(self) -> None:
        assert Changed(ReplayedDecision("allow", "models"), (NOBODY,)) == replay(
            EMPTY, logged.line(logged.record(compiled(ALLOW), sampling()))
        )

    def test_conditions_look_at_the_contents(self) -> None:
        old = [logged.line(logged.record(compiled(ALLOW), sampling(text))) for text in ("hello", "password")]
        assert [Same, Changed] == [
            type(replay(compiled(refused("no", kind="sampling", text="pass"), ALLOW), line)) for line in old
        ]

    def test_the_call_it_was_asked_during_counts(self) -> None:
        old = logged.line(logged.record(compiled(ALLOW), sampling("hi", tool("rm"))))
        assert isinstance(replay(compiled(refused("no", kind="sampling", tool="rm"), ALLOW), old), Changed)

    @pytest.mark.parametrize("policy", ["match", "answer"])
    @pytest.mark.parametrize(
        ("params", "more"),
        [
            ([b'{"arguments":{"ok":true,"token":"x"}}'], {}),
            ([b'{"arguments":{"ok":true,"said":"TCK-1"}}'], {"redactor": of_patterns({"ticket": "TCK-[0-9]"})}),
            ([b'{"arguments":{"ok":true,"said":"\\ud800"}}'], {}),
            ([None], {}),
            ([b'{"arguments":{"ok":true,"said":"%s"}}' % (b"x" * MAX_ARGUMENTS)], {}),
        ],
        ids=["secret name", "secret", "surrogate", "not kept", "large"],
    )
    def test_arguments_that_the_record_lacks_are_not_guessed(
        self, policy: str, params: list[bytes | None], more: dict[str, Any]
    ) -> None:
        rule = (
            answers({"confirm": {"from": "arguments.ok"}})
            if policy == "answer"
            else AnswerRule(
                name="r", match=Match(kind="elicitation", arguments={"ok": True}), content={"confirm": True}
            )
        )
        asked = form(tool("t"), confirm="boolean")
        asked = msgspec.structs.replace(asked, origin=msgspec.structs.replace(asked.origin, params=(tuple(params),)))
        line = logged.line(logged.record(compiled(rule), asked, **more))
        assert isinstance(replay(compiled(rule), line), Same | Undetermined)
        deny = refused("no", kind="elicitation", arguments={"ok": False})
        line = logged.line(logged.record(compiled(deny), asked, **more))
        assert isinstance(replay(compiled(deny), line), Same | Undetermined)

    @pytest.mark.parametrize(
        ("identities", "content", "expected"),
        [
            ((ANN,), "full", [Same, Changed, Undetermined]),
            ((ANN, ANN), "full", [Same, Changed, Undetermined]),
            ((ANN,), "hash", [Undetermined, Undetermined, Undetermined]),
            ((msgspec.structs.replace(ANN, claims=None),), "full", [Same, Same, Same]),
            ((msgspec.structs.replace(ANN, groups=None),), "full", [Same, Same, Undetermined]),
        ],
    )
    def test_groups_and_claims_are_decided_again_as_far_as_they_are_recorded(
        self, identities: tuple[Identity, ...], content: ContentMode, expected: list[type]
    ) -> None:
        def rule(**claims: Any) -> AnswerRule:
            match = Match(kind="elicitation", groups="ops", claims={"gone": ArgumentTest(absent=True), **claims})
            return AnswerRule(name="r", match=match, content={"confirm": True})

        asked = form(confirm="boolean")
        origin = msgspec.structs.replace(asked.origin, caller="jwt:ann", identities=identities)
        asked = msgspec.structs.replace(asked, origin=origin)
        named = {r"a\.b.c": "x", "dept": "finance"}
        old = logged.line(logged.record(compiled(rule(**named)), asked), content)
        others = [rule(**named), rule(dept="hr"), rule(sub="ann")]
        assert expected == [type(replay(compiled(one), old)) for one in others]

    @pytest.mark.parametrize(
        ("claims", "more"),
        [
            (b'{"dept":"TCK-1"}', {"redactor": of_patterns({"ticket": "TCK-[0-9]"})}),
            (b'{"dept":{"password":"hunter2"}}', {}),
            (b'{"dept":"\\ud800"}', {}),
            (b'{"dept":1,"dept":2}', {}),
            (b'{"dept":null}', {}),
        ],
        ids=["secret", "secret name", "surrogate", "two readings", "null"],
    )
    def test_claims_that_the_record_lacks_are_not_guessed(self, claims: bytes, more: dict[str, Any]) -> None:
        asked = form(confirm="boolean")
        identity = Identity("jwt:ann", frozenset(), claims)
        asked = msgspec.structs.replace(asked, origin=msgspec.structs.replace(asked.origin, identities=(identity,)))
        rule = refused("no", kind="elicitation", claims={"dept": "finance"})
        text = logged.text(logged.record(compiled(rule), asked, **more))
        assert ("TCK-1" in text, "hunter2" in text) == (False, False)
        old = logged.line(logged.record(compiled(rule), asked, **more))
        assert isinstance(replay(compiled(rule), old), Same | Undetermined)

    @pytest.mark.parametrize(
        ("groups", "claims"),
        [
            (1, 1), ([1], [1]), ({}, {}), ("x", "x"), ([["ops"], ["ops"]], [{"a": 1, "a.b": 1}]), ([], []),
            ([[1]], [{"a": 1, "a.b": 1, "..": 1}]),
        ],
    )  # fmt: skip
    def test_groups_and_claims_of_another_shape_are_not_guessed(self, groups: Any, claims: Any) -> None:
        rule = AnswerRule(
            name="r", match=Match(kind="elicitation", groups="ops", claims={"a": 1, "a.b": 1}), content={"a": True}
        )
        old = logged.line(logged.record(compiled(rule), form(a="boolean")), groups=groups, claims=claims)
        assert isinstance(replay(compiled(rule), old), Same | Undetermined)

    def test_an_emoji_in_an_argument_is_in_the_record(self) -> None:
        rule = refused("no", kind="elicitation", arguments={"a": "\N{SPARKLES}"})
        asked = form(tool("t"), confirm="boolean")
        params = ((b'{"arguments":{"a":"\\u2728"}}', b'{"arguments":{"a":"\\ud83d\\ude00"}}'),)
        asked = msgspec.structs.replace(asked, origin=msgspec.structs.replace(asked.origin, params=params))
        assert Same() == replay(compiled(rule), logged.line(logged.record(compiled(rule), asked)))

    def test_cancel_instead_of_decline_is_a_change(self) -> None:
        old = logged.line(logged.record(compiled(refused("no", kind="elicitation")), form(a="string")))
        now = compiled(DenyRule(name="no", match=FORMS, as_="decline"))
        assert Changed(
            ReplayedDecision("deny", "no", "cancel"), (ReplayedDecision("deny", "no", "decline"),)
        ) == replay(now, old)

    def test_another_fixed_answer_is_a_change(self) -> None:
        old = logged.line(logged.record(compiled(answers({"a": "x"})), form(a="string")))
        assert Same() == replay(compiled(answers({"a": "x", "b": "unused"})), old)
        assert Changed(
            ReplayedDecision("answer", "fixed"), (ReplayedDecision("answer", "fixed", answer="another"),)
        ) == replay(compiled(answers({"a": "y"})), old)

    def test_a_fixed_answer_to_sampling_is_compared_too(self) -> None:
        rules = [
            AnswerRule(name="fixed", match=SAMPLING, content=content)
            for content in ("x", [{"type": "text", "text": "x"}], "y")
        ]
        old = logged.line(logged.record(compiled(rules[0]), sampling()))
        assert [Same, Same, Changed] == [type(replay(compiled(rule), old)) for rule in rules]

    def test_a_forward_was_possible_if_it_was_forwarded(self) -> None:
        old = logged.line(logged.record(compiled(FORWARD), form(a="string"), can=True))
        assert Same() == replay(compiled(FORWARD), old)

    def test_else_it_depends_on_what_the_client_had_declared(self) -> None:
        old = logged.line(logged.record(compiled(answers({"a": "x"})), form(a="string")))
        now = compiled(ForwardRule(name="person", match=FORMS, otherwise="next"), answers({"a": "x"}))
        assert Undetermined(replaying.NO_CLIENT) == replay(now, old)
        assert Same() == replay(now, old, ClientCapabilities())
        assert isinstance(replay(now, old, ClientCapabilities(form=True)), Changed)

    def test_a_question_in_a_tools_result_can_be_forwarded_to_every_client(self) -> None:
        old = logged.line(logged.record(compiled(answers({"a": "x"})), form(a="string")))
        old = msgspec.structs.replace(old, door="tool_result")
        now = compiled(ForwardRule(name="person", match=FORMS, otherwise="next"), answers({"a": "x"}))
        assert isinstance(replay(now, old, ClientCapabilities()), Changed)

    def test_that_does_not_matter_where_both_ways_are_changes(self) -> None:
        old = logged.line(logged.record(compiled(answers({"a": "x"})), form(a="string")))
        found = replay(compiled(FORWARD), old)
        assert isinstance(found, Changed)
        assert (ReplayedDecision("forward", "person"), ReplayedDecision("none", "person")) == found.now

    def test_an_address_is_matched_without_what_the_log_removed_of_it(self) -> None:
        rules = (
            refused("no", kind="elicitation", mode="url", host="*.evil.example"),
            ForwardRule(name="links", match=Match(mode="url")),
        )
        for address in (
            "https://me:pw@a.evil.example/x?token=1#2",
            "https://good.example/?a=1",
            "https://b.evil.example/x?token=1",
        ):
            old = logged.line(logged.record(compiled(*rules), url(address), can=True))
            assert Same() == replay(compiled(*rules), old)

    def test_a_query_that_may_have_given_the_address_a_second_reading_cannot_be_told(self) -> None:
        ours = ForwardRule(name="ours", match=Match(mode="url", host="good.example"))
        old = logged.line(logged.record(EMPTY, url("https://good.example?@evil.example")))
        assert Undetermined(replaying.REMOVED_PARTS) == replay(compiled(ours), old, ClientCapabilities(url=True))

    def test_a_removed_field_does_not_matter_where_it_is_not_looked_at(self) -> None:
        old = logged.line(
            logged.record(compiled(FORWARD), form(password={"type": "string", "minLength": 8}, name="string"), can=True)
        )
        assert Same() == replay(compiled(FORWARD), old)
        assert isinstance(
            replay(compiled(refused("no", kind="elicitation", field_names="password"), FORWARD), old), Changed
        )

    def test_and_where_it_is_it_cannot_be_told(self) -> None:
        old = logged.line(logged.record(compiled(FORWARD), form(password={"type": "string", "minLength": 8}), can=True))
        assert Undetermined(replaying.REMOVED_PARTS) == replay(
            compiled(refused("no", kind="elicitation", field_types=["boolean"]), FORWARD), old
        )

    def test_an_optional_secret_keeps_no_answer_from_being_the_same(self) -> None:
        asked = form(name="string", apiKey={"type": "string", "default": "x"}, required=["name"])
        rules = compiled(answers({"name": "me"}))
        assert Same() == replay(rules, logged.line(logged.record(rules, asked)))

    def test_half_a_character_in_the_contents_is_no_hindrance(self) -> None:
        old = logged.line(logged.record(compiled(ALLOW), sampling("half \ufffd")))
        assert Same() == replay(compiled(ALLOW), old)


class TestWithoutContents:
    """Records without contents decide as much as they can."""

    def test_who_asks_during_what_may_be_enough(self) -> None:
        old = logged.line(logged.record(compiled(ALLOW), sampling("hi", tool("rm"))), "hash")
        for match in (
            {"server": "docs"},
            {"tool": "rm"},
            {"caller": "local"},
            {"era": "legacy"},
            {"method": "tools/*"},
            {"not_": Match(tool="ls")},
        ):
            assert Changed(ReplayedDecision("allow", "models"), (ReplayedDecision("deny", "no"),)) == replay(
                compiled(refused("no", kind="sampling", **match), ALLOW), old
            )

    def test_a_deny_that_stays_is_surely_the_same(self) -> None:
        old = logged.line(logged.record(compiled(DENY), sampling()), "none")
        assert Same() == replay(compiled(refused("forms", kind="elicitation"), DENY, ALLOW), old)

    def test_what_looks_at_contents_cannot_be_told(self) -> None:
        old = logged.line(logged.record(compiled(DENY), sampling()), "hash")
        assert Undetermined(replaying.NO_CONTENTS) == replay(
            compiled(AllowRule(name="some", match=Match(kind="sampling", text="a")), DENY), old
        )

    def test_a_model_may_not_take_what_is_not_known(self) -> None:
        assert Undetermined(replaying.NO_CONTENTS) == replay(
            compiled(ALLOW), logged.line(logged.record(compiled(ALLOW), sampling()), "hash")
        )

    def test_several_ways_that_are_all_changes_are_a_change(self) -> None:
        found = replay(compiled(ALLOW), logged.line(logged.record(compiled(DENY), sampling()), "hash"))
        assert isinstance(found, Changed)
        assert (ReplayedDecision("allow", "models"), ReplayedDecision("none", "models")) == found.now

    def test_a_form_is_no_url(self) -> None:
        old = logged.line(logged.record(compiled(FORWARD), form(a="string"), can=True), "hash")
        assert Same() == replay(compiled(refused("no", mode="url"), FORWARD), old)


@pytest.mark.parametrize("reason", ["malformed", "rounds"])
def test_what_no_policy_has_a_say_in_is_the_same(reason: str) -> None:
    assert Same() == replay(compiled(DENY), logged.line(logged.record(EMPTY, sampling()), reason=reason))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"reason": "brake"}, replaying.BRAKES),
        ({"reason": "error"}, replaying.FAULT),
        ({"door": "unasked"}, replaying.UNASKED),
        ({"calls": [{"method": "tools/call", "tool": f"{number}"} for number in range(20)]}, replaying.SHORTENED),
        ({"calls": [{"method": "tools/call", "tool": "x" * 255 + "…"}]}, replaying.SHORTENED),
        ({"request": {"messages": 5}}, replaying.UNREADABLE),
        ({"request": [1]}, replaying.UNREADABLE),
    ],
)
def test_where_no_comparison_means_anything_it_says_why(more: dict[str, Any], why: str) -> None:
    assert Undetermined(why) == replay(compiled(DENY), logged.line(logged.record(compiled(ALLOW), sampling()), **more))


def test_what_was_not_offered_is_a_change_only_where_it_is_granted_now() -> None:
    old = logged.line(logged.record(EMPTY, sampling()), reason="not_offered")
    assert [Same(), Same()] == [replay(EMPTY, old), replay(compiled(DENY), old)]
    assert isinstance(replay(compiled(ALLOW), old), Changed)


@pytest.mark.parametrize("content", ["full", "none"])
@pytest.mark.parametrize(
    "outcome", [{"outcome": "denied", "reason": "review"}, {"outcome": "unanswered", "reason": "timeout"}, {}]
)
def test_what_was_escalated_is_compared_by_its_rule_whatever_the_person_said(
    content: Any, outcome: dict[str, Any]
) -> None:
    asks = EscalateRule(name="asks", reviewer="ops", match=SAMPLING)
    line = logged.line(logged.record(compiled(asks), sampling(), review="rv_1", reviewer="ops"), content, **outcome)
    assert Same() == replay(compiled(asks), line)
    assert Changed(ReplayedDecision("escalate", "asks"), (ReplayedDecision("deny", "no"),)) == replay(
        compiled(DENY, asks), line
    )


@pytest.mark.parametrize("content", ["full", "hash"])
def test_a_form_that_a_person_was_to_fill_in_is_compared_too(content: Any) -> None:
    asks = EscalateRule(name="asks", reviewer="ops", otherwise="deny")
    line = logged.line(logged.record(compiled(asks), form(a="string"), review="rv_1", reviewer="ops"), content)
    told = replay(compiled(asks), line)
    assert Same() == told if content == "full" else isinstance(told, Undetermined)


def test_where_time_ran_out_the_first_rule_is_compared() -> None:
    old = logged.line(
        logged.record(compiled(DENY), sampling()), tried=["models: model smart did not answer within 5 s"]
    )
    assert Same() == replay(compiled(ALLOW), old)
    assert isinstance(replay(compiled(DENY), old), Changed)


def test_where_a_limit_had_no_room_its_rule_is_compared() -> None:
    old = logged.line(
        logged.record(compiled(ALLOW), sampling()),
        effect="none",
        reason="limit",
        outcome="unanswered",
        refused_by="team",
    )
    assert Same() == replay(compiled(ALLOW), old)
    assert isinstance(replay(compiled(DENY, ALLOW), old), Changed)
    assert isinstance(replay(compiled(DenyRule(name="models", match=SAMPLING)), old), Changed)


def test_a_prompt_without_its_secrets_is_not_the_one_that_was_decided() -> None:
    old = logged.line(logged.record(compiled(DENY), sampling()), redacted={"key": 1})
    assert Undetermined(replaying.REMOVED_PARTS) == replay(
        compiled(refused("key", kind="sampling", text="key"), DENY), old
    )
    assert Same() == replay(compiled(DENY), old)


def requests_of_cases(policy: Path) -> Iterator[tuple[CompiledPolicy, Request, bool]]:
    """The requests of a policy's own test cases."""
    cases = load_cases(policy.with_name(f"{policy.stem}_test.yaml").read_text(), file="f").cases
    loaded = load(policy.read_text(), file="f", environment={}).policy
    for placed in cases:
        for moment in placed.moments:
            scene = step_request(moment.step, compile_policy(loaded, moment.step.environment or {}))
            if not isinstance(scene.item.request, BadRequest):
                yield scene.compiled, scene.item.request, scene.situation.can_forward


POLICIES: Final = sorted(path for path in CASES.glob("*.yaml") if not path.stem.endswith("_test"))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda path: path.stem)
def test_nothing_that_is_said_of_a_tested_policy_is_wrong(policy: Path) -> None:
    """With contents, the same policy always decides the same. Without contents, a replay claims only what holds under
    each of several policies."""
    others = [
        compile_policy(load(path.read_text(), file="f", environment={}).policy, {})
        for path in POLICIES[:: 1 + len(POLICIES) // 8]
    ]
    for own, request, can in requests_of_cases(policy):
        record = logged.record(own, request, can=can)
        client = ClientCapabilities(can, can, can, can, can)
        full, bare = logged.line(record), logged.line(record, "none")
        assert Same() == replay(own, full, client)
        for other in [own, *others]:
            sure, unsure = replay(other, full, client), replay(other, bare, client)
            assert isinstance(unsure, Undetermined) or type(sure) is type(unsure), (request, sure, unsure)
            if isinstance(unsure, Changed) and isinstance(sure, Changed):
                assert {(one.effect, one.rule) for one in sure.now} <= {(one.effect, one.rule) for one in unsure.now}


def test_the_sentences_in_json_are_those_of_the_first_release() -> None:
    """Scripts compare them."""
    assert {
        "the record has no contents, and the rules that may take it look at them; record with `record_content: full`",
        "it depends on what the client had declared, which no record says; give --client",
        (
            "it depends on what was removed from the record: secrets in a prompt, fields that look like one, the query"
            " of an address"
        ),
        "names in the record were shortened",
        "its contents do not read as a request any more",
        "a brake decided it, and those are not replayed",
        "a fault in the gate decided it",
        "the client answered unasked, and no request was decided",
    } == {
        replaying.NO_CONTENTS,
        replaying.NO_CLIENT,
        replaying.REMOVED_PARTS,
        replaying.SHORTENED,
        replaying.UNREADABLE,
        replaying.BRAKES,
        replaying.FAULT,
        replaying.UNASKED,
    }
