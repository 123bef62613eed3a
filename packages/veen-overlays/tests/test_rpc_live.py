"""Server and client over one log: results, errors, deadlines, idempotency, shared work (RPC0, P15)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from memory_log import MemoryLog
from rpc_streams import MemoryCallStream, key, make_server, serving

from veen_core.ids import Label, LeafHash, StreamId
from veen_overlays.live.rpc import Call, CallError, RpcError, Service, connect_rpc
from veen_overlays.live.rpc.counters import ServerCounters
from veen_overlays.rpc.arguments import ArgumentError
from veen_overlays.rpc.calls import CALLS
from veen_overlays.rpc.exchange import Exchange
from veen_overlays.rpc.records import Reply, Request, Take, call_key, sign_lease
from veen_overlays.schema.record import Record, record


def scenario(work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that is a coroutine, with a bound on its time."""

    def test() -> None:
        asyncio.run(asyncio.wait_for(work(), 60))

    test.__name__, test.__doc__ = work.__name__, work.__doc__
    return test


class Counted:
    """A service that counts the runs of its methods."""

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.service = Service()
        self.service.method("add")(self.add)
        self.service.method("fail")(self.fail)
        self.service.method("wait")(self.wait)
        self.service.method("once", at_most_once=True)(self.add)

    async def add(self, a: int, b: int = 1) -> int:
        self.runs.append((a, b))
        return a + b

    async def fail(self, how: str, call: Call) -> Any:
        self.runs.append(call.key)
        match how:
            case "own":
                raise CallError("app.no", "because")
            case "bug":
                raise ValueError("a secret")
            case "exit":
                raise SystemExit(3)
            case "cancel":
                raise asyncio.CancelledError
            case "float":
                return 1.5
            case "none":
                return None
        raise ArgumentError("unknown how")

    async def wait(self, n: int) -> int:
        self.runs.append(n)
        await self.gate.wait()
        return n


def client_of(log: MemoryLog, name: str = "client", **options: Any) -> Any:
    return connect_rpc(MemoryCallStream(log, name).access, **options)


async def code_of(call: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(RpcError) as failed:
        await call
    return failed.value.code


@scenario
async def test_a_call_returns_the_result_of_the_method() -> None:
    log, counted = MemoryLog(), Counted()
    async with serving(make_server(counted.service, log)), client_of(log) as client:
        assert await client.call("add", {"a": 2, "b": 3}) == 5
        assert await client.call("add", [2]) == 3
        assert await client.call("fail", ["none"]) == {}, "an absent optional is never null (B2)"
    assert counted.runs[:2] == [(2, 3), (2, 1)]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("own", "app.no"),
        ("bug", "rpc.internal"),
        ("exit", "rpc.internal"),
        ("cancel", "rpc.internal"),
        ("float", "rpc.internal"),
        ("other", "rpc.bad_args"),
    ],
)
def test_a_failure_of_a_method_is_a_reply_without_internals(how: str, code: str) -> None:
    async def work() -> None:
        log, counted = MemoryLog(), Counted()
        async with serving(make_server(counted.service, log)), client_of(log) as client:
            with pytest.raises(RpcError) as failed:
                await client.call("fail", [how])
            assert failed.value.code == code
            assert "secret" not in str(failed.value)
            assert await client.call("add", [1]) == 2, "the server goes on"

    scenario(work)()


@pytest.mark.parametrize("args", [[], ["1"], [True], [1, 2, 3], {"a": 1, "c": 1}, 7, {"b": 1}], ids=repr)
def test_arguments_that_do_not_fit_are_refused_and_not_run(args: Any) -> None:
    async def work() -> None:
        log, counted = MemoryLog(), Counted()
        server = make_server(counted.service, log)
        async with serving(server), client_of(log) as client:
            assert await code_of(client.call("add", args)) == "rpc.bad_args"
        assert counted.runs == []
        assert server.counters == ServerCounters(refused=1)

    scenario(work)()


