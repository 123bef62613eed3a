"""VEEN networks in a real cluster: applied, killed, rotated, upgraded, restored, deleted (spec-4 §11)."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from live_cluster import LiveCluster, Object, wait_until

from veen_cli.frame.exits import CommandFailed
from veen_cli.kube.keys import HUB_ID
from veen_cli.kube.tenant import VERSION

AUTHORITY, ACME, OTHER = "veen-system", "veen-tenant-acme", "veen-tenant-other"
WORKLOAD = "deployment/veen-hub"


@pytest.fixture(scope="module")
def authority(cluster: LiveCluster) -> str:
    answer = cluster.apply("--authority")
    assert answer["selftest"] is True
    return AUTHORITY


@pytest.fixture(scope="module")
def tenant(cluster: LiveCluster, authority: str) -> str:
    del authority
    answer = cluster.apply(
        "--tenant=acme", "--persistent", "--heads-memory", "--selftest=core", "--selftest=overlays"
    )
    assert answer["selftest"] is True
    return ACME


def hub_id(cluster: LiveCluster, namespace: str) -> str:
    name = "veen-authority-keys" if namespace == AUTHORITY else "veen-hub-keys"
    return str(cluster.get("secret", name, namespace)["metadata"]["annotations"][HUB_ID])


def snapshot(cluster: LiveCluster, namespace: str) -> list[tuple[str, ...]]:
    """Return name, uid, specification and restarts of what a namespace has: it changes if anything does."""
    kinds = "deployments,statefulsets,services,configmaps,secrets,persistentvolumeclaims,jobs,pods"
    found = cluster.kubectl.select(kinds, namespace, "app.kubernetes.io/part-of=veen")
    return sorted(
        (
            each["kind"],
            each["metadata"]["name"],
            each["metadata"]["uid"],
            json.dumps(each.get("spec", each.get("data"))),
            str([state["restartCount"] for state in each.get("status", {}).get("containerStatuses", [])]),
        )
        for each in found
    )


# --- apply (spec-4 §11.1)


def test_authority_and_tenant_are_ready_and_their_self_tests_have_passed(
    cluster: LiveCluster, authority: str, tenant: str
) -> None:
    rows = {row["namespace"]: row for row in cluster.veen("status")["networks"]}
    for namespace in (authority, tenant):
        assert rows[namespace]["ready"]
        assert rows[namespace]["selftest"] == "passed"
        assert rows[namespace]["version"] == cluster.tag
    assert cluster.status(tenant)["identity"]["hub_id"] == hub_id(cluster, tenant)


def test_applying_again_changes_nothing(cluster: LiveCluster, tenant: str) -> None:
    before = snapshot(cluster, tenant)
    cluster.apply(
        "--tenant=acme",
        "--persistent",
        "--heads-memory",
        "--selftest=core",
        "--selftest=overlays",
        "--no-selftest",
    )
    assert snapshot(cluster, tenant) == before


def test_a_dry_run_changes_nothing(cluster: LiveCluster, tenant: str) -> None:
    before = snapshot(cluster, tenant)
    cluster.apply("--tenant=nobody", "--dry-run")
    assert cluster.kubectl.get("namespace", "veen-tenant-nobody") is None
    assert snapshot(cluster, tenant) == before


def test_the_hub_logs_what_spec_4_says(cluster: LiveCluster, tenant: str) -> None:
    """spec-4 §10.3."""
    for line in map(json.loads, cluster.logs(tenant, WORKLOAD).splitlines()):
        assert {"ts", "level", "component", "role", "tenant_id"} <= set(line)
        assert (line["component"], line["role"], line["tenant_id"]) == ("hub", "tenant", "acme")


def test_a_job_of_the_cli_image_sends_with_a_token_of_the_admin(cluster: LiveCluster, tenant: str) -> None:
    """spec-4 §7.2."""
    before = cluster.checkpoint(tenant)
    send(cluster, tenant, "orders", 20)
    wait_until("the hub log covers the messages", lambda: cluster.checkpoint(tenant) != before)


def send(cluster: LiveCluster, namespace: str, stream: str, count: int) -> None:
    trust = hub_id(cluster, namespace)
    script = f"""umask 077
        mkdir admin && cp /secrets/admin/* admin/
        veen-cli keygen --out writer --no-passphrase
        veen-cli cap issue --issuer admin --subject writer --stream {stream} --ttl 600 --out cap.cbor
        export VEEN_HUB=http://veen-hub:8080 VEEN_TRUST={trust} VEEN_CLIENT=writer VEEN_STREAM={stream}
        seq {count} | veen-cli send --batch --cap cap.cbor --wait 60
        test "$(veen-cli read --quiet --wait 60 | wc -l)" -eq {count}"""
    secrets, labels = {"/secrets/admin": "veen-admin-keys"}, {"veen.io/client": "true"}
    cluster.run(cluster.job(namespace, "veen-cli-send", "veen-cli", script, secrets=secrets, labels=labels))


# --- self-tests (spec-4 §8)


def self_test(cluster: LiveCluster, namespace: str, *more: str) -> Object:
    """Return the self-test's Job as it was applied, under another name and with more arguments."""
    applied = cluster.get("job", "veen-selftest-core", namespace)
    template = copy.deepcopy(applied["spec"]["template"])
    for label in (
        "controller-uid",
        "job-name",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
    ):
        template["metadata"]["labels"].pop(label, None)
    template["spec"]["containers"][0]["args"] += more
    metadata = {"name": "veen-selftest-once", "namespace": namespace, "labels": applied["metadata"]["labels"]}
    specification = {"backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": specification}


def test_a_self_test_with_a_failing_check_ends_with_5_and_says_which(
    cluster: LiveCluster, tenant: str
) -> None:
    """This hub has no epochs, so the check is skipped, which is not a pass."""
    code, log = cluster.run_job(self_test(cluster, tenant, "--only=epoch.roll"))
    assert code == 5, log[-2_000:]
    assert json.loads(log.splitlines()[-1])["ok"] is False
    assert [
        row["selftest"] for row in cluster.veen("status", code=5)["networks"] if row["namespace"] == tenant
    ] == ["failed"]
    cluster.kubectl.run("delete", "job", "veen-selftest-once", f"--namespace={tenant}", "--wait=true")


def test_the_cronjob_makes_a_job_that_passes_and_that_status_shows(cluster: LiveCluster, tenant: str) -> None:
    where = f"--namespace={tenant}"
    every_minute = json.dumps({"spec": {"schedule": "* * * * *"}})
    patch = ("patch", "cronjob", "veen-selftest-core", where, "--type=merge")
    cluster.kubectl.run(*patch, f"--patch={every_minute}")

    def made() -> list[Object]:
        jobs = cluster.kubectl.select("jobs", tenant, "app.kubernetes.io/part-of=veen")
        return [each for each in jobs if owner_of(each) == "CronJob"]

    wait_until("the CronJob has made a Job", lambda: bool(made()))
    cluster.kubectl.run(*patch, f"--patch={json.dumps({'spec': {'suspend': True}})}")
    code, log = cluster.end_of_job(tenant, made()[0]["metadata"]["name"])
    assert code == 0, log[-2_000:]
    assert json.loads(log.splitlines()[-1])["event"] == "selftest_finished"


def owner_of(each: Object) -> str | None:
    owners = each["metadata"].get("ownerReferences", [])
    return owners[0]["kind"] if owners else None


# --- pods (RESOLUTIONS P3)


def test_a_killed_pod_is_replaced_and_has_its_log(cluster: LiveCluster, tenant: str) -> None:
    before, pod = cluster.checkpoint(tenant), cluster.hub(tenant)["metadata"]
    cluster.kubectl.run("delete", "pod", pod["name"], f"--namespace={tenant}", "--grace-period=0", "--force")
    wait_until(
        "another pod",
        lambda: [p["metadata"]["uid"] for p in running(cluster, tenant)] not in ([], [pod["uid"]]),
    )
    cluster.wait_for_rollout(tenant, WORKLOAD)
    assert cluster.checkpoint(tenant) == before


def running(cluster: LiveCluster, namespace: str) -> list[Object]:
    return cluster.pods(namespace, "app.kubernetes.io/component=hub")


def test_a_drained_hub_ends_with_0_and_starts_elsewhere(cluster: LiveCluster, tenant: str) -> None:
    """The eviction asks the disruption budget, which allows it."""
    pod = cluster.hub(tenant)["metadata"]
    group = "policy/v1beta1" if cluster.version.startswith("v1.20.") else "policy/v1"
    metadata = {"name": pod["name"], "namespace": tenant}
    eviction = json.dumps({"apiVersion": group, "kind": "Eviction", "metadata": metadata})
    path = f"/api/v1/namespaces/{tenant}/pods/{pod['name']}/eviction"
    with subprocess.Popen(
        ["kubectl", "logs", "--follow", f"--namespace={tenant}", pod["name"]],
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        wait_until("the disruption budget allows it", lambda: evicted(cluster, path, eviction))
        log, _ = follower.communicate(timeout=120)
    # The kubelet may add a line of its own when the pod is removed.
    assert [json.loads(line)["event"] for line in log.splitlines() if line[:1] == "{"][-1] == "stopped", log
    wait_until(
        "another pod",
        lambda: [p["metadata"]["uid"] for p in running(cluster, tenant)] not in ([], [pod["uid"]]),
    )
    cluster.wait_for_rollout(tenant, WORKLOAD)


def evicted(cluster: LiveCluster, path: str, eviction: str) -> bool:
    """Ask for an eviction, as a node's drain does; return False while the budget refuses it."""
    try:
        cluster.kubectl.run("create", f"--raw={path}", "--filename=-", stdin=eviction)
    except CommandFailed as exc:
        if "disruption budget" not in exc.message:
            raise
        return False
    return True


def test_a_second_pod_on_the_same_volume_never_signs(cluster: LiveCluster, tenant: str) -> None:
    first = cluster.hub(tenant)
    template = cluster.get("deployment", "veen-hub", tenant)["spec"]["template"]
    labels = {
        key: value for key, value in template["metadata"]["labels"].items() if key != "app.kubernetes.io/name"
    }
    specification = {**template["spec"], "restartPolicy": "Never", "nodeName": first["spec"]["nodeName"]}
    labels["app.kubernetes.io/component"] = "second"
    metadata = {"name": "veen-hub-second", "namespace": tenant, "labels": labels}
    cluster.kubectl.apply([{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": specification}])

    def end() -> Any:
        states = cluster.get("pod", "veen-hub-second", tenant)["status"].get("containerStatuses", [])
        return states[0]["state"].get("terminated") if states else None

    wait_until("the second pod has ended", lambda: end() is not None)
    assert end()["exitCode"] == 4
    assert "in use" in cluster.logs(tenant, "veen-hub-second")
    assert cluster.hub(tenant)["status"]["containerStatuses"][0]["ready"] is True
    cluster.kubectl.run("delete", "pod", "veen-hub-second", f"--namespace={tenant}", "--wait=true")


# --- rotation and upgrade (spec-4 §11.3, §11.4)


def test_rotation_gives_the_hub_its_next_key_and_keeps_its_identity(
    cluster: LiveCluster, tenant: str
) -> None:
    before = cluster.status(tenant)["identity"]
    answer = cluster.veen("rotate", "--tenant=acme")
    assert answer["secret"] == "veen-hub-keys-next"
    after = cluster.status(tenant)["identity"]
    assert after["hub_id"] == before["hub_id"]
    assert len(after["hub_keys"]) == len(before["hub_keys"]) + 1
    assert "key_rotated" in cluster.logs(tenant, WORKLOAD)


def test_an_upgrade_keeps_identities_and_logs_and_passes_the_self_tests(
    cluster: LiveCluster, authority: str, tenant: str
) -> None:
    """The next version is the same code under another tag: what is tested is the procedure."""
    if cluster.next_tag is None:
        pytest.skip("VEEN_IMAGE_NEXT_TAG names no second version")
    before = {each: cluster.checkpoint(each).split("\n") for each in (authority, tenant)}
    answer = cluster.veen("upgrade", f"--tag={cluster.next_tag}")
    assert [row["namespace"] for row in answer["networks"]] == [authority, tenant]
    for namespace, (old_origin, old_size, *_) in before.items():
        origin, size = cluster.checkpoint(namespace).split("\n")[:2]
        assert origin == old_origin
        assert int(size) >= int(old_size)
        image = cluster.hub(namespace)["spec"]["containers"][0]["image"]
        assert image.endswith(f":{cluster.next_tag}")
        assert cluster.hub(namespace)["metadata"]["annotations"][VERSION] == cluster.next_tag
    cluster.veen("upgrade", f"--tag={cluster.tag}", "--no-selftest")


def test_a_version_that_is_not_there_stops_at_the_first_hub_and_says_why(
    cluster: LiveCluster, authority: str, tenant: str
) -> None:
    before = cluster.hub(tenant)["metadata"]["uid"]
    command = ("upgrade", "--tag=no-such-version", "--timeout=20")
    answer = cluster.veen(*command, code=2)
    assert "veen-authority-hub" in json.dumps(answer)
    assert cluster.hub(tenant)["metadata"]["uid"] == before
    cluster.veen("upgrade", f"--tag={cluster.tag}", "--no-selftest")
    assert cluster.status(authority)["identity"]["hub_id"] == hub_id(cluster, authority)


# --- rights (spec-4 §9.1)


@pytest.fixture
def operator(
    cluster: LiveCluster, authority: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Be a user who has the role veen-operator in the whole cluster and nothing else."""
    del authority
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "veen-test-operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "veen-operator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "veen-test-operator"}],
    }
    cluster.kubectl.apply([binding])
    shown = yaml.safe_load(cluster.kubectl.run("config", "view", "--raw", "--flatten", "--minify"))
    for user in shown["users"]:
        user["user"]["as"] = "veen-test-operator"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(shown))
    with monkeypatch.context() as patch:
        patch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield
    cluster.kubectl.run("delete", "clusterrolebinding", "veen-test-operator")


@pytest.mark.usefixtures("operator")
def test_the_operators_role_suffices_for_the_life_of_a_tenant(cluster: LiveCluster) -> None:
    cluster.apply("--tenant=operated", "--persistent", "--heads-memory", "--anchors", "--selftest-reports")
    cluster.veen("rotate", "--tenant=operated")
    cluster.veen("upgrade", "--tenant=operated", f"--tag={cluster.tag}")
    assert {row["namespace"] for row in cluster.veen("status")["networks"]} >= {"veen-tenant-operated"}
    cluster.veen("destroy", "--tenant=operated", "--yes")
    assert cluster.kubectl.get("namespace", "veen-tenant-operated") is None


def test_an_application_may_not_change_the_hub(cluster: LiveCluster, tenant: str) -> None:
    """spec-4 §9.1: the Role of the tenant lets an account read some objects, and change none of the hub's."""
    (role,) = cluster.kubectl.select("roles", tenant, "app.kubernetes.io/part-of=veen")
    where = f"--namespace={tenant}"
    name = role["metadata"]["name"]
    cluster.kubectl.run("create", "serviceaccount", "application", where)
    cluster.kubectl.run(
        "create",
        "rolebinding",
        "application",
        where,
        f"--role={name}",
        f"--serviceaccount={tenant}:application",
    )
    account = f"--as=system:serviceaccount:{tenant}:application"

    def may(verb: str, what: str) -> bool:
        done = subprocess.run(
            ["kubectl", "auth", "can-i", verb, what, where, account],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() == "yes"

    assert any(
        may(verb, f"{resource}.{group}" if group else resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ), "the account has the role"
    for what in ("deployment/veen-hub", "configmap/veen-hub-config", "secret/veen-hub-keys"):
        assert not [verb for verb in ("update", "patch", "delete") if may(verb, what)], what
    assert not may("get", "secret/veen-hub-keys")


def test_the_cluster_refuses_a_pod_with_privileges_in_a_tenants_namespace(
    cluster: LiveCluster, tenant: str
) -> None:
    """Pods of the manifests run all the same: they obey the restricted standard."""
    pod = cluster.job(tenant, "privileged", "veen-cli", "true")["spec"]["template"]
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    refused = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "privileged", "namespace": tenant}}
    with pytest.raises(CommandFailed, match=r"(?i)privileged"):
        cluster.kubectl.apply([{**refused, "spec": pod["spec"]}])


# --- network policies (spec-4 §9.2)


def test_only_pods_with_the_labels_of_the_policy_reach_the_hub(cluster: LiveCluster, tenant: str) -> None:
    connect = "python3 -c \"import socket; socket.create_connection(('veen-hub', 8080), timeout=5)\""
    admitted = cluster.job(tenant, "veen-cli-client", "veen-cli", connect, labels={"veen.io/client": "true"})
    assert cluster.run_job(admitted)[0] == 0
    code, log = cluster.run_job(cluster.job(tenant, "veen-cli-stranger", "veen-cli", connect))
    assert code != 0
    assert "timed out" in log


# --- a restored volume (RESOLUTIONS P3)


def test_a_hub_on_a_restored_volume_signs_nothing_and_its_pod_is_not_ready(
    cluster: LiveCluster, tenant: str
) -> None:
    copies = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "snapshot", "namespace": tenant},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    cluster.kubectl.apply([copies])
    claims = {"/data": "veen-hub-data", "/snapshot": "snapshot"}
    cluster.scale(tenant, "veen-hub", 0)
    cluster.run(cluster.job(tenant, "veen-take", "veen-cli", "cp -r /data/hub /snapshot/hub", claims=claims))
    cluster.scale(tenant, "veen-hub", 1)
    cluster.wait_for_rollout(tenant, WORKLOAD)
    before = cluster.checkpoint(tenant)
    send(cluster, tenant, "later", 5)
    wait_until("the hub log covers the later messages", lambda: cluster.checkpoint(tenant) != before)
    cluster.scale(tenant, "veen-hub", 0)
    restore = "rm -rf /data/hub/* && cp -r /snapshot/hub/. /data/hub/"
    cluster.run(cluster.job(tenant, "veen-restore", "veen-cli", restore, claims=claims))
    cluster.scale(tenant, "veen-hub", 1)
    wait_until("the hub says that it does not sign", lambda: "signing_stopped" in hub_log(tenant))
    pod = cluster.hub(tenant)
    ready = {each["type"]: each["status"] for each in pod["status"]["conditions"]}["Ready"]
    assert ready == "False"
    assert "not_signing" in cluster.status(tenant)
    assert [
        row["ready"] for row in cluster.veen("status", code=2)["networks"] if row["namespace"] == tenant
    ] == [False]


def hub_log(namespace: str) -> str:
    """Return the log of the hub's container; empty while it does not run."""
    done = subprocess.run(
        ["kubectl", "logs", WORKLOAD, f"--namespace={namespace}", "--tail=-1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout


# --- deletion (spec-4 §11.2, §12.2)


def test_deleting_a_tenant_changes_nothing_anywhere_else(
    cluster: LiveCluster, authority: str, tenant: str
) -> None:
    cluster.apply("--tenant=other")
    before = {each: snapshot(cluster, each) for each in (authority, OTHER)}
    assert len(before[OTHER]) > 5
    cluster.veen("destroy", "--tenant=acme", "--yes")
    assert cluster.kubectl.get("namespace", tenant) is None
    assert {each: snapshot(cluster, each) for each in (authority, OTHER)} == before
    assert cluster.veen("status")["networks"]
