"""``veen spark to-parquet``: logs converted to Parquet for many later queries."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from veen_cli.frame import Answer, CommandFailed, Exit, Output, command, plural
from veen_spark.commands.paths import log_paths, require_new_folder, require_paths, required_out_option
from veen_spark.commands.session import session, session_options
from veen_spark.read.parquet import write_parquet
from veen_spark.session.master import is_connect


@command(
    "veen spark to-parquet clone/ --out parquet/",
    "veen spark to-parquet exports/* --out parquet/ --mode quarantine --overwrite",
    name="to-parquet",
)
@log_paths
@required_out_option
@click.option(
    "--mode",
    type=click.Choice(["failfast", "quarantine"]),
    default="failfast",
    show_default=True,
    help="Fail at a damaged entry, or write it as a row of its own.",
)
@click.option("--overwrite", is_flag=True, help="Replace the Parquet files in OUT.")
@session_options
def to_parquet(
    out: Output,
    *,
    paths: tuple[str, ...],
    target: Path,
    mode: str,
    overwrite: bool,
    master: str,
    conf: dict[str, str],
    verbose: bool,
) -> Answer:
    """Write the logs at PATHS as Parquet, with the same columns, in one folder per hub and day.

    Signatures and roots are not verified: run 'veen spark verify' on the logs.
    """
    if not overwrite:
        require_new_folder(target, "choose another folder, or use --overwrite")
    elif not is_connect(master):
        _require_only_parquet(target)
    require_paths(paths, master)
    with _replacing(target, master) as folder, session(out, master, conf, verbose=verbose) as spark:
        written = write_parquet(spark, paths, str(folder.absolute()), mode=mode, overwrite=overwrite)
    if written.damaged and out.quiet and not out.as_json:
        click.echo(f"{plural(written.damaged, 'damaged row')} in {target}", err=True)
    damaged = f", {written.damaged} of them damaged" if written.damaged else ""
    return Answer(
        {"rows": written.rows, "damaged": written.damaged, "out": str(target)},
        [f"{plural(written.rows, 'row')} in {target}{damaged}"],
    )


def _require_only_parquet(target: Path) -> None:
    """Refuse to overwrite a folder that contains files which this command did not write."""
    if target.is_dir():
        other = [path for path in target.iterdir() if not path.name.startswith(("hub=", "_", "."))]
    else:
        other = [target] if target.exists() else []
    if other:
        raise CommandFailed(
            f"{other[0]} was not written by this command and would be lost",
            Exit.USAGE,
            "choose another folder",
        )


@contextmanager
def _replacing(target: Path, master: str) -> Iterator[Path]:
    """Yield a folder to write to, and replace the target with it when it is complete.

    A damaged log therefore leaves the target unchanged. The folders of a Spark Connect server cannot be
    renamed from here, so there the target itself is written.
    """
    if is_connect(master):
        yield target
        return
    home = target.resolve()
    new, old = (home.with_name(f".{home.name}.{what}") for what in ("new", "old"))
    shutil.rmtree(new, ignore_errors=True)  # left by a killed run
    try:
        yield new
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    try:
        shutil.rmtree(old, ignore_errors=True)
        if home.exists():
            home.rename(old)
        new.rename(home)
    except OSError as exc:
        raise CommandFailed(
            f"{new} is complete but cannot be renamed to {home}: {exc.strerror or exc}",
            Exit.USAGE,
            "rename it by hand",
        ) from exc
    shutil.rmtree(old, ignore_errors=True)
