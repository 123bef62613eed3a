"""Views of logs: exports and clones, verified first, then opened (query-api §6, RESOLUTIONS P11).

1. Every entry under the paths is verified (``veen_spark.verify``). A fault, or a check that was not made,
   ends the query: no row is read from a log that does not verify.
2. The labels of the streams in scope are found, and their entries opened (``log_rows``).
3. Events that a bridge has imported form sources of their own, under their origin: one row for each, without
   a gap from the first entry, under the root that the origin hub signed. A wrapped event carries its origin;
   the bridge's audit log has that of a resealed event (``resealed_rows``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from veen_core.errors import VerificationError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Epoch, HubId, Label
from veen_core.mmr import mmr_at, peak_positions
from veen_core.receipt import Receipt
from veen_overlays.bridge.records import OFFLINE_LOG
from veen_overlays.live.query_view.files.data_files import CARRIED
from veen_overlays.query.result.coverage import Prefix
from veen_spark.functions.reader_keys import ReaderKeys
from veen_spark.query.event_rows import VIEW_SCHEMA
from veen_spark.query.event_view import EventView
from veen_spark.query.log_rows import OriginTerms, attributed, build_rows, entries_of
from veen_spark.query.log_sources import Pieces, find_sources, identities_in, whole_hubs
from veen_spark.query.prefix_rows import rows_of
from veen_spark.query.resealed_rows import read_audit_logs, under_origins
from veen_spark.query.tree_nodes import TreeNodes, compute_nodes
from veen_spark.verify import VerificationReport, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENTRY: Final = ("hub_id", "label", "seq")


def view_of_logs(
    spark: SparkSession,
    paths: Sequence[str],
    scope: Iterable[str],
    keys: ReaderKeys | None,
    *,
    pinned: Iterable[HubId | str] = (),
    identity: HubIdentity | None = None,
    held_in: Mapping[str, str] | None = None,
    origins: Sequence[OriginTerms] = (),
    resealed: bool = False,
) -> EventView:
    """Verify the logs under the paths, and open the streams in scope.

    ``held_in`` names the import stream that holds the events of a stream of another hub, and ``origins`` the
    hubs whose receipts count. With ``resealed``, the bridge's audit log is among the logs: it lists the
    origins of resealed events. The rows are kept by Spark until ``frame.unpersist()``.
    """
    report = verify(spark, *paths, pinned=pinned, identity=identity)
    _require_verified(report)
    streams = tuple(scope)
    names = {name: name for name in streams} | {held: name for name, held in (held_in or {}).items()}
    found = find_sources(paths, report, names)
    rows, prefixes = build_rows(spark, paths, found.pieces, keys, origins).persist(), found.prefixes
    if resealed:
        audits = _audit_logs(paths, report)
        logs = entries_of(spark, paths, {label for _, label in audits})
        rows = under_origins(rows, read_audit_logs(logs, audits, keys, origins, streams))
    if origins:
        rows = attributed(_once(rows)).persist()
        prefixes = _with_imported(rows, prefixes)
    else:
        rows = attributed(rows)
    known = [terms.identity for terms in origins] + ([] if identity is None else [identity])
    return EventView(
        frame=rows.select(*VIEW_SCHEMA.names),
        prefixes=prefixes,
        homes=_homes(streams, whole_hubs(paths, report), held_in or {}, origins),
        identities=identities_in(report, known),
        links=found.links,
    )


def _audit_logs(paths: Sequence[str], report: VerificationReport) -> Pieces:
    """Find the audit logs of importing bridges; raise if a hub's audit log is missing from a partial copy."""
    found = find_sources(paths, report, {OFFLINE_LOG: OFFLINE_LOG}).pieces
    audited = {piece.hub_id for piece in found.values()} | set(whole_hubs(paths, report))
    for row in report.labels:
        if row.hub_id is not None and row.hub_id not in audited:
            raise VerificationError(
                f"the logs of hub {row.hub_id.hex()} do not have {OFFLINE_LOG}, which lists the origins of "
                "resealed events",
                action=f"give the export of {OFFLINE_LOG} too, or a clone of the hub",
            )
    return found


def _homes(
    scope: Sequence[str], whole: Sequence[HubId], held_in: Mapping[str, str], origins: Sequence[OriginTerms]
) -> dict[str, HubId]:
    """Return, for each stream, the hub that the coverage names if the stream is empty, as a live view does.

    An export has one label, so only a data directory or a clone shows that a stream has no entries.
    """
    if not whole:
        return {}
    imported = min((terms.identity.hub_id for terms in origins), default=whole[0])
    return {stream: imported if stream in held_in else whole[0] for stream in scope}


