"""``veen kube apply``: create or update a network, wait for it, and test it (spec-4 §11.1, §11.3)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import click
import yaml

from veen_cli.arguments.numbers import Seconds
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.kube import keys
from veen_cli.kube.keys import ADMIN, ADMIN_SECRET, HUB_ID
from veen_cli.kube.kubectl import Kubectl
from veen_cli.kube.kustomize import Object
from veen_cli.kube.network_options import kubectl_option, network_options
from veen_cli.kube.tenant import KubeNetwork, network_of, objects_of

POLL_SEC: Final = 1.0
"""Pause between two looks at a self-test's Job."""


@command(
    "veen kube apply --authority",
    "veen kube apply --tenant acme --persistent --heads-memory",
    "veen kube apply --tenant acme --dry-run",
)
@network_options
@click.option("--dry-run", is_flag=True, help="Print what would be applied, and change nothing.")
@click.option("--no-selftest", is_flag=True, help="Do not run the self-test afterwards.")
@click.option(
    "--timeout", type=Seconds(), default=300.0, show_default=True, help="Longest time to wait, in seconds."
)
@kubectl_option
def apply(
    out: Output, *, network: KubeNetwork, dry_run: bool, no_selftest: bool, timeout: float, kubectl: Kubectl
) -> Answer:
    """Create or update a network, and test it.

    The command waits until the hub is ready, and runs its self-test.

    The keys of the hub and of its admin are made in the cluster the first time, and never again. Repeating
    the command changes nothing; with another --tag or another choice it updates what differs.
    """
    if dry_run:
        planned = objects_of(network)
        text = yaml.safe_dump_all(planned, sort_keys=False)
        return Answer({"objects": planned}, [*text.splitlines(), "# nothing was applied"])
    require_volumes_kept(kubectl, network)
    lines, public = bring_up(kubectl, network, out, selftest=not no_selftest, timeout=timeout)
    data: dict[str, Any] = {
        "namespace": network.namespace,
        "hub_id": public[HUB_ID],
        "admin": public[ADMIN],
        "selftest": None if no_selftest else True,
    }
    passed = "not run" if no_selftest else "passed"
    return Answer(
        data,
        [
            *lines,
            f"{network.namespace} is ready, self-test {passed}",
            f"clients pin this hub: --trust {public[HUB_ID]}",
        ],
    )


def require_volumes_kept(kubectl: Kubectl, network: KubeNetwork) -> None:
    """Refuse to take a volume from a hub: without its data it would begin a second history under its key."""
    found = kubectl.get("namespace", network.namespace)
    before = None if found is None else network_of(found, network.tag)
    for flag in ("persistent", "heads_memory", "anchors"):
        if before is not None and getattr(before, flag) and not getattr(network, flag):
            option = f"--{flag.replace('_', '-')}"
            raise CommandFailed(
                f"{network.namespace} was applied with {option}: without it the hub would lose a volume",
                Exit.POLICY,
                f"give {option}, or use `veen kube upgrade`, which keeps all choices",
            )


def require_rotation_finished(kubectl: Kubectl, network: KubeNetwork) -> None:
    """Refuse to mount the present keys after an interrupted rotation: the hub may need the next key."""
    following, present = (
        kubectl.get("secret", name, network.namespace)
        for name in (f"{network.key_secret}-next", network.key_secret)
    )
    if following is not None and present is not None and not set(following["data"]) <= set(present["data"]):
        raise CommandFailed(
            f"the rotation of {network.namespace} was interrupted: {network.key_secret} lacks the next key",
            Exit.POLICY,
            f"end it with `veen kube rotate --tenant {network.tenant}`",
        )


