"""``veen inspect``: show what a file holds."""

from __future__ import annotations

import click

from veen_cli.arguments import completions
from veen_cli.evidence import rendering
from veen_cli.evidence.recognition.recognize import recognize_all
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output


@command("veen inspect receipt.cbor", "veen id card --client alice --quiet | veen inspect -", name="inspect")
@click.argument("files", nargs=-1, required=True, metavar="FILE…", shell_complete=completions.files)
def inspect(out: Output, *, files: tuple[str, ...]) -> Answer:
    """Show the content of any VEEN file; '-' is stdin.

    Objects, chunks, sequences, evidence, keystores: secrets are never shown. It does not verify anything:
    that is `veen verify`.
    """
    with out.progress("reading"):
        found = recognize_all(files)
    text = []
    for each in found:
        first, *rest = rendering.as_lines(each.thing)
        text += [f"{each.where}: {first}", *rest]
    return Answer(
        {"objects": [{"file": each.where, **rendering.as_dict(each.thing)} for each in found]}, text
    )
