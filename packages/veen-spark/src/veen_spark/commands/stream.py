"""``veen spark stream``: a hub's streams written to Parquet as they grow."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.frame import Answer, CommandFailed, Exit, Integer, Output, command, plural
from veen_core.ids import HubId
from veen_spark.commands.paths import required_out_option
from veen_spark.commands.session import hub_id as parse_hub_id
from veen_spark.commands.session import session, session_options
from veen_spark.read.parquet import add_partition_columns
from veen_spark.session.master import is_connect


@command(
    "veen spark stream --hub http://127.0.0.1:8080 --hub-id 62c1… --stream orders --out parquet/",
    "veen spark stream --hub http://127.0.0.1:8080 --hub-id 62c1… --stream orders --out live/ --once --json",
    name="stream",
)
@click.option("--hub", required=True, envvar="VEEN_HUB", help="URL of the hub.")
@click.option("--hub-id", required=True, type=parse_hub_id, help="Id of the hub that must answer.")
@click.option(
    "--ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file of the certificate authority (TLS), under the same path on every executor.",
)
@click.option("--stream", "streams", multiple=True, help="Name of a stream; may be repeated.")
@click.option("--label", "labels", multiple=True, help="A label in hex; may be repeated.")
@required_out_option
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="Folder for the read position [default: OUT.checkpoint].",
)
@click.option(
    "--starting-offsets",
    default="earliest",
    show_default=True,
    help="First entry to read: earliest, latest, or JSON with the first entry of each label.",
)
@click.option("--max-offsets-per-trigger", type=Integer(1), help="Largest number of entries in a batch.")
@click.option("--keep-on-data-loss", is_flag=True, help="Continue if the hub has pruned unread entries.")
@click.option(
    "--once",
    is_flag=True,
    help="Write the entries that the hub has now, then exit [default: follow until Ctrl-C].",
)
@session_options
def stream(
    out: Output,
    *,
    hub: str,
    hub_id: HubId,
    ca: Path | None,
    streams: tuple[str, ...],
    labels: tuple[str, ...],
    target: Path,
    checkpoint: Path | None,
    starting_offsets: str,
    max_offsets_per_trigger: int | None,
    keep_on_data_loss: bool,
    once: bool,
    master: str,
    conf: dict[str, str],
    verbose: bool,
) -> Answer:
    """Follow a hub's streams and write every entry to Parquet exactly once.

    Every receipt is verified. If the command is run again with the same --out, it continues where it stopped,
    even after a crash.
    """
    options = {
        "hub": hub,
        "hubId": hub_id.hex(),
        "stream": ",".join(streams),
        "label": ",".join(labels),
        "startingOffsets": starting_offsets,
        "failOnDataLoss": str(not keep_on_data_loss).lower(),
    }
    if ca is not None:
        options["ca"] = str(ca.absolute())
    if max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    position = checkpoint or target.with_name(f"{target.name}.checkpoint")
    if not is_connect(master):
        _require_same_run(target, position)
    with session(out, master, conf, verbose=verbose) as spark:
        rows = add_partition_columns(spark.readStream.format("veen").options(**options).load())
        writer = rows.writeStream.format("parquet").partitionBy("hub", "day")
        writer = writer.option("path", str(target.absolute()))
        writer = writer.option("checkpointLocation", str(position.absolute()))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 second")
        query = writer.start()
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
        written = spark.read.parquet(str(target.absolute())).count() if any(target.glob("hub=*")) else 0
    return Answer(
        {"rows": written, "out": str(target), "checkpoint": str(position)},
        [f"{plural(written, 'row')} in {target}"],
    )


def _require_same_run(target: Path, position: Path) -> None:
    """Refuse a target without its checkpoint, and a checkpoint without its target.

    Spark takes the batch number from the checkpoint and skips a batch whose number is in the target already.
    With the checkpoint of another target, entries would be lost silently.
    """
    if _has_output(target) and not any((position / "offsets").glob("*")):
        raise CommandFailed(
            f"{target} is not empty, but its checkpoint {position} is missing or empty",
            Exit.USAGE,
            "choose another --out, or give its --checkpoint",
        )
    if any((position / "commits").glob("*")) and not (target / "_spark_metadata").is_dir():
        raise CommandFailed(
            f"checkpoint {position} belongs to Parquet files that are not in {target}",
            Exit.USAGE,
            "choose the --out that this checkpoint belongs to, or remove the checkpoint to start again",
        )


def _has_output(target: Path) -> bool:
    """Return whether a run wrote to the folder; a run that failed early leaves an empty metadata folder."""
    if not target.is_dir():
        return False
    return any(path.name != "_spark_metadata" or any(path.iterdir()) for path in target.iterdir())
