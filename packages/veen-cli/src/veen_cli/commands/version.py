"""``veen version``: the installed packages, the protocol version, and the hash of the verifier page."""

from __future__ import annotations

from importlib.metadata import distributions
from typing import Final

from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, fields
from veen_hub.web.verifier_page import NAME, verifier_page_sha256

PROTOCOL_VERSION: Final = "0.0.1"
"""A copy of ``veen_core.PROTOCOL_VERSION``, so that this command need not import it; a test compares."""


def installed() -> dict[str, str]:
    """Return the versions of the installed distributions of VEEN, by name."""
    found = {dist.name: dist.version for dist in distributions() if dist.name.startswith("veen-")}
    return dict(sorted(found.items()))


@command("veen version --json")
def version(out: Output) -> Answer:
    """Show the versions of the installed packages.

    Also shows the SHA-256 of the verifier page.
    """
    del out
    packages, page = installed(), verifier_page_sha256()
    return Answer(
        {"protocol": PROTOCOL_VERSION, "packages": packages, "verifier_page_sha256": page},
        fields({"protocol": PROTOCOL_VERSION, **packages, NAME: page}),
    )
