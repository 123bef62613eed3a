"""``veen kube upgrade``: another version of every network, the authority first (spec-4 §11.3)."""

from __future__ import annotations

from typing import Any

import click

from veen_cli.arguments.numbers import Seconds
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.kube.apply import bring_up
from veen_cli.kube.kubectl import Kubectl
from veen_cli.kube.network_options import kubectl_option
from veen_cli.kube.tenant import KubeNetwork, check_images, network_of
from veen_core.errors import ConfigError


@command("veen kube upgrade --tag 0.2.0", "veen kube upgrade --tag 0.2.0 --universe stage --tenant acme")
@click.option("--tag", required=True, help="Tag of the images.")
@click.option("--universe", help="Only networks of this universe.")
@click.option("--tenant", "tenants", multiple=True, help="Only this tenant; repeatable.")
@click.option("--no-selftest", is_flag=True, help="Do not run the self-tests.")
@click.option(
    "--timeout",
    type=Seconds(),
    default=300.0,
    show_default=True,
    help="Longest time to wait for one hub, or for one self-test, in seconds.",
)
@kubectl_option
def upgrade(
    out: Output,
    *,
    tag: str,
    universe: str | None,
    tenants: tuple[str, ...],
    no_selftest: bool,
    timeout: float,
    kubectl: Kubectl,
) -> Answer:
    """Run another version of every network.

    Each network keeps the choices with which it was applied. The authority is first, then the tenants in the
    order of their names. Each hub must be ready and pass its
    self-test before the next one is touched: a version that fails stops at the first hub.
    """
    networks = _networks(kubectl, tag, universe, tenants)
    rows: list[dict[str, Any]] = []
    for network in networks:
        bring_up(kubectl, network, out, selftest=not no_selftest, timeout=timeout)
        out.note(f"{network.namespace} runs {tag}")
        rows.append({"namespace": network.namespace, "version": tag})
    tested = "not tested" if no_selftest else "tested"
    return Answer({"networks": rows}, [f"{row['namespace']}  {tag}, {tested}" for row in rows])


def _networks(
    kubectl: Kubectl, tag: str, universe: str | None, tenants: tuple[str, ...]
) -> list[KubeNetwork]:
    """Return the networks to upgrade, the authority first; refuse a tenant that is not there."""
    selector = "app.kubernetes.io/part-of=veen" + (f",veen.io/universe-id={universe}" if universe else "")
    try:
        found = [network_of(each, tag) for each in kubectl.select("namespaces", None, selector)]
        networks = [network for network in found if network is not None]
        for network in networks:
            check_images(network)
    except ConfigError as exc:
        raise CommandFailed(exc.message, Exit.USAGE, exc.action) from None
    if missing := sorted({*tenants} - {network.tenant for network in networks}):
        raise CommandFailed(
            f"no network of the tenant {missing[0]} was applied by `veen kube`",
            Exit.USAGE,
            "see `veen kube status`; upgrade what Kustomize made with Kustomize",
        )
    chosen = [network for network in networks if not tenants or network.tenant in tenants]
    if not chosen:
        raise CommandFailed(
            "the cluster has no network that `veen kube` applied", Exit.USAGE, "see `veen kube status`"
        )
    return sorted(chosen, key=lambda network: network.tenant or "")
