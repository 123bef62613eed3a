"""``veen kube status``: the networks of a cluster, and whether hubs are ready and self-tests have passed."""

from __future__ import annotations

from typing import Any

import click

from veen_cli.frame.command_class import command
from veen_cli.frame.exits import Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.kube.kubectl import Kubectl
from veen_cli.kube.kustomize import Object
from veen_cli.kube.network_options import kubectl_option
from veen_cli.kube.tenant import VERSION


@command("veen kube status", "veen kube status --universe stage --json")
@click.option("--universe", help="Only networks of this universe.")
@kubectl_option
def status(out: Output, *, universe: str | None, kubectl: Kubectl) -> Answer:
    """Show the networks of a cluster.

    Ends with exit code 2 if a hub is not ready, and with 5 if the last self-test of a network failed.
    """
    del out
    selector = "app.kubernetes.io/part-of=veen" + (f",veen.io/universe-id={universe}" if universe else "")
    found = kubectl.select("deployments,statefulsets,jobs", None, selector)
    hubs = [each for each in found if each["metadata"]["labels"].get("app.kubernetes.io/component") == "hub"]
    jobs = [each for each in found if each["kind"] == "Job"]
    jobs.sort(key=lambda each: each["metadata"].get("creationTimestamp", ""))  # the daily ones are Jobs too
    tests = {each["metadata"]["namespace"]: each for each in jobs}
    rows = [_row(hub, tests.get(hub["metadata"]["namespace"])) for hub in hubs]
    lines = [f"{'namespace':<32}  {'role':<9}  {'ready':<5}  {'self-test':<9}  version"]
    lines += [
        f"{row['namespace']:<32}  {row['role']:<9}  {'yes' if row['ready'] else 'no':<5}  "
        f"{row['selftest'] or '-':<9}  {row['version'] or '-'}"
        for row in rows
    ]
    code = Exit.OK
    if any(row["selftest"] == "failed" for row in rows):
        code = Exit.SELFTEST
    if not all(row["ready"] for row in rows):
        code = Exit.NETWORK
    return Answer({"networks": rows}, lines if rows else ["this cluster has no VEEN network"], code)


def _row(hub: Object, test: Object | None) -> dict[str, Any]:
    metadata, state = hub["metadata"], hub.get("status", {})
    return {
        "namespace": metadata["namespace"],
        "role": metadata["labels"].get("veen.io/role"),
        "universe": metadata["labels"].get("veen.io/universe-id"),
        "ready": state.get("readyReplicas", 0) >= 1,
        "selftest": None if test is None else _verdict(test.get("status", {})),
        "version": metadata.get("annotations", {}).get(VERSION),
    }


def _verdict(state: Object) -> str:
    return "passed" if state.get("succeeded") else "failed" if state.get("failed") else "running"
