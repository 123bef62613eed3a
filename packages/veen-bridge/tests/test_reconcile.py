"""Reconciliation of two real zones: from hubs, from a hub and bundles, from files alone; the trace of K1."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from veen_hub.client import connect
from veen_overlays.bridge.records import OFFLINE_LOG

from .source_zone import VEEN, SourceZone, run
from .target_zone import TARGET, OfflineBridge, target_hub


def veen(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [str(each) for each in arguments]
    return subprocess.run([*VEEN, *words], capture_output=True, text=True, timeout=90, check=False)


def answer(*arguments: object) -> tuple[int, dict[str, Any]]:
    done = veen("bridge", "reconcile", "--json", *arguments)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_zones_are_reconciled_from_hubs_bundles_and_exports(tmp_path: Path) -> None:
    source = SourceZone(tmp_path / "z1")
    try:
        with target_hub(tmp_path / "z2") as hub:
            bridge = OfflineBridge(tmp_path / "offline", hub, source.hub_id)
            _story(tmp_path, source, bridge)
    finally:
        source.stop()


def _story(tmp_path: Path, source: SourceZone, bridge: OfflineBridge) -> None:
    for number, count in enumerate((4, 3, 2)):
        source.send(count)
        source.export(out=tmp_path / f"media-{number}")
    media = [tmp_path / f"media-{number}" for number in range(3)]
    zones = ("--source", source.root / "bridge.yaml", "--target", bridge.root / "bridge.yaml")
    bridge.import_(media[0])
    code, result = answer(*zones)
    assert code == 3
    assert [finding["kind"] for finding in result["findings"]] == ["missing", "missing"]
    assert result["regions"][0]["to_seq"] == 4
    bridge.import_(media[1], media[2])
    code, result = answer(*zones)
    assert (code, result["consistent"], result["findings"]) == (0, True, [])
    assert (result["regions"][0]["from_seq"], result["regions"][0]["to_seq"]) == (1, 9)

    # A hub and files.
    assert answer("--target", bridge.root / "bridge.yaml", *media) == (code, result | _without_head(result))

    # K1: by position, and by the original msg_id.
    code, trace = answer(*zones, "--trace", "6")
    assert (code, trace["complete"]) == (0, True)
    assert [step["found"] for step in trace["steps"]] == [True, True, True, True, True, None]
    parent = bridge.read(TARGET)[5].header.parent_id
    assert parent is not None
    assert answer(*zones, "--trace", parent.hex()) == (code, trace)
    assert answer(*zones, "--trace", "10")[0] == 3

    # Files alone.
    for zone, root in ((source.data, "ex1"), (bridge.hub.data, "ex2")):
        exported = veen("hub", "export", "--data-dir", zone, "--all", "--out", tmp_path / root, "-q")
        assert exported.returncode == 0, exported.stderr
    exports = ("--source-export", tmp_path / "ex1", "--target-export", tmp_path / "ex2")
    code, from_files = answer(*zones, *exports)
    assert (code, from_files["regions"][0]["mmr_root"]) == (0, result["regions"][0]["mmr_root"])
    code, _ = answer("--target", bridge.root / "bridge.yaml", "--target-export", tmp_path / "ex2", *media)
    assert code == 0

    # An event that no bundle brought (J1).
    async def intrude() -> None:
        trust = bridge.hub.hub_id.hex()
        async with connect(bridge.hub.url, bridge.identity, trust=trust, state=bridge.root / "other") as hub:
            token = (bridge.root / "role.cap").read_bytes()
            from veen_core.cap import CapToken  # noqa: PLC0415 - only here

            await hub.stream(TARGET).send("without an origin", cap=CapToken.decode(token))

    run(intrude())
    code, result = answer(*zones)
    assert (code, [finding["kind"] for finding in result["findings"]]) == (3, ["no_origin"])
    assert bridge.read(OFFLINE_LOG)


def _without_head(result: dict[str, Any]) -> dict[str, Any]:
    return {"regions": result["regions"]}


def test_a_lost_bundle_that_was_exported_again_is_reconciled_and_traced(tmp_path: Path) -> None:
    source = SourceZone(tmp_path / "z1")
    try:
        with target_hub(tmp_path / "z2") as hub:
            bridge = OfflineBridge(tmp_path / "offline", hub, source.hub_id)
            source.send(2)
            source.export(out=tmp_path / "lost")
            (again,) = source.export(out=tmp_path / "media", from_seq=1, to_seq=2)
            assert bridge.import_(tmp_path / "media", allow_gap=True)[0].code is None
            zones = ("--source", source.root / "bridge.yaml", "--target", bridge.root / "bridge.yaml")
            code, result = answer(*zones)
            assert (code, [each["kind"] for each in result["findings"]]) == (0, ["allowed_gap", "replaced"])
            code, trace = answer(*zones, "--trace", "2")
            assert (code, trace["complete"]) == (0, True)
            assert again.bundle_id.hex() in trace["steps"][1]["detail"]
            assert trace["steps"][2]["detail"] == "message 2"  # the record of the second export
    finally:
        source.stop()


def test_resealed_events_are_reconciled_by_their_parents(tmp_path: Path) -> None:
    source = SourceZone(tmp_path / "z1")
    try:
        with target_hub(tmp_path / "z2") as hub:
            readers = [str(source.reader_folder)]
            bridge = OfflineBridge(
                tmp_path / "offline", hub, source.hub_id, mode="reseal", source_readers=readers
            )
            source.send(6)
            source.export(out=tmp_path / "media")
            assert bridge.import_(tmp_path / "media")[0].code is None
            zones = ("--source", source.root / "bridge.yaml", "--target", bridge.root / "bridge.yaml")
            code, result = answer(*zones)
            assert (code, result["findings"]) == (0, [])
            assert result["regions"][0]["to_seq"] == 6
    finally:
        source.stop()
