"""``veen spark fold``: an overlay's state from logs of any size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from veen_overlays.fold.registry import OVERLAYS
from veen_spark.commands.paths import require_paths
from veen_spark.commands.readers import reader_keys, reader_option
from veen_spark.commands.session import (
    HELP,
    ExampleCommand,
    log_paths,
    new_folder,
    session,
    session_options,
    show,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


EXAMPLES: Final = (
    "veen spark fold exports/orders --overlay kv.map --reader reader/",
    "veen spark fold clone/ --overlay wallet.ledger --reader reader/ --out balances --json",
)

_COUNTED: Final = ("events", "foreign", "undecodable", "unopened", "pruned")


@click.command("fold", cls=ExampleCommand, examples=EXAMPLES, context_settings=HELP)
@log_paths
@click.option("--overlay", required=True, type=click.Choice([*OVERLAYS]), help="What the messages mean.")
@reader_option
@click.option(
    "--out", "target", type=click.Path(path_type=Path), help="New folder for the states, as Parquet."
)
@click.option("--allow-pruned", is_flag=True, help="Fold what retention left, and count what it took.")
@session_options
def fold(
    *,
    paths: tuple[str, ...],
    overlay: str,
    readers: tuple[Path, ...],
    target: Path | None,
    allow_pruned: bool,
    master: str,
    conf: dict[str, str],
    verbose: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fold logs to an overlay's state, one for each label.

    PATHS are exports, folders of chunk files or cloned data directories; globs too. The state is the one that
    a single process computes: its hash says so. Verify the logs first: folding does not.
    With --out, DIR/labels has a row per label and DIR/state the overlay's own table.
    """
    from veen_spark.fold.folding import PARTITION_BYTES  # noqa: PLC0415 - slow to import, and --help needs none
    from veen_spark.fold.folding import fold as fold_logs  # noqa: PLC0415 - as above

    keys = reader_keys(readers)
    if keys is None:
        raise click.UsageError(
            "Missing option '--reader': messages are sealed, name the key that opens them."
        )
    new_folder(target)
    require_paths(paths, master)
    with session(master, conf, verbose=verbose) as spark:
        logs = spark.read.format("veen").option("maxPartitionBytes", PARTITION_BYTES).load([*paths])
        folded = fold_logs(logs, overlay, keys, allow_pruned=allow_pruned)
        if target is not None:
            _write(folded, overlay, target.absolute())
        labels = [row.asDict() for row in folded.drop("summary").orderBy("label").collect()]
    _say([_shown(row) for row in labels], overlay, target, as_json=as_json, quiet=quiet)


def _write(folded: DataFrame, overlay: str, target: Path) -> None:
    from veen_spark.fold.states import state  # noqa: PLC0415 - as above

    folded.write.parquet(str(target / "labels"))
    state(folded, overlay).write.parquet(str(target / "state"))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: bytes(v).hex() if isinstance(v, bytes | bytearray) else v for name, v in row.items()}


def _say(
    labels: list[dict[str, Any]], overlay: str, target: Path | None, *, as_json: bool, quiet: bool
) -> None:
    if as_json:
        out = {} if target is None else {"out": str(target)}
        show({"overlay": overlay, "labels": labels, **out})
        return
    if quiet:
        return
    for row in labels:
        click.echo(f"label {row['label']}  up to {row['upto_seq']}  root {row['mmr_root']}")
        counts = ", ".join(f"{row[name]} {name}" for name in _COUNTED if row[name] or name != "pruned")
        click.echo(f"  state {row['state_hash']}  ({counts})")
    click.echo(f"{len(labels)} labels folded by {overlay}" + (f" to {target}" if target is not None else ""))
