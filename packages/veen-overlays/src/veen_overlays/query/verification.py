"""Verify a result file without a hub, step by step (query-api §5, §6, RESOLUTIONS P11 to P14).

1. Descriptor, digest and rows are well-formed, and agree on ids, evidence policy and limits.
2. The rows are those of ``row_count`` and ``rows_hash``.
3. The coverage names every stream of the scope, in order, and its counts add up.
4. The keys of each hub chain to its hub_id, which is one of the pinned ones.
5. The hub signed the root at the end of each source.
6. The receipts of the verified events are signed, in order, and contradict neither rows nor filter.
7. Each of these events is in the tree of its source.
8. ``evidence_hash`` commits to all of it.
9. Each hub checkpoint is signed, cosigned as the policy asks, and belongs to the same history.

``reexecution`` also reads the events again. Without it, a verifier relies on the executor for what messages
say and for which of them match (see ``limits``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from veen_core import hub_identity
from veen_core.errors import EvidenceError, VerificationError
from veen_core.hashing import H
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_core.receipt import Receipt
from veen_core.signatures import Claim, verify_all
from veen_core.tlog.policy import WitnessPolicy
from veen_overlays.query import inclusion, sampling
from veen_overlays.query.content_rules import check_coverage, check_digest, check_rows
from veen_overlays.query.coverage import SourceCoverage
from veen_overlays.query.descriptor import QueryDescriptor
from veen_overlays.query.digest import (
    ResultDigest,
    VerifiedReceipt,
    evidence_hash,
    evidence_summary,
)
from veen_overlays.query.event import receipt_id
from veen_overlays.query.evidence import SourceEvidence
from veen_overlays.query.evidence_policy import EvidenceMode
from veen_overlays.query.result_file import ResultFile, split_rows
from veen_overlays.query.row_rules import (
    ROWS_ACTION,
    ReceiptRules,
    split_hashes,
)
from veen_overlays.query.source_rules import (
    HubKeys,
    check_head,
    check_link,
    named,
    read_receipt,
    receipt_claims,
)
from veen_overlays.query.timestamp import format_timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultVerdict:
    """What a verified result file proves."""

    descriptor: QueryDescriptor
    digest: ResultDigest
    receipts: int
    """Receipts of events that were verified."""
    hubs: tuple[HubId, ...]
    complete_before: int | None
    """Milliseconds: the signed roots prove that no entry committed before this time is left out of any
    source. None if a source has no entries."""
    steps: tuple[str, ...]
    """What was verified, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTrust:
    """Against what a result is verified."""

    pinned: Collection[HubId] | None = None
    """The hubs that may appear in the coverage. None: the result proves something about the hubs that it
    names, whichever these are."""
    identities: Mapping[HubId, HubIdentity] = field(default_factory=dict)
    """Records of hub keys that replace those of the file."""
    policy: WitnessPolicy | None = None
    """Witnesses that must have cosigned the hub checkpoint of every source."""
    known: Sequence[Receipt] = ()
    """Receipts that the verifier holds: a coverage that ends before one of them, although the query was
    executed after its hub_ts, is refused as an old prefix."""


