"""``veen kube render``: the objects of a network as YAML, for ``kubectl apply`` or for a repository."""

from __future__ import annotations

from dataclasses import replace

import click
import yaml

from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output
from veen_cli.kube.network_options import network_options
from veen_cli.kube.tenant import KubeNetwork, objects_of


@command(
    "veen kube render --tenant acme --persistent --heads-memory > acme.yaml",
    "veen kube render --authority --image-prefix registry.example/veen/",
)
@network_options
@click.option("--admin", default="", metavar="HEX", help="Public key of the admin who issues tokens.")
def render(out: Output, *, network: KubeNetwork, admin: str) -> Answer:
    """Print the objects of a network as YAML.

    Secrets are not among them: `veen kube apply` makes them in the cluster, once. Without --admin the hub
    accepts no tokens until its configuration names an issuer.
    """
    del out
    objects = objects_of(replace(network, admin=admin))
    return Answer({"objects": objects}, yaml.safe_dump_all(objects, sort_keys=False).splitlines())
