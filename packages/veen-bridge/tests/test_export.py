"""Exporting from a real hub: ranges without gap or overlap, no memory but the audit log (AGB0 4.4, P8)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from veen_bridge.bundles import open_bundles
from veen_bridge.exporting.selection import select_streams
from veen_core.bundle import bundle_id
from veen_core.errors import ConfigError
from veen_core.ids import NO_BUNDLE
from veen_core.stream import stream_id
from veen_hub.client import Identity

from .source_zone import BRIDGE, STREAM, SourceZone

OTHER = "export/zone1/invoices"


def test_exports_continue_each_other_without_gap_or_overlap(zone: SourceZone) -> None:
    zone.send(5)
    (first,) = zone.export()
    zone.send(7)
    (second,) = zone.export()
    assert (first.header.from_seq, first.header.to_seq) == (1, 5)
    assert (second.header.from_seq, second.header.to_seq) == (6, 12)
    assert first.header.prev_bundle_id == NO_BUNDLE
    assert second.header.prev_bundle_id == bundle_id(first.header)
    assert zone.check(*second.files, previous=first.header)[0].faults == ()


def test_a_stream_without_new_entries_gets_a_heartbeat_that_chains(zone: SourceZone) -> None:
    assert zone.export() == []  # the hub has no hub checkpoint yet, so nothing can be proved
    zone.send(1, OTHER)
    zone.export(OTHER)  # waits for a hub checkpoint
    (empty,) = zone.export()
    zone.send(2)
    (first,) = zone.export()
    (quiet,) = zone.export()
    assert (empty.header.is_heartbeat, empty.header.head) == (True, None)
    assert quiet.header.is_heartbeat
    assert quiet.header.prev_bundle_id == first.bundle_id
    assert [report.faults for report in zone.check()] == [(), (), (), ()]
    assert zone.export(heartbeat=False) == []
    shown = zone.command("verify", str(empty.files[0]), "--hub", zone.hub_id.hex()).stdout
    assert "the stream had no entry in the hub log" in shown


def test_a_bridge_that_lost_its_disk_continues_from_the_audit_log(zone: SourceZone) -> None:
    zone.send(4)
    (first,) = zone.export()
    shutil.rmtree(zone.root / "bridge" / "state")
    shutil.rmtree(zone.out)
    zone.send(3)
    (second,) = zone.export()
    assert (second.header.from_seq, second.header.to_seq) == (5, 7)
    assert second.header.prev_bundle_id == first.bundle_id


def test_a_lost_bundle_can_be_exported_again_as_a_range(zone: SourceZone) -> None:
    zone.send(6)
    zone.export()
    (again,) = zone.export(from_seq=2, to_seq=4)
    zone.send(1)
    (after,) = zone.export()
    assert (again.header.from_seq, again.header.to_seq) == (2, 4)
    assert again.header.prev_in_label == NO_BUNDLE
    assert (after.header.from_seq, after.header.to_seq) == (7, 7)
    assert [report.faults for report in zone.check()] == [(), (), ()]


def test_a_range_that_would_leave_entries_in_no_bundle_is_refused(zone: SourceZone) -> None:
    zone.send(3)
    zone.export()
    zone.send(5)
    with pytest.raises(ConfigError, match="entries 4 to 5 would be in no bundle"):
        zone.export(from_seq=6)
    with pytest.raises(ConfigError, match="reversed"):
        zone.export(from_seq=3, to_seq=2)


def test_the_attachments_of_opened_messages_travel_and_others_are_counted(zone: SourceZone) -> None:
    zone.send(1, attachments=[b"for the bridge"])
    zone.send(0, attachments=[b"for somebody else"], to=Identity.generate())
    (made,) = zone.export()
    assert (made.header.counts.attachments, made.header.counts.unopened) == (1, 1)
    (bare,) = zone.export(from_seq=1, attachments=False)
    assert (bare.header.counts.attachments, str(bare.header.attachments)) == (0, "omitted")
    assert [report.faults for report in zone.check()] == [(), ()]


def test_an_attachment_that_fits_into_no_part_is_refused(zone: SourceZone) -> None:
    zone.send(0, attachments=[bytes(40_000)])
    with pytest.raises(ConfigError, match="choose a larger --part-size"):
        zone.export(part_size=100 * 1024)
    assert [path.name for path in zone.out.iterdir() if not path.name.startswith(".")] == []
    (made,) = zone.export()
    assert made.header.counts.attachments == 1


def test_several_streams_give_one_bundle_each(make_zone: Callable[..., SourceZone]) -> None:
    zone = make_zone(streams=(STREAM, OTHER))
    zone.send(2)
    zone.send(3, OTHER)
    made = zone.export(STREAM, OTHER)
    assert [(each.header.stream, each.header.counts.events) for each in made] == [(STREAM, 2), (OTHER, 3)]
    assert [report.faults for report in zone.check()] == [(), ()]


def test_a_stream_with_epochs_gives_one_bundle_per_label(make_zone: Callable[..., SourceZone]) -> None:
    zone = make_zone(profile="rotating")
    zone.send(3)
    (made,) = zone.export()
    assert made.header.epoch > 0
    assert made.header.counts.events == 3
    zone.send(2)
    later = zone.export()
    assert sum(each.header.counts.events for each in later) == 2
    assert all(not report.faults for report in zone.check())


def test_the_command_exports_and_verifies_and_its_exit_code_tells(zone: SourceZone) -> None:
    zone.send(3)
    done = zone.export_command("--json")
    assert done.returncode == 0, done.stderr
    (bundle,) = json.loads(done.stdout)["bundles"]
    assert (bundle["from_seq"], bundle["to_seq"], bundle["events"]) == (1, 3, 3)
    verify = ("verify", str(zone.out), "--hub", zone.hub_id.hex(), "--bridge", BRIDGE.client_id.hex())
    assert zone.command(*verify).returncode == 0
    (path,) = zone.out.glob("*.veenb")
    altered = bytearray(path.read_bytes())
    altered[300] ^= 4
    path.write_bytes(altered)
    refused = zone.command(*verify, "--json")
    assert refused.returncode == 3
    (report,) = json.loads(refused.stdout)["bundles"]
    assert (report["valid"], report["faults"][0]["part"]) == (False, 1)
    shown = zone.command("inspect", str(path), "--json")
    assert json.loads(shown.stdout)["bundles"][0]["stream"] == STREAM


def test_a_bundle_of_another_hub_is_refused_by_the_pin(zone: SourceZone) -> None:
    zone.send(1)
    zone.export()
    refused = zone.command("verify", str(zone.out), "--hub", "00" * 32)
    assert refused.returncode == 3
    assert "the pinned hub is 0000" in refused.stdout


def test_without_a_pin_no_bundle_is_valid(zone: SourceZone) -> None:
    zone.send(1)
    zone.export()
    undecided = zone.command("verify", str(zone.out))
    assert undecided.returncode == 3
    assert "✓" not in undecided.stdout
    assert "give --hub HUB_ID" in undecided.stdout


def test_no_file_has_a_final_name_before_its_bundle_is_recorded(
    zone: SourceZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(*_: object) -> None:
        raise ConnectionError("the hub is away")

    zone.send(3)
    for wishes, expected in (({}, (1, 3)), ({"from_seq": 2, "to_seq": 3}, (2, 3))):
        before = len(open_bundles([zone.out]).bundles)
        with monkeypatch.context() as patch:
            patch.setattr("veen_bridge.exporting.audit_log.ExportAudit.record", unreachable)
            with pytest.raises(ConnectionError):
                zone.export(**wishes)
        assert len(open_bundles([zone.out]).bundles) == before
        (made,) = zone.export(**wishes)
        assert made.resumed
        assert (made.header.from_seq, made.header.to_seq) == expected


def test_streams_are_selected_by_name_id_and_pattern() -> None:
    listed = (STREAM, OTHER, "export/zone2/*")
    assert select_streams(listed, ()) == [STREAM, OTHER]
    assert select_streams(listed, ("export/zone1/*",)) == [STREAM, OTHER]
    assert select_streams(listed, (stream_id(OTHER).hex(), OTHER)) == [OTHER]
    assert select_streams(listed, ("export/zone2/new",)) == ["export/zone2/new"]
    for wanted in ("record/app", "record/*", "export/zone2/*"):
        with pytest.raises(ConfigError, match=r"bridge\.yaml"):
            select_streams(listed, (wanted,))