class _Verification:
    """The state of one verification: the parts of the file, as far as they are verified."""

    def __init__(self, file: ResultFile, trust: ResultTrust) -> None:
        self.file, self.trust = file, trust
        self.descriptor, self.digest = file.descriptor, file.digest
        self.rows: list[dict[str, Any]] = file.rows()
        self.encoded = split_rows(self.rows)
        self.keys: dict[HubId, HubKeys] = {}
        self.heads: list[Receipt | None] = []
        self.receipts: list[list[Receipt]] = []
        self.steps: list[str] = []

    @property
    def coverage(self) -> tuple[SourceCoverage, ...]:
        return self.digest.coverage

    def sources(self) -> list[tuple[SourceCoverage, SourceEvidence]]:
        return list(zip(self.coverage, self.file.evidence.sources, strict=True))

    # 1 to 3
    def check_content(self) -> None:
        check_digest(self.descriptor, self.digest)
        check_rows(self.file, self.descriptor, self.rows, self.encoded)
        self.steps.append(f"{_count(len(self.rows), 'row')} with the rows_hash {self.digest.rows_hash[:16]}…")
        if len(self.file.evidence.sources) != len(self.coverage):
            raise EvidenceError("coverage and evidence have different numbers of sources (RESOLUTIONS P13)")
        check_coverage(self.descriptor, self.coverage, self.rows)
        scanned, matched = (sum(getattr(each, n) for each in self.coverage) for n in ("scanned", "matched"))
        self.steps.append(
            f"the coverage has {_count(len(self.coverage), 'source')} with {scanned} entries, of which "
            f"{matched} match"
        )

    # 4
    def check_hubs(self) -> None:
        shown = {identity.hub_id: identity for identity in self.file.evidence.identities}
        hubs = sorted({source.hub_id for source in self.coverage})
        if [identity.hub_id for identity in self.file.evidence.identities] != hubs:
            raise EvidenceError("the file does not have the keys of exactly the hubs of its coverage (§8.4)")
        for hub in hubs:
            if self.trust.pinned is not None and hub not in self.trust.pinned:
                raise EvidenceError(
                    f"the result rests on hub {hub.hex()}, which is not pinned (core §8.4)",
                    action="pin this hub_id, if you trust the hub",
                )
            identity = self.trust.identities.get(hub, shown[hub])
            hub_identity.verify_identity(identity, pinned=hub)
            self.keys[hub] = HubKeys(identity)
        which = "the pinned one" if self.trust.pinned is not None else "as named in the file"
        names = ", ".join(hub.hex() for hub in hubs)
        self.steps.append(f"{'the hub is' if len(hubs) == 1 else 'the hubs are'} {which}: {names}")

    # 5
    def check_heads(self) -> None:
        for source, evidence in self.sources():
            try:
                head = check_head(source, evidence.head, self.keys[source.hub_id])
            except VerificationError as exc:
                raise EvidenceError(f"{_placed(source, exc)}", action=ROWS_ACTION) from None
            self.heads.append(head)
        for receipt in self.trust.known:
            self._check_known(receipt)
        self.steps.append("a hub signed the root at the end of each source")

    def _check_known(self, known: Receipt) -> None:
        """Refuse a coverage that contradicts a receipt that the verifier holds, or ends before it."""
        for source, head in zip(self.coverage, self.heads, strict=True):
            if source.label != known.label:
                continue
            hub_identity.verify_receipt(self.keys[source.hub_id].identity, known)
            if known.stream_seq == source.to_seq and head is not None and known.mmr_root != head.mmr_root:
                raise EvidenceError(
                    f"{named(source)}: the hub signed two roots for {source.to_seq} entries (core §9)",
                    action="keep both receipts: together they convict the hub",
                )
            if known.stream_seq > source.to_seq and known.hub_ts * 1000 < self.digest.executed_at:
                raise EvidenceError(
                    f"{named(source)}: the coverage ends at entry {source.to_seq}, although the hub had "
                    f"committed entry {known.stream_seq} before the query was executed (RESOLUTIONS P13)",
                    action="ask the executor to run the query over the newer entries",
                )

    # 6
    def check_receipts(self) -> None:
        claims: list[Claim] = []
        for source, evidence in self.sources():
            receipts = [read_receipt(source, wire) for wire in evidence.receipts]
            self.receipts.append(receipts)
            _check_ascending(source, receipts)
            claims += receipt_claims(self.keys[source.hub_id], receipts, evidence.receipts)
        self._check_selection()
        self._check_against_rows()
        verify_all(claims)
        total = len(claims)
        mode = self.descriptor.evidence.mode
        self.steps.append(
            "no receipt of an event was verified (mode none)"
            if mode == EvidenceMode.NONE
            else f"a hub signed the receipts of {_count(total, 'event')} (mode {mode})"
        )

    def _check_selection(self) -> None:
        """Refuse evidence of other events than the policy asks for (query-api §6, P14)."""
        mode, hashes = self.descriptor.evidence.mode, self.file.evidence.matched
        if (hashes is not None) != (mode == EvidenceMode.SPOT):
            raise EvidenceError("only mode spot lists the receipts of all matched events (RESOLUTIONS P14)")
        if hashes is not None:
            self._check_sample(hashes)
            return
        for source, receipts in zip(self.coverage, self.receipts, strict=True):
            wanted = source.matched if mode == EvidenceMode.FULL else 0
            if len(receipts) != wanted:
                raise EvidenceError(
                    f"{named(source)}: the coverage says that {source.matched} events match, and the "
                    f"evidence has {len(receipts)} receipts (query-api §6.3)",
                    action=ROWS_ACTION,
                )

    def _check_sample(self, hashes: bytes) -> None:
        ids = [f"rcpt-{each.hex()}" for each in split_hashes(hashes)]
        if len(ids) != sum(source.matched for source in self.coverage):
            raise EvidenceError("the list of matched receipts is not as long as the coverage says (P14)")
        rate = self.descriptor.evidence.sample_rate
        assert rate is not None  # the descriptor's rules require it
        self.sampled = sampling.sampled(self.descriptor.query_id, ids, rate)
        wires = [wire for each in self.file.evidence.sources for wire in each.receipts]
        if [receipt_id(wire) for wire in wires] != [ids[at] for at in self.sampled]:
            raise EvidenceError("the evidence is not that of the sampled rows (RESOLUTIONS P14)")
        if self.descriptor.aggregate is None and "receipt_id" in self.rows_have:
            for number, (row, expected) in enumerate(zip(self.rows, ids, strict=True), 1):
                if row["receipt_id"] != expected:
                    raise EvidenceError(f"row {number}: receipt_id is not that of its event (P11)")

    @property
    def rows_have(self) -> set[str]:
        return {field.name for field in self.descriptor.projection}

    def positions(self) -> list[int | None]:
        """Return the position of the row of each receipt, in order; None in an aggregate."""
        total = sum(map(len, self.receipts))
        if self.descriptor.aggregate is not None:
            return [None] * total
        if self.descriptor.evidence.mode == EvidenceMode.SPOT:
            return list(self.sampled)
        return list(range(total))

    sampled: Sequence[int] = ()

    def _check_against_rows(self) -> None:
        positions = iter(self.positions())
        for (source, evidence), receipts in zip(self.sources(), self.receipts, strict=True):
            rules = ReceiptRules(self.descriptor, source)
            for receipt, wire in zip(receipts, evidence.receipts, strict=True):
                rules.check_time(receipt)
                if (at := next(positions)) is not None:
                    rules.check_row(at + 1, self.rows[at], receipt, wire)

    # 7
    def check_inclusion(self) -> None:
        for (source, evidence), receipts in zip(self.sources(), self.receipts, strict=True):
            if not receipts:
                if evidence.proof:
                    raise EvidenceError(f"{named(source)}: an inclusion proof of no event")
                continue
            assert source.mmr_root is not None  # check_head: a source with entries has a root
            try:
                inclusion.verify_leaves(
                    evidence.proof,
                    [receipt.stream_seq for receipt in receipts],
                    [receipt.leaf_hash for receipt in receipts],
                    source.to_seq,
                    source.mmr_root,
                )
            except VerificationError as exc:
                raise EvidenceError(f"{named(source)}: {exc.message}", action=ROWS_ACTION) from None
        if any(self.receipts):
            self.steps.append("each of these events is in the tree of its source")

    # 8
    def check_evidence_hash(self) -> None:
        positions = iter(self.positions())
        verified = []
        for (source, evidence), receipts in zip(self.sources(), self.receipts, strict=True):
            for wire, _receipt in zip(evidence.receipts, receipts, strict=True):
                at = next(positions)
                assert source.mmr_root is not None  # it has an entry
                verified.append(
                    VerifiedReceipt(
                        receipt_id=receipt_id(wire),
                        mmr_root=source.mmr_root,
                        hub_id=source.hub_id,
                        row_hash=None if at is None else H(self.encoded[at]),
                    )
                )
        summary = evidence_summary(self.descriptor, self.coverage, verified)
        if evidence_hash(summary) != self.digest.evidence_hash:
            raise EvidenceError(
                "the evidence is not that of evidence_hash: coverage, receipts or rows were changed "
                "(query-api §5.4, RESOLUTIONS P13)",
                action=ROWS_ACTION,
            )
        self.steps.append(
            f"the evidence_hash {self.digest.evidence_hash[:16]}… commits to coverage and receipts"
        )

    # 9
    def check_links(self) -> None:
        links = 0
        for source, evidence in self.sources():
            if evidence.link is None:
                if source.checkpoint is not None:
                    raise EvidenceError(f"{named(source)}: the evidence lacks the hub checkpoint (P13)")
                if self.trust.policy is not None and source.scanned:
                    raise EvidenceError(
                        f"{named(source)}: no hub checkpoint, so no witness vouches for it (P2)",
                        action="verify without a witness policy, or run the query after the next checkpoint",
                    )
                continue
            identity = self.keys[source.hub_id].identity
            check_link(source, evidence.link, identity, self.trust.policy)
            links += 1
        if links:
            cosigned = " and the witnesses cosigned" if self.trust.policy is not None else ""
            self.steps.append(f"the hub signed{cosigned} the hub checkpoint of {_count(links, 'source')}")

    def complete_before(self) -> int | None:
        times = [None if head is None else head.hub_ts * 1000 for head in self.heads]
        return None if None in times else min(time for time in times if time is not None)


