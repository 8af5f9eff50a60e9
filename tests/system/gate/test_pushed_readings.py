"""A server's requests and the client's answers, in every spelling that parsers read differently, in both directions and
both protocol versions.

In the legacy eras the server pushes a request and the client answers it; in 2026-07-28 the same params and results are
entries of an input round. What the gate passes on is read alike by all parsers; a parser may also refuse it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.both_ends import Gate, gate, modern
from tests.fakes.readers import DIFFERS, MARKS, Kind, Read, by_folding, by_pydantic, compared, typescript

POLICY: Final = (
    "version: 1\nrules:\n  - {name: urls, match: {mode: url}, effect: forward}\n  - {name: all, effect: forward}\n"
)
TEXT: Final = '{"role":"user","content":{"type":"text","text":"a"}}'
OTHER: Final = '{"role":"user","content":{"type":"text","text":"b"}}'
SCHEMA: Final = '{"type":"object","properties":{"confirm":{"type":"boolean"}}}'
PARAMS: Final = '{"message":"m","requestedSchema":' + SCHEMA + "}"
DONE: Final = '{"action":"accept","content":{"confirm":true}}'
WORDS: Final = {
    "<messages>": f"[{TEXT}]",
    "<others>": f"[{OTHER}]",
    "<schema>": SCHEMA,
    "<params>": PARAMS,
    "<done>": DONE,
    "<user>": '"role":"user"',
    "<text>": '{"type":"text","text":"a"}',
}
SAMPLE: Final = {"messages": '"messages":<messages>', "maxTokens": '"maxTokens":5'}
FORM: Final = {"message": '"message":"m"', "requestedSchema": '"requestedSchema":<schema>'}
URL: Final = {"message": '"message":"m"', "elicitationId": '"elicitationId":"e"'}
SAID: Final = {"role": '"role":"assistant"', "content": '"content":{"type":"text","text":"hi"}', "model": '"model":"m"'}
FILLED: Final = {"action": '"action":"accept"', "content": '"content":{"confirm":true}'}
OF: Final = {"sampling": SAMPLE, "form": FORM, "url": URL, "sampled": SAID, "elicited": FILLED}
METHODS: Final = {"sampling": "sampling/createMessage", "form": "elicitation/create", "url": "elicitation/create"}
NO_FORM: Final = "none"
"""What the modern era has no place for."""

TABLE: Final = r"""
push.id | "id":7 | passed | none | = | = | = | =
push.id | "id":"7" | passed | none | = | = | = | =
push.id | "id":7.0 | dropped | none | another | = | = | =
push.id | "id":true | dropped | none | another | - | - | =
push.id | "id":null | dropped | none | = | - | - | =
push.id | "id":7,"id":8 | refused | none | = | = | = | =
push.id | "id":7,"ID":8 | refused | none | = | - | - | another
push.id | "ID":7 | dropped | none | = | - | - | another
push.id | "i\u0064":7 | refused | none | = | = | = | =
push.id | "id":[7] | dropped | none | another | - | - | =
push.method | "method":"elicitation/create" | passed | passed | = | = | = | =
push.method | "method":"elicitation\/create" | passed | passed | = | = | = | =
push.method | "Method":"elicitation/create" | dropped | refused | - | - | - | another
push.method | "m\u0065thod":"elicitation/create" | refused | refused | = | = | = | =
push.method | "method":"roots/list","Method":"elicitation/create" | refused | refused | = | - | - | another
push.method | "method":"roots/list","method":"elicitation/create" | refused | refused | = | = | = | =
push.method | "method":"Elicitation/Create" | refused | refused | = | = | = | =
push.method | "method":"elicitation/create " | refused | refused | = | = | = | =
push.method | "method":"sampling/create_message" | refused | refused | = | = | = | =
push.method | "method":"elicitation/create\u0000x" | refused | refused | = | = | = | another
push.method | "method":["elicitation/create"] | refused | refused | - | - | - | =
push.method | "method":"elicitation/create","method\u0000":"roots/list" | refused | refused | = | - | - | another
push.params | "params":<params> | passed | passed | = | = | = | =
push.params | "Params":<params> | refused | refused | - | - | - | another
push.params | "params":<params>,"PARAMS":{"message":"n"} | refused | refused | = | - | - | another
push.params | "params":<params>,"params":{"message":"n"} | refused | refused | - | - | - | =
push.params | "p\u0061rams":<params> | refused | refused | = | = | = | =
push.params | "params":[<params>] | refused | refused | - | - | - | -
push.params | "params":<params>,"param<long s>":{"message":"n"} | refused | refused | = | - | - | another
sampling.messages | "messages":<messages> | passed | passed | = | = | = | =
sampling.messages | "Messages":<messages> | refused | refused | - | - | - | another
sampling.messages | "messages":<messages>,"MESSAGES":<others> | refused | refused | = | = | = | another
sampling.messages | "messages":<messages>,"messages":<others> | refused | refused | = | = | = | =
sampling.messages | "messages":<messages>,"messages\u0000":<others> | refused | refused | = | = | = | another
sampling.messages | "messages":<messages>,"me<long s>sages":<others> | refused | refused | = | = | = | another
sampling.messages | "messages":[{<user>,"Role":"assistant","content":<text>}] | refused | refused | another | another | another | another
sampling.messages | "messages":[{<user>,"content":{"type":"text","text":"a","Text":"b"}}] | refused | refused | another | another | another | another
sampling.messages | "messages":[{"role":"user","content":{"type":"text","text":"a","text":"b"}}] | refused | refused | = | = | = | =
sampling.messages | "m\u0065ssages":<messages> | passed | passed | = | = | = | =
sampling.maxTokens | "maxTokens":5 | passed | passed | = | = | = | =
sampling.maxTokens | "maxTokens":5.0 | passed | passed | = | = | = | =
sampling.maxTokens | "maxTokens":5e0 | passed | passed | = | = | = | =
sampling.maxTokens | "maxTokens":"5" | refused | refused | another | - | - | another
sampling.maxTokens | "maxTokens":true | refused | refused | = | - | - | =
sampling.maxTokens | "maxTokens":null | refused | refused | - | - | - | =
sampling.maxTokens | "maxTokens":NaN | refused | refused | - | - | - | =
sampling.maxTokens | "maxTokens":5.5 | refused | refused | - | - | - | =
sampling.maxTokens | "maxTokens":5,"maxtokens":99 | refused | refused | = | = | = | another
sampling.maxTokens | "maxTokens":5,"max_tokens":99 | refused | refused | = | = | = | =
sampling.maxTokens | "maxTokens":5,"maxTokens":99 | refused | refused | = | = | = | =
sampling.maxTokens | "max_tokens":5 | refused | refused | another | - | - | =
sampling.systemPrompt | "systemPrompt":"s" | passed | passed | = | = | = | =
sampling.systemPrompt | "SystemPrompt":"s" | refused | refused | = | = | = | another
sampling.systemPrompt | "system_prompt":"s" | refused | refused | another | = | = | =
sampling.systemPrompt | "systemPrompt":"s","systemprompt":"t" | refused | refused | = | = | = | another
sampling.systemPrompt | "systemPrompt":5 | refused | refused | - | - | - | =
sampling.systemPrompt | "systemPrompt":null | passed | passed | = | - | - | =
sampling.tools | "Tools":[{"name":"t","inputSchema":{"type":"object"}}] | refused | refused | = | = | = | another
sampling.tools | "tools\u0000":[{"name":"t","inputSchema":{"type":"object"}}] | refused | refused | = | = | = | another
form.mode | "mode":"form" | passed | passed | = | = | = | =
form.mode | "mode":"f\u006frm" | passed | passed | = | = | = | =
form.mode | "mode":"Form" | refused | refused | - | - | - | another
form.mode | "mode":"form","Mode":"url","url":"https://a.example/" | refused | refused | another | another | another | another
form.mode | "mode":"form","mode":"url" | refused | refused | - | - | - | =
form.mode | "mode":"form\u0000" | refused | refused | - | - | - | another
form.mode | "mode":null | refused | refused | - | - | - | =
form.mode | "mode":true | refused | refused | - | - | - | another
form.mode | "Mode":"url","url":"https://a.example/","elicitationId":"e" | refused | refused | another | another | another | another
form.message | "message":"m","Message":"n" | refused | refused | = | = | = | another
form.message | "message":"m","message":"n" | refused | refused | = | = | = | =
form.message | "message":"m\u0000n" | passed | passed | = | = | = | =
form.message | "message":["m"] | refused | refused | - | - | - | =
form.requestedSchema | "requestedSchema":<schema> | passed | passed | = | = | = | =
form.requestedSchema | "requestedschema":<schema> | refused | refused | - | - | - | another
form.requestedSchema | "requested_schema":<schema> | refused | refused | another | - | - | =
form.requestedSchema | "requestedSchema":<schema>,"RequestedSchema":{"type":"object","properties":{}} | refused | refused | = | = | = | another
form.requestedSchema | "requestedSchema":<schema>,"requested_schema":{"type":"object","properties":{}} | refused | refused | = | = | = | =
form.requestedSchema | "requestedSchema":<schema>,"requestedSchema":{"type":"object","properties":{}} | refused | refused | = | = | = | =
url.url | "mode":"url","url":"https://a.example/" | passed | passed | = | = | = | =
url.url | "mode":"url","url":"https:\/\/a.example\/" | passed | passed | = | = | = | =
url.url | "mode":"url","url":"https://a.example/","URL":"https://b.example/" | refused | refused | = | = | = | another
url.url | "mode":"url","url":"https://a.example/","url":"https://b.example/" | refused | refused | = | = | = | =
url.url | "mode":"url","url":"https://a.example/\u0000.b.example" | refused | refused | = | = | = | another
url.url | "mode":"url","Url":"https://a.example/" | refused | refused | - | - | - | another
url.url | "mode":"url","url":["https://a.example/"] | refused | refused | - | - | - | =
url.url | "Mode":"url","url":"https://a.example/" | refused | refused | = | - | - | another
sampled.content | "content":{"type":"text","text":"hi"} | passed | passed | = | = | = | =
sampled.content | "content":{"type":"text","text":"hi"},"Content":{"type":"text","text":"ho"} | refused | refused | = | = | = | another
sampled.content | "content":{"type":"text","text":"hi"},"content":{"type":"text","text":"ho"} | refused | refused | = | = | = | =
sampled.content | "content":{"type":"text","text":"hi"},"content\u0000":{"type":"text","text":"ho"} | refused | refused | = | = | = | another
sampled.content | "content":{"type":"text","text":"hi","text":"ho"} | refused | refused | = | = | = | =
sampled.content | "content":{"type":"text","text":"hi","Text":"ho"} | refused | refused | another | another | another | another
sampled.content | "CONTENT":{"type":"text","text":"hi"} | refused | refused | - | - | - | another
sampled.content | "c\u006fntent":{"type":"text","text":"hi"} | passed | passed | = | = | = | =
sampled.role | "role":"assistant","Role":"user" | refused | refused | = | = | = | another
sampled.role | "role":"assistant","role":"user" | refused | refused | = | = | = | =
sampled.role | "role":true | passed | passed | - | - | - | =
sampled.model | "model":"m","Model":"n" | refused | refused | = | = | = | another
sampled.model | "model":"m","model":"n" | refused | refused | = | = | = | =
sampled.model | "model":5 | passed | passed | - | - | - | =
sampled.stopReason | "stopReason":"endTurn" | passed | passed | = | = | = | =
sampled.stopReason | "stopReason":"endTurn","stopreason":"maxTokens" | refused | refused | = | = | = | another
sampled.stopReason | "stop_reason":"maxTokens" | refused | refused | another | = | = | =
sampled.stopReason | "stopReason":"endTurn","stop_reason":"maxTokens" | refused | refused | = | = | = | =
sampled.stopReason | "stopReason":5 | passed | passed | - | - | - | =
elicited.action | "action":"accept" | passed | passed | = | = | = | =
elicited.action | "action":"\u0061ccept" | passed | passed | = | = | = | =
elicited.action | "action":"Accept" | refused | refused | - | - | - | another
elicited.action | "action":"accept\u0000" | refused | refused | - | - | - | another
elicited.action | "action":" accept " | refused | refused | - | - | - | =
elicited.action | "Action":"accept" | refused | refused | - | - | - | another
elicited.action | "action":"decline","Action":"accept" | refused | refused | = | = | = | another
elicited.action | "action":"decline","action":"accept" | refused | refused | = | = | = | =
elicited.action | "action":"decline","action\u0000":"accept" | refused | refused | = | = | = | another
elicited.action | "\u0061ction":"accept" | passed | passed | = | = | = | =
elicited.action | "action":true | refused | refused | - | - | - | another
elicited.action | "action":null | refused | refused | - | - | - | =
elicited.action | "action":["accept"] | refused | refused | - | - | - | =
elicited.content | "content":{"confirm":true} | passed | passed | = | = | = | =
elicited.content | "content":{"confirm":false},"Content":{"confirm":true} | refused | refused | = | = | = | another
elicited.content | "content":{"confirm":false},"content":{"confirm":true} | refused | refused | = | = | = | =
elicited.content | "content":{"confirm":false,"Confirm":true} | refused | refused | = | = | = | =
elicited.content | "content":{"confirm":false,"other":true} | passed | passed | = | = | = | =
elicited.content | "content":{"confirm":false},"content\u0000":{"confirm":true} | refused | refused | = | = | = | another
elicited.content | "content":{"confirm":false,"confirm":true} | refused | refused | = | = | = | =
elicited.content | "content":{"confirm":"true"} | passed | passed | = | = | = | =
elicited.content | "content":{"confirm":NaN} | refused | refused | = | - | - | =
elicited.content | "Content":{"confirm":true} | refused | refused | = | = | = | another
elicited.content | "content":null | passed | passed | = | = | = | =
error.code | "code":-1 | passed | none | = | = | = | =
error.code | "code":-1.0 | passed | none | = | = | = | =
error.code | "code":"-1" | refused | none | another | - | - | another
error.code | "code":true | refused | none | = | - | - | =
error.code | "code":null | refused | none | - | - | - | -
error.code | "code":NaN | refused | none | - | - | - | -
error.code | "code":-1.5 | refused | none | - | - | - | another
error.code | "Code":-1 | refused | none | - | - | - | another
error.code | "code":-32000,"Code":-1 | refused | none | = | = | = | another
error.code | "code":-32000,"code":-1 | refused | none | = | = | = | =
error.code | "code":-32000,"code\u0000":-1 | refused | none | = | = | = | another
error.code | "c\u006fde":-1 | passed | none | = | = | = | =
error.code | "code":[-1] | refused | none | - | - | - | another
answer.result | "result":<done> | passed | none | = | = | = | =
answer.result | "Result":<done> | refused | none | - | - | - | =
answer.result | "result":{"action":"decline"},"Result":<done> | refused | none | = | - | - | another
answer.result | "result":{"action":"decline"},"result":<done> | refused | none | = | = | = | =
answer.result | "result":{"action":"decline"},"result\u0000":<done> | refused | none | = | - | - | another
answer.result | "res\u0075lt":<done> | refused | none | = | = | = | =
answer.result | "error":{"code":-1,"message":"m"},"result":<done> | refused | none | = | - | - | =
answer.result | "error":{"code":-1,"message":"m"},"Result":<done> | refused | none | = | - | - | =
answer.result | "result":{"action":"decline"},"Error":{"code":-1,"message":"m"} | refused | none | = | - | - | =
answer.result | "result":<done>,"method":"ping" | dropped | none | another | - | - | =
answer.result | "result":<done>,"Method":"ping" | refused | none | = | - | - | =
answer.result | "result":null | passed | none | - | - | - | =
answer.id | "id":<id>,"result":<done> | passed | none | = | = | = | =
answer.id | "ID":<id>,"result":<done> | dropped | none | - | - | - | another
answer.id | "id":<id>,"Id":1,"result":<done> | refused | none | = | - | - | another
answer.id | "id":<id>,"id":1,"result":<done> | dropped | none | = | = | = | =
answer.id | "i\u0064":<id>,"result":<done> | refused | none | = | = | = | =
answer.id | "id":[<id>],"result":<done> | dropped | none | - | - | - | =
"""  # noqa: E501
"""Member | spelling | what the gate does, legacy | and modern | pydantic | the TypeScript SDK 1.x | 2.x | a parser that
folds and converts."""


def filled(member: str, spelling: str) -> tuple[str, str]:
    """The kind of the frame and its members: ``member`` as spelled, the others in their normal form."""
    of, _, name = member.partition(".")
    rest = "".join(f",{text}" for other, text in OF[of].items() if other != name) if of in OF else ""
    text = spelling + rest
    for word, json_text in {**MARKS, **WORDS}.items():
        text = text.replace(word, json_text)
    return of, text


def asked(member: str, spelling: str, *, id: str = '"p"') -> bytes:
    """The request as a legacy server pushes it."""
    of, text = filled(member, spelling)
    if of in METHODS:
        return f'{{"jsonrpc":"2.0","id":{id},"method":"{METHODS[of]}","params":{{{text}}}}}'.encode()
    method, params = '"method":"elicitation/create"', '"params":' + PARAMS
    rest = {"push.method": [f'"id":{id}', params], "push.params": [f'"id":{id}', method], "push.id": [method, params]}[
        member
    ]
    return f'{{"jsonrpc":"2.0",{",".join([text, *rest])}}}'.encode()


def entry(member: str, spelling: str) -> bytes:
    """The request as an entry of ``inputRequests``."""
    of, text = filled(member, spelling)
    if of in METHODS:
        return f'{{"method":"{METHODS[of]}","params":{{{text}}}}}'.encode()
    rest = '"params":' + PARAMS if member == "push.method" else '"method":"elicitation/create"'
    return f"{{{text},{rest}}}".encode()


def answer(member: str, spelling: str, id: str) -> bytes:
    """A client's answer in the legacy versions."""
    of, text = filled(member, spelling)
    if of in ("sampled", "elicited"):
        return f'{{"jsonrpc":"2.0","id":{id},"result":{{{text}}}}}'.encode()
    if of == "error":
        return f'{{"jsonrpc":"2.0","id":{id},"error":{{{text},"message":"m"}}}}'.encode()
    text = text.replace("<id>", id)
    rest = "" if member == "answer.id" else f',"id":{id}'
    return f'{{"jsonrpc":"2.0",{text}{rest}}}'.encode()


