"""``veen hub fsck`` and ``repair``: check a data directory, and rebuild what can be derived from its log."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.hub.data_directory import data_dir_option, is_sharded_directory
from veen_storage.fsck import Report
from veen_storage.fsck import fsck as check
from veen_storage.fsck.repair import repair as mend
from veen_storage.shards.check import fsck_sharded as check_shards
from veen_storage.shards.check import repair_sharded as mend_shards


def report_dict(report: Report) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "level": report.level.value,
        "faults": [
            {
                "file": fault.file,
                "offset": fault.offset,
                "label": fault.label.hex() if fault.label is not None else None,
                "stream_seq": fault.seq,
                "what": fault.what,
                "remedy": fault.remedy,
            }
            for fault in report.faults
        ],
        "notes": list(report.notes),
        "counters": asdict(report.counters),
    }


@command("veen hub fsck --data-dir hub", "veen hub fsck --data-dir hub --quick --json")
@data_dir_option
@click.option("--quick", is_flag=True, help="Verify only the newest signatures; all other checks are made.")
@click.option("--processes", type=Integer(1, 256), help="Number of processes [default: one per core].")
def fsck(out: Output, *, data_dir: Path, quick: bool, processes: int | None) -> Answer:
    """Check everything in a stopped hub's data directory.

    Every hash, root, signature and index row is derived again from the log. Exits with 3 if there is a
    fault, and names the file, the byte and what to do.
    """
    with out.progress("checking") as progress:
        run = check_shards if is_sharded_directory(data_dir) else check
        report = run(
            data_dir, level="quick" if quick else "full", progress=progress.update, processes=processes
        )
    answer = Answer(report_dict(report), report.lines())
    if report.ok:
        return answer
    out.print_answer(answer)
    raise CommandFailed(
        f"{data_dir} is damaged: {plural(len(report.faults), 'fault')}",
        Exit.PROTOCOL,
        report.faults[0].remedy,
    )


@command("veen hub repair --data-dir hub")
@data_dir_option
def repair(out: Output, *, data_dir: Path) -> Answer:
    """Rebuild what can be rebuilt from the log.

    The index and other derived files are written again. If the log itself is damaged, the command refuses:
    restore the directory from a clone.
    """
    with out.progress("rebuilding") as progress:
        run = mend_shards if is_sharded_directory(data_dir) else mend
        report = run(data_dir, progress.update)
    return Answer(
        {
            "rewritten": report.rewritten,
            "notes": report.notes,
            "counters": asdict(report.counters),
        },
        str(report).splitlines(),
    )
