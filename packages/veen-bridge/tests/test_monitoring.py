"""The alerts and the dashboard of `veen kube` name metrics that a bridge has."""

from __future__ import annotations

import re

from veen_bridge.mirror.metrics import MirrorMetrics
from veen_cli.kube.tenant import manifests


def test_alerts_and_dashboard_name_only_metrics_of_a_bridge_that_exist() -> None:
    names = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in MirrorMetrics(["orders"]).registry.collect()
    }
    folder = manifests() / "components" / "monitoring"
    text = "".join((folder / name).read_text() for name in ("alerts.yaml", "dashboard.yaml"))
    used = set(re.findall(r"\bveen_bridge_[a-z_]+", text))
    assert used
    assert used <= names
