"""Importing bundles (AGB0 4.5, J1, J2): two real hubs, real files."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from veen_bridge.bundles import open_bundles
from veen_bridge.importing.admission import BundleRefusedError, plan_import
from veen_bridge.importing.audit import AuditLog
from veen_bridge.importing.run import LOCK, ImportOutcome
from veen_bridge.roles.run_lock import only_run
from veen_bridge.roles.session import RoleKeys, open_session
from veen_core.checkpoint import Checkpoint
from veen_core.ids import NO_BUNDLE, Coid, MmrRoot, StreamSeq
from veen_core.msg import Msg
from veen_hub.client import Identity, Refused, Unreachable, connect
from veen_hub.ops.anchors import FileLedger
from veen_overlays.bridge import Imported, ImportedEvent, ImportFailed, ImportGap
from veen_overlays.bridge.records import OFFLINE_LOG

from .source_zone import BRIDGE, VEEN, SourceZone, run
from .target_zone import OfflineBridge, TargetHub, target_hub


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceZone]:
    zone = SourceZone(tmp_path_factory.mktemp("z1"), streams=["export/*"])
    yield zone
    zone.stop()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TargetHub]:
    with target_hub(tmp_path_factory.mktemp("z2")) as started:
        yield started


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    """A stream of its own for each test: bundles of one test are none of another's."""
    return f"export/{request.node.name[:40]}"


@pytest.fixture
def bridge(tmp_path: Path, hub: TargetHub, source: SourceZone, stream: str) -> OfflineBridge:
    return OfflineBridge(tmp_path / "offline", hub, source.hub_id, streams=[imported_name(stream)])


def imported_name(stream: str) -> str:
    return stream.replace("export/", "import/")


@pytest.fixture
def exported(source: SourceZone, stream: str, tmp_path: Path) -> Callable[..., Path]:
    """Return ``exported(count)``, which sends so many messages and exports them into a folder of its own."""
    made: list[Path] = []

    def export(count: int, **options: Any) -> Path:
        source.send(count, stream, **options)
        made.append(tmp_path / f"media-{len(made)}")
        source.export(stream, out=made[-1])
        return made[-1]

    return export


def no_root(seq: StreamSeq) -> MmrRoot:
    raise AssertionError(f"the bundle does not overlap an imported one at {seq}")


def codes(outcomes: list[ImportOutcome]) -> list[str | None]:
    return [outcome.code for outcome in outcomes]


def test_every_event_arrives_once_with_its_original_bytes(
    bridge: OfflineBridge, exported: Callable[..., Path], source: SourceZone, stream: str
) -> None:
    (outcome,) = bridge.import_(exported(30))
    assert outcome.imported is not None
    assert (outcome.imported.written, outcome.imported.found) == (30, 0)
    events = [ImportedEvent.decode(message.body) for message in bridge.read(imported_name(stream))]
    assert [event.source_stream_seq for event in events] == list(range(1, 31))
    assert {event.source_hub_id for event in events} == {source.hub_id}
    opened = [Msg.decode(event.origin_msg or b"").open(BRIDGE.dh_keys[0]).body for event in events]
    assert opened == [f"order {n}".encode() for n in range(30)]
    parents = [message.header.parent_id for message in bridge.read(imported_name(stream))]
    assert parents == [Msg.decode(event.origin_msg or b"").leaf_hash for event in events]


def test_the_audit_log_reports_bundle_range_targets_and_operator(
    bridge: OfflineBridge, exported: Callable[..., Path]
) -> None:
    (outcome,) = bridge.import_(exported(3))
    (message,) = bridge.read(OFFLINE_LOG)[-1:]
    report = Imported.decode(message.body)
    assert outcome.imported is not None
    assert (report.bundle_id, report.from_seq, report.to_seq) == (outcome.bundle_id, 1, 3)
    assert report.targets == outcome.imported.targets
    assert (report.operator, report.mode, report.skipped_from) == ("tests", "wrap", None)


def test_a_bundle_is_imported_once(bridge: OfflineBridge, exported: Callable[..., Path], stream: str) -> None:
    media = exported(5)
    bridge.import_(media)
    assert codes(bridge.import_(media)) == ["ALREADY_IMPORTED"]
    assert [outcome.skipped for outcome in bridge.import_(media, skip_imported=True)] == [True]
    assert len(bridge.read(imported_name(stream))) == 5
    bridge.lose_disk()
    assert codes(bridge.import_(media)) == ["ALREADY_IMPORTED"]
    assert len(bridge.read(imported_name(stream))) == 5


