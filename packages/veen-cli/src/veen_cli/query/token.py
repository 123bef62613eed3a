"""``veen query token``: create a bearer token; the service's configuration gets its hash only."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.arguments import private_files
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields


@command("veen query token --out auditor.token", "veen query token --json")
@click.option(
    "--out",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the token to this new file, 0600, and print its hash only.",
)
def token(out: Output, *, target: Path | None) -> Answer:
    """Create a bearer token for a principal of the service.

    Give the token to the principal. Add the hash to the principal's tokens in query.yaml: the service never
    needs the token itself.
    """
    del out
    # Imported here: click shows the help of this command without it.
    from veen_overlays.live.query_service.principals import hash_of_token, new_token  # noqa: PLC0415

    drawn = new_token()
    digest = hash_of_token(drawn).hex()
    if target is None:
        return Answer({"token": drawn, "hash": digest}, fields({"token": drawn, "hash": digest}))
    if target.exists():
        raise CommandFailed(f"{target} exists, and is not overwritten", Exit.USAGE, "choose another --out")
    private_files.write(target, drawn.encode() + b"\n")
    return Answer({"file": str(target), "hash": digest}, fields({"token": f"in {target}", "hash": digest}))
