"""``veen disc`` and ``veen connect``: find hubs, overlays and services, and set up a connection (spec-5)."""

from __future__ import annotations

from typing import Final

from veen_cli.frame.command_groups import CommandGroup, LazyCommand

_PUBLISHING: Final = "veen_cli.discovery.publishing"
ADVERTISE: Final = {
    "service": LazyCommand(f"{_PUBLISHING}:service", "Publish the descriptor of a service, or renew it."),
    "overlay": LazyCommand(
        f"{_PUBLISHING}:overlay", "Publish the descriptor of an overlay: its name, version and schemas."
    ),
}
COMMANDS: Final = {
    "advertise": LazyCommand(
        "veen_cli.discovery:advertise", "Publish a descriptor, or renew it before it expires."
    ),
    "retire": LazyCommand(f"{_PUBLISHING}:retire", "Withdraw the descriptor of a service or an overlay."),
    "name": LazyCommand(f"{_PUBLISHING}:name", "Name further publishers of a service or an overlay."),
    "query": LazyCommand("veen_cli.discovery.query:query", "List the hubs, services or overlays that fit."),
    "watch": LazyCommand(
        "veen_cli.discovery.query:watch", "Show what is listed now, and then each change, until Ctrl-C."
    ),
    "serve": LazyCommand("veen_cli.discovery.serve:serve", "Answer queries of other clients over RPC."),
}
advertise = CommandGroup(
    "advertise", ADVERTISE, path="disc.advertise", help="Publish a descriptor, or renew it before it expires."
)
disc = CommandGroup(
    "disc", COMMANDS, path="disc", help="Directory of hubs, overlays and services: advertise and query."
)