def test_a_new_machine_imports_a_bundle_that_is_larger_than_the_one_before(
    bridge: OfflineBridge, exported: Callable[..., Path], stream: str
) -> None:
    bridge.import_(exported(3))
    bridge.lose_disk()
    assert codes(bridge.import_(exported(9))) == [None]
    found = [ImportedEvent.decode(message.body) for message in bridge.read(imported_name(stream))]
    assert [event.source_stream_seq for event in found] == list(range(1, 13))


def test_a_gap_is_refused_and_recorded_if_it_is_allowed(
    bridge: OfflineBridge, exported: Callable[..., Path], stream: str
) -> None:
    first, second, third = exported(4), exported(3), exported(2)
    bridge.import_(first)
    assert codes(bridge.import_(third)) == ["GAP"]
    failed = ImportFailed.decode(bridge.read(OFFLINE_LOG)[-1].body)
    assert (failed.code, failed.position) == ("GAP", 8)
    (outcome,) = bridge.import_(third, allow_gap=True)
    assert outcome.imported is not None
    gap, report = bridge.read(OFFLINE_LOG)[-2:]
    assert ImportGap.decode(gap.body).skipped_from == Imported.decode(report.body).skipped_from == 5
    assert codes(bridge.import_(second)) == [None], "the missing bundle may come late"
    seqs = [ImportedEvent.decode(each.body).source_stream_seq for each in bridge.read(imported_name(stream))]
    assert seqs == [1, 2, 3, 4, 8, 9, 5, 6, 7]


def test_a_range_that_skips_entries_is_a_gap_although_its_chain_is_whole(
    bridge: OfflineBridge, source: SourceZone, stream: str, tmp_path: Path
) -> None:
    """No bridge of this version exports such a range after another; a chain may begin with one."""
    source.send(6, stream)
    source.export(stream, out=tmp_path / "late", from_seq=4)
    assert codes(bridge.import_(tmp_path / "late")) == ["GAP"]
    (outcome,) = bridge.import_(tmp_path / "late", allow_gap=True)
    assert outcome.imported is not None
    assert outcome.imported.plan.skipped_from == 1


def test_bundles_of_an_unknown_hub_or_bridge_are_refused(
    bridge: OfflineBridge, exported: Callable[..., Path], source: SourceZone, stream: str
) -> None:
    media = exported(2)
    bridge.write(sources=[{"hub_id": "11" * 32}])
    assert codes(bridge.import_(media)) == ["UNKNOWN_SOURCE"]
    other = Identity.generate().client_id.hex()
    bridge.write(sources=[{"hub_id": source.hub_id.hex(), "bridge_id": other}])
    assert codes(bridge.import_(media)) == ["UNKNOWN_BRIDGE"]
    assert not bridge.read(imported_name(stream))


def test_nothing_is_written_if_one_bit_of_a_bundle_is_wrong(
    bridge: OfflineBridge, exported: Callable[..., Path], stream: str
) -> None:
    media = exported(6)
    (path,) = media.glob("*.veenb")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    (outcome,) = bridge.import_(media)
    assert outcome.failure is not None
    assert not bridge.read(imported_name(stream))
    failed = ImportFailed.decode(bridge.read(OFFLINE_LOG)[-1].body)
    assert failed.code == outcome.code
    assert failed.reason


def test_a_file_that_is_no_bundle_is_reported_without_an_id(bridge: OfflineBridge, tmp_path: Path) -> None:
    path = tmp_path / "x.veenb"
    path.write_bytes(b"not a bundle")
    (outcome,) = bridge.import_(path)
    assert (outcome.bundle_id, outcome.code) == (None, "INVALID_BUNDLE")
    assert ImportFailed.decode(bridge.read(OFFLINE_LOG)[-1].body).bundle_id is None


def test_two_streams_never_become_one(
    bridge: OfflineBridge, exported: Callable[..., Path], source: SourceZone, stream: str, tmp_path: Path
) -> None:
    bridge.import_(exported(2))
    source.send(1, f"{stream}/other")
    source.export(f"{stream}/other", out=tmp_path / "other")
    rule = {"from": f"{stream}/other", "to": imported_name(stream)}
    bridge.write(sources=[{"hub_id": source.hub_id.hex(), "mapping": [rule]}])
    assert codes(bridge.import_(tmp_path / "other")) == ["MAPPING_COLLISION"]