def bring_up(
    kubectl: Kubectl, network: KubeNetwork, out: Output, *, selftest: bool, timeout: float
) -> tuple[list[str], dict[str, str]]:
    """Apply a network, wait for its hub, and test it; return kubectl's lines and the public values."""
    require_rotation_finished(kubectl, network)
    public = ensure_keys(kubectl, network, out)
    objects = objects_of(replace(network, admin=public[ADMIN]))
    with out.progress(f"applying {network.namespace}"):
        lines = kubectl.apply([each for each in objects if each["kind"] not in ("Job", "Namespace")])
        _wait_for_hub(kubectl, network, timeout)
    for job in objects if selftest else ():
        if job["kind"] == "Job":
            _selftest(kubectl, network, job, timeout, out)
    return lines, public


def ensure_keys(kubectl: Kubectl, network: KubeNetwork, out: Output) -> dict[str, str]:
    """Make the namespace and the Secrets that are missing; return the public values of their annotations."""
    (namespace,) = [each for each in objects_of(network) if each["kind"] == "Namespace"]
    kubectl.apply([namespace])
    public: dict[str, str] = {}
    for name, make in ((network.key_secret, keys.hub_secret), (ADMIN_SECRET, keys.admin_secret)):
        found = kubectl.get("secret", name, network.namespace)
        if found is None:
            found = make(network)
            kubectl.create(found)
            out.note(f"made the Secret {name}: back it up, it cannot be made again")
        public |= found["metadata"].get("annotations", {})
    for note, secret in ((HUB_ID, network.key_secret), (ADMIN, ADMIN_SECRET)):
        if note not in public:
            raise CommandFailed(
                f"the Secret {secret} in {network.namespace} has no annotation {note}",
                Exit.USAGE,
                f"annotate it with the public value: kubectl annotate secret {secret} {note}=HEX",
            )
    return public


def _wait_for_hub(kubectl: Kubectl, network: KubeNetwork, timeout: float) -> None:
    workload = "statefulset/veen-authority-hub" if network.tenant is None else "deployment/veen-hub"
    where = f"--namespace={network.namespace}"
    try:
        kubectl.run("rollout", "status", workload, where, f"--timeout={timeout:.0f}s")
    except CommandFailed as exc:
        why = "; ".join(_reasons(kubectl, network)) or exc.message
        raise CommandFailed(
            f"{workload} is not ready after {timeout:.0f} s: {why}",
            Exit.NETWORK,
            f"see `kubectl logs {workload} {where}`",
        ) from None


def _reasons(kubectl: Kubectl, network: KubeNetwork) -> Iterator[str]:
    """Yield why containers of hub pods do not run, in Kubernetes' words."""
    for pod in kubectl.select("pods", network.namespace, "app.kubernetes.io/component=hub"):
        for container in pod.get("status", {}).get("containerStatuses", []):
            for state in container.get("state", {}).values():
                if state.get("reason"):
                    yield f"{state['reason']} {state.get('message', '')}".strip()


def _selftest(kubectl: Kubectl, network: KubeNetwork, job: Object, timeout: float, out: Output) -> None:
    """Run a self-test's Job anew, because the template of a finished Job cannot change; fail if it fails."""
    name, where = job["metadata"]["name"], f"--namespace={network.namespace}"
    kubectl.run("delete", "job", name, where, "--ignore-not-found", "--wait=true")
    kubectl.apply([job])
    deadline = time.monotonic() + timeout
    with out.progress(f"running {name}"):
        while not (state := _state(kubectl, network, name)).get("succeeded"):
            if state.get("failed") or time.monotonic() > deadline:
                verdict = "did not pass" if state.get("failed") else f"has not ended after {timeout:.0f} s"
                raise CommandFailed(
                    f"the self-test {name} in {network.namespace} {verdict}",
                    Exit.SELFTEST,
                    f"see `kubectl logs job/{name} {where}`",
                )
            time.sleep(POLL_SEC)


def _state(kubectl: Kubectl, network: KubeNetwork, name: str) -> Object:
    found = kubectl.get("job", name, network.namespace) or {}
    state: Object = found.get("status", {})
    return state
