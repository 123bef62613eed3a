"""The receipts of a result: signed, of the right events, in the trees of their sources (query-api §6, P14).

``verification`` calls the checks in their order; each raises ``VerificationError`` that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from veen_core.errors import EvidenceError, VerificationError
from veen_core.hashing import H
from veen_core.ids import HubId
from veen_core.receipt import Receipt
from veen_core.signatures import SignatureClaim, verify_all
from veen_overlays.query.event import receipt_id
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.evidence_policy import EvidenceMode
from veen_overlays.query.result import inclusion, sampling
from veen_overlays.query.result.coverage import SourceCoverage
from veen_overlays.query.result.digest import ResultDigest, VerifiedReceipt, evidence_hash, evidence_summary
from veen_overlays.query.result.evidence import ResultEvidence, SourceEvidence
from veen_overlays.query.verify.row_rules import ROWS_ACTION, ReceiptRules, split_hashes
from veen_overlays.query.verify.source_rules import KeysByTime, named, read_receipt, receipt_claims


class ReceiptCheck:
    """The receipts of one result, and the rows that they belong to."""

    def __init__(
        self, descriptor: QueryDescriptor, digest: ResultDigest, rows: Sequence[dict[str, Any]]
    ) -> None:
        self._descriptor, self._digest, self._rows = descriptor, digest, rows
        self._sources: list[tuple[SourceCoverage, SourceEvidence]] = []
        self._receipts: list[list[Receipt]] = []
        self._matched: bytes | None = None
        self._positions: list[int | None] = []
        """The position of each receipt's row; None in an aggregate."""

    @property
    def count(self) -> int:
        """The number of receipts."""
        return sum(map(len, self._receipts))

    def check_signatures(self, evidence: ResultEvidence, keys: Mapping[HubId, KeysByTime]) -> None:
        """Check that the evidence policy asks for the receipts, that they fit their rows, and are signed."""
        self._sources = list(zip(self._digest.coverage, evidence.sources, strict=True))
        self._matched = evidence.matched
        claims: list[SignatureClaim] = []
        for source, shown in self._sources:
            receipts = [read_receipt(source, wire) for wire in shown.receipts]
            self._receipts.append(receipts)
            _check_ascending(source, receipts)
            claims += receipt_claims(keys[source.hub_id], receipts, shown.receipts)
        self._positions = self._check_policy(evidence)
        self._check_against_rows()
        verify_all(claims)

    def _each(self) -> Iterator[tuple[SourceCoverage, Receipt, bytes, int | None]]:
        """Yield each receipt with its source, its bytes and the position of its row."""
        positions = iter(self._positions)
        for (source, shown), receipts in zip(self._sources, self._receipts, strict=True):
            for receipt, wire in zip(receipts, shown.receipts, strict=True):
                yield source, receipt, wire, next(positions)

    def _check_policy(self, evidence: ResultEvidence) -> list[int | None]:
        """Refuse evidence of other events than the policy asks for; return the rows' positions (P14)."""
        mode, hashes = self._descriptor.evidence.mode, evidence.matched
        if (hashes is not None) != (mode == EvidenceMode.SPOT):
            raise EvidenceError("only mode spot lists the receipts of all matched events (RESOLUTIONS P14)")
        positions: list[int | None]
        if hashes is not None:
            positions = [*self._check_sample(hashes)]
        else:
            self._check_counts(every=mode == EvidenceMode.FULL)
            positions = [*range(self.count)]
        return positions if self._descriptor.aggregate is None else [None] * len(positions)

    def _check_counts(self, *, every: bool) -> None:
        for (source, _shown), receipts in zip(self._sources, self._receipts, strict=True):
            if len(receipts) != (source.matched if every else 0):
                raise EvidenceError(
                    f"{named(source)}: the coverage says that {source.matched} events match, and the "
                    f"evidence has {len(receipts)} receipts (query-api §6.3)",
                    action=ROWS_ACTION,
                )

    def _check_sample(self, hashes: bytes) -> list[int]:
        ids = [f"rcpt-{each.hex()}" for each in split_hashes(hashes)]
        if len(ids) != sum(source.matched for source, _ in self._sources):
            raise EvidenceError("the list of matched receipts is not as long as the coverage says (P14)")
        rate = self._descriptor.evidence.sample_rate
        assert rate is not None  # the descriptor's rules require it
        positions = sampling.sampled(self._descriptor.query_id, ids, rate)
        shown = [receipt_id(wire) for _, source in self._sources for wire in source.receipts]
        if shown != [ids[at] for at in positions]:
            raise EvidenceError("the evidence does not match the sampled rows (RESOLUTIONS P14)")
        projected = {field.name for field in self._descriptor.projection}
        if self._descriptor.aggregate is None and "receipt_id" in projected:
            for number, (row, expected) in enumerate(zip(self._rows, ids, strict=True), 1):
                if row["receipt_id"] != expected:
                    raise EvidenceError(f"row {number}: receipt_id does not match its event (P11)")
        return positions

    def _check_against_rows(self) -> None:
        rules = {id(source): ReceiptRules(self._descriptor, source) for source, _ in self._sources}
        for source, receipt, wire, at in self._each():
            rule = rules[id(source)]
            rule.check_time(receipt)
            if at is not None:
                rule.check_row(at + 1, self._rows[at], receipt, wire)

    def check_inclusion(self) -> None:
        """Check that each event is in the tree of its source (core §5.4)."""
        for (source, shown), receipts in zip(self._sources, self._receipts, strict=True):
            if not receipts:
                if shown.proof:
                    raise EvidenceError(
                        f"{named(source)}: there is an inclusion proof, but no event (query-api §6)"
                    )
                continue
            assert source.mmr_root is not None  # check_head: a source with entries has a root
            try:
                inclusion.verify_leaves(
                    shown.proof,
                    [receipt.stream_seq for receipt in receipts],
                    [receipt.leaf_hash for receipt in receipts],
                    source.to_seq,
                    source.mmr_root,
                )
            except VerificationError as exc:
                raise EvidenceError(f"{named(source)}: {exc.message}", action=ROWS_ACTION) from None

    def check_evidence_hash(self, encoded_rows: Sequence[bytes]) -> None:
        """Check that evidence_hash commits to coverage, receipts and rows (query-api §5.4, P13)."""
        verified = []
        for source, _receipt, wire, at in self._each():
            assert source.mmr_root is not None  # it has an entry
            verified.append(
                VerifiedReceipt(
                    receipt_id=receipt_id(wire),
                    mmr_root=source.mmr_root,
                    hub_id=source.hub_id,
                    row_hash=None if at is None else H(encoded_rows[at]),
                )
            )
        summary = evidence_summary(self._descriptor, self._digest.coverage, verified, self._matched)
        if evidence_hash(summary) != self._digest.evidence_hash:
            raise EvidenceError(
                "the evidence does not match evidence_hash: coverage, receipts or rows were changed "
                "(query-api §5.4, RESOLUTIONS P13)",
                action=ROWS_ACTION,
            )


def _check_ascending(source: SourceCoverage, receipts: Sequence[Receipt]) -> None:
    before, time = 0, 0
    for receipt in receipts:
        if receipt.stream_seq <= before:
            raise EvidenceError(
                f"{named(source)}: the receipt of entry {receipt.stream_seq} follows that of entry {before}: "
                "an event appears twice, or events are out of order (RESOLUTIONS P11)",
                action=ROWS_ACTION,
            )
        if receipt.hub_ts < time:
            raise EvidenceError(
                f"{named(source)}: hub_ts decreases at entry {receipt.stream_seq} (RESOLUTIONS H3)",
                action="keep this file: the hub signed two receipts that contradict each other",
            )
        before, time = receipt.stream_seq, receipt.hub_ts
