"""A mirror between two real hubs: every source entry is copied once, in order (ANCHOR0.3, spec-3 §10, P8)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from veen_bridge.mirror.service import MirrorService
from veen_bridge.transfer import Mode
from veen_core.receipt import Receipt
from veen_hub.client import Diverged, Message
from veen_overlays.bridge import ImportedEvent
from veen_overlays.federation import Mirror

from .mirror_fixtures import (
    SOURCE_READER,
    TARGET_READER,
    HubProcess,
    mirroring,
    read_all,
    run,
    serving,
    settings,
    talking,
    texts,
)


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HubProcess, HubProcess]]:
    root = tmp_path_factory.mktemp("hubs")
    with serving(root / "source") as source, serving(root / "target") as target:
        yield source, target


async def send(source: HubProcess, stream: str, bodies: Sequence[str]) -> list[Receipt]:
    async with talking(source) as hub:
        to = hub.stream(stream, readers=(SOURCE_READER,))
        return [receipt async for receipt in to.send_many(bodies)]


def wrapped(messages: Sequence[Message]) -> list[ImportedEvent]:
    return [ImportedEvent.decode(message.body) for message in messages]


def names(count: int, prefix: str = "event") -> list[str]:
    return [f"{prefix} {n}" for n in range(1, count + 1)]


def test_wrap_carries_message_and_receipt_byte_for_byte_and_names_the_original_as_parent(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path
) -> None:
    source, target = hubs

    async def work() -> None:
        await send(source, "wrap", names(5))
        async with mirroring(await settings(source, target, tmp_path, "wrap")), talking(target) as there:
            copies = await read_all(there, "wrap", 5)
            async with talking(source) as here:
                originals = [m async for m in here.stream("wrap", readers=(SOURCE_READER,)).read()]
        for original, copy in zip(originals, copies, strict=True):
            record = ImportedEvent.decode(copy.body)
            assert copy.header.parent_id == original.id
            assert record.origin_msg == original.entry.msg_bytes
            assert record.origin_receipt == original.entry.receipt_bytes
            assert record.source_stream_seq == original.stream_seq

    run(work())


def test_reseal_carries_schema_and_body_byte_for_byte_to_the_targets_readers(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path
) -> None:
    source, target = hubs

    async def work() -> None:
        receipts = await send(source, "reseal", names(5))
        given = await settings(source, target, tmp_path, "reseal", mode=Mode.RESEAL)
        async with mirroring(given), talking(target) as there:
            copies = await read_all(there, "reseal", 5)
        assert texts(copies) == names(5)
        assert [copy.header.parent_id for copy in copies] == [receipt.leaf_hash for receipt in receipts]

    run(work())


def test_reference_carries_the_receipts_values_alone(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path
) -> None:
    source, target = hubs

    async def work() -> None:
        receipts = await send(source, "reference", names(3))
        given = await settings(source, target, tmp_path, "reference", mode=Mode.REFERENCE)
        async with mirroring(given), talking(target) as there:
            copies = await read_all(there, "reference", 3)
        for receipt, copy in zip(receipts, copies, strict=True):
            record = Mirror.decode(copy.body)
            assert record.agrees_with(receipt)
            assert record.target_label == copy.label
            assert copy.header.parent_id == receipt.leaf_hash

    run(work())


def test_a_message_that_no_key_of_the_bridge_opens_is_wrapped_instead_of_resealed(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path
) -> None:
    source, target = hubs

    async def work() -> None:
        async with talking(source, "stranger") as hub:
            await hub.stream("sealed").send("for myself only")
        given = await settings(source, target, tmp_path, "sealed", mode=Mode.RESEAL)
        async with mirroring(given), talking(target) as there:
            (copy,) = await read_all(there, "sealed", 1)
        assert copy.schema == ImportedEvent.SCHEMA

    run(work())


def test_a_message_that_does_not_fit_the_targets_body_travels_as_an_attachment(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path
) -> None:
    source, target = hubs

    async def work() -> None:
        bodies = ["small", "x" * 1_046_000, "small too"]
        await send(source, "large", bodies)
        async with talking(source) as here:
            originals = [m async for m in here.stream("large", readers=(SOURCE_READER,)).read()]
        async with mirroring(await settings(source, target, tmp_path, "large")), talking(target) as there:
            copies = await read_all(there, "large", 3)
            stream = there.stream("large", readers=(SOURCE_READER,))
            assert await stream.attachment(copies[1], 0) == originals[1].entry.msg_bytes
        records = wrapped(copies)
        assert [record.source_stream_seq for record in records] == [1, 2, 3]
        assert records[1].origin_msg is None
        assert copies[1].header.parent_id == originals[1].id
        async with mirroring(await settings(source, target, tmp_path / "new", "large")), talking(target) as t:
            await send(source, "large", ["after"])
            assert [r.source_stream_seq for r in wrapped(await read_all(t, "large", 4))] == [1, 2, 3, 4]

    run(work())


@pytest.mark.parametrize("mode", list(Mode))
def test_a_mirror_with_an_empty_disk_goes_on_without_a_gap_or_a_duplicate(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path, mode: Mode
) -> None:
    source, target = hubs
    stream = f"empty disk {mode}"

    async def work() -> None:
        for part in range(3):
            await send(source, stream, names(7, f"part {part}"))
            given = await settings(source, target, tmp_path / str(part), stream, mode=mode)
            async with mirroring(given), talking(target) as there:
                await read_all(there, stream, 7 * (part + 1))
        async with talking(source) as here, talking(target) as there:
            originals = [m.id async for m in here.stream(stream).read()]
            copies = [m.header.parent_id for m in await read_all(there, stream)]
        assert copies == originals
        assert len(copies) == 21

    run(work())


def test_a_false_claim_of_another_writer_suppresses_no_event(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path
) -> None:
    source, target = hubs

    async def work() -> None:
        receipts = await send(source, "claims", ["true"])
        async with talking(target, "liar") as there:
            stream = there.stream("claims", readers=(TARGET_READER,))
            await stream.send("false", parent=receipts[0].leaf_hash)
        async with mirroring(await settings(source, target, tmp_path, "claims")), talking(target) as there:
            copies = await read_all(there, "claims", 2)
        assert wrapped(copies[1:])[0].source_stream_seq == 1

    run(work())


def test_a_mirror_follows_live_over_restarts_of_both_hubs_and_a_rotation_of_the_source(
    tmp_path: Path,
) -> None:
    async def work(source: HubProcess, target: HubProcess) -> None:
        given = await settings(source, target, tmp_path / "state", "orders")
        async with mirroring(given):
            await send(source, "orders", names(20, "first"))
            source.restart()
            await send(source, "orders", names(20, "second"))
            target.restart()
            await send(source, "orders", names(20, "third"))
            source.rotate()
            await send(source, "orders", names(20, "fourth"))
            target.rotate()
            await send(source, "orders", names(20, "fifth"))
            async with talking(target) as there:
                copies = await read_all(there, "orders", 100)
        assert [record.source_stream_seq for record in wrapped(copies)] == list(range(1, 101))
        async with talking(target) as there:
            assert len(await read_all(there, "orders")) == 100

    with serving(tmp_path / "source") as source, serving(tmp_path / "target") as target:
        run(work(source, target))


@pytest.mark.parametrize("disk", ["kept disk", "empty disk"])
def test_a_source_that_forks_its_log_is_refused_with_evidence_on_disk(tmp_path: Path, disk: str) -> None:
    state = tmp_path / "state"

    async def mirrored(source: HubProcess, target: HubProcess, count: int) -> None:
        async with mirroring(await settings(source, target, state, "log")), talking(target) as there:
            await read_all(there, "log", count)

    async def refused(source: HubProcess, target: HubProcess) -> Diverged:
        service = MirrorService(await settings(source, target, state, "log"))
        with pytest.raises(Diverged) as found:
            await service.run(asyncio.Event())
        return found.value

    with serving(tmp_path / "source") as source, serving(tmp_path / "target") as target:
        run(send(source, "log", names(5)))
        source.stop()
        old = source.snapshot()
        source.start()
        run(send(source, "log", names(5, "later")))
        run(mirrored(source, target, 10))
        source.stop()
        source.replace_data(old)
        source.start()
        run(send(source, "log", names(5, "other")))
        if disk == "empty disk":
            shutil.rmtree(state)
        error = run(refused(source, target))
        assert error.equivocation is not None
        assert error.folder is not None
        assert str(error.folder) in str(error)
        assert (error.folder / "equivocation.cbor").exists()
        assert len(run(_count(target))) == 10


async def _count(target: HubProcess) -> list[Message]:
    async with talking(target) as there:
        return await read_all(there, "log")