def _placed(source: SourceCoverage, exc: VerificationError) -> str:
    return exc.message if exc.message.startswith("stream ") else f"{named(source)}: {exc.message}"


def _check_ascending(source: SourceCoverage, receipts: Sequence[Receipt]) -> None:
    before = 0
    for receipt in receipts:
        if receipt.stream_seq <= before:
            raise EvidenceError(
                f"{named(source)}: the receipt of entry {receipt.stream_seq} follows that of entry {before}: "
                "an event appears twice, or events are out of order (RESOLUTIONS P11)",
                action=ROWS_ACTION,
            )
        before = receipt.stream_seq


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


DEFAULT_TRUST: Final = ResultTrust()


def verify_result(file: ResultFile, trust: ResultTrust = DEFAULT_TRUST) -> ResultVerdict:
    """Verify a result file; raise ``VerificationError`` or ``DecodeError`` that says what is wrong."""
    made = _Verification(file, trust)
    made.check_content()
    made.check_hubs()
    made.check_heads()
    made.check_receipts()
    made.check_inclusion()
    made.check_evidence_hash()
    made.check_links()
    complete = made.complete_before()
    if complete is not None:
        made.steps.append(f"no entry committed before {format_timestamp(complete)} is left out")
    return ResultVerdict(
        descriptor=made.descriptor,
        digest=made.digest,
        receipts=sum(map(len, made.receipts)),
        hubs=tuple(made.keys),
        complete_before=complete,
        steps=tuple(made.steps),
    )
