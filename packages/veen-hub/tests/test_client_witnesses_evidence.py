"""Hub evidence and the list of labels, from real hubs, verified without them (P1, P2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core.errors import QuorumError, StateError, VerificationError
from veen_core.hub_evidence import HubEvidence, parse_evidence, verify_evidence
from veen_core.ids import Label, StreamSeq
from veen_core.tlog.note import COSIGNATURE, NoteKey
from veen_core.tlog.policy import parse_policy
from veen_hub.client import blocking, connect
from veen_hub.client.errors import NotFound

from .client_fixtures import QUICK, HubProcess, person, run, serving
from .client_witnesses import AT_ONCE, INDEPENDENT, Watched, watched
from .independent_witness import Answer

ALICE = person("alice")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("watched"), **AT_ONCE) as made:
        yield made


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub without witnesses that makes a hub checkpoint once a second."""
    with serving(tmp_path_factory.mktemp("alone")) as one:
        yield one


def test_evidence_proves_a_message_with_nothing_but_hub_id_and_policy(town: Watched) -> None:
    policy = town.policy()

    async def story() -> tuple[HubEvidence, bytes]:
        async with connect(town.hub.url, ALICE, trust=town.hub.hub_id, witnesses=policy, retry=QUICK) as hub:
            stream = hub.stream("evidence")
            receipts = [r async for r in stream.send_many(f"{n}" for n in range(200))]
            return await stream.evidence(100), receipts[99].encode()

    evidence, receipt = run(story())
    assert evidence.receipt.encode() == receipt
    shown = parse_evidence(evidence.encode())
    verdict = verify_evidence(shown, pinned=town.hub.hub_id, policy=policy)
    assert verdict.cosigned is not None
    assert len(verdict.cosigned.witnesses) == 2
    assert len(evidence.encode()) < 6 * 1_024
    flipped = evidence.checkpoint.replace(INDEPENDENT.encode(), b"somebody.example/w")
    stripped = HubEvidence(**{name: getattr(evidence, name) for name in EVIDENCE_FIELDS}, checkpoint=flipped)
    with pytest.raises(QuorumError):
        verify_evidence(stripped, pinned=town.hub.hub_id, policy=policy)


EVIDENCE_FIELDS = ("identity", "receipt", "proof", "head", "index", "head_proof", "origin")


def test_evidence_without_witnesses_rests_on_the_hub_alone(alone: HubProcess) -> None:
    async def story() -> HubEvidence:
        async with connect(alone.url, ALICE, trust=alone.hub_id, retry=QUICK) as hub:
            receipt = await hub.stream("alone").send("one")
            return await hub.evidence(receipt.label, receipt.stream_seq)  # waits for the next hub checkpoint

    evidence = run(story())
    assert verify_evidence(evidence, pinned=alone.hub_id).cosigned is None
    with pytest.raises(VerificationError):
        verify_evidence(evidence, pinned=alone.hub_id, policy=parse_policy(_stranger().encode()))


def _stranger() -> str:
    vkey = NoteKey("witness.example/w", COSIGNATURE, person("stranger").signing_key.public).text
    return f"witness w {vkey}\nquorum w\n"


def test_evidence_that_no_quorum_covers_says_what_is_missing(tmp_path: Path) -> None:
    with watched(tmp_path, **AT_ONCE) as made:

        async def story() -> None:
            async with connect(
                made.hub.url, ALICE, trust=made.hub.hub_id, witnesses=made.policy(), retry=QUICK
            ) as hub:
                stream = hub.stream("orders")
                await stream.send("one", confirm=True)
                made.other.answer = lambda _body: Answer(503, "away\n")
                await stream.send("two")
                with pytest.raises(QuorumError, match=r"no evidence after 4 s.*1 of 2 witnesses"):
                    await stream.evidence(2, timeout=4.0)

        run(story())


