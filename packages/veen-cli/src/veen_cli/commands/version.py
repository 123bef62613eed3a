"""``veen version``: what is installed, and which protocol it speaks."""

from __future__ import annotations

from importlib.metadata import distributions
from typing import Final

from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, fields

PROTOCOL_VERSION: Final = "0.0.1"
"""Written here too, so that asking for it does not import the protocol; a test compares."""


def installed() -> dict[str, str]:
    """Names and versions of the installed distributions of VEEN, by name."""
    found = {dist.name: dist.version for dist in distributions() if dist.name.startswith("veen-")}
    return dict(sorted(found.items()))


@command("veen version --json")
def version(out: Output) -> Answer:
    """Show the installed versions."""
    del out
    packages = installed()
    return Answer(
        {"protocol": PROTOCOL_VERSION, "packages": packages},
        fields({"protocol": PROTOCOL_VERSION, **packages}),
    )
