"""A client with a witness policy: messages are confirmed by a quorum, and a stale hub is an error (P2)."""

from __future__ import annotations

import asyncio
import dataclasses
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core.errors import ConfigError, QuorumError, SignatureError, StateError
from veen_core.ids import UnixTime, VerifyKey
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.note import ED25519, NoteKey
from veen_core.tlog.policy import parse_policy
from veen_hub.client import MemoryStateStore, Unconfirmed, blocking, connect
from veen_hub.client.hub_log.checkpoints import RECORD, load_policy
from veen_hub.client.state.records import HubCheckpointRecord
from veen_storage.opening import rotation

from .client_fixtures import QUICK, person, run, serving
from .client_proxy import between
from .client_witnesses import AT_ONCE, INDEPENDENT, OURS, Watched, vkeys_of, watched
from .independent_witness import Answer

ALICE = person("alice")
LOG_PATHS = ("/log/", "/v1/hublog/")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("watched"), **AT_ONCE) as made:
        yield made


@pytest.fixture
def own_town(tmp_path: Path) -> Iterator[Watched]:
    """For a test that stops a witness or the hub."""
    with watched(tmp_path, **AT_ONCE) as made:
        yield made


# --- sending


def test_a_confirmed_send_returns_once_a_quorum_has_cosigned_the_message(town: Watched) -> None:
    async def story() -> None:
        async with connect(
            town.hub.url, ALICE, trust=town.hub.hub_id, witnesses=town.policy(), retry=QUICK
        ) as hub:
            before = hub.hub_checkpoint
            receipt = await hub.stream("confirmed").send("one", confirm=True)
            signed = hub.hub_checkpoint
            assert signed is not None
            assert before is None or signed.head.size > before.head.size
            assert {line.name for line in signed.note.signatures} == {signed.head.origin, OURS, INDEPENDENT}
            heads = (await hub.label_heads()).table.newest
            assert heads[receipt.label].upto_seq == receipt.stream_seq
            await hub.confirm(receipt)  # a receipt of any source

    run(story())


def test_many_messages_are_confirmed_by_one_wait_for_the_last(town: Watched) -> None:
    async def story() -> None:
        async with (
            between(town.hub.url) as proxy,
            connect(proxy.url, ALICE, trust=town.hub.hub_id, witnesses=town.policy(), retry=QUICK) as hub,
        ):
            proxy.requests.clear()
            sending = hub.stream("many").send_many((f"{n}" for n in range(500)), confirm=True)
            receipts = [receipt async for receipt in sending]
            assert len(receipts) == 500
            assert Counter(proxy.requests)["/v1/hublog/proof"] < 20
            messages = [message async for message in hub.stream("many").read()]
            assert [message.confirmed for message in messages] == [True] * 500

    run(story())


def test_senders_that_wait_at_the_same_time_share_their_requests(town: Watched) -> None:
    async def story() -> None:
        async with (
            between(town.hub.url) as proxy,
            connect(proxy.url, ALICE, trust=town.hub.hub_id, witnesses=town.policy(), retry=QUICK) as hub,
        ):
            stream = hub.stream("together")
            proxy.requests.clear()
            await asyncio.gather(*(stream.send(f"{n}", confirm=True) for n in range(100)))
            assert Counter(proxy.requests)["/v1/hublog/proof"] < 40

    run(story())


def test_confirming_needs_a_policy_and_says_so_before_anything_is_sent(town: Watched) -> None:
    async def story() -> None:
        async with connect(town.hub.url, ALICE, trust=town.hub.hub_id) as hub:
            stream = hub.stream("unwatched")
            with pytest.raises(StateError, match="witness policy"):
                await stream.send("one", confirm=True)
            with pytest.raises(StateError, match="witness policy"):
                stream.send_many(["one"], confirm=True)
            assert await stream.head() is None

    run(story())


def test_without_a_policy_no_request_is_added_and_no_message_is_confirmed_or_not(town: Watched) -> None:
    async def story() -> None:
        async with (
            between(town.hub.url) as proxy,
            connect(proxy.url, ALICE, trust=town.hub.hub_id) as hub,
        ):
            stream = hub.stream("plain")
            await stream.send("one")
            async for _ in stream.send_many(["two", "three"]):
                pass
            assert [message.confirmed async for message in stream.read()] == [None] * 3
            assert not [path for path in proxy.requests if path.startswith(LOG_PATHS)]
            assert hub.hub_checkpoint is None

    run(story())


