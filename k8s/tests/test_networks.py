"""A VEEN network as containers: applied, tested, killed, rotated, restored, deleted (spec-4 §11, §12.2)."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, Namespace, Pod, failures
from conftest import apply

from veen_cli.kube.keys import HUB_ID, key_entry, new_hub_key
from veen_cli.kube.tenant import KubeNetwork


@pytest.fixture(scope="module")
def tenant(cluster: Cluster, authority: Namespace, tag: str) -> Namespace:
    del authority
    network = KubeNetwork(
        tenant="acme", tag=tag, image_prefix="localhost/", persistent=True, heads_memory=True
    )
    namespace = apply(cluster, network)
    namespace.start("Deployment", "veen-hub")
    return namespace


def status(pod: Pod) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://{pod.ip}:8080/v1/status", headers={"Accept": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return dict(json.load(answer))


def hub_of(namespace: Namespace) -> Pod:
    return namespace.pods[f"{namespace.name}.veen-hub"]


def hub_log_of(namespace: Namespace) -> str:
    """Return the hub log's size and root: its newest checkpoint without the signatures."""
    with urllib.request.urlopen(f"http://{hub_of(namespace).ip}:8080/log/checkpoint", timeout=10) as answer:
        return str(answer.read().decode().partition("\n\n")[0])


def test_the_hub_has_the_identity_of_its_secret(tenant: Namespace) -> None:
    secret = tenant.objects["Secret", "veen-hub-keys"]
    assert secret["metadata"]["annotations"][HUB_ID] in json.dumps(status(hub_of(tenant)))


def test_the_hub_runs_without_privileges_and_logs_as_spec_4_says(tenant: Namespace) -> None:
    pod = hub_of(tenant)
    events = pod.events()
    assert {"ts", "level", "component", "role", "tenant_id"} <= set(events[0])
    assert (events[0]["component"], events[0]["role"], events[0]["tenant_id"]) == ("hub", "tenant", "acme")


def test_the_self_test_job_passes_in_the_tenant(tenant: Namespace) -> None:
    code, output = tenant.run_job("veen-selftest-core")
    assert code == 0, failures(output)


def test_a_self_test_job_fails_if_its_hub_does_not_answer(tenant: Namespace) -> None:
    hub_of(tenant).stop()
    code, output = tenant.run_job("veen-selftest-core")
    assert code != 0, output
    tenant.start("Deployment", "veen-hub")


def test_a_hub_drains_and_a_killed_hub_starts_again_with_its_log(tenant: Namespace) -> None:
    before = hub_log_of(tenant)
    assert before, "the self-test wrote to the hub"
    assert hub_of(tenant).stop() == 0
    tenant.start("Deployment", "veen-hub").kill()
    tenant.start("Deployment", "veen-hub")
    assert hub_log_of(tenant) == before


def test_a_second_pod_on_the_same_volume_never_signs(tenant: Namespace) -> None:
    second = tenant.start("Deployment", "veen-hub", suffix="-second", ready=False)
    assert second.exit_code() == 4
    assert "in use" in second.logs()
    assert hub_of(tenant).probe("readinessProbe") == 200
    second.remove()


def test_a_new_key_in_a_new_secret_is_rotated_to(tenant: Namespace) -> None:
    """spec-4 §11.4."""
    old = tenant.objects["Secret", "veen-hub-keys"]
    following = {
        **old,
        "metadata": {**old["metadata"], "name": "veen-hub-keys-next"},
        "data": old["data"] | key_entry(new_hub_key()),
    }
    tenant.apply([following])
    deployment = tenant.objects["Deployment", "veen-hub"]
    for volume in deployment["spec"]["template"]["spec"]["volumes"]:
        if volume["name"] == "veen-keys":
            volume["secret"]["secretName"] = "veen-hub-keys-next"
    assert hub_of(tenant).stop() == 0
    pod = tenant.start("Deployment", "veen-hub")
    assert "key_rotated" in [event["event"] for event in pod.events()]
    assert old["metadata"]["annotations"][HUB_ID] in json.dumps(status(pod)), "the hub_id stays"


CONNECT = """
import socket
try:
    socket.create_connection((HOST, PORT), timeout=2).close()
    print("connected")
except OSError as exc:
    print(type(exc).__name__)
"""


@pytest.mark.parametrize(
    ("labels", "port", "answer"),
    [
        ({"veen.io/role": "bridge"}, 8080, "connected"),
        ({"veen.io/role": "selftest"}, 8081, "connected"),
        ({"veen.io/client": "true"}, 8080, "connected"),
        ({"veen.io/client": "true"}, 8081, "TimeoutError"),
        ({"app": "stranger"}, 8080, "TimeoutError"),
    ],
    ids=["bridge", "self-test reads probes", "allowed application", "its way to the probes", "stranger"],
)
def test_only_the_pods_of_the_network_policy_reach_the_hub(
    tenant: Namespace, tag: str, labels: dict[str, str], port: int, answer: str
) -> None:
    """spec-4 §9.2."""
    code = f"HOST, PORT = {hub_of(tenant).ip!r}, {port}\n" + CONNECT
    assert tenant.call(f"localhost/veen-cli:{tag}", code, labels) == answer


def test_strangers_of_other_namespaces_reach_neither_hub(
    cluster: Cluster, authority: Namespace, tenant: Namespace, tag: str
) -> None:
    stranger = cluster.namespace("elsewhere")
    (authority_pod,) = authority.pods.values()
    for pod in (hub_of(tenant), authority_pod):
        code = f"HOST, PORT = {pod.ip!r}, 8080\n" + CONNECT
        assert stranger.call(f"localhost/veen-cli:{tag}", code, {"veen.io/role": "bridge"}) == "TimeoutError"


def test_the_tenant_follows_its_authority(authority: Namespace, tenant: Namespace) -> None:
    """spec-4 §10.1: a tenant is ready only while its authority can be reached."""
    (pod,) = authority.pods.values()
    pod.stop()
    hub_of(tenant).wait(status=503)
    authority.start("StatefulSet", "veen-authority-hub")
    hub_of(tenant).wait()


def test_a_hub_on_a_restored_volume_signs_nothing_and_says_why(tenant: Namespace) -> None:
    """RESOLUTIONS P3."""
    data = tenant.volume("veen-hub-data")
    assert hub_of(tenant).stop() == 0
    snapshot = data.with_name("snapshot")
    shutil.copytree(data, snapshot, symlinks=True)
    copy_owner(data, snapshot)
    tenant.start("Deployment", "veen-hub")
    code, said = tenant.run_job("veen-selftest-core")
    assert code == 0, said
    assert hub_of(tenant).stop() == 0
    shutil.rmtree(data)
    snapshot.rename(data)
    pod = tenant.start("Deployment", "veen-hub", ready=False)
    pod.wait("livenessProbe")
    pod.wait(status=503)
    assert "not_signing" in status(pod)
    assert any(event["event"] == "signing_stopped" for event in pod.events())


def copy_owner(source: Path, target: Path) -> None:
    for path in [source, *source.rglob("*")]:
        info = path.stat()
        os.chown(target / path.relative_to(source), info.st_uid, info.st_gid)


def test_deleting_a_tenant_changes_nothing_anywhere_else(
    cluster: Cluster, authority: Namespace, tenant: Namespace
) -> None:
    """spec-4 §11.2 and §12.2."""
    tenant.delete()
    pod = authority.pods[f"{authority.name}.veen-authority-hub"]
    assert pod.probe("readinessProbe") == 200
    assert not (cluster.folder / tenant.name).exists()
