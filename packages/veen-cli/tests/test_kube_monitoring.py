"""Alerts and dashboard: every metric in them exists, and every alert fires when it should, and only then."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from veen_cli.kube.tenant import KubeNetwork, manifests, objects_of
from veen_core.errors import ConfigError
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.note import COSIGNATURE, NoteKey
from veen_hub.ops.metrics import Metrics
from veen_hub.witness.metrics import WitnessMetrics
from veen_hub.witness.state import WitnessState

MONITORING = manifests() / "components" / "monitoring"
HAS_PROMTOOL = shutil.which("promtool") is not None or os.environ.get("VEEN_CONTAINERS") == "required"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"]
    for rule in group["rules"]
]

FIRING: dict[str, list[tuple[str, str]]] = {
    "VeenHubNotReady": [("veen_ready", "0x40")],
    "VeenHubGone": [("veen_ready", "1x10 stale")],
    "VeenEquivocation": [('veen_equivocation_reports_total{whose="this hub"}', "1x40")],
    "VeenHubSignsNothing": [("veen_signing", "0x40")],
    "VeenHubCheckpointLate": [
        ("veen_hub_checkpoint_age_seconds", "61x40"),
        ("veen_hub_log_moved_labels", "2x40"),
    ],
    "VeenCosignatureOld": [('veen_cosignature_age_seconds{witness="w"}', "301x40")],
    "VeenWitnessFails": [('veen_witness_failures_total{witness="w"}', "0+1x40")],
    "VeenAnchorFails": [("veen_anchor_fail_total", "0x20 1x20")],
    "VeenDiskSlow": [
        ('veen_fsync_latency_ms_bucket{le="250"}', "0+9x120"),
        ('veen_fsync_latency_ms_bucket{le="500"}', "0+10x120"),
        ('veen_fsync_latency_ms_bucket{le="+Inf"}', "0+10x120"),
    ],
    "VeenSubmitsUnavailable": [('veen_submit_err_total{code="E.UNAVAILABLE"}', "0+1x40")],
    "VeenRevocationsOld": [("veen_revocation_view_lag_seconds", "16x40")],
    "VeenApplierBehind": [("veen_wal_bytes", "40000000x120")],
    "VeenAttachmentQuota": [("veen_attachment_quota_refused_total", "0x20 1x20")],
    "VeenLogLinesDropped": [("veen_log_lines_dropped_total", "0x20 5x20")],
    "VeenReplicaDiverged": [("veen_replica_diverged", "1x40")],
    "VeenWitnessSawTwoHistories": [('veen_witness_contradictions{origin="o",claim="c"}', "1x40")],
    "VeenBridgeNotReady": [("veen_bridge_ready", "0x60")],
    "VeenBridgeBehind": [('veen_bridge_lag_entries{stream="s"}', "1001x120")],
}
"""Samples, one every 15 seconds, that must raise an alert."""

HEALTHY: dict[str, list[tuple[str, str]]] = {
    "VeenHubNotReady": [("veen_ready", "1x40")],
    "VeenHubGone": [("veen_ready", "1x120")],
    "VeenEquivocation": [('veen_equivocation_reports_total{whose="another hub"}', "7x40")],
    "VeenHubSignsNothing": [("veen_signing", "1x40")],
    # A hub without new messages makes no hub checkpoint.
    "VeenHubCheckpointLate": [
        ("veen_hub_checkpoint_age_seconds", "9000x40"),
        ("veen_hub_log_moved_labels", "0x40"),
    ],
    "VeenCosignatureOld": [('veen_cosignature_age_seconds{witness="w"}', "299x40")],
    "VeenWitnessFails": [('veen_witness_failures_total{witness="w"}', "9x40")],
    "VeenAnchorFails": [("veen_anchor_fail_total", "3x40")],
    "VeenDiskSlow": [
        ('veen_fsync_latency_ms_bucket{le="250"}', "0+10x120"),
        ('veen_fsync_latency_ms_bucket{le="+Inf"}', "0+10x120"),
    ],
    "VeenSubmitsUnavailable": [('veen_submit_err_total{code="E.SIG"}', "0+1x40")],
    "VeenRevocationsOld": [("veen_revocation_view_lag_seconds", "14x40")],
    "VeenApplierBehind": [("veen_wal_bytes", "33000000x120")],
    "VeenAttachmentQuota": [("veen_attachment_quota_refused_total", "4x40")],
    "VeenLogLinesDropped": [("veen_log_lines_dropped_total", "4x40")],
    "VeenReplicaDiverged": [("veen_replica_diverged", "0x40")],
    "VeenWitnessSawTwoHistories": [('veen_witness_contradictions{origin="o",claim="c"}', "0x40")],
    "VeenBridgeNotReady": [("veen_bridge_ready", "1x60")],
    "VeenBridgeBehind": [('veen_bridge_lag_entries{stream="s"}', "1000x120")],
}
"""Samples next to those that must not raise it."""


def sample_names(registry: CollectorRegistry) -> set[str]:
    """Return the names under which the metrics of a registry appear, also before their first sample."""
    names: set[str] = set()
    for family in registry.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(
            family.type, ("",)
        )
        names |= {family.name + suffix for suffix in suffixes}
    return names


def test_alerts_and_dashboard_name_only_metrics_that_exist(tmp_path: Path) -> None:
    key = NoteKey("witness.example/w", COSIGNATURE, SigningKey(SigningSeed(bytes(32))).public)
    WitnessState.create(tmp_path / "state", key)
    witness = WitnessMetrics(WitnessState(tmp_path / "state", key), lambda: 0)
    known = sample_names(Metrics().registry) | sample_names(witness.registry)
    text = "".join((MONITORING / name).read_text() for name in ("alerts.yaml", "dashboard.yaml"))
    used = {name for name in re.findall(r"\bveen_[a-z_]+", text) if not name.startswith("veen_bridge_")}
    assert len(used) >= 25
    assert used <= known


def test_the_dashboard_is_one_whose_panels_have_distinct_places() -> None:
    board = json.loads(yaml.safe_load((MONITORING / "dashboard.yaml").read_text())["data"]["veen.json"])
    covered: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & covered
        covered |= cells
        assert panel["title"]
        assert all(target["expr"] for target in panel["targets"])


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "action"}
    assert {rule["alert"] for rule in RULES} == set(FIRING) == set(HEALTHY)


@pytest.mark.skipif(not HAS_PROMTOOL, reason="promtool is not installed")
def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups))
    tests = [
        {
            "interval": "15s",
            "input_series": [{"series": series, "values": values} for series, values in samples],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
                    "eval_time": "28m" if samples[0][1].endswith("x120") else "9m",
                    "exp_samples": [{"labels": "{}", "value": expected}],
                }
            ],
        }
        for expected, table in ((1, FIRING), (0, HEALTHY))
        for alert, samples in table.items()
    ]
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests})
    )
    done = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "tests.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_monitoring_is_applied_once_with_the_authority() -> None:
    kinds = [each["kind"] for each in objects_of(KubeNetwork(tenant=None, tag="0.1.0", monitoring=True))]
    assert kinds.count("ServiceMonitor") == 2
    assert kinds.count("PrometheusRule") == 1
    with pytest.raises(ConfigError, match="once, with the authority"):
        KubeNetwork(tenant="acme", tag="0.1.0", monitoring=True)
