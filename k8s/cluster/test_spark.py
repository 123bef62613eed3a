"""`veen spark verify` of an exported hub, with driver and executors as pods of a real cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from live_cluster import LiveCluster, Object
from test_cluster import hub_id, send

NAMESPACE = "veen-tenant-spark"
MANIFEST = Path(__file__).parents[1] / "spark" / "verify.yaml"
EXECUTORS = "spark-role=executor"


@pytest.fixture(scope="module")
def exported(cluster: LiveCluster) -> str:
    """Export a hub of two streams to the volume of the claim veen-exports; return its hub_id."""
    cluster.apply("--authority", "--no-selftest")
    cluster.apply("--tenant=spark", "--persistent", "--no-selftest")
    for stream in ("orders", "invoices"):
        send(cluster, NAMESPACE, stream, 100)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "veen-exports", "namespace": NAMESPACE},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    cluster.kubectl.apply([claim])
    cluster.scale(NAMESPACE, "veen-hub", 0)
    export = "veen-cli hub export --data-dir /data/hub --all --out /exports/hub"
    claims = {"/data": "veen-hub-data", "/exports": "veen-exports"}
    cluster.run(cluster.job(NAMESPACE, "veen-cli-export", "veen-cli", export, claims=claims))
    return hub_id(cluster, NAMESPACE)


def objects(cluster: LiveCluster, pinned: str) -> tuple[list[Object], Object]:
    """Return the objects of the manifest for this cluster, and the Job apart from the others."""
    text = (
        MANIFEST.read_text(encoding="utf-8").replace("veen-tenant-acme", NAMESPACE).replace("HUB_ID", pinned)
    )
    *others, job = yaml.safe_load_all(text)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["image"] = container["env"][0]["value"] = cluster.image("veen-spark")
    return others, job


def verify(cluster: LiveCluster, pinned: str) -> tuple[int, Any, set[str]]:
    """Run the Job; return its exit code, its answer, and the names of the executors that were there."""
    others, job = objects(cluster, pinned)
    cluster.kubectl.apply(others)
    code, log = cluster.run_job(job)
    answers = [line for line in log.splitlines() if line.startswith("{")]
    assert answers, log[-3_000:]
    events = json.loads(cluster.kubectl.run("get", "events", f"--namespace={NAMESPACE}", "--output=json"))[
        "items"
    ]
    pods = {each["involvedObject"]["name"] for each in events if each["reason"] == "Started"}
    return code, json.loads(answers[-1]), {name for name in pods if "-exec-" in name}


def test_executors_in_pods_verify_an_exported_hub(cluster: LiveCluster, exported: str) -> None:
    code, answer, executors = verify(cluster, exported)
    assert code == 0, answer
    assert answer["faults"] == []
    assert answer["entries"] >= 200
    assert len(executors) == 2, "the executors were pods"


def test_executors_in_pods_find_a_changed_byte(cluster: LiveCluster, exported: str) -> None:
    script = """python3 - <<'P'
import pathlib
files = [path for path in pathlib.Path("/exports/hub").rglob("*") if path.is_file()]
largest = max(files, key=lambda path: path.stat().st_size)
content = bytearray(largest.read_bytes())
content[len(content) // 2] ^= 1
largest.write_bytes(content)
P"""
    claims = {"/exports": "veen-exports"}
    cluster.run(cluster.job(NAMESPACE, "veen-cli-damage", "veen-cli", script, claims=claims))
    code, answer, _executors = verify(cluster, exported)
    assert code == 3, answer
    assert answer["faults"]
