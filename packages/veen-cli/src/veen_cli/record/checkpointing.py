"""Gather recorder checkpoints: the heads of all streams under one hub checkpoint (SDR0 3.2.4, P1)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from veen_cli.arguments import times
from veen_cli.record.session import RecordedLabel, RecorderSession
from veen_core import hub_log
from veen_core.errors import ConfigError, DecodeError, StateError
from veen_core.hub_log import HubProofResponse
from veen_core.ids import HubId, Label, StreamSeq, UnixTime
from veen_core.tlog.tree_head import parse_signed_head
from veen_hub.client import NotFound, replace_file
from veen_overlays.recorder.checkpoint import (
    RecorderCheckpoint,
    StreamHead,
    parse_checkpoint,
    verify_checkpoint,
)

MAX_ROUNDS: Final = 50
"""How often the heads are asked for until all answers have the same hub checkpoint."""
SUFFIX: Final = ".veenrc"
"""Suffix of checkpoint files."""


async def current_heads(session: RecorderSession, labels: Sequence[RecordedLabel]) -> Mapping[Label, int]:
    """Return the number of entries of each label, as its newest verified receipt says."""
    reader = session.hub.log_reader()
    heads = await asyncio.gather(*(reader.head(each.label) for each in labels))
    return {
        each.label: 0 if head is None else head.stream_seq for each, head in zip(labels, heads, strict=True)
    }


async def gather_checkpoint(session: RecorderSession, *, timeout: float) -> RecorderCheckpoint:
    """Make and verify a checkpoint that covers every event that is durable now."""
    hub = session.hub
    labels = await session.labels(session.profile.all_streams)
    sizes = await current_heads(session, labels)
    # Wait until the hub log covers what is durable now; the hub extends it within about a second (P1).
    await asyncio.gather(
        *(hub.label_head(label, size, timeout=timeout) for label, size in sizes.items() if size)
    )
    found = await _same_checkpoint(session, labels)
    checkpoint = next((each.checkpoint for each in found.values() if each is not None), None)
    if checkpoint is None:
        raise StateError("no stream of the recorder has an entry yet", action="record an event first")
    for label, proof in found.items():
        if proof is not None:
            await (await hub.log(label)).verify_label_head(proof)
    origin = parse_signed_head(checkpoint).head.origin
    made = RecorderCheckpoint(
        profile_id=session.profile.profile_id,
        created_at=UnixTime(times.now()),
        identity=hub.identity,
        streams=tuple(_stream_head(each, found[each.label]) for each in labels),
        checkpoint=checkpoint,
        origin=None if origin == hub_log.origin_of(hub.hub_id) else origin,
    )
    verify_checkpoint(made, pinned=HubId.from_hex(session.file.access.trust))
    return made


async def _same_checkpoint(
    session: RecorderSession, labels: Sequence[RecordedLabel]
) -> dict[Label, HubProofResponse | None]:
    """Ask for the newest head of each label until all answers lead to the same hub checkpoint."""

    async def ask(label: Label) -> HubProofResponse | None:
        try:
            return await session.hub.label_head(label)
        except NotFound:
            return None

    for _ in range(MAX_ROUNDS):
        answers = await asyncio.gather(*(ask(each.label) for each in labels))
        if len({each.checkpoint for each in answers if each is not None}) <= 1:
            return {each.label: answer for each, answer in zip(labels, answers, strict=True)}
    raise StateError(
        f"the hub signed new hub checkpoints during each of {MAX_ROUNDS} rounds of questions",
        action="try again; a larger hub_log.every_sec of the hub helps",
    )


def _stream_head(label: RecordedLabel, found: HubProofResponse | None) -> StreamHead:
    place = {"stream": label.stream, "epoch": int(label.epoch), "label": label.label}
    if found is None:
        return StreamHead(**place)  # type: ignore[arg-type]  # the values have the types of their fields
    return StreamHead(**place, head=found.head, index=found.index, proof=found.proof)  # type: ignore[arg-type]


# --- files


def checkpoint_name(found: RecorderCheckpoint) -> str:
    """The name of a checkpoint's file: later checkpoints sort after earlier ones."""
    return f"checkpoint-{found.signed_head.head.size:012}-{found.events:012}{SUFFIX}"


def write_checkpoint(folder: Path, found: RecorderCheckpoint) -> Path:
    """Write a checkpoint into a folder, durably."""
    path = folder / checkpoint_name(found)
    replace_file(path, found.encode())
    return path


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint file of a folder."""
    return max(folder.glob(f"checkpoint-*{SUFFIX}"), default=None) if folder.is_dir() else None


def read_checkpoint(path: Path) -> RecorderCheckpoint:
    """Read a checkpoint file, or the newest one of a folder."""
    file = path
    if path.is_dir():
        newest = last_checkpoint(path)
        if newest is None:
            raise ConfigError(
                f"{path} has no checkpoint", action="make one with `veen record checkpoint --out FOLDER`"
            )
        file = newest
    try:
        return parse_checkpoint(file.read_bytes())
    except DecodeError as exc:
        raise exc.within(str(file)) from None


def covered(found: RecorderCheckpoint, label: Label) -> StreamSeq:
    """The last entry of a label that a checkpoint covers; 0 if it covers none."""
    head = found.heads.get(label)
    return StreamSeq(0 if head is None else head.last_seq)
