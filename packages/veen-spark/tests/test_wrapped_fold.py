"""A Spark fold of wrapped copies gives the state of their originals (P4, ID 12.1, WALBR0 11.4)."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from veen_core.entry import Entry
from veen_core.ids import NO_BUNDLE, ClientId, HubId
from veen_core.limits import Limits
from veen_overlays.bridge import ImportedEvent
from veen_overlays.wallet.ledger import LEDGER
from veen_spark.fold.folding import fold
from veen_spark.functions.reader_keys import ReaderKeys

from .frames import entries, frame_of, in_one_process
from .logs import BORN, Hub, reader_key
from .wallets import mirror

ROOMY = Limits(max_msg_bytes=16_384, max_chunk_bytes=65_536, max_checkpoint_interval=8)
"""A wrapper holds a whole MSG."""


def wrapped(entry: Entry, source: Hub) -> ImportedEvent:
    return ImportedEvent(
        bundle_id=NO_BUNDLE,
        source_hub_id=HubId(source.hub_id),
        source_label=entry.label,
        source_stream_seq=entry.stream_seq,
        origin_receipt=entry.receipt_bytes,
        origin_msg=entry.msg_bytes,
        import_time=BORN,
        bridge_id=ClientId(b"\x07" * 32),
    )


def copy_all(source: Hub, target: Hub) -> None:
    """Wrap every message of the wallet, and the first five a second time."""
    originals = entries(source, "wallet")
    for some in (originals, originals[:5]):
        target.send_records(
            "copies",
            [wrapped(entry, source) for entry in some],
            reader="target",
            parents=[entry.receipt.leaf_hash for entry in some],
            who="bridge",
        )


def test_wrapped_copies_fold_to_the_state_of_their_originals_however_often_they_were_mirrored(
    spark: SparkSession, make_hub: Callable[..., Hub]
) -> None:
    source, target = make_hub("source"), make_hub("target", key="hub/1", limits=ROOMY)
    mirror(source, "wallet", reader="source")
    copy_all(source, target)
    keys = ReaderKeys.broadcast(spark, [reader_key("target"), reader_key("source")])
    rows = frame_of(spark, target, "copies", partitions=2)
    original = in_one_process(LEDGER, source, "wallet", reader_key("source"))
    for buffered in (3, 100):
        row = fold(rows, LEDGER, keys, buffered=buffered).collect()[0]
        assert row["events"] == original.events > 0
        assert bytes(row["state_hash"]) == LEDGER.state_hash(original)


def test_without_the_key_of_the_source_wrapped_copies_are_foreign_to_the_ledger(
    spark: SparkSession, make_hub: Callable[..., Hub]
) -> None:
    source, target = make_hub("source"), make_hub("target", key="hub/1", limits=ROOMY)
    mirror(source, "wallet", reader="source")
    copy_all(source, target)
    keys = ReaderKeys.broadcast(spark, [reader_key("target")])
    row = fold(frame_of(spark, target, "copies", partitions=2), LEDGER, keys, buffered=100).collect()[0]
    assert (row["events"], row["foreign"]) == (0, len(entries(source, "wallet")))
