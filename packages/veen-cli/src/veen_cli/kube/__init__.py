"""``veen kube``: a VEEN network as Kubernetes objects that are applied, tested and deleted (spec-4)."""

from __future__ import annotations

from typing import Final

from veen_cli.frame.command_groups import CommandGroup, LazyCommand

COMMANDS: Final = {
    "render": LazyCommand("veen_cli.kube.render:render", "Print the objects of a network as YAML."),
    "apply": LazyCommand("veen_cli.kube.apply:apply", "Create or update a network, and test it."),
    "status": LazyCommand("veen_cli.kube.status:status", "Show the networks of a cluster."),
    "upgrade": LazyCommand("veen_cli.kube.upgrade:upgrade", "Run another version of every network."),
    "rotate": LazyCommand("veen_cli.kube.rotate:rotate", "Give a tenant's hub its next key."),
    "destroy": LazyCommand("veen_cli.kube.destroy:destroy", "Delete a tenant and all its data."),
}
kube = CommandGroup("kube", COMMANDS, path="kube", help="Run VEEN networks in Kubernetes.")
