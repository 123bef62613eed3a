"""The monitor against real hubs, witnesses and clients: honest ones are left alone, others are caught."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from veen_core.ids import UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.receipt import Receipt
from veen_core.tlog.policy import WitnessPolicy, parse_policy
from veen_hub.client import Retry, connect
from veen_hub.monitor.findings import FindingChange, Key
from veen_hub.monitor.hub_monitor import HubMonitor
from veen_hub.monitor.monitor import Monitor, MonitorState
from veen_hub.monitor.sightings import SeenFiles
from veen_storage import rotate

from .client_fixtures import QUICK, HubProcess, person, run, serving
from .client_witnesses import AT_ONCE, Watched, watched
from .monitoring import Watch, convicted, keys

ALICE = person("alice")
PATIENT = Retry(max_attempts=10_000, first_delay=0.02, max_delay=0.2, deadline=120.0)
"""A busy machine may take many seconds to start a hub again."""
PAUSE_SEC = 0.02
"""Between two messages of one client: the log must not outgrow the monitor."""


@pytest.fixture
def watch(place: Path) -> Watch:
    return Watch(place, now=None, pins=["first"], waits=True, grace=20.0)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with serving(tmp_path / "hub", config="hub_log: {max_entries: 1}") as served:
        yield served


def send(hub: HubProcess, *streams: str, state: Path | None = None, times: int = 3) -> list[Receipt]:
    """Send messages to each of the streams, one by one."""

    async def work() -> list[Receipt]:
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=state, retry=QUICK) as connected:
            return [
                await connected.stream(name).send(f"message {n}") for n in range(times) for name in streams
            ]

    return run(work())


def policy_of(town: Watched, *, max_age: int = 300) -> WitnessPolicy:
    """The town's policy, with the address of our witness: it is the one that a monitor can ask."""
    text = town.policy_text(max_age=max_age)
    return parse_policy(text.replace(town.ours.vkey, f"{town.ours.vkey} {town.ours.url}").encode())


# --- honest hubs


def test_an_honest_hub_with_clients_that_kept_their_state_is_left_alone(
    hub: HubProcess, watch: Watch, tmp_path: Path
) -> None:
    watch.seen = [tmp_path / "state"]
    for _ in range(3):
        send(hub, "one", "two", "three", state=tmp_path / "state")
        assert watch.round(hub.url) == []
    assert watch.checked > [3]
    assert not watch.unclaimed
    assert not watch.changes


def test_the_journal_of_a_client_that_runs_is_read_too(hub: HubProcess, tmp_path: Path) -> None:
    """Records are written to their files only when the client ends."""

    async def work() -> set[str]:
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path / "state") as connected:
            for n in range(3):
                await connected.stream("one").send(f"message {n}")
            seen = await asyncio.to_thread(SeenFiles([tmp_path / "state"]).read)
            return {each.name.rpartition(".")[2] for each in seen.receipts}

    assert run(work()) == {"journal"}


@asynccontextmanager
async def monitoring(
    watch: Watch, policy: WitnessPolicy | None, *urls: str, seen: Path
) -> AsyncIterator[Monitor]:
    """A monitor that makes rounds without a pause."""
    watch.policy = policy
    stopping = asyncio.Event()

    def report(_hub: HubMonitor, change: FindingChange) -> None:
        watch.changes.append(change)

    def trouble(why: str | None) -> None:
        assert why is None, why

    with MonitorState(watch.place / "state") as state:
        monitor = Monitor(urls, state, watch.settings(), seen=SeenFiles([seen]), report=report)
        running = asyncio.create_task(monitor.run(0.1, stopping, trouble))
        try:
            yield monitor
        finally:
            stopping.set()
            await running
            await monitor.close()


def is_unreachable(hub: HubMonitor) -> bool:
    return any(each.finding.key is Key.UNREACHABLE for each in hub.findings)


def test_an_honest_hub_under_load_with_restarts_and_kills_is_never_accused(
    watch: Watch, tmp_path: Path
) -> None:
    """Two witnesses cosign; clients write to new and old labels; the hub is stopped, killed and started."""

    sent = {"alice": 0, "bob": 0}

    async def write(town: Watched, name: str, until: asyncio.Event) -> None:
        async with connect(
            town.hub.url,
            person(name),
            trust=town.hub.hub_id,
            state=tmp_path / "clients" / name,
            retry=PATIENT,
        ) as hub:
            while not until.is_set():
                await hub.stream(f"{name} {sent[name] % 7}").send(f"message {sent[name]}")
                sent[name] += 1
                await asyncio.sleep(PAUSE_SEC)

    async def more(watched_hub: HubMonitor) -> None:
        """Wait until both clients have written to all their labels, and the monitor has looked meanwhile."""
        before, rounds = dict(sent), watched_hub.progress.rounds
        while any(sent[name] < before[name] + 8 for name in sent) or watched_hub.progress.rounds < rounds + 2:
            await asyncio.sleep(0.01)

    async def story(town: Watched) -> None:
        ended = asyncio.Event()
        (tmp_path / "clients").mkdir()
        async with monitoring(watch, policy_of(town), town.hub.url, seen=tmp_path / "clients") as monitor:
            writers = [asyncio.create_task(write(town, name, ended)) for name in sent]
            (watched_hub,) = monitor.hubs
            for end in (town.hub.stop, town.hub.kill):
                await more(watched_hub)
                await asyncio.to_thread(end)
                await asyncio.to_thread(town.hub.start)
            await more(watched_hub)
            ended.set()
            await asyncio.gather(*writers)
            while watched_hub.memory.known.labels < 14 or is_unreachable(watched_hub):
                await asyncio.sleep(0.1)
            assert [each.finding.message for each in watched_hub.findings] == []

    with watched(tmp_path, **AT_ONCE) as town:
        asyncio.run(asyncio.wait_for(story(town), 240))
    began = {change.found.finding.key for change in watch.changes if change.began}
    assert began <= {Key.UNREACHABLE}, [change.found.finding.message for change in watch.changes]
    assert not (watch.place / "evidence").exists()


