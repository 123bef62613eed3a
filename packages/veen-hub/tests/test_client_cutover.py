"""Clients that name both hubs go on by themselves after a planned cutover: nothing lost or doubled (P9).

``VEEN_CUTOVER_ROUNDS`` for more kills of a sending client than usual.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from veen_core import stream as streams
from veen_core.errors import IdentityError, StateError
from veen_core.handover import Handover
from veen_core.ids import Epoch, HubId, HubPk, Label, UnixTime
from veen_core.msg import Msg
from veen_hub.client import (
    FileStateStore,
    Hub,
    Refused,
    Retry,
    Stream,
    Timeouts,
    Unavailable,
    Unreachable,
    connect,
)
from veen_hub.client.sending.moving import MOVED_FOLDER
from veen_hub.client.state.records import LabelRecord, MovedMessages
from veen_storage.copies.promote import promote
from veen_testing.ports import free_port

from .conftest import StartProcess
from .cutover_client import KILLED, identity_of
from .people import ADMIN, signing_key
from .replicas import hand_over, head
from .serving import HubProcess, until

ROUNDS = int(os.environ.get("VEEN_CUTOVER_ROUNDS", "6"))
NEW_KEY = signing_key("successor")
SUCCESSOR = streams.hub_id(HubPk(NEW_KEY.public))
QUICK = Retry(max_attempts=1, deadline=0.5)
CLIENT = Path(__file__).with_name("cutover_client.py")
ALICE = identity_of("alice")
MAX_WRITES = 30
"""More writes than a client makes while it moves one stream."""
MIN_WRITES = 5
"""The steps of ``veen_hub.client.sending.moving`` write so often."""


@dataclass
class Cutover:
    """A primary, its replica, and the address where the successor will run."""

    start: StartProcess
    root: Path
    primary: HubProcess
    replica: HubProcess
    port: int
    old_hub: HubId

    @property
    def successor_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def restart_primary(self) -> None:
        self.primary = self.start("primary", "--open", f"--port={self.primary.port}", "--probes-port=0")

    def hand_over(self) -> Handover:
        return Handover.decode(hand_over(self.primary, SUCCESSOR, self.successor_url))

    def promote(self, record: Handover) -> HubProcess:
        """Make the successor, once the replica has all that the handover names, and start it."""
        until(lambda: self.replica.status().handover == record, "the replica has the handover")
        self.replica.kill()
        now = UnixTime(record.hub_ts + 1)
        new = self.root / "new"
        promote(self.root / "replica", new, NEW_KEY, now, handover=record, admin_pk=ADMIN.public)
        time.sleep(max(0.0, now - time.time()))  # before, the successor's key is not active
        return self.start("new", "--open", f"--port={self.port}", "--probes-port=0")

    async def bodies(self, name: str = "orders") -> tuple[Counter[str], Counter[str]]:
        """Read the stream under the old and under the new label."""
        found: list[Counter[str]] = []
        for url, trust in ((self.primary.url, self.old_hub), (self.successor_url, SUCCESSOR)):
            async with connect(url, ALICE, trust=trust) as hub:
                found.append(Counter([message.text async for message in hub.stream(name).read()]))
        return found[0], found[1]

    def label(self, name: str) -> Label:
        return streams.label(streams.routing_key(self.old_hub), streams.stream_id(name), Epoch(0))

    def connect(self, **options: Any) -> AbstractAsyncContextManager[Hub]:
        """Connect as a client that names both hubs."""
        url, successor = self.primary.url, self.successor_url
        return connect(url, ALICE, trust=self.old_hub, successor=successor, **options)

    def client(self, work: str, state: Path, name: str, number: int) -> subprocess.Popen[str]:
        arguments = (
            work,
            self.primary.url,
            self.old_hub.hex(),
            self.successor_url,
            str(state),
            name,
            str(number),
        )
        return subprocess.Popen([sys.executable, str(CLIENT), *arguments], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def cutover(start_process: StartProcess, tmp_path: Path) -> Iterator[Cutover]:
    primary = start_process("primary", "--open", f"--port={free_port()}", "--probes-port=0")
    replica = HubProcess(tmp_path / "replica", f"--replica-of={primary.url}")
    old_hub = primary.status().identity.hub_id
    yield Cutover(start_process, tmp_path, primary, replica, free_port(), old_hub)
    replica.kill()


def test_a_client_that_keeps_sending_goes_on_at_the_successor(cutover: Cutover) -> None:
    sent: list[str] = []
    labels: set[bytes] = set()
    moved = asyncio.Event()

    async def replace_the_hub() -> None:
        while len(sent) < 40:
            await asyncio.sleep(0.01)
        record = await asyncio.to_thread(cutover.hand_over)
        await asyncio.to_thread(cutover.promote, record)
        moved.set()

    async def send_singles(stream: Stream, who: int) -> None:
        left = 10
        for number in itertools.count():
            receipt = await stream.send(f"single {who} {number}")
            sent.append(f"single {who} {number}")
            labels.add(receipt.label)
            left -= moved.is_set()
            if not left:
                return

    async def send_batches(stream: Stream) -> None:
        left = 5
        for number in itertools.count():
            bodies = [f"many {number} {n}" for n in range(50)]
            receipts = [receipt async for receipt in stream.send_many(bodies)]
            assert len(receipts) == len(bodies)
            sent.extend(bodies)
            left -= moved.is_set()
            if not left:
                return

    async def work() -> None:
        async with cutover.connect(batch=16) as hub:
            stream = hub.stream("orders")
            singles = (send_singles(stream, who) for who in range(4))
            await asyncio.gather(replace_the_hub(), send_batches(stream), *singles)
            assert stream.hub.hub_id == SUCCESSOR
        assert len(labels) == 2, "the stream keeps its name and has a next label"
        old, new = await cutover.bodies()
        assert old + new == Counter(sent)
        assert old
        assert new

    asyncio.run(work())


async def leave_pending(cutover: Cutover, state: Path, *names: str) -> None:
    """Leave a message pending on each stream that the hub never takes: it is killed before."""
    async with connect(cutover.primary.url, ALICE, trust=cutover.old_hub, state=state, retry=QUICK) as hub:
        for name in names:
            await hub.stream(name).send("first")
        cutover.primary.kill()
        for name in names:
            with pytest.raises(Unreachable):
                await hub.stream(name).send("never taken")


async def leave_unanswered(cutover: Cutover, state: Path) -> None:
    """Leave a message pending that the hub takes, because it is stopped before it answers."""
    arguments = (cutover.primary.url, ALICE)
    brief = Timeouts(request=0.5)
    async with connect(*arguments, trust=cutover.old_hub, state=state, retry=QUICK, timeouts=brief) as hub:
        await hub.stream("taken").send("first")
        cutover.primary.signal(signal.SIGSTOP)
        with pytest.raises(Unreachable):  # the request waits in the hub's socket
            await hub.stream("taken").send("not answered")
        cutover.primary.signal(signal.SIGCONT)


def test_pending_messages_are_found_in_the_old_log_or_sealed_again(cutover: Cutover, tmp_path: Path) -> None:
    state = tmp_path / "state"

    async def go_on() -> None:
        async with cutover.connect(state=state) as hub:
            assert hub.hub_id == SUCCESSOR
            found = await hub.stream("taken").settle()
            assert [(one.label, one.stream_seq) for one in found.receipts] == [(cutover.label("taken"), 2)]
            await hub.stream("never").send("last")
        assert await cutover.bodies("taken") == (Counter(["first", "not answered"]), Counter())
        assert await cutover.bodies("never") == (Counter(["first"]), Counter(["never taken", "last"]))

    asyncio.run(leave_unanswered(cutover, state))
    until(lambda: head(cutover.primary, cutover.label("taken")) == 2, "the hub has taken the message")
    asyncio.run(leave_pending(cutover, state, "never"))
    cutover.restart_primary()
    cutover.promote(cutover.hand_over())
    asyncio.run(go_on())


def test_a_client_that_dies_at_any_write_while_it_moves_sends_each_message_once(
    cutover: Cutover, tmp_path: Path
) -> None:
    state, names = tmp_path / "state", [f"stream {number}" for number in range(MAX_WRITES)]
    asyncio.run(leave_pending(cutover, state, *names))
    cutover.restart_primary()
    cutover.promote(cutover.hand_over())
    died, code = 0, KILLED

    async def go_on(name: str) -> None:
        async with cutover.connect(state=state) as hub:
            await hub.stream(name).settle()
        assert await cutover.bodies(name) == (Counter(["first"]), Counter(["never taken"])), died

    for writes, name in enumerate(names, 1):
        with cutover.client("settle", state, name, writes) as client:
            code = client.wait()
        died += code == KILLED
        asyncio.run(go_on(name))
        if code == 0:
            break
    assert code == 0, "some client did not die"
    assert died >= MIN_WRITES


def test_kill_9_of_a_sending_client_through_a_cutover_loses_and_doubles_nothing(
    cutover: Cutover, tmp_path: Path
) -> None:
    chance, state = random.Random(17), tmp_path / "state"
    acknowledged: set[str] = set()
    pending: set[str] = set()
    record: Handover | None = None

    async def settle() -> None:
        async with cutover.connect(state=state) as hub:
            await hub.stream("orders").settle()

    for number in range(ROUNDS):
        client = cutover.client("send", state, "orders", number * 1_000_000)
        assert client.stdout is not None
        if number < ROUNDS // 2 or number > ROUNDS // 2 + 1:
            acknowledged.add(client.stdout.readline().strip())
            time.sleep(chance.uniform(0, 0.2))  # the moment of the kill is what is random here
        elif record is None:
            acknowledged.add(client.stdout.readline().strip())
            record = cutover.hand_over()
            time.sleep(chance.uniform(0, 0.05))
        else:  # the client finds no successor yet
            cutover.promote(record)
            time.sleep(chance.uniform(0, 0.2))
        client.kill()
        acknowledged.update(client.stdout.read().split())
        client.wait()
        client.stdout.close()
        pending |= pending_bodies(state, cutover.old_hub, SUCCESSOR)
    asyncio.run(settle())
    old, new = asyncio.run(cutover.bodies())
    found = old + new
    assert old
    assert new
    assert max(found.values()) == 1, "doubled"
    assert acknowledged | pending <= found.keys() | {""}, "lost"
    assert pending_bodies(state, cutover.old_hub, SUCCESSOR) == set()


def pending_bodies(state: Path, *hubs: HubId) -> set[str]:
    """The bodies of all messages that a dead client has promised to deliver."""
    store, wires = FileStateStore(state), list[bytes]()
    for hub in hubs:
        label = streams.label(streams.routing_key(hub), streams.stream_id("orders"), Epoch(0))
        if (content := store.load(hub, label.hex())) is not None:
            wires += LabelRecord.decode(content).state.pending
        if (content := store.load(hub, f"{MOVED_FOLDER}/{label.hex()}")) is not None:
            wires += MovedMessages.decode(content).messages
    return {Msg.decode(wire).open(ALICE.dh_keys[0]).body.decode() for wire in wires}


def test_without_a_handover_nothing_moves(cutover: Cutover) -> None:
    cutover.start("other", "--open", f"--port={cutover.port}", "--probes-port=0")

    async def work() -> None:
        async with connect(
            cutover.replica.url,
            ALICE,
            trust=cutover.old_hub,
            successor=cutover.successor_url,
            retry=Retry(max_attempts=3, first_delay=0.01),
        ) as hub:
            with pytest.raises(Unavailable, match="shows no handover"):
                await hub.stream("orders").send("one")
            assert hub.current is hub

    asyncio.run(work())


def test_a_hub_that_the_handover_does_not_name_is_refused(cutover: Cutover) -> None:
    async def work() -> None:
        async with connect(cutover.primary.url, ALICE, trust=cutover.old_hub) as hub:
            await hub.stream("orders").send("one")
        cutover.hand_over()
        cutover.start("other", "--open", f"--port={cutover.port}", "--probes-port=0")
        with pytest.raises(IdentityError):
            async with cutover.connect():
                pass

    asyncio.run(work())


def test_without_an_address_of_the_successor_the_refusal_is_raised(cutover: Cutover) -> None:
    async def work() -> None:
        async with connect(cutover.primary.url, ALICE, trust=cutover.old_hub) as hub:
            await hub.stream("orders").send("one")
            await asyncio.to_thread(cutover.hand_over)
            with pytest.raises(Refused, match="NOT_PRIMARY"):
                await hub.stream("orders").send("two")

    asyncio.run(work())


def test_a_client_that_knows_the_handover_needs_the_old_hub_only_for_pending_messages(
    cutover: Cutover, tmp_path: Path
) -> None:
    state = tmp_path / "state"

    async def use(name: str) -> None:
        async with cutover.connect(state=state, retry=QUICK) as hub:
            assert hub.hub_id == SUCCESSOR
            await hub.stream(name).send("one more")

    asyncio.run(leave_pending(cutover, state, "unsettled", "settled"))
    cutover.restart_primary()
    cutover.promote(cutover.hand_over())
    asyncio.run(use("settled"))
    cutover.primary.kill()
    asyncio.run(use("settled"))
    with pytest.raises(StateError, match="not known whether it accepted 1 pending message"):
        asyncio.run(use("unsettled"))
    cutover.restart_primary()
    asyncio.run(use("unsettled"))
    assert asyncio.run(cutover.bodies("settled"))[1] == Counter({"never taken": 1, "one more": 2})
    assert asyncio.run(cutover.bodies("unsettled"))[1] == Counter(["never taken", "one more"])


def test_a_replica_settles_pending_messages_in_place_of_the_old_hub(cutover: Cutover, tmp_path: Path) -> None:
    state = tmp_path / "state"
    asyncio.run(leave_pending(cutover, state, "orders"))
    cutover.restart_primary()
    cutover.promote(cutover.hand_over())
    cutover.primary.kill()
    again = HubProcess(tmp_path / "replica", f"--replica-of={cutover.primary.url}")

    async def go_on() -> None:
        async with connect(
            again.url, ALICE, trust=cutover.old_hub, successor=cutover.successor_url, state=state
        ) as hub:
            await hub.stream("orders").send("last")
            assert [message.text async for message in hub.stream("orders").read()] == ["never taken", "last"]

    try:
        asyncio.run(go_on())
    finally:
        again.kill()