FENCES: Final = 5
"""Requests that are answered before nothing is taken to have come of another: rounds run side by side, so that one may
overtake another."""


class Legacy:
    """A server that pushes requests to a client of the legacy versions."""

    def __init__(self, both: Gate) -> None:
        both.legacy(**CAPABLE)
        self.both, self.fences = both, 0

    def asked(self, member: str, spelling: str) -> str:
        """How the gate treats a request of the server."""
        line = asked(member, spelling)
        self.both.server.write(line)
        passed, back = self.settled()
        for _ in range(FENCES):
            if passed or back:
                break
            passed, back = self.settled()
        if not passed:
            return "refused" if back else "dropped"
        return "passed" if [content(line)] == [content(one) for one in passed] else "other"

    def answered(self, member: str, spelling: str) -> str:
        """How the gate treats the client's answer."""
        self.both.server.write(asked(*USUAL[kind_of(member)]))
        line = answer(member, spelling, sent(self.both.client.read()))
        self.both.client.write(line)
        _, got = self.settled()
        for _ in range(FENCES):
            if got:
                break
            _, got = self.settled()
        if not got:
            self.both.server.write(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"p"}}')
            self.settled()
            return "dropped"
        return (
            "passed" if [content(line)] == [content(one) for one in got] else "refused" if is_refusal(got) else "other"
        )

    def settled(self) -> tuple[list[bytes], list[bytes]]:
        """What the client and the server received until another request of the server has been answered."""
        self.fences += 1
        mark = f"fence{self.fences}f".encode()
        self.both.server.write(
            asked("form.requestedSchema", FORM["requestedSchema"], id=f'"{mark.decode()}"').replace(
                b'"m"', b'"%s"' % mark
            )
        )
        passed: list[bytes] = []
        while mark not in (line := self.both.client.read()):
            passed.append(line)
        for one in (*(each for each in passed if b'"method"' in each and b"cancelled" not in each), line):
            self.both.client.write(answer("elicited.action", FILLED["action"], sent(one)))
        back: list[bytes] = []
        while mark not in (line := self.both.server.read()):
            back.append(line)
        return [one for one in passed if b"notifications/cancelled" not in one], back


