"""``veen version``: the installed packages and the protocol version."""

from __future__ import annotations

from importlib.metadata import distributions
from typing import Final

from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, fields

PROTOCOL_VERSION: Final = "0.0.1"
"""A copy of ``veen_core.PROTOCOL_VERSION``, so that this command need not import it; a test compares."""


def installed() -> dict[str, str]:
    """Return the versions of the installed distributions of VEEN, by name."""
    found = {dist.name: dist.version for dist in distributions() if dist.name.startswith("veen-")}
    return dict(sorted(found.items()))


@command("veen version --json")
def version(out: Output) -> Answer:
    """Show the versions of the installed packages."""
    del out
    packages = installed()
    return Answer(
        {"protocol": PROTOCOL_VERSION, "packages": packages},
        fields({"protocol": PROTOCOL_VERSION, **packages}),
    )