@pytest.mark.parametrize("window", [1, 600])
def test_a_hub_that_rotates_its_key_is_never_accused(hub: HubProcess, watch: Watch, window: int) -> None:
    send(hub, "one", "two")
    assert watch.round(hub.url) == []
    hub.stop()
    now = int(time.time())
    rotate(hub.directory, SigningKey(SigningSeed(os.urandom(32))), UnixTime(now + 1), window)
    hub.start()
    while time.time() < now + 2 + min(window, 1):
        send(hub, "one", times=1)
        assert watch.round(hub.url) == []
    send(hub, "one", "three")
    assert watch.round(hub.url) == []
    assert not watch.changes


def test_a_hub_and_its_witnesses_agree_and_a_stopped_witness_is_named(watch: Watch, tmp_path: Path) -> None:
    with watched(tmp_path, **AT_ONCE) as town:
        watch.policy = policy_of(town)
        send(town.hub, "one", "two")
        assert watch.round(town.hub.url) == []
        town.ours.stop()
        found = watch.round(town.hub.url)
        assert [(each.finding.key, each.finding.subject) for each in found] == [
            (Key.UNREACHABLE, "witness ours")
        ]


def test_a_hub_whose_witnesses_are_gone_has_no_quorum_after_the_age_of_the_policy(
    watch: Watch, tmp_path: Path
) -> None:
    with watched(tmp_path, **AT_ONCE) as town:
        watch.policy = town.policy(max_age=1)
        send(town.hub, "one")
        assert watch.round(town.hub.url) == []
        town.ours.stop()
        send(town.hub, "one", times=1)
        time.sleep(2.5)
        assert keys(watch.round(town.hub.url))[0] in (Key.NO_QUORUM, Key.STALE)


# --- hubs that were restored, or run twice


def copy_of(hub: HubProcess, to: Path) -> Path:
    """Copy the data directory of a hub as a snapshot of its volume does."""
    hub.stop()
    shutil.copytree(hub.directory, to)
    hub.start()
    return to


def restore(hub: HubProcess, copy: Path) -> None:
    hub.kill()
    shutil.rmtree(hub.directory)
    shutil.copytree(copy, hub.directory)
    hub.start()


def test_a_restored_hub_is_reported_at_once_and_convicted_by_what_it_signs_next(
    hub: HubProcess, watch: Watch, tmp_path: Path
) -> None:
    send(hub, "one", "two")
    copy = copy_of(hub, tmp_path / "copy")
    send(hub, "one", times=5)
    assert watch.round(hub.url) == []
    restore(hub, copy)
    found = watch.round(hub.url)
    assert keys(found) == [Key.ROLLBACK]
    send(hub, "two", times=8)
    found = [each for each in watch.round(hub.url) if each.finding.key is not Key.ROLLBACK]
    convicted(found, Key.FORK, hub.hub_id)


def test_a_restored_hub_is_convicted_by_a_client_that_remembers(
    hub: HubProcess, watch: Watch, tmp_path: Path
) -> None:
    """The monitor has never seen the longer log, but the client has a receipt from it."""
    send(hub, "one")
    copy = copy_of(hub, tmp_path / "copy")
    lost = send(hub, "one", times=2)[-1]
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "lost.cbor").write_bytes(lost.encode())
    restore(hub, copy)
    watch.seen, watch.grace = [tmp_path / "seen"], 3.0
    assert keys(watch.round(hub.url)) == [Key.SEEN_MISSING]
    send(hub, "one", times=6)
    convicted(watch.round(hub.url), Key.LABEL_FORK, hub.hub_id)


def test_a_hub_that_runs_twice_is_convicted_by_its_two_addresses(
    hub: HubProcess, watch: Watch, tmp_path: Path
) -> None:
    send(hub, "one", "two")
    hub.stop()
    options: dict[str, Any] = {"config": "hub_log: {max_entries: 1}", "twin_of": hub}
    with serving(tmp_path / "twin", **options) as twin:
        hub.start()
        send(hub, "one", times=4)
        send(twin, "two", times=6)
        found = watch.round(hub.url, twin.url)
        found = found or watch.round(hub.url, twin.url)
        assert found
        for each in found:  # one, or two if both logs happen to have the same size
            convicted([each], Key.FORK, hub.hub_id)


def test_a_restored_hub_is_caught_with_the_help_of_a_witness_alone(watch: Watch, tmp_path: Path) -> None:
    """The monitor starts after the restore; the hub is configured without its witnesses, and signs."""
    with watched(tmp_path, **AT_ONCE) as town:
        send(town.hub, "one", "two")
        copy = copy_of(town.hub, tmp_path / "copy")
        send(town.hub, "one", times=4)
        town.hub._config.write_text("hub_log: {max_entries: 1, memories: {required: 0}}")
        restore(town.hub, copy)
        send(town.hub, "two", times=9)
        watch.policy, watch.grace = policy_of(town), 3.0
        found = [each for each in watch.round(town.hub.url) if each.file is not None]
        convicted(found, Key.COSIGNATURES_DISAGREE, town.hub.hub_id)