@scenario
async def test_a_malformed_request_is_answered_and_stops_nothing() -> None:
    log, counted = MemoryLog(), Counted()
    server = make_server(counted.service, log)
    async with serving(server), client_of(log) as client:
        poison = MemoryCallStream(log, "poison")
        receipts = [
            await poison.send_bytes(bytes(Request.SCHEMA), body) for body in (b"", b"\xa0", b"\xff" * 9)
        ]
        assert await client.call("add", [1]) == 2
    replies = parents(log)
    assert all(replies[receipt.leaf_hash][1].error.code == "rpc.bad_request" for receipt in receipts)
    assert server.table.undecodable == 3


def parents(log: MemoryLog) -> dict[bytes, tuple[bytes, Any]]:
    """The first reply to each request: its signer and its record."""
    found: dict[bytes, tuple[bytes, Any]] = {}
    for entry in log.entries:
        message = MemoryCallStream(log, "any").access.open(entry)
        if message.schema == Reply.SCHEMA and message.parent_id is not None:
            found.setdefault(message.parent_id, (bytes(message.client_id or b""), Reply.decode(message.body)))
    return found


# --- idempotency (RPC0.3, P15)


@scenario
async def test_a_key_that_was_answered_gets_the_same_result_and_does_not_run_again() -> None:
    log, counted = MemoryLog(), Counted()
    async with serving(make_server(counted.service, log)), client_of(log) as client:
        assert await client.call("add", [1], idem=7) == 2
        assert await client.call("add", [99], idem=7) == 2, "the same tuple has the same result"
        async with client_of(log, "another client") as other:
            assert await other.call("add", [99], idem=7) == 100
    assert counted.runs == [(1, 1), (99, 1)]


@scenario
async def test_a_server_that_lost_its_memory_answers_from_the_log() -> None:
    log, before, after = MemoryLog(), Counted(), Counted()
    async with serving(make_server(before.service, log)), client_of(log) as client:
        assert await client.call("add", [1], idem=7) == 2
        assert await code_of(client.call("fail", ["own"], idem=8)) == "app.no"
    async with serving(make_server(after.service, log, "new client_id")), client_of(log) as client:
        assert await client.call("add", [50], idem=7) == 2
        assert await code_of(client.call("fail", ["bug"], idem=8)) == "app.no"
    assert after.runs == []


@scenario
async def test_requests_with_one_key_at_the_same_time_run_once() -> None:
    log, counted = MemoryLog(), Counted()
    counted.gate.clear()
    async with serving(make_server(counted.service, log)), client_of(log) as client:
        calls = [asyncio.create_task(client.call("wait", [5], idem=1)) for _ in range(6)]
        while not counted.runs:
            await asyncio.sleep(0.01)
        counted.gate.set()
        assert await asyncio.gather(*calls) == [5] * 6
    assert counted.runs == [5]


@scenario
async def test_a_key_whose_request_did_not_run_can_be_used_again() -> None:
    log, counted = MemoryLog(), Counted()
    async with serving(make_server(counted.service, log)), client_of(log) as client:
        assert await code_of(client.call("add", ["one"], idem=7)) == "rpc.bad_args"
        assert await client.call("add", [1], idem=7) == 2


# --- deadlines (P15)


@scenario
async def test_a_late_request_is_answered_with_the_deadline_and_does_not_run() -> None:
    log, counted = MemoryLog(), Counted()
    writer = MemoryCallStream(log, "client")
    late = await writer.send(Request(method="add", args=[1], timeout_ms=5_000, idem=1))
    patient = await writer.send(Request(method="add", args=[2], idem=2))
    log.now = type(log.now)(log.now + 6)
    async with serving(make_server(counted.service, log)):
        while len(parents(log)) < 2:
            await asyncio.sleep(0.01)
    assert parents(log)[late.leaf_hash][1].error.code == "rpc.deadline"
    assert parents(log)[patient.leaf_hash][1].result == 3
    assert counted.runs == [(2, 1)]


