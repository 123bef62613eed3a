"""``veen spark stream``: a hub's streams into Parquet, as they grow."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from veen_core.ids import HubId
from veen_spark.commands.session import (
    HELP,
    USAGE,
    ExampleCommand,
    SparkCommandError,
    session,
    session_options,
    show,
)
from veen_spark.commands.session import hub_id as as_hub_id
from veen_spark.read.parquet import add_partition_columns
from veen_spark.session.master import is_connect

EXAMPLES: Final = (
    "veen spark stream parquet/ --hub http://127.0.0.1:8080 --hub-id 62c1… --stream orders",
    "veen spark stream parquet/ --hub-id 62c1… --stream orders --once --json",
)


@click.command("stream", cls=ExampleCommand, examples=EXAMPLES, context_settings=HELP)
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--hub", required=True, envvar="VEEN_HUB", help="The hub's URL.")
@click.option("--hub-id", required=True, type=as_hub_id, help="The hub it must be.")
@click.option(
    "--ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file: believe this authority (TLS), under the same name on every executor.",
)
@click.option("--stream", "streams", multiple=True, help="A stream by name; repeat.")
@click.option("--label", "labels", multiple=True, help="A label in hex; repeat.")
@click.option(
    "--checkpoint", type=click.Path(path_type=Path), help="Where to go on from [TARGET.checkpoint]."
)
@click.option("--starting-offsets", default="earliest", show_default=True, help="earliest, latest, or JSON.")
@click.option("--max-offsets-per-trigger", type=click.IntRange(1), help="Entries a batch, at the most.")
@click.option(
    "--keep-on-data-loss", is_flag=True, help="Go on where the hub has pruned what was not yet read."
)
@click.option("--once", is_flag=True, help="Take what is there, then end; else follow until interrupted.")
@session_options
def stream(
    *,
    target: Path,
    hub: str,
    hub_id: HubId,
    ca: Path | None,
    streams: tuple[str, ...],
    labels: tuple[str, ...],
    checkpoint: Path | None,
    starting_offsets: str,
    max_offsets_per_trigger: int | None,
    keep_on_data_loss: bool,
    once: bool,
    master: str,
    conf: dict[str, str],
    verbose: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Follow a hub's logs into Parquet at TARGET: every receipt verified, every entry there exactly once.

    Run again with the same TARGET and checkpoint it goes on where it ended, however it ended.
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
    place = checkpoint or target.with_name(f"{target.name}.checkpoint")
    if not is_connect(master):
        _of_one_run(target, place)
    with session(master, conf, verbose=verbose) as spark:
        rows = add_partition_columns(spark.readStream.format("veen").options(**options).load())
        writer = rows.writeStream.format("parquet").partitionBy("hub", "day")
        writer = writer.option("path", str(target.absolute()))
        writer = writer.option("checkpointLocation", str(place.absolute()))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 second")
        query = writer.start()
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
        written = spark.read.parquet(str(target.absolute())).count() if any(target.glob("hub=*")) else 0
    if as_json:
        show({"rows": written, "target": str(target), "checkpoint": str(place)})
    elif not quiet:
        click.echo(f"{written} rows in {target}")


def _of_one_run(target: Path, place: Path) -> None:
    """Refuse a target without its checkpoint, or the other way round: entries would be missing in silence.

    Spark numbers batches by the checkpoint, and leaves out those whose number the target has seen.
    """
    if target.is_dir() and any(target.iterdir()) and not any((place / "offsets").glob("*")):
        raise SparkCommandError(
            f"{target} holds something already, and {place} does not say how far it was read: "
            "choose another folder, or give its --checkpoint",
            USAGE,
        )
    if any((place / "commits").glob("*")) and not (target / "_spark_metadata").is_dir():
        raise SparkCommandError(
            f"{place} says what was written, but {target} does not hold it: "
            "give the folder that it was written to, or remove the checkpoint to begin anew",
            USAGE,
        )
