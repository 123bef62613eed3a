"""Imported events speak with the values of their origin: a query has one digest in both zones (P11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from veen_core.hashing import H
from veen_core.ids import BundleId, ClientId, HubId, UnixTime
from veen_overlays.bridge.records import ImportedEvent
from veen_overlays.query.result_file import parse_result
from veen_overlays.query.verification import ResultTrust, verify_result

from .commands import run
from .frames import entries
from .logs import BORN, Hub, reader_key, signing_key
from .recorder_hub import HTTP, READER, event

IMPORTS = "import/zone1/http"
QUERY = {
    "query_id": "q-zones",
    "scope": [HTTP],
    "filter": {"where": {"attributed": True}},
    "projection": ["*"],
    "evidence": {"mode": "full"},
}


def bring(source: Hub, target: Hub, *seqs: int) -> None:
    """Write entries of the source's stream to the target, as a bridge does in mode wrap (P7)."""
    chosen = [entry for entry in entries(source, HTTP) if not seqs or entry.stream_seq in seqs]
    records = [
        ImportedEvent(
            bundle_id=BundleId(H(b"bundle")),
            source_hub_id=HubId(source.hub_id),
            source_label=entry.label,
            source_stream_seq=entry.stream_seq,
            origin_receipt=entry.receipt_bytes,
            origin_msg=entry.msg_bytes,
            import_time=UnixTime(BORN + 1_000),
            bridge_id=ClientId(signing_key("bridge").public),
        )
        for entry in chosen
    ]
    leaves = [entry.receipt.leaf_hash for entry in chosen]
    target.send_records(IMPORTS, records, reader=READER, parents=leaves, who="bridge")


@pytest.fixture
def zones(make_hub: Callable[..., Hub], tmp_path: Path) -> tuple[Hub, Hub]:
    source, target = make_hub("zone1"), make_hub("zone2", key="zone2/0")
    source.send_records(HTTP, [event(n) for n in range(6)], reader=READER)
    source.send_records(HTTP, [event(6)], reader="nobody")
    source.send_records(HTTP, [event(7)], reader=READER, who="mallory")
    (tmp_path / "reader").write_bytes(bytes(reader_key(READER).secret))
    (tmp_path / "reader").chmod(0o600)
    (tmp_path / "query.json").write_text(json.dumps(QUERY))
    return source, target


@pytest.mark.usefixtures("spark")
def test_a_query_has_the_same_digest_in_both_zones(zones: tuple[Hub, Hub], tmp_path: Path) -> None:
    source, target = zones
    bring(source, target, 2, 3)  # out of order, and some of them twice
    bring(source, target)
    source.clone(tmp_path / "clone1")
    target.clone(tmp_path / "clone2")
    identity = tmp_path / "clone1" / "hub-identity.cbor"
    both = ("--reader", tmp_path / "reader", "--json")
    there, here = tmp_path / "zone1.veenq", tmp_path / "zone2.veenq"
    first = run("query", tmp_path / "clone1", "--descriptor", tmp_path / "query.json", "--out", there, *both)
    assert first.exit_code == 0, first.stderr
    imported = ("--held-in", f"{HTTP}={IMPORTS}", "--identity", identity, "--out", here)
    second = run("query", tmp_path / "clone2", "--descriptor", tmp_path / "query.json", *imported, *both)
    assert second.exit_code == 0, second.stderr
    one, two = (parse_result(path.read_bytes()).digest for path in (there, here))
    assert one.row_count == 6
    assert [(each.scanned, each.unopened) for each in two.coverage] == [(8, 1)]
    for field in ("result_id", "rows_hash", "evidence_hash", "row_count"):
        assert getattr(one, field) == getattr(two, field), field
    verify_result(parse_result(here.read_bytes()), ResultTrust(pinned={HubId(source.hub_id)}))


@pytest.mark.usefixtures("spark")
def test_events_after_a_missing_import_are_not_queried(zones: tuple[Hub, Hub], tmp_path: Path) -> None:
    source, target = zones
    bring(source, target, 1, 2, 4, 5)
    source.clone(tmp_path / "clone1")
    target.clone(tmp_path / "clone2")
    args = ("--reader", tmp_path / "reader", "--held-in", f"{HTTP}={IMPORTS}", "--json")
    identity = ("--identity", tmp_path / "clone1" / "hub-identity.cbor")
    shown = run("query", tmp_path / "clone2", "--descriptor", tmp_path / "query.json", *args, *identity)
    assert shown.exit_code == 0, shown.stderr
    (source_shown,) = json.loads(shown.stdout)["result_digest"]["coverage"]
    assert (source_shown["to_seq"], source_shown["matched"]) == (2, 2)
    other = ("--identity", tmp_path / "clone2" / "hub-identity.cbor")  # not the origin's: nothing counts
    refused = run("query", tmp_path / "clone2", "--descriptor", tmp_path / "query.json", *args, *other)
    assert refused.exit_code == 0, refused.stderr
    coverage = json.loads(refused.stdout)["result_digest"]["coverage"]
    assert [each["hub_id"] for each in coverage] == [target.hub_id.hex()]
    assert [each["matched"] for each in coverage] == [0]