class Modern:
    """A server that asks by input rounds of 2026-07-28."""

    def __init__(self, both: Gate) -> None:
        both.modern(**CAPABLE)
        self.both, self.calls = both, 0
        self.heard: list[bytes] = []
        self.early: list[bytes] = []
        """What came to the server before a call that was written after it."""

    def asked(self, member: str, spelling: str) -> str:
        """How the gate treats an entry of ``inputRequests``."""
        if member == "push.id":
            return NO_FORM
        text = entry(member, spelling)
        said = self.called(text)
        if b'"inputRequests":{"k":%s}' % text in said:
            return "passed"
        return "refused" if is_refusal([said]) else "other"

    def answered(self, member: str, spelling: str) -> str:
        """How the gate treats an entry of ``inputResponses``."""
        if kind_of(member) == "other":
            return NO_FORM
        text = b"{%s}" % filled(member, spelling)[1].encode()
        self.retry(text, self.called(entry(*USUAL[kind_of(member)])))
        said: list[bytes] = []
        got: list[bytes] = []
        for _ in range(FENCES):
            fenced = self.called(entry(*USUAL["elicited"]))
            self.retry(b'{"action":"cancel","_meta":{"fence":0}}', fenced)
            seen, self.early = self.early, []
            while b'"fence"' not in (line := self.both.server.read()):
                seen.append(line)
            for one in (*seen, line):
                self.both.server.write(
                    b'{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[]}}' % sent(one).encode()
                )
            self.until(self.calls)
            said, got, self.heard = said + self.heard, got + seen, []
            if said or got:
                break
        if got and b'"inputResponses":{"k":%s}' % text in got[0]:
            return "passed"
        if got:
            return "refused" if b'"inputResponses":{"k":{"action":"cancel"}}' in got[0] else "other"
        return "refused" if is_refusal(said) else "other"

    def called(self, text: bytes) -> bytes:
        """Call a tool whose server asks this. Returns what the client received."""
        self.calls += 1
        self.both.client.write(modern(self.calls, "tools/call", CAPABLE, name="t"))
        while json.loads(line := self.both.server.read()).get("id") != self.calls:
            self.early.append(line)
        asks = b'{"resultType":"input_required","inputRequests":{"k":%s},"requestState":"s"}' % text
        self.both.server.write(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (self.calls, asks))
        return self.until(self.calls)

    def retry(self, text: bytes, handed: bytes) -> None:
        """The client retries with its answer."""
        self.calls += 1
        state = json.loads(handed)["result"]["requestState"]
        line = modern(self.calls, "tools/call", CAPABLE, name="t", inputResponses={"k": 0}, requestState=state)
        self.both.client.write(line.replace(b'{"k": 0}', b'{"k":%s}' % text))

    def until(self, id: int) -> bytes:
        """The answer with this id. Earlier frames are kept in ``heard``."""
        while json.loads(line := self.both.client.read())["id"] != id:
            self.heard.append(line)
        return line


