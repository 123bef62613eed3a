"""Mirrors of streams whose labels change with every epoch (core §12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from veen_bridge.transfer import Mode
from veen_core.ids import Epoch
from veen_hub.client import Hub, Message

from .mirror_fixtures import SOURCE_READER, TARGET_READER, HubProcess, mirroring, run, serving, settings, talking

SKEW = {"limits": {"max_epoch_skew_sec": 1}}


async def send(hub: Hub, stream: str, count: int) -> None:
    to = hub.stream(stream, readers=(SOURCE_READER,))
    for n in range(count):
        await to.send(f"event {n}")


async def all_messages(hub: Hub, stream: str) -> list[Message]:
    found, to = [], hub.stream(stream, readers=(TARGET_READER, SOURCE_READER))
    labels = hub.epoch_labels(to.id)
    epochs = range(1) if labels is None else range(labels.since, labels.window().stop)
    for epoch in epochs:
        found += [message async for message in to.read(epoch=Epoch(epoch))]
    return found
