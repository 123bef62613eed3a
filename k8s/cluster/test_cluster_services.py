"""Bridge, witness, Query API, TLS and the products in a real cluster (spec-4 §6 to §9)."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

import pytest
import yaml
from applications import certificate, new_identity, objects, secret, token_of
from live_cluster import LiveCluster, Object, wait_until
from test_cluster import WORKLOAD, hub_id

from veen_core.cap import CapToken
from veen_core.ids import ClientId

TENANT, SECURE, WITNESS = "veen-tenant-north", "veen-tenant-secure", "veen-witness-1"
SYSTEM = "veen-system"
RULES, LOGINS = "core/rules", "record/security/auth"
CLIENT = {"veen.io/client": "true"}
PRELUDE = """
import asyncio, sys
from pathlib import Path
from veen_core.cap import mint
from veen_core.ids import HubId
from veen_core.keystore import Secrets
from veen_hub.client import Identity, connect
def opened(name):
    return Secrets.decode(Path(f"/secrets/{name}/secrets.cbor").read_bytes())
async def token(client, on):
    return mint(opened("admin").signing_key, client, [on], 3_600)
"""
SEND_TEXTS = """
async def main(url, trust, stream, count):
    writer = Identity.generate()
    async with connect(url, writer, trust=HubId.from_hex(trust), tokens=token) as hub:
        async for _ in hub.stream(stream, to=writer.recipient).send_many([str(n) for n in range(int(count))]):
            pass
"""
SEND_EVENTS = """
from veen_overlays.recorder.records import RecordEvent, UnixMilliseconds
async def main(trust, stream):
    reader, writer = Identity.of(opened("reader")), Identity.generate()
    events = [
        RecordEvent(subject_id=f"user:{name}", principal_id=reader.client_id, event_type="login",
                    event_time=UnixMilliseconds(n), origin="door", payload={"n": n})
        for n, name in enumerate(("ann", "bob", "ann"))
    ]
    async with connect("http://veen-hub:8080", writer, trust=HubId.from_hex(trust), tokens=token) as hub:
        async for _ in hub.stream(stream, to=reader.recipient).send_many(events):
            pass
"""
WAIT_FOR_COPIES = """
import time
from veen_overlays.bridge import ImportedEvent
async def main(trust, stream, count):
    reader, deadline = Identity.of(opened("bridge")), time.monotonic() + 120
    async with connect("http://veen-hub:8080", reader, trust=HubId.from_hex(trust)) as hub:
        copies = []
        while len(copies) < int(count) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            copies = [ImportedEvent.decode(m.body) async for m in hub.stream(stream).read()]
        print("copies:", [int(each.source_stream_seq) for each in copies])
"""
SPEAK_PLAINLY = """
import socket
with socket.create_connection(("veen-hub", 8080), timeout=10) as connection:
    connection.sendall(b"GET /healthz HTTP/1.0\\r\\n\\r\\n")
    try:
        print("answer:", connection.recv(16)[:5])
    except ConnectionResetError:
        print("answer:", b"")