CAPABLE: Final[dict[str, Any]] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}}
USUAL: Final = {
    "sampled": ("sampling.messages", SAMPLE["messages"]),
    "elicited": ("form.message", FORM["message"]),
    "other": ("form.message", FORM["message"]),
}
Sides = dict[str, Legacy | Modern]


def kind_of(member: str) -> Kind:
    """The kind of request that a client's answer belongs to."""
    of = member.partition(".")[0]
    return "sampled" if of == "sampled" else "elicited" if of == "elicited" else "other"


def is_answer(member: str) -> bool:
    return member.partition(".")[0] in ("sampled", "elicited", "error", "answer")


def sent(line: bytes) -> str:
    """The gate's id of a request that it sent to the client."""
    return json.dumps(json.loads(line)["id"])


def content(line: bytes) -> str:
    """The members of a frame, with duplicates, without its id: on one side that is the gate's own."""
    found: list[tuple[str, object]] = json.loads(line, object_pairs_hook=list)
    return repr(sorted(pair for pair in found if pair[0] != "id"))


def is_refusal(lines: list[bytes]) -> bool:
    """Whether the one line is an error, a failed result or a cancellation from the gate itself."""
    (said,) = [json.loads(line) for line in lines]
    return "error" in said or said["result"].get("isError") is True or said["result"].get("action") == "cancel"


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with (
        gate(tmp_path_factory.mktemp("legacy"), POLICY) as legacy,
        gate(tmp_path_factory.mktemp("modern"), POLICY) as modern,
    ):
        yield {"legacy": Legacy(legacy), "modern": Modern(modern)}