def test_a_stream_whose_rule_changed_is_refused(
    bridge: OfflineBridge, exported: Callable[..., Path], source: SourceZone, stream: str
) -> None:
    bridge.import_(exported(2))
    rule = {"from": stream, "to": "import/elsewhere"}
    moved = [{"hub_id": source.hub_id.hex(), "mapping": [rule]}]
    bridge.write(sources=moved, streams=["import/elsewhere"])
    assert codes(bridge.import_(exported(1))) == ["MAPPING_CHANGED"]
    bridge.write(sources=[{"hub_id": source.hub_id.hex(), "mapping": [{"from": "x/*", "to": "import/*"}]}])
    assert codes(bridge.import_(exported(1))) == ["NO_MAPPING"]


def other_name(stream: str) -> str:
    return f"{imported_name(stream)}/2"


@pytest.fixture
def bridge_to_two(tmp_path: Path, hub: TargetHub, source: SourceZone, stream: str) -> OfflineBridge:
    """A bridge whose token permits two import streams, so that its mapping may change."""
    names = [imported_name(stream), other_name(stream)]
    return OfflineBridge(tmp_path / "two", hub, source.hub_id, streams=names)


def map_to(bridge: OfflineBridge, source: SourceZone, stream: str, target: str) -> None:
    named = {"hub_id": source.hub_id.hex(), "mapping": [{"from": stream, "to": target}]}
    bridge.write(sources=[named], streams=[target])


@pytest.fixture
def import_without_report(
    bridge_to_two: OfflineBridge, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path], None]:
    """Return a function that imports a bundle, and is interrupted before the last step, the report."""

    async def fail(*_: object) -> None:
        raise Unreachable("the test interrupts the import before its report")

    def import_(media: Path) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(AuditLog, "report_success", fail)
            with pytest.raises(Unreachable):
                bridge_to_two.import_(media)

    return import_


def test_a_rule_that_changed_after_an_interrupted_import_is_refused(
    bridge_to_two: OfflineBridge,
    import_without_report: Callable[[Path], None],
    exported: Callable[..., Path],
    source: SourceZone,
    stream: str,
) -> None:
    bridge, media = bridge_to_two, exported(4)
    import_without_report(media)
    map_to(bridge, source, stream, other_name(stream))
    (refused,) = bridge.import_(media)
    assert refused.code == "MAPPING_CHANGED"
    assert imported_name(stream) in str(refused.failure)
    assert bridge.read(other_name(stream)) == []
    map_to(bridge, source, stream, imported_name(stream))
    (outcome,) = bridge.import_(media)
    assert outcome.imported is not None
    assert (outcome.imported.written, outcome.imported.found) == (0, 4)


def test_a_stream_that_an_interrupted_import_has_begun_takes_no_other_source(
    bridge_to_two: OfflineBridge,
    import_without_report: Callable[[Path], None],
    exported: Callable[..., Path],
    source: SourceZone,
    stream: str,
) -> None:
    media = exported(2)
    import_without_report(media)
    source.send(2, f"{stream}/b")
    source.export(f"{stream}/b", out=media / "b")
    map_to(bridge_to_two, source, f"{stream}/b", imported_name(stream))
    assert codes(bridge_to_two.import_(media / "b")) == ["MAPPING_COLLISION"]


def test_a_rule_under_which_nothing_was_written_may_be_corrected(
    bridge: OfflineBridge, exported: Callable[..., Path], source: SourceZone, stream: str
) -> None:
    media = exported(3)
    map_to(bridge, source, stream, f"{imported_name(stream)}/typo")
    with pytest.raises(Refused, match="CAP"):
        bridge.import_(media)
    map_to(bridge, source, stream, imported_name(stream))
    (outcome,) = bridge.import_(media)
    assert outcome.imported is not None
    assert outcome.imported.written == 3


def test_a_heartbeat_continues_the_chain_without_an_event(
    bridge: OfflineBridge, exported: Callable[..., Path], stream: str
) -> None:
    outcomes = [bridge.import_(exported(count))[0] for count in (2, 0, 0, 3)]
    assert [outcome.code for outcome in outcomes] == [None] * 4
    assert len(bridge.read(imported_name(stream))) == 5


