"""``veen spark verify``: an audit of logs of any size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from veen_cli.frame import Answer, CommandFailed, Exit, Integer, Output, command, escape_controls, plural
from veen_core.errors import VeenError
from veen_core.hub_identity import HubIdentity, verify_identity
from veen_core.ids import HubId
from veen_spark.commands.paths import (
    log_paths,
    note_small_logs,
    out_option,
    require_new_folder,
    require_paths,
)
from veen_spark.commands.session import hub_id, session, session_options
from veen_spark.read.plan import MAX_PARTITION_BYTES

if TYPE_CHECKING:
    from veen_spark.verify import VerificationReport


@command(
    "veen spark verify exports/* --hub-id 62c1…",
    "veen spark verify clone/ --hub-id 62c1… --out verdicts --json",
    name="verify",
)
@log_paths
@click.option(
    "--hub-id",
    "pinned",
    multiple=True,
    type=hub_id,
    help="Id of the hub that must have signed the logs; may be repeated.",
)
@click.option(
    "--identity",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A hub-identity.cbor, for chunk files that have none in their folder.",
)
@click.option(
    "--allow-partial",
    is_flag=True,
    help="Exit with 0 although some checks between parts were skipped (more than 4,096 writers in a part).",
)
@click.option(
    "--max-partition-bytes",
    type=Integer(1),
    default=MAX_PARTITION_BYTES,
    show_default=True,
    help="Largest number of bytes that one task reads.",
)
@out_option
@session_options
def verify(
    out: Output,
    *,
    paths: tuple[str, ...],
    pinned: tuple[HubId, ...],
    identity: Path | None,
    allow_partial: bool,
    max_partition_bytes: int,
    target: Path | None,
    master: str,
    conf: dict[str, str],
    verbose: bool,
) -> Answer:
    """Check every signature, hash and root of the logs at PATHS, and that the hub log agrees with them.

    PATHS are exports, clones of data directories, folders of chunk files, or globs of them. In a clone with a
    hub log, a missing label is a fault. With --out, a table of all labels is written. Exits with 3 if a check
    fails, and also if a check was skipped, unless --allow-partial is given. A small export needs no Spark:
    use 'veen verify'.
    """
    from veen_spark.verify import verify as verify_logs  # noqa: PLC0415 - loads pyspark

    require_new_folder(target)
    given = read_identity(identity) if identity is not None else None
    began = time.monotonic()
    require_paths(paths, master)
    note_small_logs(out, paths, master)
    with session(out, master, conf, verbose=verbose) as spark:
        report = verify_logs(
            spark, *paths, pinned=pinned, identity=given, max_partition_bytes=max_partition_bytes
        )
        if target is not None:
            report.frame(spark).coalesce(1).write.mode("error").parquet(str(target.absolute()))
    seconds = round(time.monotonic() - began, 1)
    if out.quiet and not out.as_json:
        for line in _fault_lines(report):
            click.echo(escape_controls(line), err=True)
    passed = report.ok and (report.complete or allow_partial)
    return Answer(
        {**report.as_object(), "seconds": seconds},
        [*_fault_lines(report), *_summary_lines(report, seconds)],
        Exit.OK if passed else Exit.PROTOCOL,
    )


def read_identity(path: Path) -> HubIdentity:
    """Read and verify the identity of a hub."""
    try:
        identity = HubIdentity.decode(path.read_bytes())
        verify_identity(identity)
    except VeenError as exc:
        raise CommandFailed(f"{path}: {exc.message}", Exit.USAGE, exc.action) from exc
    return identity


def _fault_lines(report: VerificationReport) -> Iterator[str]:
    for row in report.as_object()["faults"]:
        what = f"label {row['label'][:16]}…  entry {row['fault_seq']}" if row["label"] else row["origin"]
        yield f"FAULT  {what}: {row['first_fault']} ({row['fault_file']}, byte {row['fault_offset']})"


def _summary_lines(report: VerificationReport, seconds: float) -> Iterator[str]:
    found = report.as_object()
    for hub in found["hubs"]:
        pinned = "pinned" if hub["pinned"] else "NOT PINNED: without --hub-id the logs could be any hub's"
        yield f"hub {hub['hub_id']}: {pinned}"
    for origin in report.unsigned:
        yield f"NOT SIGNED: {origin} has no manifest.sig; nothing proves that the export is complete"
    yield from _hub_log_lines(report)
    if not report.complete:
        yield (
            f"NOT CHECKED: {plural(report.partly_followed, 'label')} with more than 4,096 writers or 65,536 "
            "tokens in one part; client_seq (I9) and tokens (H5) were not compared between parts"
        )
    counted = f"{plural(found['entries'], 'entry', 'entries')} of {plural(found['labels'], 'label')}"
    yield f"{_verdict(report)}: {counted}, {found['pruned']} of them pruned, in {seconds} s"


def _hub_log_lines(report: VerificationReport) -> Iterator[str]:
    for hub_log in report.hub_logs:
        later = f"; {plural(hub_log.uncovered, 'label')} with later entries" if hub_log.uncovered else ""
        heads, labels = plural(hub_log.size, "head"), plural(hub_log.covered, "label")
        yield f"hub log {hub_log.origin}: {heads}, agrees with {labels}{later}"
    if report.without_hub_log:
        first, *others = report.without_hub_log
        more = f" and {plural(len(others), 'other folder')}" if others else ""
        yield f"NO HUB LOG: nothing to check in {first}{more}; a missing label would not show"


def _verdict(report: VerificationReport) -> str:
    if not report.ok:
        return plural(len(report.faults), "fault")
    if not report.labels:
        return "there is nothing to verify"
    return (
        "all checks passed" if report.complete else "all checks that were made passed, but some were skipped"
    )