@pytest.fixture(scope="module")
def readers() -> Iterator[dict[str, Read]]:
    with typescript("@modelcontextprotocol/sdk/types.js") as by_1, typescript("@modelcontextprotocol/core") as by_2:
        yield {"pydantic": by_pydantic, "typescript 1": by_1, "typescript 2": by_2, "folding": by_folding}


def treated(sides: Sides, era: str, member: str, spelling: str) -> str:
    return sides[era].answered(member, spelling) if is_answer(member) else sides[era].asked(member, spelling)


def readings(readers: dict[str, Read], member: str, spelling: str) -> list[str]:
    line = answer(member, spelling, "7") if is_answer(member) else asked(member, spelling, id="7")
    kind: Kind = "elicited" if member in ("answer.result", "answer.id") else kind_of(member)
    return [compared(read(line, kind), line, kind) for read in readers.values()]


ROWS: Final = [line for line in TABLE.strip().split("\n") if line]


@pytest.mark.parametrize("expected", ROWS)
def test_each_spelling_is_treated_and_read_as_the_table_says(
    sides: Sides, readers: dict[str, Read], expected: str
) -> None:
    member, spelling, *_ = expected.split(" | ")
    done = [treated(sides, era, member, spelling) for era in ("legacy", "modern")]
    assert expected == " | ".join([member, spelling, *done, *readings(readers, member, spelling)])