def test_a_message_that_no_quorum_covers_in_time_is_reported_with_its_receipt(own_town: Watched) -> None:
    async def story() -> None:
        async with connect(
            own_town.hub.url, ALICE, trust=own_town.hub.hub_id, witnesses=own_town.policy(), retry=QUICK
        ) as hub:
            stream = hub.stream("orders")
            await stream.send("one", confirm=True)
            own_town.ours.stop()
            with pytest.raises(Unconfirmed, match="1 of 2 witnesses") as caught:
                await stream.send("two", confirm=True, confirm_timeout=5.0)
            (receipt,) = caught.value.receipts
            assert receipt.stream_seq == 2
            assert caught.value.action is not None
            assert "do not send it again" in caught.value.action
            sending = stream.send_many(["three", "four"], confirm=True, confirm_timeout=0.5)
            with pytest.raises(Unconfirmed):
                async for _ in sending:
                    pass
            assert sending.acknowledged == 2
            states = [(m.text, m.confirmed) async for m in stream.read()]
            assert states == [("one", True), ("two", False), ("three", False), ("four", False)]
            own_town.ours.start()
            await hub.confirm(receipt, timeout=60)

    run(story())


def test_a_quorum_of_one_is_enough_if_the_policy_says_so(own_town: Watched) -> None:
    own_town.ours.stop()

    async def story() -> None:
        async with connect(
            own_town.hub.url,
            ALICE,
            trust=own_town.hub.hub_id,
            witnesses=own_town.policy(quorum="any"),
            retry=QUICK,
        ) as hub:
            await hub.stream("orders").send("one", confirm=True)

    run(story())


# --- reading


def test_reading_a_long_stream_asks_for_few_proofs(town: Watched) -> None:
    async def story() -> None:
        async with (
            between(town.hub.url) as proxy,
            connect(proxy.url, ALICE, trust=town.hub.hub_id, witnesses=town.policy(), retry=QUICK) as hub,
        ):
            stream = hub.stream("long")
            async for _ in stream.send_many((f"{n}" for n in range(1_500)), confirm=True):
                pass
        async with (
            between(town.hub.url) as proxy,
            connect(proxy.url, ALICE, trust=town.hub.hub_id, witnesses=town.policy(), retry=QUICK) as hub,
        ):
            states = [message.confirmed async for message in hub.stream("long").read()]
            assert states == [True] * 1_500
            asked = Counter(proxy.requests)
            assert asked["/v1/hublog/proof"] == 1  # the newest head covers every page

    run(story())


def test_a_follower_says_of_each_message_whether_it_was_confirmed_when_it_came(own_town: Watched) -> None:
    own = own_town

    async def story() -> None:
        async with (
            connect(own.hub.url, ALICE, trust=own.hub.hub_id, witnesses=own.policy(), retry=QUICK) as reader,
            connect(own.hub.url, ALICE, trust=own.hub.hub_id, witnesses=own.policy(), retry=QUICK) as writer,
        ):
            await writer.stream("live").send("old", confirm=True)
            messages = reader.stream("live").follow()
            assert (await anext(messages)).confirmed is True
            own.other.answer = lambda _body: Answer(503, "away\n")
            await writer.stream("live").send("new")
            assert (await anext(messages)).confirmed is False
            await messages.aclose()

    run(story())


# --- quorums and their age


def test_a_hub_whose_log_no_quorum_has_ever_cosigned_is_refused(tmp_path: Path) -> None:
    with watched(tmp_path, **AT_ONCE) as made:
        made.other.answer = lambda _body: Answer(503, "away\n")

        async def story() -> None:
            async with connect(made.hub.url, ALICE, trust=made.hub.hub_id, retry=QUICK) as hub:
                await hub.stream("orders").send("one")
                while await hub.connection.api.hub_checkpoint() is None:
                    await asyncio.sleep(0.02)
            with pytest.raises(QuorumError, match="1 of 2 witnesses") as caught:
                async with connect(made.hub.url, ALICE, trust=made.hub.hub_id, witnesses=made.policy()):
                    pass
            assert caught.value.action is not None
            assert "witnesses run" in caught.value.action

        run(story())