def test_attachments_arrive_under_their_own_coid(
    bridge: OfflineBridge, exported: Callable[..., Path], source: SourceZone, stream: str, tmp_path: Path
) -> None:
    hub = bridge.hub
    content = b"attachment" * 1_000
    (outcome,) = bridge.import_(exported(1, attachments=[content]))
    assert outcome.imported is not None
    assert outcome.imported.attachments == 1
    (wrapped, _) = bridge.read(imported_name(stream))
    original = Msg.decode(ImportedEvent.decode(wrapped.body).origin_msg or b"").open(BRIDGE.dh_keys[0])

    async def fetch() -> bytes:
        async with connect(hub.url, trust=hub.hub_id.hex()) as connected:
            from veen_core.attached import Attached  # noqa: PLC0415 - only here

            (ref,) = Attached.decode(original.body).attachments
            return original.attachment(0, await connected.fetch(Coid(ref.coid)))

    assert run(fetch()) == content
    got = tmp_path / "got"
    named = (
        "--stream",
        imported_name(stream),
        "--hub",
        hub.url,
        "--trust",
        hub.hub_id.hex(),
        "--out",
        str(got),
    )
    keys = ("--client", str(bridge.root / "identity"), "--reader", str(source.reader_folder))
    subprocess.run([*VEEN, "attachment", "get", "1", *named, *keys], timeout=90, check=True)
    assert got.read_bytes() == content


def test_a_message_too_large_for_a_body_travels_as_an_attachment(
    bridge: OfflineBridge, source: SourceZone, stream: str, tmp_path: Path
) -> None:
    large = b"x" * 1_047_000

    async def send() -> None:
        async with connect(source.url, Identity.generate(), trust=source.hub_id.hex()) as connected:
            await connected.stream(stream, to=BRIDGE.recipient).send(large)

    run(send())
    source.export(stream, out=tmp_path / "media")
    (outcome,) = bridge.import_(tmp_path / "media")
    assert outcome.code is None
    (message,) = bridge.read(imported_name(stream))
    event = ImportedEvent.decode(message.body)
    assert event.origin_msg is None

    async def fetch() -> bytes:
        hub = bridge.hub
        async with connect(hub.url, bridge.identity, trust=hub.hub_id.hex()) as connected:
            target = connected.stream(imported_name(stream))
            messages = [each async for each in target.read()]
            return await target.attachment(messages[0], 0)

    assert Msg.decode(run(fetch())).open(BRIDGE.dh_keys[0]).body == large


def test_resealed_events_keep_schema_and_body_and_the_audit_log_names_their_origins(
    bridge: OfflineBridge, exported: Callable[..., Path], source: SourceZone, stream: str
) -> None:
    bridge.write(mode="reseal", source_readers=[str(source.reader_folder)])
    (outcome,) = bridge.import_(exported(7))
    assert outcome.code is None
    assert [message.text for message in bridge.read(imported_name(stream))] == [
        f"order {n}" for n in range(7)
    ]
    audit = [
        each for each in bridge.read(OFFLINE_LOG) if each.is_open and each.schema == ImportedEvent.SCHEMA
    ]
    origins = [ImportedEvent.decode(each.body) for each in audit]
    assert [event.source_stream_seq for event in origins] == list(range(1, 8))
    assert all(event.origin_msg is None for event in origins)


