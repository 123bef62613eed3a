"""``veen spark verify``: an audit of logs of any size."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from veen_core.errors import VeenError
from veen_core.hub_identity import HubIdentity, verify_identity
from veen_core.ids import HubId
from veen_spark.commands.paths import require_paths
from veen_spark.commands.session import (
    HELP,
    PROTOCOL,
    USAGE,
    ExampleCommand,
    SparkCommandError,
    hub_id,
    log_paths,
    new_folder,
    session,
    session_options,
    show,
)
from veen_spark.read.plan import MAX_PARTITION_BYTES

if TYPE_CHECKING:
    from veen_spark.verify import VerificationReport


EXAMPLES: Final = (
    "veen spark verify exports/* --hub-id 62c1…",
    "veen spark verify clone/ --hub-id 62c1… --report verdicts --json",
)


@click.command("verify", cls=ExampleCommand, examples=EXAMPLES, context_settings=HELP)
@log_paths
@click.option("--hub-id", "pinned", multiple=True, type=hub_id, help="The hub that must have signed; repeat.")
@click.option(
    "--identity",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A hub-identity.cbor, for chunk files without one beside them.",
)
@click.option(
    "--report", type=click.Path(path_type=Path), help="Write the table of all labels here, as Parquet."
)
@click.option(
    "--max-partition-bytes",
    type=click.IntRange(1),
    default=MAX_PARTITION_BYTES,
    show_default=True,
    help="How much one task reads.",
)
@session_options
def verify(
    *,
    paths: tuple[str, ...],
    pinned: tuple[HubId, ...],
    identity: Path | None,
    report: Path | None,
    max_partition_bytes: int,
    master: str,
    conf: dict[str, str],
    verbose: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Check every signature, hash and root of the logs at PATHS.

    PATHS are exports, clones of data directories, folders of chunk files, or globs of them. Ends with 3 if
    anything does not hold.
    """
    from veen_spark.verify import verify as judge  # noqa: PLC0415 - the function, not this command

    new_folder(report)
    given = _identity(identity) if identity is not None else None
    began = time.monotonic()
    require_paths(paths, master)
    with session(master, conf, verbose=verbose) as spark:
        found = judge(spark, *paths, pinned=pinned, identity=given, max_partition_bytes=max_partition_bytes)
        if report is not None:
            found.frame(spark).coalesce(1).write.mode("error").parquet(str(report.absolute()))
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        show({**found.as_object(), "seconds": seconds})
    else:
        _tell(found, seconds, quiet=quiet)
    if not found.ok:
        raise click.exceptions.Exit(PROTOCOL)


def _identity(path: Path) -> HubIdentity:
    try:
        identity = HubIdentity.decode(path.read_bytes())
        verify_identity(identity)
    except VeenError as exc:
        raise SparkCommandError(f"{path}: {exc}", USAGE) from exc
    return identity


def _tell(report: VerificationReport, seconds: float, *, quiet: bool) -> None:
    found: dict[str, Any] = report.as_object()
    for row in found["faults"]:
        place = f"{row['fault_file']}, byte {row['fault_offset']}"
        what = f"label {row['label'][:16]}…  entry {row['fault_seq']}" if row["label"] else row["origin"]
        click.echo(f"FAULT  {what}: {row['first_fault']} ({place})")
    if quiet:
        return
    for hub in found["hubs"]:
        pinned = (
            "pinned"
            if hub["pinned"]
            else "NOT PINNED: name it with --hub-id, or this proves nothing of whose"
        )
        click.echo(f"hub {hub['hub_id']}: {pinned}")
    for origin in report.unsigned:
        click.echo(f"NOT SIGNED: {origin} has no manifest.sig, that it is whole is nobody's word but its own")
    if report.partly_followed:
        click.echo(
            "NOT CHECKED: writers' counters (I9) and that no token is authorized twice (H5), from one part "
            f"to the next in {report.partly_followed} labels, which have too many writers or tokens"
        )
    holds = "everything holds" if report.labels else "there is nothing to verify"
    verdict = holds if report.ok else f"{len(found['faults'])} labels or folders have a fault"
    counted = f"{found['entries']} entries of {found['labels']} labels, {found['pruned']} of them pruned"
    click.echo(f"{verdict}: {counted}, in {seconds} s")
