"""Mirrors of streams whose labels change with every epoch (core §12)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from veen_bridge.transfer import Mode
from veen_core.ids import Epoch
from veen_hub.client import Hub, Message

from .mirror_fixtures import (
    SOURCE_READER,
    TARGET_READER,
    HubProcess,
    mirroring,
    run,
    serving,
    settings,
    talking,
)

EPOCH_SEC = 2


async def send(hub: Hub, count: int) -> None:
    """Send messages over more than two epochs."""
    stream, first = hub.stream("log", readers=(SOURCE_READER,)), hub.connection.epoch
    for n in range(count):
        await stream.send(f"event {n}")
    while hub.connection.profile.epoch_sec and hub.connection.epoch < first + 2:
        await asyncio.sleep(0.1)
        await stream.send("until the epoch has changed")


async def all_messages(hub: Hub) -> list[Message]:
    stream = hub.stream("log", readers=(TARGET_READER, SOURCE_READER))
    labels = hub.epoch_labels(stream.id)
    epochs = range(1) if labels is None else range(labels.since, labels.window().stop)
    return [message for epoch in epochs async for message in stream.read(epoch=Epoch(epoch))]


async def reach(source: Hub, target: Hub) -> tuple[list[Message], list[Message]]:
    """Wait until the target has as many messages as the source; return both."""
    originals = await all_messages(source)
    while len(copies := await all_messages(target)) < len(originals):
        await asyncio.sleep(0.2)
    return originals, copies


@pytest.mark.parametrize(
    ("source_epochs", "target_epochs", "mode"),
    [(EPOCH_SEC, 0, Mode.WRAP), (0, EPOCH_SEC, Mode.RESEAL), (EPOCH_SEC, EPOCH_SEC, Mode.RESEAL)],
    ids=["source has epochs", "target has epochs", "both have epochs"],
)
def test_a_mirror_follows_over_epochs_and_resumes_with_and_without_its_disk(
    tmp_path: Path, source_epochs: int, target_epochs: int, mode: Mode
) -> None:
    state = tmp_path / "state"

    async def work(source: HubProcess, target: HubProcess) -> None:
        async with talking(source) as here, talking(target) as there:
            async with mirroring(await settings(source, target, state, "log", mode=mode)):
                await send(here, 10)
                await reach(here, there)
            await send(here, 5)  # while the mirror is away, over closed epochs
            async with mirroring(await settings(source, target, state, "log", mode=mode)):
                await reach(here, there)
            shutil.rmtree(state)
            await send(here, 5)
            async with mirroring(await settings(source, target, state, "log", mode=mode)):
                originals, copies = await reach(here, there)
        assert sorted(copy.header.parent_id or b"" for copy in copies) == sorted(m.id for m in originals)

    with (
        serving(tmp_path / "source", epoch_sec=source_epochs) as source,
        serving(tmp_path / "target", epoch_sec=target_epochs) as target,
    ):
        run(work(source, target))
