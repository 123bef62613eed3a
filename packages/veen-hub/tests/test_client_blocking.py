"""The client without ``await``: the same names, the same answers, and an end when interrupted."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_hub.client import Admin, Hub, NotFound, Stream
from veen_hub.client.blocking import BlockingAdmin, BlockingHub, BlockingStream, connect

from .client_fixtures import ADMIN, QUICK, HubProcess, person, serving

ALICE = person("alice")


@pytest.fixture(scope="module")
def open_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with serving(tmp_path_factory.mktemp("open")) as hub:
        yield hub


def test_the_blocking_twin_does_the_same(open_hub: HubProcess, tmp_path: Path) -> None:
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


ASYNC_ONLY = {"log", "outbox", "leave", "epochs", "epoch_labels", "log_reader", "log_writer", "close"}


@pytest.mark.parametrize(
    ("twin", "original"),
    [(BlockingStream, Stream), (BlockingHub, Hub), (BlockingAdmin, Admin)],
    ids=["stream", "hub", "admin"],
)
def test_the_blocking_twin_takes_the_same_arguments(twin: type, original: type) -> None:
    for name in {name for name in vars(original) if not name.startswith("_")} - ASYNC_ONLY:
        assert hasattr(twin, name), name
        if callable(getattr(original, name)):
            wanted, given = (set(inspect.signature(getattr(of, name)).parameters) for of in (original, twin))
            assert given == wanted or given - wanted == {"options"}, name


INTERRUPTED = """
import asyncio, os, signal
from collections.abc import AsyncGenerator
from veen_hub.client.blocking import Loop

async def busy():
    yield 1
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(30)
    finally:
        await asyncio.sleep(0.3)
        print("ended", flush=True)

loop = Loop()
try:
    for item in loop.each(busy()):
        print(item, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
loop.close()
"""


def test_an_interrupt_is_raised_when_what_it_interrupts_has_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.stdout.split() == ["1", "ended", "interrupted"], done.stderr
    assert done.stderr == ""
