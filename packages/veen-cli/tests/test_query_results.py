"""``veen verify`` and ``veen inspect`` with query results (query-api §5, §6)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from veen_cli.frame.exits import Exit
from veen_core import Mmr, Receipt, SigningKey, SigningSeed
from veen_core.hashing import H, u64be
from veen_core.hub_identity import HubIdentity, new_identity
from veen_core.ids import Epoch, Label, LeafHash, StreamSeq, UnixTime
from veen_core.receipt import sign_receipt
from veen_core.stream import label, routing_key, stream_id
from veen_overlays.query import Prefix, SourceEvent, canonical_json, normalise, parse_descriptor
from veen_overlays.query.plain_engine import PlainEngine, SourceLog
from veen_overlays.query.result.evidence import HubLogLink, build_evidence
from veen_overlays.query.result.inclusion import prove_from_leaves
from veen_overlays.query.result.result_file import Execution, ResultFile, make_result

from .running import veen

START = 1_763_500_000
STREAM = "record/app/http"


class Log:
    """Four events of one label, with the hub's receipts."""

    def __init__(self) -> None:
        self.key = SigningKey(SigningSeed(H(b"hub")))
        self.identity: HubIdentity = new_identity(self.key, UnixTime(START))
        self.label: Label = label(routing_key(self.identity.hub_id), stream_id(STREAM), Epoch(0))
        self.leaves = [H(b"leaf" + u64be(n)) for n in range(1, 5)]
        mmr = Mmr()
        self.receipts: list[Receipt] = []
        for leaf in self.leaves:
            mmr.add(leaf)
            unsigned = Receipt(
                label=self.label,
                stream_seq=StreamSeq(mmr.size),
                leaf_hash=LeafHash(leaf),
                mmr_root=mmr.root,
                hub_ts=UnixTime(START + mmr.size),
            )
            self.receipts.append(sign_receipt(self.key, unsigned))

    def prefix(self, to_seq: int) -> Prefix:
        return Prefix(
            stream=STREAM,
            hub_id=self.identity.hub_id,
            label=self.label,
            epoch=0,
            to_seq=to_seq,
            mmr_root=self.receipts[to_seq - 1].mmr_root,
        )

    def event(self, receipt: Receipt) -> SourceEvent:
        return SourceEvent(
            stream=STREAM,
            hub_id=self.identity.hub_id,
            label=self.label,
            epoch=0,
            seq=receipt.stream_seq,
            hub_commit_time=receipt.hub_ts * 1000,
            subject_id="user:1",
            principal_id=H(b"principal"),
            event_type="login",
            event_time=receipt.hub_ts * 1000,
            origin="api-1",
            payload_json=canonical_json.encode({"status": 401}),
            attributed=True,
            receipt=receipt.encode(),
            leaf_hash=receipt.leaf_hash,
        )

    def head(self, prefix: Prefix) -> bytes:
        return self.receipts[prefix.to_seq - 1].encode()

    def proof(self, prefix: Prefix, seqs: Sequence[int]) -> bytes:
        return prove_from_leaves(self.leaves, seqs, prefix.to_seq)

    def link(self, _prefix: Prefix) -> HubLogLink | None:
        return None

    def result(self, to_seq: int = 4) -> ResultFile:
        item: canonical_json.Json = {
            "scope": [STREAM],
            "filter": {"subject_id": "user:1"},
            "projection": ["hub_commit_seq", "payload.status"],
            "evidence": {"mode": "full"},
        }
        descriptor = normalise(item, new_query_id="q-1")
        log = SourceLog(prefix=self.prefix(4), entries=[self.event(each) for each in self.receipts])
        answer = PlainEngine([log]).execute(descriptor, [self.prefix(to_seq)])
        evidence = build_evidence(descriptor, answer, self, {self.identity.hub_id: self.identity})
        execution = Execution(executed_at=(START + 60) * 1000, hub_id=self.identity.hub_id.hex())
        return make_result(descriptor, answer, evidence, execution)


PAGE = Path(__file__).parents[3] / "docs/concepts/queries.md"


@pytest.fixture(scope="module")
def log() -> Log:
    return Log()


def test_a_query_result_verifies_step_by_step_against_the_pinned_hub(log: Log, tmp_path: Path) -> None:
    file = tmp_path / "result.veenq"
    file.write_bytes(log.result().encode())
    for pin in (log.identity.hub_id, log.key.public):
        told = veen("verify", file, "--trust", pin.hex()).ok().out
        assert "query result: 4 rows of query q-1 over 1 source, 4 receipts verified (mode full)" in told
        assert "every entry of its sources that was committed before 2025-11-18T21:06:44.000Z" in told
        assert "not proved: Events that a producer never submitted" in told
    assert "give --trust" in veen("verify", file).failed(Exit.PROTOCOL)
    assert "is pinned" in veen("verify", file, "--trust", "ab" * 32).failed(Exit.PROTOCOL)


def test_the_page_on_queries_shows_what_the_command_prints(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = log.result()
    Path("result.veenq").write_bytes(made.encode())
    Path("altered.veenq").write_bytes(altered(made).encode())
    shown, refused = re.findall(r"```console\n\$ veen (.*?)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    printed = veen(*shown[0].split()).ok().out
    assert [line for line in shown[1].splitlines() if line != "…" and line not in printed] == []
    assert refused[1].strip() in veen(*refused[0].split()).out
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert parse_descriptor(example.encode(), new_query_id="q-1").scope == (STREAM,)


def altered(made: ResultFile) -> ResultFile:
    second = b'{"hub_commit_seq":2,"payload.status":'
    return dataclasses.replace(made, rows_json=made.rows_json.replace(second + b"401", second + b"200"))


def test_an_altered_query_result_is_refused_and_the_row_is_named(log: Log, tmp_path: Path) -> None:
    file = tmp_path / "altered.veenq"
    file.write_bytes(altered(log.result()).encode())
    told = veen("verify", file, "--trust", log.identity.hub_id.hex()).failed(Exit.PROTOCOL)
    assert "row 2 was changed" in told


def test_a_receipt_given_with_a_query_result_shows_an_old_prefix(log: Log, tmp_path: Path) -> None:
    file, receipt = tmp_path / "old.veenq", tmp_path / "receipt.cbor"
    file.write_bytes(log.result(to_seq=2).encode())
    receipt.write_bytes(log.receipts[3].encode())
    trust = ("--trust", log.identity.hub_id.hex())
    veen("verify", file, *trust).ok()
    told = veen("verify", file, receipt, *trust).failed(Exit.PROTOCOL)
    assert "the coverage ends at entry 2, although the hub had committed entry 4" in told


def test_inspect_shows_descriptor_digest_and_rows(log: Log, tmp_path: Path) -> None:
    file = tmp_path / "result.veenq"
    file.write_bytes(log.result().encode())
    assert "rows_hash" in veen("inspect", file).ok().out
    shown = veen("inspect", file, "--json").json
    assert "payload.status" in str(shown)
    assert "descriptor" in str(shown)
