"""``veen witness evidence``: contradictions as files for a third party."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.arguments.object_files import write_new
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.witness.source import ReadableWitness, source_options


@command(
    "veen witness evidence --dir witness --out evidence",
    "veen witness evidence --url https://witness.example.org:8090 --out evidence",
)
@source_options
@click.option("--out", "target", type=click.Path(path_type=Path), required=True, help="Folder for the files.")
def evidence(out: Output, *, source: ReadableWitness, target: Path) -> Answer:
    """Write the contradictions that a witness has found to files.

    Each contradiction becomes ID.contradiction, which a third party verifies offline, and its signed
    checkpoints become ID.1.note and ID.2.note for tools that read C2SP notes. Files that exist already are
    left alone.
    """
    del out
    target.mkdir(parents=True, exist_ok=True)
    written: list[str] = []
    for log in source.describe()["logs"]:
        for listed in log["contradictions"]:
            path = target / f"{listed['id']}.contradiction"
            if path.exists():
                continue
            found = source.contradiction(listed["id"])
            for number, note in enumerate(found.notes, start=1):
                (target / f"{found.id}.{number}.note").write_text(note, encoding="utf-8")
            write_new(path, found.encode())
            written.append(str(path))
    return Answer(
        {"written": written}, [*written, f"wrote {plural(len(written), 'new contradiction')} to {target}"]
    )
