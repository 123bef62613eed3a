"""Figures of query results: the time to verify a result file, and the bytes of its evidence.

The log is made here: real keys, receipts and trees. One event in ``EVERY`` matches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from veen_core import Mmr, Receipt, SigningKey, SigningSeed
from veen_core.hashing import H, u64be
from veen_core.hub_identity import HubIdentity, new_identity
from veen_core.ids import Epoch, Label, LeafHash, StreamSeq, UnixTime
from veen_core.keys import is_valid
from veen_core.receipt import sign_receipt, signing_digest
from veen_core.stream import label, routing_key, stream_id
from veen_overlays.query import Prefix, QueryDescriptor, SourceEvent, canonical_json, normalise
from veen_overlays.query.plain_engine import PlainEngine, SourceLog
from veen_overlays.query.result.evidence import HubLogLink, build_evidence
from veen_overlays.query.result.inclusion import prove_from_leaves
from veen_overlays.query.result.result_file import Execution, ResultFile, make_result, parse_result
from veen_overlays.query.verify.verification import ResultTrust, verify_result

EVERY = 8
STREAM = "record/app/http"
NOON = 1_763_467_200


class ResultFigures(NamedTuple):
    """The two figures."""

    verify: float
    """Time to parse and verify a result in mode full, divided by two Ed25519 verifications per row."""
    evidence_bytes: float
    """Bytes of the file per row, without the rows."""


class _Log:
    """The evidence of one source in memory."""

    def __init__(self, rows: int) -> None:
        self.key = SigningKey(SigningSeed(b"\x07" * 32))
        self.identity: HubIdentity = new_identity(self.key, UnixTime(NOON))
        self.label: Label = label(routing_key(self.identity.hub_id), stream_id(STREAM), Epoch(0))
        self.leaves: list[bytes] = []
        self.entries: list[SourceEvent] = []
        mmr = Mmr()
        for seq in range(1, rows * EVERY + 1):
            leaf = LeafHash(H(u64be(seq)))
            mmr.add(leaf)
            receipt = sign_receipt(
                self.key,
                Receipt(
                    label=self.label,
                    stream_seq=StreamSeq(seq),
                    leaf_hash=leaf,
                    mmr_root=mmr.root,
                    hub_ts=UnixTime(NOON + seq),
                ),
            )
            self.leaves.append(leaf)
            self.entries.append(self._event(seq, leaf, receipt))
        self.prefix = Prefix(
            stream=STREAM,
            hub_id=self.identity.hub_id,
            label=self.label,
            epoch=0,
            to_seq=mmr.size,
            mmr_root=mmr.root,
        )

    def _event(self, seq: int, leaf: LeafHash, receipt: Receipt) -> SourceEvent:
        return SourceEvent(
            stream=STREAM,
            hub_id=self.identity.hub_id,
            label=self.label,
            epoch=0,
            seq=seq,
            hub_commit_time=(NOON + seq) * 1000,
            subject_id=f"user:{seq % 97}",
            principal_id=H(b"principal"),
            event_type="login" if H(leaf)[0] < 256 // EVERY else "logout",
            event_time=(NOON + seq) * 1000 - 7,
            origin="api-gateway-1",
            payload_json=canonical_json.encode({"path": "/login", "status": 401, "n": seq}),
            attributed=True,
            receipt=receipt.encode(),
            leaf_hash=leaf,
        )

    def head(self, _prefix: Prefix) -> bytes:
        return self.entries[-1].receipt

    def proof(self, prefix: Prefix, seqs: Sequence[int]) -> bytes:
        return prove_from_leaves(self.leaves, seqs, prefix.to_seq)

    def link(self, _prefix: Prefix) -> HubLogLink | None:
        return None


def _descriptor() -> QueryDescriptor:
    item: canonical_json.Json = {
        "scope": [STREAM],
        "filter": {"event_type": ["login"]},
        "projection": ["*"],
        "evidence": {"mode": "full"},
    }
    return normalise(item, new_query_id="q-benchmark")


def _result(log: _Log) -> ResultFile:
    engine, descriptor = PlainEngine([SourceLog(prefix=log.prefix, entries=log.entries)]), _descriptor()
    answer = engine.execute(descriptor, engine.prefixes(descriptor.scope))
    evidence = build_evidence(descriptor, answer, log, {log.identity.hub_id: log.identity})
    execution = Execution(executed_at=(NOON + 10**6) * 1000, hub_id=log.identity.hub_id.hex())
    return make_result(descriptor, answer, evidence, execution)


def result_figures(rows: int, rounds: int) -> ResultFigures:
    """Measure both figures on a result of about ``rows`` rows."""
    log = _Log(rows)
    file = _result(log)
    data, wires = file.encode(), file.evidence.sources[0].receipts
    claims = [(signing_digest(wire), Receipt.decode(wire).hub_sig) for wire in wires]
    trust = ResultTrust(pinned={log.identity.hub_id})
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        start = time.process_time()
        verify_result(parse_result(data), trust)
        best[0] = min(best[0], time.process_time() - start)
        start = time.process_time()
        for digest, signature in claims:
            assert is_valid(log.key.public, digest, signature)
            assert is_valid(log.key.public, digest, signature)
        best[1] = min(best[1], time.process_time() - start)
    return ResultFigures(best[0] / best[1], (len(data) - len(file.rows_json)) / len(wires))