def test_cosignatures_from_the_future_are_not_fresh(own_town: Watched) -> None:
    """Else one witness whose clock is ahead would switch off the age that a policy allows."""

    async def story() -> None:
        options = {"trust": own_town.hub.hub_id, "witnesses": own_town.policy()}
        async with connect(own_town.hub.url, ALICE, **options) as hub:  # type: ignore[arg-type]
            await hub.stream("orders").send("one", confirm=True)
            checkpoints = hub.confirmations.checkpoints if hub.confirmations is not None else None
            assert checkpoints is not None
            assert checkpoints.newest is not None
            assert checkpoints.newest.cosigned.quorum_at is not None
            assert not checkpoints.is_stale
            later = UnixTime(checkpoints.newest.cosigned.quorum_at + 31_536_000)
            cosigned = dataclasses.replace(checkpoints.newest.cosigned, quorum_at=later)
            checkpoints.newest = dataclasses.replace(checkpoints.newest, cosigned=cosigned)
            assert checkpoints.is_stale
            with pytest.raises(QuorumError, match="in the future"):
                checkpoints.check_age()

    run(story())


def test_cosignatures_older_than_the_policy_allows_are_an_error_and_not_a_warning(own_town: Watched) -> None:
    own, strict = own_town, own_town.policy(max_age=2)
    store = MemoryStateStore()

    async def story() -> None:
        options = {"trust": own.hub.hub_id, "witnesses": strict, "retry": QUICK, "state": store}
        async with connect(own.hub.url, ALICE, **options) as hub:  # type: ignore[arg-type]
            stream = hub.stream("orders")
            await stream.send("one", confirm=True)
            own.ours.stop()
            checkpoints = hub.confirmations.checkpoints if hub.confirmations is not None else None
            assert checkpoints is not None
            while not checkpoints.is_stale:
                await asyncio.sleep(0.1)
            with pytest.raises(QuorumError, match=r"\d s old, at most 2 s are allowed"):
                await anext(stream.read())
            with pytest.raises(Unconfirmed, match="at most 2 s are allowed"):
                await stream.send("two", confirm=True, confirm_timeout=1.0)
        with pytest.raises(QuorumError, match="at most 2 s are allowed") as caught:
            async with connect(own.hub.url, ALICE, **options):  # type: ignore[arg-type]
                pass
        assert caught.value.action is not None
        assert "veen witness status" in caught.value.action
        async with connect(  # one that allows more accepts the same hub
            own.hub.url, ALICE, trust=own.hub.hub_id, witnesses=own.policy(max_age=3_600), state=store
        ) as hub:
            assert [message.confirmed async for message in hub.stream("orders").read()] == [True, False]

    run(story())


def test_an_idle_hub_renews_its_cosignatures_in_time(tmp_path: Path) -> None:
    with watched(tmp_path, recosign_sec=1, **AT_ONCE) as made:

        async def story() -> None:
            async with connect(
                made.hub.url, ALICE, trust=made.hub.hub_id, witnesses=made.policy(max_age=4), retry=QUICK
            ) as hub:
                stream = hub.stream("orders")
                await stream.send("one", confirm=True)
                until = time.monotonic() + 6
                while time.monotonic() < until:
                    assert [message.confirmed async for message in stream.read()] == [True]
                    await asyncio.sleep(0.5)

        run(story())


# --- policies, names and keys


def test_a_policy_is_given_as_a_file_too(town: Watched, tmp_path: Path) -> None:
    path = tmp_path / "policy.txt"
    path.write_text(town.policy_text())
    with blocking.connect(town.hub.url, ALICE, trust=town.hub.hub_id, witnesses=path, retry=QUICK) as hub:
        hub.stream("file").send("one", confirm=True)
        assert hub.hub_checkpoint is not None


@pytest.mark.parametrize(("content", "why"), [(None, "cannot be read"), ("quorum nobody\n", "line 1")])
def test_a_policy_file_that_cannot_be_used_is_named(
    town: Watched, tmp_path: Path, content: str | None, why: str
) -> None:
    path = tmp_path / "policy.txt"
    if content is not None:
        path.write_text(content)

    async def story() -> None:
        async with connect(town.hub.url, trust=town.hub.hub_id, witnesses=path):
            pass

    with pytest.raises(ConfigError, match=rf"policy\.txt.*{why}"):
        run(story())


