"""The monitor against forged hubs: what contradicts is found and proved, what agrees is left alone."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core import hub_identity
from veen_core.api import ConsistencyResponse
from veen_core.hub_fork import HubLogFork, LabelFork
from veen_core.hub_log import LabelHead, note_key, origin_of
from veen_core.ids import HubPk, MmrRoot, StreamSeq, UnixTime
from veen_core.tlog.add_checkpoint import AddCheckpoint
from veen_core.tlog.policy import WitnessPolicy, parse_policy
from veen_core.tlog.tree import leaf_hash, tree_at
from veen_hub.monitor import hub_monitor, memory
from veen_hub.monitor.findings import Key
from veen_hub.monitor.hub_identification import FIRST
from veen_hub.monitor.monitor import Monitor, MonitorState
from veen_hub.witness.contradiction import TWO_ROOTS, LogContradiction

from .client_witnesses import WitnessProcess
from .forged_hub import (
    HUB_ID,
    IDENTITY,
    KEY,
    ForgedHub,
    ForgedWitness,
    ForgedWitnessServer,
    History,
    label,
)
from .monitoring import Watch, convicted, keys
from .people import BORN, signing_key
from .serving import request

LATER = UnixTime(BORN + 100_000)
ALICE, BOB = ForgedWitness("alice.example"), ForgedWitness("bob.example")


@pytest.fixture
def watch(place: Path) -> Watch:
    return Watch(place)


@pytest.fixture
def hub() -> Iterator[ForgedHub]:
    """A hub with two labels and nine heads in its hub log."""
    history = History()
    history.send("a", "1", "2")
    history.send("b", "1")
    history.extend()
    history.grow("a", 5).grow("b", 2)
    with ForgedHub(history) as served:
        yield served


def forked(history: History, at: int) -> History:
    """Another history of the same hub, which has the same first ``at`` entries in its hub log."""
    other = History(now=history.now)
    other.labels, other.times = history.copy().labels, history.copy().times
    for entry in history.entries[:at]:
        other.add(entry)
    other.grow("c", history.log.size - at + 3)
    return other


# --- honest hubs


def test_an_honest_hub_is_never_accused(hub: ForgedHub, watch: Watch) -> None:
    for _ in range(20):
        hub.history.grow("a", 3).grow("new " + str(hub.history.now), 1)
        assert watch.round(hub.url) == []
    assert watch.checked == [hub.history.log.size]
    assert not watch.changes
    assert not (watch.place / "evidence").exists()


def test_a_hub_without_a_hub_checkpoint_is_left_alone(watch: Watch) -> None:
    with ForgedHub(History()) as hub:
        assert watch.round(hub.url) == []


def test_every_head_is_compared_with_the_one_before_it(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    labels = {LabelHead.decode(entry).label for entry in hub.history.entries}
    assert hub.asked.count("/v1/consistency") == len(hub.history.entries) - len(labels)


def test_a_monitor_continues_where_it_stopped(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    hub.asked.clear()
    assert watch.round(hub.url) == []
    assert "/v1/consistency" not in hub.asked
    hub.history.grow("a", 1)
    watch.round(hub.url)
    assert hub.asked.count("/v1/consistency") == 1


def test_a_hub_that_rotates_its_key_is_followed(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    newer = signing_key("newer key")
    rotated_at = UnixTime(hub.history.now + 1)
    hub.history.grow("a", 5)
    assert (
        watch.round(hub.url) == []
    )  # it knows entries from after the old key's end, and not yet the new key
    hub.identity = hub_identity.rotate(IDENTITY, KEY, HubPk(newer.public), rotated_at, window_sec=2)
    hub.key = newer
    hub.history.grow("a", 5)
    assert watch.round(hub.url) == []
    assert watch.checked == [hub.history.log.size]


def test_damage_on_the_way_is_asked_again_and_accuses_nobody(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    hub.history.grow("a", 2).grow("b", 3)
    spoiled: set[str] = set()

    def spoil(path: str, data: bytes) -> bytes:
        if path in ("/v1/status", "/log/checkpoint") or path in spoiled:
            return data
        spoiled.add(path)
        return bytes([*data[:-1], data[-1] ^ 1])

    hub.spoil = spoil
    assert watch.round(hub.url) == []
    assert any("entries" in path for path in spoiled)
    assert "/v1/consistency" in spoiled


def test_a_hub_that_withholds_its_tiles_is_reported_without_evidence(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    hub.history.grow("a", 2)
    hub.spoil = lambda path, data: data[:-1] if "/log/tile" in path else data
    found = watch.round(hub.url)
    assert keys(found) == [Key.INVALID]
    assert found[0].file is None
    assert "does not serve its log of" in found[0].finding.message
    hub.spoil = lambda _path, data: data
    assert watch.round(hub.url) == []


def test_a_hub_that_does_not_answer_is_unreachable_and_comes_back(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    hub.is_silent = True
    assert keys(watch.round(hub.url)) == [Key.UNREACHABLE]
    hub.is_silent = False
    assert watch.round(hub.url) == []


def test_a_hub_that_answers_slowly_does_not_keep_the_monitor_from_the_others(
    hub: ForgedHub, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_monitor, "MAX_OVERRUN_SEC", 1.0)
    released = threading.Event()

    def wait_long(_path: str, data: bytes) -> bytes:
        released.wait(5)  # each answer in time, all of them together not
        return data

    async def story() -> list[list[Key]]:
        with MonitorState(None) as state:
            monitor = Monitor([slow.url, hub.url], state, watch.settings(), report=lambda *_: None)
            try:
                await monitor.round(time.monotonic())
                return [[each.finding.key for each in one.findings] for one in monitor.hubs]
            finally:
                await monitor.close()

    with ForgedHub(hub.history.copy()) as slow:
        slow.spoil = wait_long
        started = time.monotonic()
        try:
            assert asyncio.run(story()) == [[Key.UNREACHABLE], []]
        finally:
            released.set()
    assert time.monotonic() - started < 10


def test_findings_stay_open_while_the_hub_cannot_be_asked(hub: ForgedHub, watch: Watch) -> None:
    async def run() -> list[list[Key]]:
        with MonitorState(None) as state:
            monitor = Monitor(
                [hub.url], state, watch.settings(), report=lambda _hub, change: watch.changes.append(change)
            )
            rounds: list[list[Key]] = []
            for shown, silent in ((None, False), (old, False), (old, True), (None, False)):
                hub.shown, hub.is_silent = shown, silent
                await monitor.round()
                rounds.append(keys(list(monitor.hubs[0].findings)))
            await monitor.close()
            return rounds

    old = hub.history.checkpoint(5)
    assert asyncio.run(run()) == [[], [Key.STALE], [Key.STALE, Key.UNREACHABLE], []]
    assert [(change.found.finding.key, change.began) for change in watch.changes] == [
        (Key.STALE, True),
        (Key.UNREACHABLE, True),
        (Key.STALE, False),
        (Key.UNREACHABLE, False),
    ]


# --- forks of the hub log


def test_a_hub_that_shows_another_log_of_the_same_size_is_convicted(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    size = hub.history.log.size
    other = forked(hub.history, 4)
    hub.history, hub.shown = other, other.checkpoint(size)
    evidence = convicted(watch.round(hub.url), Key.FORK)
    assert isinstance(evidence, HubLogFork)
    assert evidence.cut is None


@pytest.mark.parametrize("common", [0, 1, 6, 8])
def test_a_hub_that_shows_a_longer_log_that_forks_off_is_convicted(
    hub: ForgedHub, watch: Watch, common: int
) -> None:
    watch.round(hub.url)
    hub.history = forked(hub.history, common)
    evidence = convicted(watch.round(hub.url), Key.FORK)
    assert isinstance(evidence, HubLogFork)
    assert evidence.cut is not None


def test_a_hub_that_rolls_back_and_forks_is_convicted_although_it_threw_its_log_away(
    hub: ForgedHub, watch: Watch
) -> None:
    watch.round(hub.url)
    other = forked(hub.history, 4)
    hub.history, hub.shown = other, other.checkpoint(6)
    evidence = convicted(watch.round(hub.url), Key.FORK)
    assert isinstance(evidence, HubLogFork)


def test_a_fork_is_written_once_and_never_ends(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    honest = hub.history
    hub.history = forked(hub.history, 4)
    watch.round(hub.url)
    hub.history.grow("c", 3)
    watch.round(hub.url)
    hub.history = honest
    assert keys(watch.round(hub.url)) == [Key.FORK]
    assert len(list((watch.place / "evidence").iterdir())) == 1
    assert [change.began for change in watch.changes] == [True]


def test_two_addresses_of_one_hub_that_show_two_logs_convict_it(hub: ForgedHub, watch: Watch) -> None:
    with ForgedHub(forked(hub.history, 4)) as other:
        found = watch.round(hub.url, other.url, times=2)
    assert keys(found) == [Key.FORK]
    assert found[0].finding.subject == f"address {hub.url}"
    assert found[0].file is not None


def test_an_address_that_is_behind_another_is_no_finding(hub: ForgedHub, watch: Watch) -> None:
    behind = hub.history.copy()
    with ForgedHub(behind) as replica:
        hub.history.grow("a", 3)
        assert watch.round(hub.url, replica.url, times=3) == []


# --- rollbacks


def test_a_hub_that_lost_its_log_is_reported_at_once_and_convicted_when_it_signs_another(
    hub: ForgedHub, watch: Watch
) -> None:
    early = hub.history.copy()
    hub.history.grow("a", 4)
    watch.round(hub.url)
    hub.history = early
    found = watch.round(hub.url)
    assert keys(found) == [Key.ROLLBACK]
    assert found[0].file is None
    assert "this is not evidence" in found[0].finding.message
    early.grow("b", 6)
    convicted(watch.round(hub.url), Key.FORK)


def test_an_old_checkpoint_of_a_hub_that_has_its_log_is_stale_and_convicts_nobody(
    hub: ForgedHub, watch: Watch
) -> None:
    watch.round(hub.url)
    hub.shown = hub.history.checkpoint(5)
    found = watch.round(hub.url)
    assert keys(found) == [Key.STALE]
    assert "this is not evidence" in found[0].finding.message
    hub.shown = None
    assert watch.round(hub.url) == []


def test_a_hub_that_first_shows_an_old_checkpoint_and_then_throws_its_log_away_is_a_rollback(
    hub: ForgedHub, watch: Watch
) -> None:
    """What the monitor has read before does not stand for what the hub serves now."""

    async def run() -> list[list[Key]]:
        with MonitorState(None) as state:
            monitor = Monitor([hub.url], state, watch.settings(), report=lambda *_: None)
            rounds: list[list[Key]] = []
            for history, shown in ((whole, None), (whole, old), (early, None)):
                hub.history, hub.shown = history, shown
                await monitor.round()
                rounds.append(keys(list(monitor.hubs[0].findings)))
            await monitor.close()
            return rounds

    early = hub.history.copy()
    hub.history.grow("a", 4)
    whole, old = hub.history, early.checkpoint()
    assert asyncio.run(run()) == [[], [Key.STALE], [Key.ROLLBACK]]


def test_a_hub_that_denies_its_log_is_reported(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    hub.history = History()
    assert keys(watch.round(hub.url)) == [Key.ROLLBACK]


def test_old_nodes_are_forgotten_and_a_fork_before_them_is_still_found(
    hub: ForgedHub, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "WINDOW_ENTRIES", 16)
    for _ in range(30):
        hub.history.grow("a", 2)
        assert watch.round(hub.url) == []
    with MonitorState(watch.place / "state") as state:
        kept = memory.HubMemory(state.table, hub.url)
        size = hub.history.log.size
        assert kept.tree.root == hub.history.log.roots[size]
        for at in range(size - 16, size):
            assert tree_at(at, kept.node).root == hub.history.log.roots[at]
        with pytest.raises(KeyError):
            kept.node(0, 3)
        nodes = list(state.table.scan(kept._key(b"n"), kept._key(b"o")))
        assert len(nodes) < 16 * 2 + 2 * 16
    other = forked(hub.history, 4)
    hub.shown = other.checkpoint(7)  # the hub still serves the tiles of its longer log
    convicted(watch.round(hub.url), Key.FORK)


# --- labels


def test_a_hub_log_in_which_a_label_goes_back_convicts_the_hub(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    hub.history.add(hub.history.head("a", 3))
    evidence = convicted(watch.round(hub.url), Key.LABEL_ROLLED_BACK)
    assert isinstance(evidence, LabelFork)
    hub.history.grow("a", 2)
    assert keys(watch.round(hub.url)) == [Key.LABEL_ROLLED_BACK]


def test_a_head_that_appears_twice_convicts_the_hub(hub: ForgedHub, watch: Watch) -> None:
    hub.history.add(hub.history.head("a"))
    convicted(watch.round(hub.url), Key.LABEL_ROLLED_BACK)


def test_a_head_that_does_not_extend_the_one_before_convicts_the_hub(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    size = hub.history.labels["a"].size
    other = History(now=hub.history.now)
    other.send("a", *(f"other {n}" for n in range(size + 2)))
    hub.history.labels["a"], hub.history.times["a"] = other.labels["a"], other.times["a"]
    hub.history.now = other.now
    hub.history.moved.add("a")
    hub.history.extend()
    evidence = convicted(watch.round(hub.url), Key.LABEL_FORK)
    assert isinstance(evidence, LabelFork)


def test_a_forged_root_between_honest_heads_convicts_the_hub(hub: ForgedHub, watch: Watch) -> None:
    """The label itself is honest; only the hub log once said something else about it."""
    hub.history.send("a", "more")
    wrong = dataclasses.replace(hub.history.head("a"), mmr_root=MmrRoot(leaf_hash(b"wrong")))
    hub.history.add(wrong)
    hub.history.moved.clear()
    hub.history.grow("a", 2)
    found = watch.round(hub.url)
    convicted(found, Key.LABEL_FORK)


def test_a_hub_that_cannot_prove_a_step_is_asked_again_until_it_can(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    hub.history.grow("a", 1)
    hub.spoil = lambda path, data: b"" if path == "/v1/consistency" else data
    found = watch.round(hub.url)
    assert keys(found) == [Key.LABEL_FORK]
    assert found[0].file is None
    assert keys(watch.round(hub.url)) == [Key.LABEL_FORK]
    assert watch.checked == [hub.history.log.size]
    hub.spoil = lambda _path, data: data
    assert watch.round(hub.url) == []


def test_a_step_that_is_proved_does_not_answer_for_an_earlier_one_of_its_label(
    hub: ForgedHub, watch: Watch
) -> None:
    """Else a hub that forked a label would be forgiven after it withheld one more proof, and then gave it."""
    watch.round(hub.url)
    first = hub.history.head("a").upto_seq
    hub.spoil = lambda path, data: b"" if path == "/v1/consistency" else data
    for count in (1, 2):  # in a round of its own, and two in one round
        hub.history.grow("a", count)
        assert keys(watch.round(hub.url)) == [Key.LABEL_FORK]

    def withhold_the_first(path: str, data: bytes) -> bytes:
        is_first = (
            path == "/v1/consistency" and ConsistencyResponse.decode(data).mmr_consistency.from_seq == first
        )
        return b"" if is_first else data

    hub.spoil = withhold_the_first
    for _ in range(2):
        found = watch.round(hub.url)
        assert keys(found) == [Key.LABEL_FORK]
        assert f"does not extend the head at {first}:" in found[0].finding.message
    hub.spoil = lambda _path, data: data
    assert watch.round(hub.url) == []


def test_an_entry_that_is_no_head_is_reported_for_ever(hub: ForgedHub, watch: Watch) -> None:
    hub.history.add(b"not a head")
    hub.history.add(dataclasses.replace(hub.history.head("a"), upto_seq=StreamSeq(0), label=label("z")))
    late = hub.history.send("a", "late")
    hub.history.add(dataclasses.replace(hub.history.head("a"), hub_ts=UnixTime(late.hub_ts - 5)))
    for _ in range(2):
        found = watch.round(hub.url)
        assert keys(found) == [Key.INVALID] * 3
        assert {each.finding.subject for each in found} == {"entry 9", "entry 10", "entry 11"}


def test_many_forked_labels_are_counted_and_not_all_listed(watch: Watch) -> None:
    history = History()
    names = [f"label {n}" for n in range(130)]
    for name in names:
        history.send(name, "1", "2")
    history.extend()
    for name in names:
        history.add(history.head(name, 1))
    with ForgedHub(history) as hub:
        found = watch.round(hub.url)
    assert len(found) == 100
    assert len(list((watch.place / "evidence").iterdir())) == 100


# --- what clients saw


def test_receipts_below_the_heads_are_asked_for_once(hub: ForgedHub, watch: Watch) -> None:
    for seq in (1, 4, 7):
        watch.keep(f"{seq}.cbor", hub.history.receipt("a", seq).encode())
    watch.round(hub.url)
    before = hub.asked.count("/v1/consistency")
    assert watch.round(hub.url, times=3) == []
    assert hub.asked.count("/v1/consistency") - before == 2  # in the first round; the newest is the head


def test_a_receipt_that_the_hub_log_does_not_cover_is_missing(hub: ForgedHub, watch: Watch) -> None:
    lost = hub.history.copy().send("a", "lost")
    watch.keep("lost.cbor", lost.encode())
    found = watch.round(hub.url)
    assert keys(found) == [Key.SEEN_MISSING]
    assert "no such entry" in found[0].finding.message
    assert found[0].file is None


def test_a_receipt_of_a_label_that_the_hub_dropped_is_missing(watch: Watch) -> None:
    history = History()
    history.send("a", "1")
    dropped = history.send("b", "1")
    history.extend("b").grow("a", 2)
    watch.grace = 3_600
    watch.keep("b.cbor", dropped.encode())
    with ForgedHub(history) as hub:
        found = watch.round(hub.url)
    assert keys(found) == [Key.SEEN_MISSING]
    assert "although the hub has it" in found[0].finding.message


def test_a_young_receipt_gets_a_grace_period(hub: ForgedHub, watch: Watch) -> None:
    watch.grace = 3_600
    watch.keep("new.cbor", hub.history.send("a", "new").encode())
    assert watch.round(hub.url) == []
    hub.history.extend()
    assert watch.round(hub.url) == []


def test_a_receipt_of_a_replaced_message_convicts_the_hub(hub: ForgedHub, watch: Watch) -> None:
    replaced = hub.history.copy().send("a", "what the client sent")
    watch.keep("client.cbor", replaced.encode())
    hub.history.grow("a", 3)
    evidence = convicted(watch.round(hub.url), Key.LABEL_FORK)
    assert isinstance(evidence, LabelFork)


def test_a_replaced_message_that_the_hub_log_does_not_cover_convicts_the_hub(
    hub: ForgedHub, watch: Watch
) -> None:
    watch.keep("client.cbor", hub.history.copy().send("a", "what the client sent").encode())
    hub.history.send("a", "what the hub has")
    convicted(watch.round(hub.url), Key.LABEL_FORK)


def test_a_hub_checkpoint_that_a_client_kept_convicts_a_hub_that_forked(hub: ForgedHub, watch: Watch) -> None:
    watch.keep("shown.note", forked(hub.history, 4).checkpoint(7).encode())
    convicted(watch.round(hub.url), Key.FORK)


def test_a_larger_hub_checkpoint_that_a_client_kept_is_a_rollback(hub: ForgedHub, watch: Watch) -> None:
    watch.keep("shown.note", hub.history.copy().grow("a", 3).checkpoint().encode())
    found = watch.round(hub.url)
    assert keys(found) == [Key.ROLLBACK]
    hub.history.grow("a", 5)
    # The same labels at the same times: the hub's next entries are those of the client's checkpoint.
    assert watch.round(hub.url) == []


def test_two_clients_with_two_logs_convict_a_hub_that_shows_neither(hub: ForgedHub, watch: Watch) -> None:
    one, other = hub.history.copy().grow("a", 3), hub.history.copy().grow("b", 3)
    watch.keep("one.note", one.checkpoint().encode())
    watch.keep("other.note", other.checkpoint().encode())
    watch.grace = 3_600
    convicted(watch.round(hub.url), Key.FORK)


def test_a_checkpoint_of_another_log_of_the_hub_is_reported(hub: ForgedHub, watch: Watch) -> None:
    watch.keep("other.note", hub.history.checkpoint(origin="second.example/log").encode())
    found = watch.round(hub.url)
    assert keys(found) == [Key.INVALID]
    assert "two logs" in found[0].finding.message


def test_statements_of_other_hubs_are_left_out_and_named(hub: ForgedHub, watch: Watch) -> None:
    stranger = signing_key("stranger")
    path = watch.keep("other.cbor", hub.history.receipt("a", 2, stranger).encode())
    watch.keep("other.note", hub.history.checkpoint(key=stranger).encode())
    assert watch.round(hub.url) == []
    assert watch.unclaimed == {str(path)}


# --- witnesses


def policy_of(*servers: ForgedWitnessServer, quorum: str = "all", max_age: int = 300) -> WitnessPolicy:
    lines = [
        f"witness {server.witness.name} {server.witness.verifier.text} {server.url}" for server in servers
    ]
    names = " ".join(server.witness.name for server in servers)
    return parse_policy(
        "\n".join([*lines, f"group g {quorum} {names}", "quorum g", f"#veen max-age {max_age}"]).encode()
    )


@pytest.fixture
def alice(hub: ForgedHub) -> Iterator[ForgedWitnessServer]:
    hub.signed_by = [ALICE]
    with ForgedWitnessServer(ALICE) as served:
        yield served


def test_a_hub_and_its_witness_that_agree_are_left_alone(
    hub: ForgedHub, alice: ForgedWitnessServer, watch: Watch
) -> None:
    watch.policy = policy_of(alice)
    for _ in range(3):
        alice.newest = hub.history.grow("a", 2).checkpoint(by=[ALICE])
        assert watch.round(hub.url) == []


def test_a_witness_that_cosigned_another_log_convicts_the_hub(
    hub: ForgedHub, alice: ForgedWitnessServer, watch: Watch
) -> None:
    watch.policy = policy_of(alice)
    alice.newest = forked(hub.history, 4).checkpoint(7, by=[ALICE])
    found = watch.round(hub.url)
    assert found[0].finding.subject == "witness alice.example"
    convicted(found, Key.COSIGNATURES_DISAGREE)


def test_a_witness_that_is_ahead_gets_a_grace_period_and_then_shows_a_rollback(
    hub: ForgedHub, alice: ForgedWitnessServer, watch: Watch
) -> None:
    watch.policy, watch.grace = policy_of(alice), 3_600
    ahead = hub.history.copy().grow("a", 2)
    alice.newest = ahead.checkpoint(by=[ALICE])
    assert watch.round(hub.url) == []
    watch.grace = 0
    found = watch.round(hub.url)
    assert keys(found) == [Key.ROLLBACK]
    hub.history = ahead
    assert watch.round(hub.url) == []


def test_a_witness_that_lost_its_memory_disagrees_without_evidence(
    hub: ForgedHub, alice: ForgedWitnessServer, watch: Watch
) -> None:
    watch.policy = policy_of(alice)
    alice.newest = hub.history.checkpoint(by=[ALICE])
    watch.round(hub.url)
    alice.newest = hub.history.checkpoint(3, by=[ALICE])
    found = watch.round(hub.url)
    assert keys(found) == [Key.COSIGNATURES_DISAGREE]
    assert "lost its memory" in found[0].finding.message
    assert found[0].file is None


def test_a_checkpoint_that_the_witness_did_not_cosign_is_invalid(
    hub: ForgedHub, alice: ForgedWitnessServer, watch: Watch
) -> None:
    watch.policy = policy_of(alice)
    alice.newest = hub.history.checkpoint(by=[BOB])
    found = watch.round(hub.url)
    assert keys(found) == [Key.INVALID]
    assert "has not cosigned" in found[0].finding.message


def test_a_contradiction_that_a_witness_kept_convicts_the_hub(
    hub: ForgedHub, alice: ForgedWitnessServer, watch: Watch
) -> None:
    watch.policy = policy_of(alice)
    other = forked(hub.history, 4)
    pair = hub.history.checkpoint(7), other.checkpoint(7)
    kept = LogContradiction(
        claim=TWO_ROOTS, notes=tuple(each.encode().decode() for each in pair), seen_at=LATER
    )
    alice.contradictions[kept.id] = kept.encode()
    listed = {"id": kept.id, "is_evidence": True}
    alice.logs = json.dumps({"logs": [{"origin": pair[0].head.origin, "contradictions": [listed]}]}).encode()
    found = watch.round(hub.url)
    assert Key.COSIGNATURES_DISAGREE in keys(found)
    assert all(each.file is not None for each in found)


def test_a_second_log_that_a_hub_showed_to_a_real_witness_convicts_it(
    hub: ForgedHub, watch: Watch, place: Path
) -> None:
    """The witness refuses to cosign the second one and keeps it; the monitor saw the first only."""
    honest, other = hub.history.checkpoint(7), forked(hub.history, 4).checkpoint(7)
    vkey = note_key(IDENTITY.hub_keys[0], honest.head.origin).text
    witness = WitnessProcess(place / "witness", "real.example/w", [vkey])
    try:
        for old, shown, status in ((0, honest, 200), (7, other, 409)):
            body = AddCheckpoint(old, (), shown).encode()
            port = int(witness.url.rpartition(":")[2])
            assert request(port, "POST", "/add-checkpoint", body).status == status
        watch.policy = parse_policy(f"witness real {witness.vkey} {witness.url}\nquorum none\n".encode())
        convicted(watch.round(hub.url), Key.COSIGNATURES_DISAGREE)
    finally:
        witness.stop()


def test_cosignatures_too_few_and_too_old_are_told_apart(
    hub: ForgedHub, alice: ForgedWitnessServer, watch: Watch
) -> None:
    with ForgedWitnessServer(BOB) as bob:
        watch.policy = policy_of(alice, bob)
        found = watch.round(hub.url)
        assert keys(found) == [Key.NO_QUORUM]
        assert "1 of 2 witnesses" in found[0].finding.message
        hub.signed_by = [ALICE, BOB]
        assert watch.round(hub.url) == []
        watch.now += 10_000
        found = watch.round(hub.url)
        assert keys(found) == [Key.STALE]


def test_cosignatures_may_be_late_until_the_age_of_the_policy(
    hub: ForgedHub, alice: ForgedWitnessServer, watch: Watch
) -> None:
    watch.policy = policy_of(alice)
    watch.round(hub.url)
    hub.signed_by = []
    hub.history.grow("a", 1)
    assert watch.round(hub.url) == []
    watch.now += 301
    assert keys(watch.round(hub.url)) == [Key.NO_QUORUM]


def test_a_witness_that_does_not_answer_is_named(hub: ForgedHub, watch: Watch) -> None:
    hub.signed_by = [ALICE]
    with ForgedWitnessServer(ALICE) as alice:
        watch.policy = policy_of(alice)
    found = watch.round(hub.url)
    assert keys(found) == [Key.UNREACHABLE]
    assert found[0].finding.subject == "witness alice.example"


# --- which hub


def test_another_hub_than_the_pinned_one_is_refused(hub: ForgedHub, watch: Watch) -> None:
    watch.pins = ["00" * 32]
    found = watch.round(hub.url)
    assert keys(found) == [Key.INVALID]
    assert f"--trust {HUB_ID.hex()}" in found[0].finding.message


def test_a_hub_that_is_replaced_after_it_was_pinned_is_refused(hub: ForgedHub, watch: Watch) -> None:
    watch.pins = [FIRST]
    assert watch.round(hub.url) == []
    stranger = signing_key("stranger")
    hub.identity, hub.key = hub_identity.new_identity(stranger, UnixTime(BORN)), stranger
    found = watch.round(hub.url)
    assert keys(found) == [Key.INVALID]
    assert "not the hub that was pinned" in found[0].finding.message


def test_a_policy_that_names_the_log_pins_the_hub(hub: ForgedHub, watch: Watch) -> None:
    name = "hubs.example/one"
    line = f"log {note_key(IDENTITY.hub_keys[0], name).text}\nquorum none\n"
    watch.pins, watch.policy = [], parse_policy(line.encode())
    hub.origin = name
    assert watch.round(hub.url) == []


def test_pins_decide_alone_whatever_the_policy_or_an_earlier_run_says(hub: ForgedHub, watch: Watch) -> None:
    assert watch.round(hub.url) == []
    line = f"log {note_key(IDENTITY.hub_keys[0], origin_of(HUB_ID)).text}\nquorum none\n"
    watch.pins, watch.policy = ["00" * 32], parse_policy(line.encode())
    assert keys(watch.round(hub.url)) == [Key.INVALID]
    watch.has_state = False
    assert keys(watch.round(hub.url)) == [Key.INVALID]


def test_a_checkpoint_that_the_hub_did_not_sign_is_invalid(hub: ForgedHub, watch: Watch) -> None:
    hub.shown = hub.history.checkpoint(key=signing_key("stranger"))
    found = watch.round(hub.url)
    assert keys(found) == [Key.INVALID]
    assert "no key of the hub signed it" in found[0].finding.message


def test_a_key_that_has_ended_cannot_sign_a_longer_log(hub: ForgedHub, watch: Watch) -> None:
    newer = signing_key("newer key")
    hub.identity = hub_identity.rotate(
        IDENTITY, KEY, HubPk(newer.public), UnixTime(hub.history.now), window_sec=0
    )
    hub.key = newer
    hub.history.grow("a", 2)
    assert watch.round(hub.url) == []
    hub.history.grow("a", 2)
    hub.shown = hub.history.checkpoint(key=KEY)
    assert keys(watch.round(hub.url)) == [Key.INVALID]


# --- the state


def test_a_monitor_without_a_state_folder_reads_everything_each_time(hub: ForgedHub, watch: Watch) -> None:
    watch.has_state = False
    for _ in range(2):
        hub.asked.clear()
        assert watch.round(hub.url) == []
        assert "/v1/consistency" in hub.asked
    assert not (watch.place / "state").exists()


def test_a_finding_is_reported_although_its_evidence_cannot_be_written(hub: ForgedHub, watch: Watch) -> None:
    watch.round(hub.url)
    (watch.place / "evidence").write_text("in the way")
    hub.history = forked(hub.history, 4)
    with pytest.raises(OSError, match="evidence"):
        watch.round(hub.url)
    assert [change.found.finding.key for change in watch.changes] == [Key.FORK]
    (watch.place / "evidence").unlink()
    convicted(watch.round(hub.url), Key.FORK)


def test_a_label_that_went_back_is_found_again_if_its_evidence_could_not_be_written(
    hub: ForgedHub, watch: Watch
) -> None:
    (watch.place / "evidence").write_text("in the way")
    hub.history.add(hub.history.head("a", 3))
    with pytest.raises(OSError, match="evidence"):
        watch.round(hub.url)
    (watch.place / "evidence").unlink()
    convicted(watch.round(hub.url), Key.LABEL_ROLLED_BACK)
