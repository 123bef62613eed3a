"""The options that choose a network, shared by the commands of ``veen kube``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.kube.kubectl import Kubectl
from veen_cli.kube.tenant import SELFTESTS, KubeNetwork, check_images
from veen_core.errors import ConfigError
from veen_hub.version import VERSION

CHOICES = (
    click.option("--tenant", help="Name of the tenant; its namespace is veen-tenant-NAME."),
    click.option(
        "--authority", is_flag=True, help="The authority of the universe, in namespace veen-system."
    ),
    click.option("--universe", default="default", show_default=True, help="Name of the universe."),
    click.option("--persistent", is_flag=True, help="Keep the data on a volume, not in the pod."),
    click.option(
        "--heads-memory",
        is_flag=True,
        help="Remember hub checkpoints on a second volume: a hub restored from a backup signs nothing.",
    ),
    click.option(
        "--anchors", is_flag=True, help="Anchor checkpoints in a ledger on a volume of its own, for auditors."
    ),
    click.option("--tls", is_flag=True, help="Serve TLS with the certificate in the Secret veen-hub-tls."),
    click.option(
        "--monitoring",
        is_flag=True,
        help="With --authority: alerts, a dashboard and scrape settings for Prometheus, for all namespaces.",
    ),
    click.option(
        "--network-policy/--no-network-policy",
        default=True,
        show_default=True,
        help="Restrict who may connect.",
    ),
    click.option(
        "--selftest",
        "selftests",
        type=click.Choice([*SELFTESTS]),
        multiple=True,
        default=("core",),
        show_default=True,
        help="A self-test of the tenant, as a Job; repeatable.",
    ),
    click.option(
        "--selftest-reports", is_flag=True, help="Keep the reports of the tenant's self-tests on a volume."
    ),
    click.option(
        "--image-prefix",
        default="",
        metavar="PREFIX",
        help="Registry and path before each image's name, such as registry.example/veen/.",
    ),
    click.option("--tag", default=VERSION, show_default=True, help="Tag of the images."),
)


def network_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options, and pass the ``network`` that they choose."""

    @wraps(work)
    def with_network(*args: Any, tenant: str | None, authority: bool, **given: Any) -> Any:
        if (tenant is None) == (not authority):
            raise click.UsageError("give --tenant NAME or --authority.")
        names = (
            "universe",
            "persistent",
            "heads_memory",
            "anchors",
            "tls",
            "monitoring",
            "network_policy",
            "selftests",
            "selftest_reports",
            "image_prefix",
            "tag",
        )
        choices = {name: given.pop(name) for name in names}
        try:
            network = KubeNetwork(tenant=tenant, **choices)
            check_images(network)
        except ConfigError as exc:
            raise CommandFailed(exc.message, Exit.USAGE, exc.action) from None
        return work(*args, network=network, **given)

    for option in reversed(CHOICES):
        with_network = option(with_network)
    return with_network


def _kubectl(_context: click.Context, _option: click.Parameter, name: str | None) -> Kubectl:
    return Kubectl(name)


kubectl_option = click.option(
    "--context",
    "kubectl",
    callback=_kubectl,
    help="Context of your kubeconfig [default: the current one].",
)
