"""``veen witness status``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from veen_cli.arguments import times
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import Exit
from veen_cli.frame.output import Answer, Output, escape_controls, plural
from veen_cli.witness.source import ReadableWitness, source_options


@command(
    "veen witness status --dir witness",
    "veen witness status --url https://witness.example.org:8090 --json",
)
@source_options
def status(out: Output, *, source: ReadableWitness) -> Answer:
    """Show what a witness has cosigned, and contradictions it has found.

    A contradiction is two signed checkpoints of one log that cannot both be true. Exits with 3 if there is
    one that proves misbehaviour; `veen witness evidence` writes it to a file. Unproven pairs do not count:
    anybody can send a genuine checkpoint with a wrong proof.
    """
    del out
    data = source.describe()
    proven = any(found["is_evidence"] for log in data["logs"] for found in log["contradictions"])
    lines = [f"witness {data['witness']}", *(line for log in data["logs"] for line in _lines(log))]
    if not data["logs"]:
        lines.append("it watches no log: add the verifier keys of logs to witness.yaml, and restart it")
    return Answer(data, map(escape_controls, lines), Exit.PROTOCOL if proven else Exit.OK)


def _lines(log: dict[str, Any]) -> Iterator[str]:
    yield log["origin"] + ("" if log["watched"] else "  (no longer in witness.yaml)")
    if log["size"] is None:
        yield "  nothing cosigned yet"
    else:
        age = times.format_duration(max(0, times.now() - log["cosigned_at"]))
        yield f"  size {log['size']}, cosigned {times.format_utc(log['cosigned_at'])} ({age} ago)"
    for found in log["contradictions"]:
        word = "EVIDENCE of misbehaviour" if found["is_evidence"] else "not proven"
        sizes = " and ".join(map(str, found["sizes"]))
        yield (
            f"  {word}: {found['claim']}, {plural(len(found['sizes']), 'checkpoint')} of size {sizes}, "
            f"seen {times.format_utc(found['seen_at'])}, id {found['id']}"
        )
