"""``veen spark to-parquet``: logs as Parquet, for the many queries that follow."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from veen_spark.commands.paths import there
from veen_spark.commands.session import (
    HELP,
    ExampleCommand,
    log_paths,
    new_folder,
    session,
    session_options,
    show,
)
from veen_spark.parquet import to_parquet as convert

EXAMPLES: Final = (
    "veen spark to-parquet clone/ parquet/",
    "veen spark to-parquet exports/* parquet/ --mode quarantine --overwrite",
)


@click.command("to-parquet", cls=ExampleCommand, examples=EXAMPLES, context_settings=HELP)
@log_paths
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--mode",
    type=click.Choice(["failfast", "quarantine"]),
    default="failfast",
    show_default=True,
    help="What a damaged entry does: fail, or become a row of its own.",
)
@click.option("--overwrite", is_flag=True, help="Replace what is at TARGET.")
@session_options
def to_parquet(
    *,
    paths: tuple[str, ...],
    target: Path,
    mode: str,
    overwrite: bool,
    master: str,
    conf: dict[str, str],
    verbose: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the logs at PATHS to TARGET, with the same columns, a folder for each hub and day of hub_ts.

    Nothing is verified beyond what reading needs: run 'veen spark verify' on the logs themselves.
    """
    if not overwrite:
        new_folder(target, ", or say --overwrite")
    there(paths, master)
    with session(master, conf, verbose=verbose) as spark:
        written = convert(spark, paths, str(target.absolute()), mode=mode, overwrite=overwrite)
    if as_json:
        show({"rows": written.rows, "damaged": written.damaged, "target": str(target)})
    elif not quiet or written.damaged:
        damaged = f", {written.damaged} of them damaged" if written.damaged else ""
        click.echo(f"{written.rows} rows in {target}{damaged}")