def _require_verified(report: VerificationReport) -> None:
    """Raise unless every check was made and passed."""
    for row in report.faults:
        fault = row.fault
        assert fault is not None  # ``faults`` lists labels with a fault
        what = row.origin if row.label is None else f"label {row.label.hex()}, entry {fault.seq}"
        raise VerificationError(
            f"{what}: {fault.reason} ({fault.file}, byte {fault.offset}), so the query reads nothing",
            action="run `veen spark verify` to see all faults, and fetch the log again",
        )
    if not report.complete:
        raise VerificationError(
            f"{report.partly_followed} labels have more than 4,096 writers or 65,536 tokens in one part, "
            "which `veen spark verify` compares only in part",
            action="query the view folder of a `veen query serve` that follows this hub",
        )


# --- imported events


def _once(rows: DataFrame) -> DataFrame:
    """Return each entry once: two bridges may import one event, and a log may have copy and original."""
    from pyspark.sql import Window  # noqa: PLC0415 - slow to import
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    differing = rows.groupBy(*_ENTRY).agg(f.countDistinct("leaf_hash").alias("leaves")).where("leaves > 1")
    if (first := differing.orderBy(*_ENTRY).first()) is not None:
        raise VerificationError(
            f"hub {bytes(first['hub_id']).hex()} signed two different entries {first['seq']} of label "
            f"{bytes(first['label']).hex()}",
            action="keep both logs as evidence against the hub",
        )
    copied = f.col("read_label") != f.col("label")
    copies = Window.partitionBy(*_ENTRY).orderBy(copied, "read_epoch", "read_label", "read_seq")
    return rows.withColumn("copy", f.row_number().over(copies)).where("copy = 1").drop("copy")


def _with_imported(rows: DataFrame, direct: Sequence[Prefix]) -> tuple[Prefix, ...]:
    """Return the prefixes of direct and imported sources; a log that only carries copies is no source."""
    from pyspark.sql import Window  # noqa: PLC0415 - slow to import
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    place = ("stream", "hub_id", "label", "epoch")
    in_order = f.row_number().over(Window.partitionBy("hub_id", "label").orderBy("seq"))
    without_gap = f.when(in_order == f.col("seq"), f.col("seq"))
    numbered = rows.select(*place, "seq", "kind", without_gap.alias("reached"))
    found = numbered.groupBy(*place).agg(
        f.max("reached").cast("long").alias("to_seq"),
        f.sum((f.col("kind") != CARRIED).cast("long")).alias("own"),
    )
    sources = {(bytes(row["hub_id"]), bytes(row["label"])): row for row in found.collect()}
    kept, known = list[Prefix](), {(bytes(p.hub_id), bytes(p.label)) for p in direct}
    for prefix in direct:
        row = sources.get((bytes(prefix.hub_id), bytes(prefix.label)))
        if row is not None and row["own"]:
            kept.append(_shortened(rows, prefix, row["to_seq"]))
    imported = [row for key, row in sorted(sources.items()) if key not in known and row["to_seq"]]
    return (*kept, *_proven(rows, imported))


def _shortened(rows: DataFrame, prefix: Prefix, to_seq: int) -> Prefix:
    """Shorten a prefix to an entry, with the root that its receipt signs, and without a checkpoint."""
    if to_seq == prefix.to_seq:
        return prefix
    receipt = Receipt.decode(_receipt(rows.where(f"label = X'{prefix.label.hex()}'"), to_seq))
    return replace(prefix, to_seq=to_seq, mmr_root=receipt.mmr_root, checkpoint=None)


def _proven(rows: DataFrame, sources: Sequence[Any]) -> list[Prefix]:
    """Return the prefixes of imported sources whose leaves lead to the root that the origin hub signed."""
    if not sources:
        return []
    open_ends = [
        Prefix(
            stream=row["stream"],
            hub_id=HubId(bytes(row["hub_id"])),
            label=Label(bytes(row["label"])),
            epoch=Epoch(row["epoch"]),
            to_seq=row["to_seq"],
            mmr_root=None,
        )
        for row in sources
    ]
    numbered = rows_of(rows, open_ends)
    nodes = compute_nodes(numbered, {n: peak_positions(p.to_seq) for n, p in enumerate(open_ends)})
    return [_rooted(prefix, nodes, number, numbered) for number, prefix in enumerate(open_ends)]


def _rooted(prefix: Prefix, nodes: TreeNodes, number: int, numbered: DataFrame) -> Prefix:
    receipt = Receipt.decode(_receipt(numbered.where(f"source = {number}"), prefix.to_seq))
    root = mmr_at(prefix.to_seq, lambda height, index: nodes.node(number, height, index)).root
    if receipt.mmr_root != root:
        raise VerificationError(
            f"the imported events of label {prefix.label.hex()} do not lead to the root that hub "
            f"{prefix.hub_id.hex()} signed at entry {prefix.to_seq}",
            action="run `veen bridge reconcile` to find the event that differs",
        )
    return replace(prefix, mmr_root=root)


def _receipt(rows: DataFrame, seq: int) -> bytes:
    """Return the receipt of an entry of one source."""
    row = rows.where(f"seq = {seq}").select("receipt").first()
    assert row is not None  # ``seq`` ends a run of rows without a gap
    return bytes(row["receipt"])