@scenario
async def test_a_client_repeats_a_call_without_reply_with_the_same_key() -> None:
    log, counted = MemoryLog(), Counted()
    counted.gate.clear()
    async with serving(make_server(counted.service, log)), client_of(log) as client:
        call = asyncio.create_task(client.call("wait", [5], timeout=0, retries=1))
        while sum(entry.msg.client_id == key("client").public for entry in log.entries) < 2:
            await asyncio.sleep(0.01)
        counted.gate.set()
        assert await call == 5
    assert counted.runs == [5]


# --- servers


@scenario
async def test_without_a_live_server_nothing_is_sent() -> None:
    log, counted = MemoryLog(), Counted()
    async with client_of(log) as client:
        assert await code_of(client.call("add", [1])) == "rpc.no_server"
    async with serving(make_server(counted.service, log)), client_of(log) as client:
        assert await code_of(client.call("nothing", [1])) == "rpc.unknown_method"
        size = len(log.entries)
    async with client_of(log) as client:
        assert await code_of(client.call("add", [1])) == "rpc.no_server", "it has withdrawn"
    assert len(log.entries) == size + 1


@scenario
async def test_an_unannounced_method_is_refused_by_the_server_too() -> None:
    log, counted = MemoryLog(), Counted()
    async with serving(make_server(counted.service, log)):
        asked = await MemoryCallStream(log, "client").send(Request(method="nothing", args=None))
        while not parents(log):
            await asyncio.sleep(0.01)
    assert parents(log)[asked.leaf_hash][1].error.code == "rpc.unknown_method"


@scenario
async def test_a_killed_server_is_dead_after_its_lease_although_nothing_was_sent_since() -> None:
    log = MemoryLog()
    killed = MemoryCallStream(log, "server")
    await killed.send(sign_lease(key("operator"), await killed.client_id(), ("add",), 30))
    log.now += 29
    async with client_of(log) as client:
        assert [each.methods for each in client.live_servers("add")] == [{"add"}]
    log.now += 1
    size = log.mmr.size
    async with client_of(log) as client:
        assert await code_of(client.call("add", [1])) == "rpc.no_server"
    assert log.mmr.size == size, "nothing was sent"


@scenario
async def test_a_reply_of_someone_who_is_no_server_does_not_count() -> None:
    log, counted = MemoryLog(), Counted()
    counted.gate.clear()
    server = make_server(counted.service, log)
    async with serving(server), client_of(log, servers=[bytes(key("operator").public)]) as client:
        call = asyncio.create_task(client.call("wait", [5]))
        while not counted.runs:
            await asyncio.sleep(0.01)
        impostor = MemoryCallStream(log, "impostor")
        await impostor.send(sign_lease(key("another operator"), await impostor.client_id(), ("wait",), 30))
        parent = LeafHash(next(iter(server.table.calls.values())).requests[0].origin)
        await impostor.send(Reply(ok=True, result=666), parent=parent)
        counted.gate.set()
        assert await call == 5
    assert not server.table.calls


@scenario
async def test_a_request_that_names_another_as_its_parent_is_answered_under_its_own_id() -> None:
    """Otherwise a transcript would show the reply to a request that another writer has sent."""
    log = MemoryLog()
    alice, mallory = MemoryCallStream(log, "alice"), MemoryCallStream(log, "mallory")
    async with serving(make_server(Counted().service, log)):
        asked = await alice.send(Request(method="add", args=[1]))
        while not parents(log):
            await asyncio.sleep(0.01)
        forged = await mallory.send(Request(method="add", args=[665]), parent=asked.leaf_hash)
        while sum(bytes(entry.msg.client_id) == key("server").public for entry in log.entries) < 3:
            await asyncio.sleep(0.01)  # an announcement and two replies
    assert {bytes(parent): reply.result for parent, (_, reply) in parents(log).items()} == {
        bytes(asked.leaf_hash): 2,
        bytes(forged.leaf_hash): 666,
    }


@scenario
async def test_two_servers_share_the_calls_and_each_runs_once() -> None:
    log, one, two = MemoryLog(), Counted(), Counted()
    servers = make_server(one.service, log, "one"), make_server(two.service, log, "two")
    async with serving(servers[0]), serving(servers[1]), client_of(log) as client:
        results = await asyncio.gather(*(client.call("add", [n], idem=n % 40) for n in range(80)))
    assert all(result in (n + 1, n + 41, n - 39) for n, result in enumerate(results))
    assert len(one.runs) + len(two.runs) == 40, "80 requests have 40 keys"
    assert min(len(one.runs), len(two.runs)) > 5
    assert [len(server.table.calls) for server in servers] == [0, 0]


