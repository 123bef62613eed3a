"""Bridge, witness, Query API, TLS, self-tests, upgrade and monitoring as containers (spec-4 §6 to §11)."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import time
import urllib.error
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from applications import (
    certificate,
    get,
    hub_id_of,
    new_identity,
    objects,
    post,
    read,
    secret,
    send,
    token,
)
from cluster import UID, Cluster, Namespace, Pod, failures
from conftest import apply
from podman import podman

from veen_cli.kube import kustomize
from veen_cli.kube.kustomize import Kustomization
from veen_cli.kube.tenant import VERSION, KubeNetwork, manifests
from veen_overlays.bridge import ImportedEvent
from veen_overlays.recorder.records import RecordEvent, UnixMilliseconds

RULES = "core/rules"
LOGINS = "record/security/auth"
WAIT_SEC = 30.0


@pytest.fixture(scope="module")
def tenant(cluster: Cluster, authority: Namespace, tag: str) -> Namespace:
    del authority
    network = KubeNetwork(
        tenant="north",
        tag=tag,
        image_prefix="localhost/",
        persistent=True,
        selftests=("core", "overlays", "goals"),
    )
    namespace = apply(cluster, network)
    namespace.start("Deployment", "veen-hub")
    return namespace


def hub_of(namespace: Namespace) -> Pod:
    (pod,) = [pod for name, pod in namespace.pods.items() if name.endswith("-hub")]
    return pod


def configure(namespace: Namespace, config_map: str, file: str, **settings: Any) -> None:
    """Change settings of a ConfigMap; the next start of the pod reads them."""
    data = namespace.objects["ConfigMap", config_map]["data"]
    data[file] = yaml.safe_dump(yaml.safe_load(data[file]) | settings)


def hub_log_of(pod: Pod) -> str:
    """Return the newest hub checkpoint; empty while the hub has signed none."""
    try:
        return get(pod, 8080, "/log/checkpoint")
    except urllib.error.HTTPError as exc:
        exc.close()
        if exc.code == 404:
            return ""
        raise


def wait_until(what: str, holds: Any) -> None:
    deadline = time.monotonic() + WAIT_SEC
    while not holds():
        assert time.monotonic() < deadline, f"{what} after {WAIT_SEC:.0f} s"
        time.sleep(0.1)


# --- self-tests (spec-4 §8)


def test_the_job_of_the_cronjob_tests_the_hub_and_leaves_both_reports(tenant: Namespace) -> None:
    code, output = tenant.run_job("veen-selftest-core", kind="CronJob")
    assert code == 0, failures(output)
    lines = [json.loads(line) for line in output.splitlines()]
    assert all(each["component"] == each["role"] == "selftest" for each in lines), "spec-4 §10.3"
    assert {each["tenant_id"] for each in lines} == {"north"}
    assert lines[-1]["event"] == "selftest_finished"
    assert {"core", "overlays"} == {each["suite"] for each in lines[:-1]}
    suites = ET.fromstring(tenant.report("veen-selftest-core", "junit.xml"))
    assert int(suites.attrib["tests"]) == len(lines) - 1
    assert json.loads(tenant.report("veen-selftest-core", "report.json"))["ok"] is True


def test_the_job_of_the_goals_starts_its_own_hubs_in_a_read_only_pod(tenant: Namespace) -> None:
    code, output = tenant.run_job(
        "veen-selftest-goals", "--only=goal.core-pipeline", "--only=goal.audit-anchor"
    )
    assert code == 0, failures(output)


def test_a_job_with_a_failing_check_ends_with_5_and_says_which(tenant: Namespace) -> None:
    """spec-4 §8.1. This hub has no epochs, so the check is skipped, which is not a pass."""
    code, output = tenant.run_job("veen-selftest-core", "--only=epoch.roll")
    assert code == 5, failures(output)
    assert json.loads(output.splitlines()[-1])["ok"] is False


# --- the bridge (spec-4 §6)


def test_the_bridge_copies_each_event_of_the_authority_once_also_after_a_kill(
    authority: Namespace, tenant: Namespace, tag: str
) -> None:
    source, target = hub_of(authority), hub_of(tenant)
    identity, files = new_identity()
    tenant.apply(objects("bridge", tenant.name, tag))
    cap = token(tenant, identity.client_id, [RULES])
    tenant.apply([secret(tenant.name, "veen-bridge-authority-keys", {**files, "cap.cbor": cap.encode()})])
    tenant.objects["ConfigMap", "veen-bridge-authority-config"]["data"] |= {
        "source-trust": hub_id_of(authority),
        "target-trust": hub_id_of(tenant),
        "streams": RULES,
    }
    send(authority, source, RULES, ["rule 1", "rule 2"])
    bridge = tenant.start("Deployment", "veen-bridge-authority")
    wait_until("two copies are missing", lambda: len(copies(tenant, target, identity)) == 2)
    bridge.kill()
    send(authority, source, RULES, ["rule 3"])
    bridge = tenant.start("Deployment", "veen-bridge-authority")
    wait_until("the third copy is missing", lambda: len(copies(tenant, target, identity)) == 3)
    assert {"veen_bridge_ready 1.0"} <= set(get(bridge, 8081, "/metrics").splitlines())
    assert bridge.stop() == 0
    assert copies(tenant, target, identity) == [1, 2, 3]


def copies(tenant: Namespace, target: Pod, reader: Any) -> list[int]:
    return [
        int(ImportedEvent.decode(message.body).source_stream_seq)
        for message in read(tenant, target, RULES, reader)
    ]


# --- the witness (RESOLUTIONS P2)


def test_a_witness_cosigns_the_hub_and_keeps_its_key_when_its_pod_is_killed(
    cluster: Cluster, tenant: Namespace, tag: str
) -> None:
    place = cluster.namespace("veen-witness-1")
    place.apply(objects("witness", place.name, tag))
    witness = place.start("StatefulSet", "veen-witness")
    (listening,) = [event for event in witness.events() if event["event"] == "listening"]
    assert (listening["component"], listening["role"]) == ("witness", "witness")
    key = listening["witness"]
    note = podman(
        "run", "--rm", f"--network={cluster.network}", "--entrypoint=veen-cli", f"localhost/veen-cli:{tag}",
        "hub", "keys", "--note", f"--hub=http://{hub_of(tenant).ip}:8080", "--quiet",
    ).stdout.strip()  # fmt: skip
    configure(place, "veen-witness-config", "witness.yaml", logs=[{"keys": [note]}])
    witness.kill()
    witness = place.start("StatefulSet", "veen-witness")
    assert key in get(witness, 8090, "/healthz"), "the key is on the volume"
    url = "http://veen-witness.veen-witness-1.svc.cluster.local:8090"
    configure(tenant, "veen-hub-config", "hub.yaml", hub_log={"witnesses": [{"key": key, "url": url}]})
    assert hub_of(tenant).stop() == 0
    pod = tenant.start("Deployment", "veen-hub")
    send(tenant, pod, "orders", ["a message that the next hub checkpoint covers"])
    name = key.partition("+")[0]
    wait_until("no cosignature is served", lambda: f"\n— {name} " in hub_log_of(pod))


# --- the Query API


def test_the_query_service_answers_from_the_recorded_stream(tenant: Namespace, tag: str) -> None:
    service, files = new_identity()
    reader, reader_files = new_identity()
    bearer = secrets.token_urlsafe(32)
    tenant.apply(objects("query", tenant.name, tag))
    recorded = ["record/query/requests", "record/query/results", "record/query/audit/access"]
    cap = token(tenant, service.client_id, recorded)
    tenant.apply([secret(tenant.name, "veen-query-keys", {**files, "cap.cbor": cap.encode()})])
    tenant.apply([secret(tenant.name, "veen-query-reader", reader_files)])
    auditor = {
        "name": "auditor",
        "identity": "ab" * 32,
        "tokens": [hashlib.sha256(bearer.encode()).hexdigest()],
        "streams": [LOGINS],
    }
    hub = {"url": "http://veen-hub:8080", "trust": hub_id_of(tenant)}
    configure(tenant, "veen-query-config", "query.yaml", hub=hub, streams=[LOGINS], principals=[auditor])
    events = [
        RecordEvent(
            subject_id=f"user:{name}",
            principal_id=reader.client_id,
            event_type="login",
            event_time=UnixMilliseconds(n),
            origin="door",
            payload={"n": n},
        )
        for n, name in enumerate(("ann", "bob", "ann"))
    ]
    send(tenant, hub_of(tenant), LOGINS, events, to=reader)
    pod = tenant.start("Deployment", "veen-query")
    folder = tenant.folder / "auditor"
    folder.mkdir()
    (folder / "token").write_text(bearer)
    (folder / "token").chmod(0o600)
    os.chown(folder / "token", UID, UID)
    query = ["query", "run", "--service=http://127.0.0.1:8085", "--token-file=/auditor/token"]
    query += [f"--trust={hub_id_of(tenant)}", f"--hub=http://{hub_of(tenant).ip}:8080"]
    query += [f"--stream={LOGINS}", "--subject=user:ann", "--project=payload.n", "--json"]
    where = [f"--network=container:{pod.name}", f"--volume={folder}:/auditor:ro"]  # as kubectl port-forward
    done = podman("run", "--rm", *where, "--entrypoint=veen-cli", f"localhost/veen-query:{tag}", *query)
    rows = json.loads(done.stdout)["rows"]
    assert [row["payload.n"] for row in rows] == [0, 2]
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(pod, 8085, "/v1/queries", {}, "a wrong token")
    assert refused.value.code == 401
    refused.value.close()
    assert pod.stop() == 0


# --- TLS


def test_a_tenant_with_tls_is_tested_over_tls_and_answers_nothing_else(
    cluster: Cluster, authority: Namespace, tag: str
) -> None:
    del authority
    network = KubeNetwork(tenant="secure", tag=tag, image_prefix="localhost/", tls=True)
    namespace = apply(cluster, network)
    namespace.apply([secret(namespace.name, "veen-hub-tls", certificate("veen-hub"))])
    pod = namespace.start("Deployment", "veen-hub")
    code, output = namespace.run_job("veen-selftest-core", "--only=scenario.*")
    assert code == 0, failures(output)
    assert not speaks_plain_http(pod)
    namespace.delete()


def speaks_plain_http(pod: Pod) -> bool:
    try:
        with socket.create_connection((pod.ip, 8080), timeout=5) as connection:
            connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            return connection.recv(16).startswith(b"HTTP/")
    except OSError:
        return False


# --- upgrade (spec-4 §11.3)


def test_an_upgrade_keeps_identity_and_log_and_passes_the_self_tests(
    cluster: Cluster, authority: Namespace, tenant: Namespace, tag: str
) -> None:
    """The next version is the same code under another tag: what is tested is the procedure."""
    following = f"{tag}-next"
    for image in ("veen-hub", "veen-selftest"):
        podman("tag", f"localhost/{image}:{tag}", f"localhost/{image}:{following}")
    for namespace in (authority, tenant):
        send(namespace, hub_of(namespace), "orders", ["before the upgrade"])
        wait_until("the hub log has no entry", lambda: hub_log_of(hub_of(namespace)))  # noqa: B023
    before = {each.name: hub_log_of(hub_of(each)).split("\n") for each in (authority, tenant)}
    for namespace, name, kind, workload, job in (
        (authority, None, "StatefulSet", "veen-authority-hub", "veen-selftest-authority"),
        (tenant, "north", "Deployment", "veen-hub", "veen-selftest-core"),
    ):
        choices = {"persistent": True, "selftests": ("core", "overlays", "goals")} if name else {}
        apply(cluster, KubeNetwork(tenant=name, tag=following, image_prefix="localhost/", **choices))
        assert hub_of(namespace).stop() == 0
        pod = namespace.start(kind, workload)
        assert pod.template["metadata"]["annotations"][VERSION] == following
        origin, size, *_ = hub_log_of(pod).split("\n")
        old_origin, old_size, *_ = before[namespace.name]
        assert origin == old_origin
        assert int(size) >= int(old_size)
        more = () if name is None else ("--only=scenario.*", "--only=hub-log.*")
        code, output = namespace.run_job(job, *more)
        assert code == 0, failures(output)


# --- monitoring (spec-4 §10.2)


def test_what_prometheus_is_told_to_read_is_there(authority: Namespace, tenant: Namespace) -> None:
    """Each monitor of the component selects the Services whose port serves a metric of the alerts."""
    monitors = kustomize.build(Kustomization(components=(manifests() / "components" / "monitoring",)))
    (hubs,) = [each for each in monitors if each["metadata"]["name"] == "veen-hubs"]
    wanted = hubs["spec"]["selector"]["matchLabels"].items()
    seen = set()
    for namespace in (authority, tenant):
        for (kind, _name), service in namespace.objects.items():
            if kind != "Service" or not wanted <= service["metadata"]["labels"].items():
                continue
            (endpoint,) = hubs["spec"]["endpoints"]
            ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
            text = get(hub_of(namespace), ports[endpoint["port"]], endpoint["path"])
            assert "veen_ready 1.0" in text
            seen.add(namespace.name)
    assert seen == {authority.name, tenant.name}


CONNECT = """
import urllib.request
try:
    print(urllib.request.urlopen(URL, timeout=3).status)
except OSError as exc:
    print(type(exc).__name__)
"""


@pytest.mark.parametrize(("labelled", "answer"), [(True, "200"), (False, "URLError")])
def test_prometheus_reads_metrics_only_from_a_namespace_with_the_label(
    cluster: Cluster, tenant: Namespace, tag: str, labelled: bool, answer: str
) -> None:
    name = f"monitoring-{labelled}".lower()
    place = cluster.namespace(name)
    labels = {"veen.io/monitoring": "true"} if labelled else {}
    place.apply([{"kind": "Namespace", "metadata": {"name": name, "labels": labels}}])
    code = f"URL = 'http://{hub_of(tenant).ip}:8081/metrics'\n" + CONNECT
    assert place.call(f"localhost/veen-cli:{tag}", code, {"app": "prometheus"}) == answer
