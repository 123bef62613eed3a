"""``veen kube rotate``: the next key of a hub, through a Secret of its own (spec-4 §11.4)."""

from __future__ import annotations

import json

import click

from veen_cli.arguments.numbers import Seconds
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.kube.keys import key_entry, new_hub_key
from veen_cli.kube.kubectl import Kubectl
from veen_cli.kube.network_options import kubectl_option
from veen_cli.kube.tenant import KubeNetwork


@command("veen kube rotate --tenant acme")
@click.option("--tenant", required=True, help="Name of the tenant.")
@click.option(
    "--timeout", type=Seconds(), default=300.0, show_default=True, help="Longest time to wait, in seconds."
)
@kubectl_option
def rotate(out: Output, *, tenant: str, timeout: float, kubectl: Kubectl) -> Answer:
    """Give a tenant's hub its next key.

    The hub's present keys and a new one become the Secret veen-hub-keys-next, the Deployment mounts it
    instead, and the hub rotates when its pod starts. Then veen-hub-keys gets the new key too. The old key
    endorses the new one, so clients that pin the hub_id notice nothing. An interrupted rotation is continued.
    """
    network = KubeNetwork(tenant=tenant, tag="")
    where = f"--namespace={network.namespace}"
    deployment = kubectl.get("deployment", "veen-hub", network.namespace)
    if deployment is None:
        raise CommandFailed(f"{network.namespace} has no hub", Exit.USAGE, "see `veen kube status`")
    following = f"{network.key_secret}-next"
    keys = _prepare_keys(kubectl, network, following, out)
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    position = next(number for number, volume in enumerate(volumes) if volume["name"] == "veen-keys")
    path = f"/spec/template/spec/volumes/{position}/secret/secretName"
    patch = [
        {"op": "replace", "path": path, "value": following},
        {"op": "add", "path": "/spec/template/metadata/annotations/veen.io~1keys", "value": str(len(keys))},
    ]
    kubectl.run("patch", "deployment", "veen-hub", where, "--type=json", f"--patch={json.dumps(patch)}")
    with out.progress("restarting the hub"):
        kubectl.run("rollout", "status", "deployment/veen-hub", where, f"--timeout={timeout:.0f}s")
    kubectl.merge("secret", network.key_secret, network.namespace, {"data": keys})
    return Answer(
        {"namespace": network.namespace, "secret": following},
        [f"the hub of {network.namespace} has its next key, from the Secret {following}"],
    )


def _prepare_keys(kubectl: Kubectl, network: KubeNetwork, following: str, out: Output) -> dict[str, str]:
    """Return all key files, with the new key; they are in the Secret ``following`` when this returns.

    If that Secret has a key which the hub's own Secret lacks, an earlier rotation was interrupted: the key is
    used.
    """
    present = kubectl.get("secret", network.key_secret, network.namespace)
    if present is None:
        raise CommandFailed(
            f"the Secret {network.key_secret} is missing in {network.namespace}",
            Exit.USAGE,
            "restore it from your backup",
        )
    begun = kubectl.get("secret", following, network.namespace)
    if begun is not None and set(begun["data"]) > set(present["data"]):
        return dict(begun["data"])
    keys: dict[str, str] = present["data"] | key_entry(new_hub_key())
    if begun is None:
        metadata = {field: present["metadata"][field] for field in ("namespace", "labels", "annotations")}
        kubectl.create({**present, "metadata": {**metadata, "name": following}, "data": keys})
    else:
        kubectl.merge("secret", following, network.namespace, {"data": keys})
    out.note(f"made a new key in the Secret {following}: back it up, it cannot be made again")
    return keys