@pytest.mark.parametrize("expected", ROWS)
def test_what_the_table_lets_pass_is_read_alike(expected: str) -> None:
    _, _, legacy, modern, *read = expected.split(" | ")
    if "passed" in (legacy, modern):
        assert DIFFERS not in read


VALUES: Final = (
    '"accept"',
    '"decline"',
    '"Accept"',
    '"accept "',
    '"\\u0061ccept"',
    '"form"',
    '"url"',
    '"Url"',
    "5",
    "5.0",
    '"5"',
    "true",
    "null",
    "-1",
    '"-1"',
)
MORE: Final = (
    *VALUES,
    "NaN",
    "[]",
    "{}",
    '"a\\u0000b"',
    "<messages>",
    "<schema>",
    '{"confirm":true}',
    '{"type":"text","text":"a"}',
    '"https://a.example/"',
)
NAMES: Final = {
    **{f"sampling.{name}": name for name in ("messages", "maxTokens", "systemPrompt", "tools")},
    **{f"form.{name}": name for name in ("message", "requestedSchema", "mode")},
    **{f"sampled.{name}": name for name in ("role", "content", "model", "stopReason")},
    **{f"elicited.{name}": name for name in ("action", "content")},
    "url.url": "url",
    "error.code": "code",
}


@st.composite
def spelled(draw: st.DrawFn) -> tuple[str, str]:
    """A member, and one to three spellings that may be read as it."""
    member = draw(st.sampled_from(sorted(NAMES)))

    def name() -> str:
        base = NAMES[member]
        snake = "".join("_" + letter.lower() if letter.isupper() else letter for letter in base)
        odd = base.replace("i", "\u0131").replace("s", "\u017f").replace("k", "\u212a")
        forms = (
            base,
            base,
            base.upper(),
            base.capitalize(),
            snake,
            odd,
            f"\\u{ord(base[0]):04x}{base[1:]}",
            base + "\\u0000",
        )
        return draw(st.sampled_from(forms))

    return member, ",".join(f'"{name()}":{draw(st.sampled_from(MORE))}' for _ in range(draw(st.integers(1, 3))))


@pytest.mark.timeout(240)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=spelled(), era=st.sampled_from(("legacy", "modern")))
def test_what_passes_is_read_alike_whatever_the_spelling(
    sides: Sides, readers: dict[str, Read], case: tuple[str, str], era: str
) -> None:
    if treated(sides, era, *case) == "passed":
        assert DIFFERS not in readings(readers, *case), case