def test_a_reader_of_the_import_stream_sees_the_original(
    bridge: OfflineBridge, exported: Callable[..., Path], source: SourceZone, stream: str
) -> None:
    bridge.import_(exported(2))
    hub, both = bridge.hub, ("--reader", str(bridge.root / "identity"), "--reader", str(source.reader_folder))

    def read(*options: str) -> str:
        named = ("--stream", imported_name(stream), "--hub", hub.url, "--trust", hub.hub_id.hex())
        command = [*VEEN, "stream", *named, "--client", str(bridge.root / "identity"), *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout

    lines = read(*both).splitlines()
    assert lines[0].endswith("  order 0")
    assert lines[1].strip() == f"imported: entry 1 of hub {source.hub_id.hex()}"
    assert read(*both, "--quiet").splitlines() == ["order 0", "order 1"]
    (first, _) = json.loads(read(*both, "--json"))["messages"]
    assert first["imported"]["text"] == "order 0"
    assert first["imported"]["source_hub_id"] == source.hub_id.hex()
    assert "sealed to another reader" in read().splitlines()[0]


def test_the_command_prints_one_object_and_a_refusal_has_exit_code_3(
    bridge: OfflineBridge, exported: Callable[..., Path]
) -> None:
    media = exported(2)
    done = bridge.import_command(str(media), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert '"result": "imported"' in done.stdout
    again = bridge.import_command(str(media))
    assert again.returncode == 3
    assert "ALREADY_IMPORTED" in again.stdout


def test_an_import_ends_with_a_checkpoint_of_its_stream(
    bridge: OfflineBridge, exported: Callable[..., Path]
) -> None:
    done = bridge.import_command(
        str(exported(2)), "--checkpoint", "--admin", str(bridge.admin_folder), "--json"
    )
    assert done.returncode == 0, done.stderr
    (made,) = json.loads(done.stdout)["checkpoints"]
    assert Checkpoint.decode(bytes.fromhex(made)).upto_seq == 2


def test_an_import_ends_with_an_anchor_of_its_stream(
    tmp_path: Path, exported: Callable[..., Path], source: SourceZone, stream: str
) -> None:
    ledger = tmp_path / "ledger"
    with target_hub(tmp_path / "z2", anchor={"backend": "file", "path": str(ledger)}) as hub:
        bridge = OfflineBridge(tmp_path / "offline", hub, source.hub_id, streams=[imported_name(stream)])
        done = bridge.import_command(
            str(exported(2)), "--anchor", "--admin", str(bridge.admin_folder), "--json"
        )
        assert done.returncode == 0, done.stderr
        (made,) = json.loads(done.stdout)["checkpoints"]
        checkpoint = Checkpoint.decode(bytes.fromhex(made))
        (root,) = asyncio.run(FileLedger(ledger).recall(hub.hub_id)) or []
    assert (root.label, root.upto_seq, root.mmr_root) == (checkpoint.label_curr, 2, checkpoint.mmr_root)


def test_what_was_imported_is_shown_although_its_anchor_fails(
    bridge: OfflineBridge, exported: Callable[..., Path]
) -> None:
    done = bridge.import_command(str(exported(2)), "--anchor", "--admin", str(bridge.admin_folder))
    assert done.returncode == 4
    assert "1 bundle imported with 2 events" in done.stdout
    assert "no anchor is configured" in done.stderr


def test_a_second_import_with_the_same_identity_waits_its_turn(
    bridge: OfflineBridge, exported: Callable[..., Path]
) -> None:
    media = exported(2)
    with only_run(bridge.config.client / LOCK, "held by the test"):
        refused = bridge.import_command(str(media))
    assert refused.returncode != 0
    assert "another import runs" in refused.stderr
    assert bridge.import_command(str(media)).returncode == 0


def test_another_root_at_a_known_position_is_a_fork_whatever_chain_the_bundle_names(
    bridge: OfflineBridge, exported: Callable[..., Path]
) -> None:
    bridge.import_(exported(3))
    (files,) = open_bundles([exported(2)]).bundles
    forked = dataclasses.replace(
        files.header,
        prev_in_label=NO_BUNDLE,
        root_before=files.header.root_after,
        root_after=files.header.root_after,
    )

    async def work() -> None:
        async with open_session(bridge.config, RoleKeys.load(bridge.config)) as session:
            state = await AuditLog(session).state()
            plan_import(files.bundle_id, files.header, bridge.config, state, root_at=no_root)
            with pytest.raises(BundleRefusedError, match="two histories") as refusal:
                plan_import(files.bundle_id, forked, bridge.config, state, root_at=no_root, allow_gap=True)
            assert refusal.value.code == "DIVERGED"

    run(work())


def test_an_overlapping_bundle_is_compared_at_the_positions_that_both_have(
    bridge: OfflineBridge, exported: Callable[..., Path], source: SourceZone, stream: str, tmp_path: Path
) -> None:
    bridge.import_(exported(4))
    source.send(3, stream)
    source.export(
        stream, out=tmp_path / "overlap", from_seq=2
    )  # entries 2 to 7: no end in common with 1 to 4
    (files,) = open_bundles([tmp_path / "overlap"]).bundles
    assert (files.header.from_seq, files.header.to_seq) == (2, 7)

    async def refused() -> str:
        async with open_session(bridge.config, RoleKeys.load(bridge.config)) as session:
            state = await AuditLog(session).state()
            with pytest.raises(BundleRefusedError, match="at entry 4") as refusal:
                plan_import(
                    files.bundle_id,
                    files.header,
                    bridge.config,
                    state,
                    root_at=lambda _: files.header.root_after,
                )
            return refusal.value.code

    assert run(refused()) == "DIVERGED"
    (outcome,) = bridge.import_(tmp_path / "overlap")
    assert outcome.imported is not None
    assert outcome.imported.written == 3
