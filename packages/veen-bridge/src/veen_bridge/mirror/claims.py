"""Claims in the target's log that the source does not confirm (spec-3 F1, spec-1 §14).

A wrapped copy carries the source's receipt. If the source now denies that entry, or shows another one, it has
diverged: the target's log is then the evidence, also for a bridge that has lost its own state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from veen_core.errors import DecodeError, DivergenceError, SignatureError
from veen_core.hub_identity import verify_receipt
from veen_core.ids import Label
from veen_core.receipt import Receipt
from veen_hub.client import Diverged, Hub, Message, NotFound, Unreachable
from veen_overlays.bridge import ImportedEvent


def claimed_receipt(message: Message) -> tuple[ImportedEvent, Receipt] | None:
    """Return the record of a wrapped copy and the receipt in it; None if the message is none."""
    if not message.is_open or message.schema != ImportedEvent.SCHEMA:
        return None
    try:
        record = ImportedEvent.decode(message.body)
        return record, Receipt.decode(record.origin_receipt)
    except DecodeError:
        return None


async def check_claim(message: Message, source: Hub, held: Mapping[Label, int]) -> None:
    """Raise ``Diverged`` if a wrapped copy beyond ``held`` proves that the source has changed its log.

    A claim that the source did not sign proves nothing and is ignored, as is a repeated copy.
    """
    if (claim := claimed_receipt(message)) is None:
        return
    record, receipt = claim
    if record.source_hub_id != source.hub_id or receipt.stream_seq <= held.get(receipt.label, 2**63):
        return
    try:
        verify_receipt(source.identity, receipt)
    except SignatureError:
        return
    log = await source.log(receipt.label)

    async def compare() -> None:
        shown = await log.fetch(receipt.stream_seq)
        verify_receipt(source.identity, shown)
        if (shown.leaf_hash, shown.mmr_root) != (receipt.leaf_hash, receipt.mmr_root):
            raise DivergenceError(
                f"entry {receipt.stream_seq} of label {receipt.label.hex()} at the source differs from the "
                f"one whose receipt entry {message.stream_seq} of the target carries",
                held=receipt.encode(),
                shown=shown.encode(),
            )

    try:
        await log.verifying(compare)  # adds the evidence
    except NotFound:
        if (primary := source.connection.status.replica_of) is not None:
            raise Unreachable(
                f"the source is a replica that does not have entry {receipt.stream_seq} of label "
                f"{receipt.label.hex()} yet",
                action=f"wait until the replica has caught up, or mirror the primary at {primary}",
            ) from None
        raise await _denied(message, source, receipt) from None


async def _denied(message: Message, source: Hub, receipt: Receipt) -> Diverged:
    files = {"held.cbor": receipt.encode()}
    folder = await asyncio.to_thread(source.connection.store.save_evidence, source.hub_id, files)
    return Diverged(
        f"the source signed a receipt for stream_seq {receipt.stream_seq} of label {receipt.label.hex()} "
        f"(it is in entry {message.stream_seq} of the target), and has no such entry any more",
        held=receipt.encode(),
        folder=folder,
    )
