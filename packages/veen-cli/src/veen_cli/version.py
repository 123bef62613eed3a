"""``veen version``: what is installed, and which protocol it speaks."""

from __future__ import annotations

import json
from importlib.metadata import distributions
from typing import Final

import click

PROTOCOL_VERSION: Final = "0.0.1"


def installed() -> dict[str, str]:
    """Names and versions of the installed distributions of VEEN, by name."""
    found = {dist.name: dist.version for dist in distributions() if dist.name.startswith("veen-")}
    return dict(sorted(found.items()))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def version(*, as_json: bool) -> None:
    """Show the installed versions."""
    packages = installed()
    if as_json:
        click.echo(json.dumps({"protocol": PROTOCOL_VERSION, "packages": packages}))
        return
    rows = {"protocol": PROTOCOL_VERSION, **packages}
    width = max(map(len, rows))
    for name, number in rows.items():
        click.echo(f"{name:<{width}}  {number}")