def test_a_policy_file_that_is_too_large_is_refused_without_reading_it_whole(tmp_path: Path) -> None:
    file = tmp_path / "policy"
    with file.open("wb") as opened:
        opened.truncate(1 << 28)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="more than 1048576 bytes"):
            load_policy(file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 24


def test_a_policy_that_names_other_logs_only_is_refused_with_the_line_to_add(town: Watched) -> None:
    stranger = person("stranger").signing_key.public
    text = town.policy_text(with_log=False)
    vkey = vkeys_of(town.hub.identity)[0]
    other = parse_policy(f"{_log_line('other.example/log', stranger)}\n{text}".encode())

    async def story() -> None:
        async with connect(town.hub.url, ALICE, trust=town.hub.hub_id, witnesses=other):
            pass

    with pytest.raises(SignatureError, match="does not name the log") as caught:
        run(story())
    assert caught.value.action is not None
    assert vkey in caught.value.action


def _log_line(name: str, public: bytes) -> str:
    return f"log {NoteKey(name, ED25519, VerifyKey(public)).text}"


def test_a_hub_log_with_a_name_of_its_own_needs_a_policy_that_names_it(tmp_path: Path) -> None:
    with watched(tmp_path, origin="log.example/hub", **AT_ONCE) as made:

        async def story() -> None:
            async with connect(
                made.hub.url, ALICE, trust=made.hub.hub_id, witnesses=made.policy(), retry=QUICK
            ) as hub:
                receipt = await hub.stream("orders").send("one", confirm=True)
                evidence = await hub.evidence(receipt.label, receipt.stream_seq)
                assert evidence.origin == "log.example/hub"
            with pytest.raises(SignatureError, match=r"log\.example/hub") as caught:
                async with connect(
                    made.hub.url, ALICE, trust=made.hub.hub_id, witnesses=made.policy(with_log=False)
                ):
                    pass
            assert "veen hub keys --note" in (caught.value.action or "")

        run(story())


def test_a_policy_that_names_the_old_key_accepts_the_hub_after_a_rotation(own_town: Watched) -> None:
    own, policy, store = own_town, own_town.policy(), MemoryStateStore()

    async def send(body: str) -> None:
        async with connect(
            own.hub.url, ALICE, trust=own.hub.hub_id, witnesses=policy, retry=QUICK, state=store
        ) as hub:
            await hub.stream("orders").send(body, confirm=True)

    run(send("before"))
    own.hub.stop()
    soon = UnixTime(int(time.time()) + 1)  # after the receipts of the old key
    rotation.rotate(own.hub.directory, SigningKey(SigningSeed(bytes(range(32)))), soon, 3_600)
    own.hub.start()
    run(send("after"))


# --- state


def test_the_largest_accepted_hub_checkpoint_is_stored_and_only_grows(town: Watched, tmp_path: Path) -> None:
    state = tmp_path / "state"
    sizes: list[int] = []

    async def send(body: str) -> None:
        async with connect(
            town.hub.url, ALICE, trust=town.hub.hub_id, witnesses=town.policy(), retry=QUICK, state=state
        ) as hub:
            await hub.stream("stored").send(body, confirm=True)
            content = hub.connection.store.load(hub.hub_id, RECORD)
            assert content is not None
            record = HubCheckpointRecord.decode(content)
            assert record.signed_head == hub.hub_checkpoint
            sizes.append(record.signed_head.head.size)

    for n in range(3):
        run(send(f"{n}"))
    assert sizes == sorted(set(sizes))


def test_connections_that_share_a_state_folder_accept_the_same_history(town: Watched, tmp_path: Path) -> None:
    async def one(name: str) -> None:
        async with connect(
            town.hub.url,
            ALICE,
            trust=town.hub.hub_id,
            witnesses=town.policy(),
            retry=QUICK,
            state=tmp_path / "state",
        ) as hub:
            for n in range(5):
                await hub.stream(name).send(f"{n}", confirm=True)

    async def story() -> None:
        await asyncio.gather(*(one(f"shared/{n}") for n in range(4)))

    run(story())


def test_a_hub_without_any_message_is_no_error_but_has_nothing_to_confirm(tmp_path: Path) -> None:
    with serving(tmp_path) as hub_process:

        async def story() -> None:
            policy = parse_policy(b"quorum none\n")
            async with connect(
                hub_process.url, ALICE, trust=hub_process.hub_id, witnesses=policy, retry=QUICK
            ) as hub:
                assert hub.hub_checkpoint is None
                with pytest.raises(StateError, match="no hub checkpoint yet"):
                    await hub.label_heads()
                await hub.stream("orders").send("one", confirm=True)  # a quorum of none: the hub's word
                assert hub.hub_checkpoint is not None

        run(story())