def test_evidence_of_a_hub_that_makes_no_checkpoints_says_so(tmp_path: Path) -> None:
    config = json.dumps({"hub_log": {"interval_sec": 3_600}})
    with serving(tmp_path, config=config) as one:

        async def story() -> None:
            async with connect(one.url, ALICE, trust=one.hub_id, retry=QUICK) as hub:
                receipt = await hub.stream("orders").send("one")
                with pytest.raises(StateError, match="does not cover it yet"):
                    await hub.evidence(receipt.label, 1, timeout=0.5)

        run(story())


def test_evidence_of_an_entry_that_does_not_exist_is_refused(alone: HubProcess) -> None:
    async def story() -> None:
        async with connect(alone.url, ALICE, trust=alone.hub_id, retry=QUICK) as hub:
            await hub.stream("short").send("one")
            with pytest.raises(NotFound):
                await hub.stream("short").evidence(2)

    run(story())


def test_the_list_of_labels_has_every_label_with_its_newest_head(town: Watched) -> None:
    async def story() -> None:
        async with connect(
            town.hub.url, ALICE, trust=town.hub.hub_id, witnesses=town.policy(), retry=QUICK
        ) as hub:
            newest: dict[Label, StreamSeq] = {}
            for n in range(300):  # more than one entry bundle
                receipt = await hub.stream(f"labels/{n % 40}").send(f"{n}")
                newest[receipt.label] = receipt.stream_seq
            await hub.confirm(receipt)
            read: list[int] = []
            found = await hub.label_heads(progress=read.append)
            assert found.checkpoint == hub.hub_checkpoint
            assert found.cosigned is not None
            assert read == list(range(1, found.checkpoint.head.size + 1))
            heads = {label: head.upto_seq for label, head in found.table.newest.items()}
            assert heads.items() >= newest.items()
            for label in list(newest)[:5]:
                head = await hub.log_reader().head(label)
                assert head is not None
                assert head.mmr_root == found.table.newest[label].mmr_root

    run(story())


def test_the_list_of_labels_of_a_hub_without_witnesses_needs_no_policy(alone: HubProcess) -> None:
    async def story() -> None:
        async with connect(alone.url, ALICE, trust=alone.hub_id, retry=QUICK) as hub:
            receipt = await hub.stream("listed").send("one")
            while (await hub.connection.api.hub_checkpoint()) is None:
                await asyncio.sleep(0.05)
            await hub.evidence(receipt.label, 1)
            found = await hub.label_heads()
            assert found.cosigned is None
            assert receipt.label in found.table.newest

    run(story())


def test_the_blocking_client_confirms_and_gathers_evidence_too(town: Watched) -> None:
    with blocking.connect(
        town.hub.url, ALICE, trust=town.hub.hub_id, witnesses=town.policy(), retry=QUICK
    ) as hub:
        stream = hub.stream("blocking")
        receipt = stream.send("one", confirm=True)
        sending = stream.send_many((f"{n}" for n in range(300)), confirm=True)
        assert len(list(sending)) == 300
        hub.confirm(receipt)
        assert {message.confirmed for message in stream.read()} == {True}
        evidence = stream.evidence(2)
        assert hub.evidence(receipt.label, 2).receipt == evidence.receipt
        assert hub.label_heads().table.newest[receipt.label].upto_seq == 301
    with blocking.connect(town.hub.url, ALICE, trust=town.hub.hub_id) as hub, pytest.raises(StateError):
        hub.stream("blocking").send_many(["one"], confirm=True)


def test_messages_of_a_stream_with_epochs_are_confirmed(tmp_path: Path) -> None:
    policy = parse_policy(b"quorum none\n")
    with serving(tmp_path, profile="rotating", config=json.dumps({"hub_log": AT_ONCE})) as one:

        async def story() -> None:
            async with connect(one.url, ALICE, trust=one.hub_id, witnesses=policy, retry=QUICK) as hub:
                stream = hub.stream("epochs")
                await stream.send("one", confirm=True)
                messages = stream.follow()
                assert (await anext(messages)).confirmed is True
                await messages.aclose()

        run(story())
