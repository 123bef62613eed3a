"""The blocking client: the same methods and results as the asyncio client, and interruptible."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core.cap import CapToken
from veen_core.errors import StateError
from veen_core.ids import ClientId, StreamId
from veen_hub.client import Admin, Hub, NotFound, Stream
from veen_hub.client import connecting as asynchronous
from veen_hub.client.blocking import BlockingAdmin, BlockingHub, BlockingStream, connect

from .client_fixtures import ADMIN, QUICK, HubProcess, person, serving, token_for

ALICE = person("alice")


@pytest.fixture(scope="module")
def open_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with serving(tmp_path_factory.mktemp("open")) as hub:
        yield hub


def test_the_blocking_client_sends_reads_and_proves(open_hub: HubProcess, tmp_path: Path) -> None:
    with connect(open_hub.url, ALICE, trust=open_hub.hub_id, state=tmp_path, retry=QUICK) as hub:
        stream = hub.stream("blocking")
        assert stream.send("one").stream_seq == 1
        assert [r.stream_seq for r in stream.send_many(["two", "three"])] == [2, 3]
        assert [m.text for m in stream.read()] == ["one", "two", "three"]
        following = stream.follow()
        assert next(following).text == "one"
        following.close()  # type: ignore[attr-defined]
        head = stream.head()
        assert head is not None
        assert head == stream.receipt(3)
        (made,) = hub.admin(ADMIN).checkpoint(stream.label())
        assert stream.checkpoint() == made
        with pytest.raises(NotFound):
            stream.receipt(9)


def test_bodies_may_be_read_from_the_same_hub(open_hub: HubProcess) -> None:
    with connect(open_hub.url, ALICE, trust=open_hub.hub_id, retry=QUICK) as hub:
        one, other = hub.stream("copied"), hub.stream("copy")
        assert len(list(one.send_many(f"{n}" for n in range(300)))) == 300
        receipts = other.send_many(message.body for message in one.read())
        assert [receipt.stream_seq for receipt in receipts] == list(range(1, 301))
        assert [m.text for m in other.read()] == [f"{n}" for n in range(300)]


def test_a_call_from_the_blocking_clients_own_event_loop_is_refused(open_hub: HubProcess) -> None:
    async def source(_client_id: ClientId, _stream_id: StreamId) -> CapToken:
        return hub.authorize(token_for(ALICE.client_id, "inside"))  # type: ignore[return-value]

    with connect(open_hub.url, ALICE, trust=open_hub.hub_id, retry=QUICK) as hub:
        hub._hub.tokens.source = source
        hub._hub.connection.status = dataclasses.replace(hub._hub.connection.status, gating=True)
        with pytest.raises(StateError, match="from its own event loop"):
            hub.stream("inside").send("x")


def test_a_closed_blocking_connection_refuses_calls(open_hub: HubProcess) -> None:
    with connect(open_hub.url, ALICE, trust=open_hub.hub_id, retry=QUICK) as hub:
        stream = hub.stream("closed")
        stream.send("x")
        following = stream.follow()
        assert next(following).text == "x"
    with pytest.raises(StateError, match="connect again"):
        stream.send("y")
    with pytest.raises(StateError, match="connect again"):
        next(following)


ASYNC_ONLY = {"log", "knows", "outbox", "leave", "epochs", "epoch_labels"} | {
    "log_reader",
    "log_writer",
    "close",
    "current",
    "hub",
    "require_witnesses",
    "wait_confirmed",
}


@pytest.mark.parametrize(
    ("twin", "original"),
    [(BlockingStream, Stream), (BlockingHub, Hub), (BlockingAdmin, Admin)],
    ids=["stream", "hub", "admin"],
)
def test_the_blocking_methods_take_the_same_arguments(twin: type, original: type) -> None:
    for name in {name for name in vars(original) if not name.startswith("_")} - ASYNC_ONLY:
        assert hasattr(twin, name), name
        if callable(getattr(original, name)):
            wanted, given = (inspect.signature(getattr(of, name)).parameters for of in (original, twin))
            assert list(given) == list(wanted), name
            for parameter in set(given) - {"self", "bodies"}:  # send_many takes no async iterable here
                assert str(given[parameter]) == str(wanted[parameter]), (name, parameter)


def test_connect_takes_the_same_arguments() -> None:
    assert inspect.signature(connect).parameters == inspect.signature(asynchronous.connect).parameters


@pytest.mark.parametrize("kind", [Stream, Hub, Admin, BlockingStream, BlockingHub, BlockingAdmin])
def test_every_public_method_is_documented(kind: type) -> None:
    for name, member in vars(kind).items():
        if not name.startswith("_"):
            assert member.__doc__, f"{kind.__name__}.{name}"


def test_a_batch_counts_its_acknowledged_messages_when_its_source_fails(open_hub: HubProcess) -> None:
    def bodies() -> Iterator[str]:
        yield from (f"{n}" for n in range(200))
        raise OSError("the source failed")

    with connect(open_hub.url, ALICE, trust=open_hub.hub_id, retry=QUICK) as hub:
        stream = hub.stream("counted")
        sending = stream.send_many(bodies())
        with pytest.raises(OSError, match="the source failed"):
            for _ in sending:
                pass
        sending.settle()
        assert sending.acknowledged == len(list(stream.read()))
        assert sending.last == stream.head()


INTERRUPTED = """
import asyncio, os, signal
from collections.abc import AsyncGenerator
from veen_hub.client.loop_thread import LoopThread

async def busy():
    yield 1
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(30)
    finally:
        await asyncio.sleep(0.3)
        print("ended", flush=True)

loop = LoopThread()
try:
    for item in loop.each(busy()):
        print(item, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
loop.close()
"""


def test_an_interrupt_is_raised_once_the_interrupted_call_has_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.stdout.split() == ["1", "ended", "interrupted"], done.stderr
    assert done.stderr == ""


ENDING = """
import asyncio, socket, threading
from veen_hub.client.loop_thread import LoopThread
from veen_hub.client.wire.http_pool import HttpPool
from veen_hub.client.wire.threads import Workers

async def connect_and_compute():
    pool = HttpPool(*server.getsockname(), None, connect_timeout=5)
    pool.release(await pool.acquire())
    pool.close()
    return await Workers().run(sum, [1, 2])

def late():
    threading.main_thread().join()
    print(loop.run(connect_and_compute()), flush=True)
    loop.close()

server = socket.create_server(("127.0.0.1", 0))
loop = LoopThread()
threading.Thread(target=late).start()
"""


def test_a_client_connects_and_computes_after_the_main_thread_has_ended() -> None:
    """No pool of Python accepts calls any more then; a service still sends its last messages."""
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_closing_a_connection_ends_the_calls_of_other_threads(open_hub: HubProcess) -> None:
    ended: list[StateError] = []
    begun = threading.Event()

    def follow(stream: BlockingStream) -> None:
        try:
            for _ in stream.follow():
                begun.set()
        except StateError as exc:
            ended.append(exc)

    with connect(open_hub.url, ALICE, trust=open_hub.hub_id, retry=QUICK) as hub:
        stream = hub.stream("followed")
        stream.send("one")
        thread = threading.Thread(target=follow, args=(stream,), daemon=True)
        thread.start()
        assert begun.wait(20)
    thread.join(20)
    assert not thread.is_alive()
    assert len(ended) == 1
    assert "this connection" in str(ended[0])
