"""``veen kube destroy``: delete a tenant's namespace and all that is in it (spec-4 §11.2)."""

from __future__ import annotations

import click

from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.kube.kubectl import Kubectl
from veen_cli.kube.network_options import kubectl_option
from veen_cli.kube.tenant import KubeNetwork


@command("veen kube destroy --tenant acme", "veen kube destroy --tenant acme --yes")
@click.option("--tenant", required=True, help="Name of the tenant.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@kubectl_option
def destroy(out: Output, *, tenant: str, yes: bool, kubectl: Kubectl) -> Answer:
    """Delete a tenant and all its data.

    Deletes the namespace with its hub, keys, volumes and logs. Without a copy elsewhere, its messages are
    lost. Other tenants and the authority are not touched.
    """
    del out
    network = KubeNetwork(tenant=tenant, tag="")
    found = kubectl.get("namespace", network.namespace)
    if found is None:
        raise CommandFailed(
            f"there is no namespace {network.namespace}", Exit.USAGE, "see `veen kube status`"
        )
    if found["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") != "veen":
        raise CommandFailed(
            f"{network.namespace} does not belong to VEEN: it has no label app.kubernetes.io/part-of=veen",
            Exit.POLICY,
            "delete it with kubectl if you are sure",
        )
    if not yes:
        click.confirm(f"Delete {network.namespace} with its keys and all its data?", abort=True)
    kubectl.run("delete", "namespace", network.namespace, "--wait=true")
    return Answer({"deleted": network.namespace}, [f"deleted {network.namespace}"])
