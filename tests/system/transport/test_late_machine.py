"""The streams of one legacy session under any order of events: connections open, close and reconnect at every step. No
request is lost or seen twice."""

from __future__ import annotations

import asyncio
import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from samplegate.protocol.identity import LOCAL
from samplegate.transport.http_server.http import HttpBounds
from samplegate.transport.http_server.sessions import HttpSession
from samplegate.transport.http_server.stream import GONE, HttpStream, StreamMemory, StreamReader
from tests.fakes.http_front import Conversation, note, result, silent

UNREAD = 60.0


class Loop(asyncio.SelectorEventLoop):
    """A loop whose clock only the test moves."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Streams(RuleBasedStateMachine):
    """What the client received, as it would count it."""

    @initialize(small=st.booleans())
    def begin(self, small: bool) -> None:
        self.loop = Loop()
        self.held = StreamMemory(10**9)
        self.conversation = Conversation(silent, silent)
        bounds = HttpBounds(event_bytes=600 if small else 10**6, unread=UNREAD)
        self.run(
            lambda: setattr(
                self,
                "session",
                HttpSession(
                    "id", caller="c", server="s", conversation=self.conversation, bounds=bounds, held=self.held
                ),
            )
        )
        self.session: HttpSession
        self.posts: list[HttpStream] = []  # streams of calls that are not answered
        self.named: list[HttpStream] = []  # streams that a client can resume
        self.readers: list[StreamReader] = []
        self.closed: set[int] = set()  # connections that the client has closed and that the gate still has
        self.asked: set[str] = set()
        self.withdrawn: set[str] = set()
        self.seen: list[str] = []
        self.count = 0

    def run(self, act: object) -> None:
        """Run in the loop, with everything that follows at once."""

        async def acting() -> None:
            assert callable(act)
            act()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        self.loop.run_until_complete(acting())

    def read(self, stream: HttpStream, given: int = 0) -> None:
        def begin() -> None:
            reader = StreamReader(stream, given, gone=lambda: id(reader) in self.closed)
            self.readers.append(reader)
            self.session.heard(stream)

        self.run(begin)

    # -- the client
    # ------------------------------------------------------------------------------------------------------------------

    @rule()
    def a_call_comes(self) -> None:
        self.run(lambda: self.posts.append(self.session.asked(1, LOCAL)))
        self.read(self.posts[-1])

    @rule()
    def the_client_listens(self) -> None:
        self.read(self.session.standalone, self.session.standalone.given)

    @precondition(lambda self: any(stream.number and stream.reader is None for stream in self.named))
    @rule(data=st.data())
    def the_client_comes_back(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from([stream for stream in self.named if stream.reader is None]))
        self.read(stream, stream.given)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def a_connection_takes_events(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        if not reader.stopped and not reader.gone():
            if not reader.stream.number and reader.stream is not self.session.standalone:
                self.session.name(reader.stream)
                self.named.append(reader.stream)
            self.hear(reader)

    def hear(self, reader: StreamReader) -> None:
        for _, line in reader.take():
            said = json.loads(line)
            if said.get("method") == "sampling/createMessage":
                self.seen.append(said["id"])

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def the_client_closes_a_connection(self, data: st.DataObject) -> None:
        self.closed.add(id(data.draw(st.sampled_from(self.readers))))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def a_connection_is_over(self, data: st.DataObject) -> None:
        self.leave(data.draw(st.sampled_from(self.readers)))

    def leave(self, reader: StreamReader) -> None:
        self.readers.remove(reader)
        reader.stop(GONE)
        reader.leave()
        self.closed.discard(id(reader))
        self.run(lambda: self.session.left(reader.stream, self.loop.now))

    # -- the gate
    # ------------------------------------------------------------------------------------------------------------------

    def streams(self) -> st.SearchStrategy[HttpStream]:
        return st.sampled_from([self.session.standalone, *self.posts, *self.named])

    @rule(data=st.data())
    def the_server_asks(self, data: st.DataObject) -> None:
        self.count += 1
        name = f"q{self.count}"
        self.asked.add(name)
        line = json.dumps({"jsonrpc": "2.0", "id": name, "method": "sampling/createMessage", "params": {}}).encode()
        stream = data.draw(self.streams())
        self.run(lambda: stream.ask(name, line))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def a_request_is_cancelled(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.asked)))
        self.withdrawn.add(name)
        stream = data.draw(self.streams())
        self.run(lambda: stream.cancel(name, note("cancelled")))

    @rule(data=st.data())
    def the_server_tells(self, data: st.DataObject) -> None:
        stream = data.draw(self.streams())
        self.run(lambda: stream.send(note("news"), False))

    @precondition(lambda self: self.posts)
    @rule(data=st.data())
    def a_call_is_answered(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(self.posts))
        self.posts.remove(stream)
        self.run(lambda: stream.send(result(1, {}), True))

    @rule()
    def time_passes(self) -> None:
        self.loop.now += UNREAD
        self.run(lambda: None)
        self.run(lambda: self.session.tidy(self.loop.now))

    # -- invariants
    # ------------------------------------------------------------------------------------------------------------------

    @invariant()
    def no_request_is_seen_twice(self) -> None:
        if hasattr(self, "session"):
            told = [str(id) for id in self.conversation.unreached]
            assert len(set(self.seen)) == len(self.seen)
            assert len(set(told)) == len(told)
            assert not set(told) & set(self.seen), "the server was told that nobody saw it"

    def teardown(self) -> None:
        if hasattr(self, "session"):
            self.finish()
        if hasattr(self, "loop"):
            self.loop.close()

    def finish(self) -> None:
        """Finally the client reads everything: then every request was seen, or withdrawn, or its sender got an
        error."""
        for reader in list(self.readers):
            self.leave(reader)
        self.read(self.session.standalone, self.session.standalone.given)
        while self.readers[-1].ready and not self.readers[-1].stopped:
            self.hear(self.readers[-1])
        assert self.asked <= {*self.seen, *map(str, self.conversation.unreached), *self.withdrawn}
        self.run(self.session.close)
        self.leave(self.readers[-1])
        for stream in [self.session.standalone, *self.posts, *self.named]:
            stream.free()
        self.loop.now += UNREAD
        self.run(lambda: None)
        assert 0 == self.held.total


TestStreams = Streams.TestCase
TestStreams.settings = settings(
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
