"""``veen spark fold``: an overlay's state from logs of any size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from veen_cli.frame import Answer, Output, command, plural
from veen_overlays.fold.registry import OVERLAYS
from veen_spark.commands.paths import log_paths, out_option, require_new_folder, require_paths
from veen_spark.commands.readers import reader_keys, reader_option
from veen_spark.commands.session import session, session_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COUNTS: Final = ("events", "foreign", "undecodable", "unopened", "pruned")


@command(
    "veen spark fold exports/orders --overlay kv.map --reader reader/",
    "veen spark fold clone/ --overlay wallet.ledger --reader reader/ --out balances --json",
    name="fold",
)
@log_paths
@click.option(
    "--overlay",
    required=True,
    type=click.Choice([*OVERLAYS]),
    metavar="OVERLAY",
    help="The overlay whose state is computed, such as kv.map; an unknown name prints all names.",
)
@reader_option(required=True)
@click.option(
    "--allow-pruned", is_flag=True, help="Fold the entries that are not pruned, and count the pruned ones."
)
@out_option
@session_options
def fold(
    out: Output,
    *,
    paths: tuple[str, ...],
    overlay: str,
    readers: tuple[Path, ...],
    allow_pruned: bool,
    target: Path | None,
    master: str,
    conf: dict[str, str],
    verbose: bool,
) -> Answer:
    """Compute an overlay's state from the logs at PATHS, one state per label.

    PATHS are exports, folders of chunk files or clones of data directories, or globs of them. The state hash
    is the one that a single process computes. Folding verifies nothing: run 'veen spark verify' first. With
    --out, OUT/labels has one row per label and OUT/state the overlay's own table.
    """
    from veen_spark.fold.folding import PARTITION_BYTES  # noqa: PLC0415 - slow to import; --help needs none
    from veen_spark.fold.folding import fold as fold_logs  # noqa: PLC0415 - as above

    keys = reader_keys(readers)
    require_new_folder(target)
    require_paths(paths, master)
    with session(out, master, conf, verbose=verbose) as spark:
        logs = spark.read.format("veen").option("maxPartitionBytes", PARTITION_BYTES).load([*paths])
        folded = fold_logs(logs, overlay, keys, allow_pruned=allow_pruned)
        if target is not None:
            _write(folded, overlay, target.absolute())
        rows = folded.drop("summary").orderBy("label").collect()
    labels = [_in_hex(row.asDict()) for row in rows]
    written = {} if target is None else {"out": str(target)}
    return Answer({"overlay": overlay, "labels": labels, **written}, _lines(labels, overlay, target))


def _write(folded: DataFrame, overlay: str, target: Path) -> None:
    from veen_spark.fold.states import state  # noqa: PLC0415 - as above

    folded.write.parquet(str(target / "labels"))
    state(folded, overlay).write.parquet(str(target / "state"))


def _in_hex(row: dict[str, Any]) -> dict[str, Any]:
    return {name: bytes(v).hex() if isinstance(v, bytes | bytearray) else v for name, v in row.items()}


def _lines(labels: list[dict[str, Any]], overlay: str, target: Path | None) -> Iterator[str]:
    for row in labels:
        yield f"label {row['label']}  up to entry {row['upto_seq']}  root {row['mmr_root']}"
        counts = ", ".join(f"{row[name]} {name}" for name in _COUNTS if row[name] or name != "pruned")
        yield f"  state {row['state_hash']}  ({counts})"
    written = f", written to {target}" if target is not None else ""
    yield f"{plural(len(labels), 'label')} folded by {overlay}{written}"