"""


def python(code: str, *arguments: str) -> str:
    """Return the shell command of a Job that runs code; ``main`` gets the arguments."""
    return f"python3 - {' '.join(arguments)} <<'P'\n{PRELUDE}{code}\nasyncio.run(main(*sys.argv[1:]))\nP"


def token(cluster: LiveCluster, subject: ClientId, streams: list[str]) -> CapToken:
    return token_of(cluster.get("secret", "veen-admin-keys", TENANT), subject, streams)


def send_texts(cluster: LiveCluster, namespace: str, stream: str, count: int) -> None:
    url = "http://veen-authority:8080" if namespace == SYSTEM else "http://veen-hub:8080"
    script = python(SEND_TEXTS, url, hub_id(cluster, namespace), stream, str(count))
    keys = {"/secrets/admin": "veen-admin-keys"}
    cluster.run(cluster.job(namespace, "veen-texts", "veen-cli", script, secrets=keys, labels=CLIENT))


def rendered(cluster: LiveCluster, base: str, namespace: str) -> list[Object]:
    return objects(base, namespace, cluster.tag, cluster.image_prefix)


def configure(each: Object, file: str, **settings: Any) -> None:
    """Change settings in a file of a ConfigMap."""
    each["data"][file] = yaml.safe_dump(yaml.safe_load(each["data"][file]) | settings)


def config_map(objects: list[Object]) -> Object:
    (found,) = [each for each in objects if each["kind"] == "ConfigMap"]
    return found


def restart(cluster: LiveCluster, namespace: str, workload: str) -> None:
    cluster.kubectl.run("rollout", "restart", workload, f"--namespace={namespace}")
    cluster.wait_for_rollout(namespace, workload)


def make_namespace(cluster: LiveCluster, name: str) -> None:
    labels = {"app.kubernetes.io/part-of": "veen"}
    cluster.kubectl.apply(
        [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}]
    )


@pytest.fixture(scope="module")
def tenant(cluster: LiveCluster) -> str:
    cluster.apply("--authority", "--no-selftest")
    cluster.apply("--tenant=north", "--persistent", "--no-selftest")
    return TENANT


# --- the products (spec-4 §8)


def test_the_job_of_the_goals_passes_with_hubs_of_its_own(cluster: LiveCluster, tenant: str) -> None:
    (job,) = [each for each in rendered(cluster, "selftest-goals", tenant) if each["kind"] == "Job"]
    job["spec"]["template"]["spec"]["containers"][0]["args"].append("--only=goal.*")
    code, log = cluster.run_job(job)
    lines = [json.loads(line) for line in log.splitlines()]
    assert code == 0, [line for line in lines if line["event"] == "check_failed"] or log[-2_000:]
    assert lines[-1]["event"] == "selftest_finished"


# --- the bridge (spec-4 §6)


def copies(cluster: LiveCluster, count: int) -> list[int]:
    """Wait until the tenant has ``count`` copies of the authority's events; return their source's numbers."""
    script = python(WAIT_FOR_COPIES, hub_id(cluster, TENANT), RULES, str(count))
    keys = {"/secrets/bridge": "veen-bridge-authority-keys"}
    log = cluster.run(cluster.job(TENANT, "veen-copies", "veen-bridge", script, secrets=keys, labels=CLIENT))
    return list(json.loads(log.rpartition("copies: ")[2]))


def test_the_bridge_copies_each_event_of_the_authority_once_also_after_a_kill(
    cluster: LiveCluster, tenant: str
) -> None:
    identity, files = new_identity()
    cap = token(cluster, identity.client_id, [RULES])
    cluster.kubectl.apply([secret(tenant, "veen-bridge-authority-keys", {**files, "cap.cbor": cap.encode()})])
    bridge = rendered(cluster, "bridge", tenant)
    config_map(bridge)["data"] |= {
        "source-trust": hub_id(cluster, SYSTEM),
        "target-trust": hub_id(cluster, tenant),
        "streams": RULES,
    }
    send_texts(cluster, SYSTEM, RULES, 2)
    cluster.kubectl.apply(bridge)
    cluster.wait_for_rollout(tenant, "deployment/veen-bridge-authority")
    assert copies(cluster, 2) == [1, 2]
    (pod,) = cluster.pods(tenant, "app.kubernetes.io/component=bridge")
    name = pod["metadata"]["name"]
    cluster.kubectl.run("delete", "pod", name, f"--namespace={tenant}", "--grace-period=0", "--force")
    send_texts(cluster, SYSTEM, RULES, 1)
    assert copies(cluster, 3) == [1, 2, 3]
    log = cluster.logs(tenant, "deployment/veen-bridge-authority", "--container=bridge")
    assert {json.loads(line)["component"] for line in log.splitlines()} == {"bridge"}


# --- the witness (RESOLUTIONS P2)


def test_a_witness_cosigns_the_hub_and_keeps_its_key_when_its_pod_is_killed(
    cluster: LiveCluster, tenant: str
) -> None:
    make_namespace(cluster, WITNESS)
    witness = rendered(cluster, "witness", WITNESS)
    cluster.kubectl.apply(witness)
    cluster.wait_for_rollout(WITNESS, "statefulset/veen-witness")
    key = witness_key(cluster)
    command = "veen-cli hub keys --note --hub=http://veen-hub:8080 --quiet"
    note = cluster.run(cluster.job(tenant, "veen-note", "veen-cli", command, labels=CLIENT)).strip()
    configure(config_map(witness), "witness.yaml", logs=[{"keys": [note]}])
    cluster.kubectl.apply(witness)
    restart(cluster, WITNESS, "statefulset/veen-witness")
    assert witness_key(cluster) == key, "the key is on the volume"
    config = cluster.get("configmap", "veen-hub-config", tenant)
    url = f"http://veen-witness.{WITNESS}.svc.cluster.local:8090"
    configure(config, "hub.yaml", hub_log={"witnesses": [{"key": key, "url": url}]})
    cluster.kubectl.merge("configmap", "veen-hub-config", tenant, {"data": config["data"]})
    restart(cluster, tenant, WORKLOAD)
    send_texts(cluster, tenant, "orders", 1)
    name = key.partition("+")[0]
    wait_until("a cosignature is served", lambda: f"\n— {name} " in cluster.ask(tenant, "/log/checkpoint"))


def witness_key(cluster: LiveCluster) -> str:
    lines = [json.loads(line) for line in cluster.logs(WITNESS, "statefulset/veen-witness").splitlines()]
    return str(next(line["witness"] for line in lines if line["event"] == "listening"))


# --- the Query API


def test_the_query_service_answers_from_the_recorded_stream(cluster: LiveCluster, tenant: str) -> None:
    service, files = new_identity()
    _reader, reader_files = new_identity()
    bearer = secrets.token_urlsafe(32)
    recorded = ["record/query/requests", "record/query/results", "record/query/audit/access"]
    cap = token(cluster, service.client_id, recorded)
    cluster.kubectl.apply([secret(tenant, "veen-query-keys", {**files, "cap.cbor": cap.encode()})])
    cluster.kubectl.apply([secret(tenant, "veen-query-reader", reader_files)])
    query, trust = rendered(cluster, "query", tenant), hub_id(cluster, tenant)
    auditor = {
        "name": "auditor",
        "identity": "ab" * 32,
        "tokens": [hashlib.sha256(bearer.encode()).hexdigest()],
        "streams": [LOGINS],
    }
    hub = {"url": "http://veen-hub:8080", "trust": trust}
    configure(config_map(query), "query.yaml", hub=hub, streams=[LOGINS], principals=[auditor])
    keys = {"/secrets/admin": "veen-admin-keys", "/secrets/reader": "veen-query-reader"}
    script = python(SEND_EVENTS, trust, LOGINS)
    cluster.run(cluster.job(tenant, "veen-events", "veen-query", script, secrets=keys, labels=CLIENT))
    cluster.kubectl.apply(query)
    cluster.wait_for_rollout(tenant, "deployment/veen-query")
    ask = f"""umask 077; export HOME=/tmp; cat >/tmp/token
        veen-cli query run --service=http://127.0.0.1:8085 --token-file=/tmp/token --trust={trust} \\
            --hub=http://veen-hub:8080 --stream={LOGINS} --subject=user:ann --project=payload.n --json"""
    where = ("deployment/veen-query", f"--namespace={tenant}", "--container=query", "--stdin")
    answer = json.loads(cluster.kubectl.run("exec", *where, "--", "sh", "-ec", ask, stdin=bearer))
    assert [row["payload.n"] for row in answer["rows"]] == [0, 2]
    log = cluster.logs(tenant, "deployment/veen-query", "--container=query")
    assert {json.loads(line)["component"] for line in log.splitlines()} == {"query"}


# --- TLS


def test_a_tenant_with_tls_is_tested_over_tls_and_answers_nothing_else(
    cluster: LiveCluster, tenant: str
) -> None:
    del tenant
    make_namespace(cluster, SECURE)
    cluster.kubectl.apply([secret(SECURE, "veen-hub-tls", certificate("veen-hub"))])
    assert cluster.apply("--tenant=secure", "--tls", "--selftest=core")["selftest"] is True
    plainly = f"python3 - <<'P'\n{SPEAK_PLAINLY}P"
    log = cluster.run(cluster.job(SECURE, "veen-plain", "veen-cli", plainly, labels=CLIENT))
    assert "answer: b''" in log
    cluster.veen("destroy", "--tenant=secure", "--yes")
