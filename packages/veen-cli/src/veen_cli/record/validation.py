"""Validate a recorder checkpoint against its hub: everything that it covers is still there (SDR0 I2)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from veen_cli.record.reading import read_label
from veen_cli.record.session import RecordedLabel, RecorderSession
from veen_core import hub_log
from veen_core.consistency import verify_consistency
from veen_core.errors import DivergenceError, VeenError
from veen_core.ids import Epoch, StreamSeq
from veen_core.mmr import Mmr
from veen_core.tlog import tree
from veen_core.tlog.tree_head import SignedHead
from veen_overlays.recorder.checkpoint import RecorderCheckpoint, StreamHead


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFinding:
    """Whether the hub still has what the checkpoint covers of one stream."""

    stream: str
    epoch: int
    last_seq: int
    now_seq: int
    """Entries that the hub has now."""
    read: int
    """Entries that were read and hashed again, with ``--full``."""
    pruned: int
    fault: str | None
    """What is wrong; None if the stream extends the checkpoint."""


async def compare_with_hub(
    session: RecorderSession,
    found: RecorderCheckpoint,
    *,
    full: bool,
    progress: Callable[[int], None] = lambda _n: None,
) -> list[StreamFinding]:
    """Compare each stream of a verified checkpoint with the hub; a fault is a finding, not an exception."""
    return [await _stream(session, each, full, progress) for each in found.streams]


async def _stream(
    session: RecorderSession, each: StreamHead, full: bool, progress: Callable[[int], None]
) -> StreamFinding:
    now = read = pruned = 0
    fault: str | None = None
    try:
        head = await session.hub.log_reader().head(each.label)
        now = 0 if head is None else head.stream_seq
        if each.head is not None:
            await _check_extends(session, each, now)
            if full:
                read, pruned = await _check_every_entry(session, each, progress)
    except VeenError as exc:
        fault = exc.message
    return StreamFinding(
        stream=each.stream,
        epoch=each.epoch,
        last_seq=each.last_seq,
        now_seq=now,
        read=read,
        pruned=pruned,
        fault=fault,
    )


async def _check_extends(session: RecorderSession, each: StreamHead, now: int) -> None:
    """Raise unless the label's log of today begins with the log of the checkpoint (B11)."""
    assert each.head is not None
    if now < each.last_seq:
        raise DivergenceError(
            f"the hub has {now} entries, but the checkpoint covers {each.last_seq}", held=each.head.encode()
        )
    reader = session.hub.log_reader()
    receipt = await reader.receipt(each.label, StreamSeq(each.last_seq))
    if (receipt.mmr_root, receipt.hub_ts) != (each.head.mmr_root, each.head.hub_ts):
        raise DivergenceError(
            f"the receipt of entry {each.last_seq} is not that of the checkpoint",
            held=each.head.encode(),
            shown=receipt.encode(),
        )
    if now > each.last_seq:
        newest = await reader.receipt(each.label, StreamSeq(now))
        proof = await reader.consistency(each.label, StreamSeq(each.last_seq), StreamSeq(now))
        verify_consistency(proof, each.head.mmr_root, newest.mmr_root)


async def _check_every_entry(
    session: RecorderSession, each: StreamHead, progress: Callable[[int], None]
) -> tuple[int, int]:
    """Hash every covered entry again; raise unless they give the checkpoint's root (I2)."""
    assert each.head is not None
    label = RecordedLabel(stream=each.stream, position=0, epoch=Epoch(each.epoch), label=each.label)
    mmr, pruned = Mmr(), 0
    async with aclosing(read_label(session.hub, label, 1, each.last_seq)) as entries:
        async for found in entries:
            mmr.add(found.receipt.leaf_hash)
            pruned += found.entry is None
            progress(1)
    if (mmr.size, mmr.root) != (each.last_seq, each.head.mmr_root):
        raise DivergenceError(
            f"the {mmr.size} entries that the hub shows do not give the checkpoint's root at "
            f"{each.last_seq} (SDR0 I2)",
            held=each.head.encode(),
        )
    return each.last_seq, pruned


async def compare_hub_log(session: RecorderSession, found: RecorderCheckpoint) -> SignedHead:
    """Raise unless the hub log extends that of the checkpoint; return the newest hub checkpoint."""
    api, connection = session.hub.connection.api, session.hub.connection
    signed = found.signed_head.head
    today = await connection.ask(api.hub_checkpoint)
    if today is None or today.head.size < signed.size:
        shown = 0 if today is None else today.head.size
        raise DivergenceError(
            f"the hub log has {shown} entries, but had {signed.size} when the checkpoint was made",
            held=found.checkpoint,
        )
    origin = found.signed_head.head.origin
    hub_log.verify_hub_checkpoint(session.hub.identity, today, origin=origin, since=found.covered_until)
    answer = await connection.ask(lambda: api.hub_consistency(signed.size, today.head.size))
    tree.verify_consistency(signed.size, today.head.size, answer.proof, signed.root, today.head.root)
    return today
