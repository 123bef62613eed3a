"""``veen spark to-parquet``: logs as Parquet, for the many queries that follow."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from veen_spark.commands.paths import require_paths
from veen_spark.commands.session import (
    HELP,
    USAGE,
    ExampleCommand,
    SparkCommandError,
    log_paths,
    new_folder,
    session,
    session_options,
    show,
)
from veen_spark.read.parquet import write_parquet
from veen_spark.session.master import is_connect

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
@click.option("--overwrite", is_flag=True, help="Replace the Parquet that is at TARGET.")
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
    elif not is_connect(master):
        _only_parquet(target)
    require_paths(paths, master)
    with _instead_of(target, master) as place, session(master, conf, verbose=verbose) as spark:
        written = write_parquet(spark, paths, str(place.absolute()), mode=mode, overwrite=overwrite)
    if as_json:
        show({"rows": written.rows, "damaged": written.damaged, "target": str(target)})
    elif not quiet or written.damaged:
        damaged = f", {written.damaged} of them damaged" if written.damaged else ""
        click.echo(f"{written.rows} rows in {target}{damaged}")


def _only_parquet(target: Path) -> None:
    """Whoever forgets TARGET names the last of the logs: nothing is replaced but what this command writes."""
    if target.is_dir():
        other = [path for path in target.iterdir() if not path.name.startswith(("hub=", "_", "."))]
    else:
        other = [target] if target.exists() else []
    if other:
        raise SparkCommandError(
            f"{other[0]} is no Parquet of logs, and would be lost: choose another folder", USAGE
        )


@contextmanager
def _instead_of(target: Path, master: str) -> Iterator[Path]:
    """Where to write: beside the target, which it replaces when all is there and Spark writes no more.

    A log that turns out damaged leaves what was at the target, or nothing. The folders of a Spark Connect
    server are not ours to move.
    """
    if is_connect(master):
        yield target
        return
    home = target.resolve()
    fresh, old = (home.with_name(f".{home.name}.{what}") for what in ("new", "old"))
    shutil.rmtree(fresh, ignore_errors=True)  # of a run that was killed
    try:
        yield fresh
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    try:
        shutil.rmtree(old, ignore_errors=True)
        if home.exists():
            home.rename(old)
        fresh.rename(home)
    except OSError as exc:
        what = f"{fresh} is written, but cannot take the place of {home}: {exc}"
        raise SparkCommandError(what, USAGE) from exc
    shutil.rmtree(old, ignore_errors=True)
