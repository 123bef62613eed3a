"""The protocols that other packages implement: clock, reader, writer."""

import inspect
from collections.abc import AsyncIterator, Sequence

import pytest

from veen_core import (
    Checkpoint,
    Clock,
    Entry,
    Label,
    LogReader,
    LogWriter,
    MmrConsistency,
    MmrProof,
    Msg,
    Receipt,
    StreamSeq,
)
from veen_core.ids import UnixTime

from .simulator import Hub, person


class SimulatedLog:
    """The simulated hub as both reader and writer."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def now(self) -> UnixTime:
        return self.hub.now

    async def head(self, label: Label) -> Receipt | None:
        return self.hub.entries[-1].receipt if label == self.hub.label and self.hub.entries else None

    async def page(self, label: Label, from_seq: StreamSeq, max_items: int) -> Sequence[Entry]:
        assert label == self.hub.label
        return self.hub.page(from_seq, from_seq + max_items - 1)

    async def follow(self, label: Label, from_seq: StreamSeq) -> AsyncIterator[Entry]:
        for entry in await self.page(label, from_seq, len(self.hub.entries)):
            yield entry

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt:
        assert label == self.hub.label
        return self.hub.receipt(stream_seq)

    async def proof(
        self, label: Label, stream_seq: StreamSeq, tree_size: StreamSeq | None = None
    ) -> MmrProof:
        assert label == self.hub.label
        return self.hub.proof(stream_seq, tree_size)

    async def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:
        assert label == self.hub.label
        return self.hub.consistency(from_seq, to_seq)

    async def checkpoint(self, label: Label) -> Checkpoint | None:
        assert label == self.hub.label
        return self.hub.checkpoint(len(self.hub.entries)) if self.hub.entries else None

    async def submit(self, msg: Msg) -> Receipt:
        return self.hub.append(msg)


def run(coroutine: object) -> object:
    """Drive a coroutine that never waits: no event loop, no IO."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


@pytest.mark.parametrize("protocol", [Clock, LogReader, LogWriter], ids=lambda p: p.__name__)
def test_an_object_with_the_methods_satisfies_the_protocol(hub: Hub, protocol: type) -> None:
    assert isinstance(SimulatedLog(hub), protocol)
    assert not isinstance(object(), protocol)


@pytest.mark.parametrize("protocol", [Clock, LogReader, LogWriter], ids=lambda p: p.__name__)
def test_the_simulated_log_takes_the_arguments_the_protocol_names(protocol: type) -> None:
    for name, method in inspect.getmembers(protocol, inspect.isfunction):
        if not name.startswith("_"):
            assert list(inspect.signature(method).parameters) == list(
                inspect.signature(getattr(SimulatedLog, name)).parameters
            )


def test_a_client_can_work_through_the_protocols_alone(hub: Hub) -> None:
    log, alice = SimulatedLog(hub), person("alice", hub)
    assert run(log.head(hub.label)) is None
    hub.write("bob")
    receipt = run(log.submit(alice.submit()))
    gap = alice.client.accept_receipt(receipt)
    alice.client.accept_page(run(log.page(hub.label, StreamSeq(gap.from_seq + 1), 10)))
    assert alice.state.head == run(log.head(hub.label))
    checkpoint = run(log.checkpoint(hub.label))
    fresh = person("carol", hub)
    fresh.client.resync(checkpoint, run(log.receipt(hub.label, 2)).leaf_hash, run(log.proof(hub.label, 2)))
    assert fresh.state.last_stream_seq == 2