@scenario
async def test_the_calls_of_a_dead_server_are_taken_over_when_its_lease_has_ended() -> None:
    log, counted = MemoryLog(), Counted()
    dead = MemoryCallStream(log, "dead")
    await dead.send(sign_lease(key("operator"), await dead.client_id(), ("add", "once"), 30))
    client = MemoryCallStream(log, "client")
    asked = [await client.send(Request(method=name, args=[1], idem=7)) for name in ("add", "once")]
    async with serving(make_server(counted.service, log)) as running:
        await asyncio.sleep(0.05)
        assert counted.runs == [], "the lease of the other server still lasts"
        assert not running.done()
    log.now = type(log.now)(log.now + 31)
    server = make_server(counted.service, log)
    async with serving(server):
        while len(parents(log)) < 2:
            await asyncio.sleep(0.01)
    assert {parents(log)[each.leaf_hash][1].result for each in asked} == {2}
    assert server.counters.taken == 2


@scenario
async def test_a_method_that_must_not_run_twice_is_interrupted_after_a_crash() -> None:
    log, counted = MemoryLog(), Counted()
    crashed, client = MemoryCallStream(log, "server"), MemoryCallStream(log, "client")
    await crashed.send(sign_lease(key("operator"), await crashed.client_id(), ("once",), 30))
    started = await client.send(Request(method="once", args=[1], idem=1))
    waiting = await client.send(Request(method="once", args=[2], idem=2))
    await crashed.send(Take(call=call_key("once", await client.client_id(), 1, b"")))
    async with serving(make_server(counted.service, log)):
        while len(parents(log)) < 2:
            await asyncio.sleep(0.01)
    assert parents(log)[started.leaf_hash][1].error.code == "rpc.interrupted"
    assert parents(log)[waiting.leaf_hash][1].result == 3
    assert counted.runs == [(2, 1)]


@scenario
async def test_a_server_whose_client_id_changes_announces_the_new_one_and_loses_no_call() -> None:
    log, counted = MemoryLog(), Counted()
    stream = MemoryCallStream(log, "server")
    server = make_server(counted.service, stream)
    counted.gate.clear()
    async with serving(server), client_of(log) as client:
        call = asyncio.create_task(client.call("wait", [5], idem=1))
        while not counted.runs:
            await asyncio.sleep(0.01)
        stream.signer = key("the next client_id")
        counted.gate.set()
        assert await call == 5
        assert await client.call("add", [1]) == 2
    assert counted.runs == [5, (1, 1)]


@scenario
async def test_a_server_runs_a_bounded_number_of_calls_and_reads_a_bounded_number_ahead() -> None:
    log, counted = MemoryLog(), Counted()
    counted.gate.clear()
    server = make_server(counted.service, log, max_running=3, max_waiting=5)
    async with serving(server), client_of(log) as client:
        calls = [asyncio.create_task(client.call("wait", [n])) for n in range(20)]
        while len(counted.runs) < 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert len(counted.runs) == 3
        assert len(server.table.calls) <= 6
        counted.gate.set()
        assert sorted(await asyncio.gather(*calls)) == list(range(20))


@scenario
async def test_a_server_that_is_stopped_finishes_what_runs_and_leaves_the_rest_to_others() -> None:
    log, counted, heir = MemoryLog(), Counted(), Counted()
    counted.gate.clear()
    server = make_server(counted.service, log, "old", max_running=1)
    async with client_of(log) as client:
        async with serving(server):
            pair = [asyncio.create_task(client.call("wait", [n])) for n in range(2)]
            while not counted.runs:
                await asyncio.sleep(0.01)
            server.stop()
            counted.gate.set()
        assert counted.runs == [0]
        async with serving(make_server(heir.service, log, "heir")):
            assert await asyncio.gather(*pair) == [0, 1]
    assert heir.runs == [1]


