"""The benchmark runs and prints every figure under its name; speed is not tested here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from veen_storage.fsck import fsck

RUN = Path(__file__).parents[1] / "benchmarks" / "run.py"


def test_every_figure_is_printed_under_its_name(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, RUN, "--tiny", "--directory", tmp_path], capture_output=True, text=True, check=False
    )
    assert not ran.stderr
    printed = [json.loads(line) for line in ran.stdout.splitlines()]
    lines = [line for line in printed if "name" in line]
    assert {line["name"] for line in lines} == {
        "hub.single",
        "hub.plain",
        "hub.batch",
        "hub.single_shared",
        "hub.batch_shared",
        "hub.p50",
        "hub.p50_hot",
        "hub.shards_floor",
        "hub.shards",
        "hub.p50_shards",
        *(
            f"hub.{name}{suffix}"
            for name in (
                "p99_ms",
                "overload_p99_ms",
                "overload_offered",
                "overload_accepted",
                "recovery_ms",
                "fairness",
            )
            for suffix in ("", "_shards")
        ),
        "hub.read",
        "hub.follow_p99_ms",
        "hub.followers",
        "hub.followers_p99_ms",
        "hub.follower_kb",
        "hub.catch_up",
        "hub.catch_up_p50",
        "hub.catch_up_reads",
        "verify.batch",
        "client.send",
        "client.send_64",
        "client.send_many",
        "client.read",
        "client.follow_p99_ms",
        "client.loop_block_ms",
        "client.rss_mb",
        "trust.witness_rate",
        "hub.trust_overhead",
        "trust.cosign_p99_ms",
        "trust.growth",
        "trust.evidence_bytes",
        "hub.growth",
        "hub.rss_mb",
    }
    assert all(set(line) == {"name", "value", "target", "ok"} and line["value"] >= 0 for line in lines)
    rates = [line for line in printed if "client" in line]
    assert [line["client"] for line in rates] == [
        "client that ships (veen_hub.client)",
        "plain HTTP client (aiohttp)",
        "raw generator",
    ]
    columns = ("one_by_one", "in_flight", "batches", "reading")
    assert all(line[column] > 0 for line in rates for column in columns)


def test_the_longest_history_is_measured_on_demand_and_kept(tmp_path: Path) -> None:
    command = [sys.executable, RUN, "--tiny", "--only=hub.growth7", f"--keep={tmp_path / 'kept'}"]
    for _ in range(2):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not ran.stderr
        lines = [json.loads(line) for line in ran.stdout.splitlines()]
        assert {line["name"] for line in lines} == {
            "hub.growth7",
            "hub.growth7_submit",
            "hub.growth7_page",
            "hub.growth7_page_first",
            "hub.growth7_proof",
            "hub.growth7_proof_first",
            "hub.growth7_open",
            "hub.growth7_private_mb",
            "hub.growth7_rss_mb",
        }
        assert all(line["value"] > 0 for line in lines)
    assert sorted(each.name for each in (tmp_path / "kept").iterdir()) == ["long", "short", "wide"]
    for name in ("long", "short", "wide"):
        assert fsck(tmp_path / "kept" / name / "data").faults == [], "a history is what a hub leaves"