@scenario
async def test_a_reply_that_cannot_be_sent_is_sent_again_without_another_run() -> None:
    log, counted = MemoryLog(), Counted()
    stream = MemoryCallStream(log, "server")
    server = make_server(counted.service, stream)
    counted.gate.clear()
    async with serving(server), client_of(log) as client:
        call = asyncio.create_task(client.call("wait", [5]))
        while not counted.runs:
            await asyncio.sleep(0.01)
        stream.fails = 2
        counted.gate.set()
        assert await call == 5
    assert counted.runs == [5]


# --- other streams and schemas


@scenario
async def test_a_reply_goes_to_the_stream_that_the_request_names() -> None:
    log, replies = MemoryLog(), MemoryLog(Label(b"\x1f" * 32))
    counted, there = Counted(), StreamId(b"\x88" * 32)
    reply_stream = {there: MemoryCallStream(replies, "server", there).access}
    server = make_server(counted.service, log, reply_streams=reply_stream)
    reader = MemoryCallStream(replies, "client", there).access
    async with serving(server), client_of(log, replies=reader) as client:
        assert await client.call("add", [1], idem=4) == 2
    assert len(replies.entries) == 1
    again = Counted()
    server = make_server(again.service, log, reply_streams=reply_stream)
    async with serving(server), client_of(log, replies=reader) as client:
        assert await client.call("add", [9], idem=4) == 2, "answered from the log of the replies"
    assert again.runs == []


@scenario
async def test_a_reply_to_a_stream_that_the_server_does_not_write_to_is_refused() -> None:
    log, counted = MemoryLog(), Counted()
    async with serving(make_server(counted.service, log)):
        asked = await MemoryCallStream(log, "client").send(
            Request(method="add", args=[1], reply_to=StreamId(b"\x99" * 32))
        )
        while not parents(log):
            await asyncio.sleep(0.01)
    assert parents(log)[asked.leaf_hash][1].error.code == "rpc.bad_reply_to"
    assert counted.runs == []


@record("tests.ask.v1", section="tests")
@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Record):
    """A request with a schema of its own."""

    word: str


@record("tests.told.v1", section="tests")
@dataclass(frozen=True, slots=True, kw_only=True)
class Told(Record):
    """Its reply."""

    text: str
    code: str | None = None


ASKING = Exchange(
    request=Ask,
    reply=Told,
    method_of=lambda _request: "tests.ask",
    code_of=lambda reply: reply.code,
    failed=lambda code, _detail: Told(text="", code=code),
)


@scenario
async def test_other_schemas_use_the_same_rules() -> None:
    """RESOLUTIONS P16: disc.query has schemas of its own."""
    log, service = MemoryLog(), Service()

    async def tell(request: Ask, call: Call) -> Told:
        if request.word == "no":
            raise CallError("app.no")
        return Told(text=f"{request.word} {call.method}")

    service.serve(ASKING, "tests.ask", tell)
    async with serving(make_server(service, log)), client_of(log, exchanges=[ASKING]) as client:
        done = await client.exchange(ASKING, lambda _ms, _to: Ask(word="hello"), "tests.ask")
        assert done.reply == Told(text="hello tests.ask")
        done = await client.exchange(ASKING, lambda _ms, _to: Ask(word="no"), "tests.ask")
        assert done.reply == Told(text="", code="app.no")


@scenario
async def test_the_log_of_a_served_stream_folds_to_answered_calls() -> None:
    log, counted = MemoryLog(), Counted()
    async with serving(make_server(counted.service, log)), client_of(log) as client:
        await client.call("add", [1])
        await code_of(client.call("fail", ["own"]))
    opened = [MemoryCallStream(log, "any").access.open(entry) for entry in log.entries]
    rows = CALLS.view(CALLS.fold(opened).inner)
    assert [(row["method"], row["status"], row.get("code")) for row in rows] == [
        ("add", "answered", None),
        ("fail", "failed", "app.no"),
    ]
    assert {row["server"] for row in rows} == {bytes(key("operator").public)}
