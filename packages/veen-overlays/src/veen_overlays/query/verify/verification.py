"""Verify a result file without a hub, step by step (query-api §5, §6, RESOLUTIONS P11 to P14).

1. Descriptor, digest and rows are well-formed, and agree on ids, evidence policy and limits.
2. The rows match ``row_count`` and ``rows_hash``.
3. The coverage names every stream of the scope, in order, with its label, and its counts add up.
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
from veen_core import stream as streams
from veen_core.errors import EvidenceError, VerificationError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Epoch, HubId
from veen_core.receipt import Receipt
from veen_core.tlog.policy import WitnessPolicy
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.evidence_policy import EvidenceMode
from veen_overlays.query.request.timestamp import format_timestamp
from veen_overlays.query.result.coverage import SourceCoverage
from veen_overlays.query.result.digest import ResultDigest
from veen_overlays.query.result.evidence import SourceEvidence
from veen_overlays.query.result.result_file import ResultFile, split_rows
from veen_overlays.query.verify.content_rules import check_coverage, check_digest, check_rows
from veen_overlays.query.verify.receipt_check import ReceiptCheck
from veen_overlays.query.verify.row_rules import ROWS_ACTION
from veen_overlays.query.verify.source_rules import KeysByTime, check_head, check_label, check_link, named

MAX_CLOCK_SKEW_MS: Final = 300_000
"""Largest difference between the clocks of client and executor that is accepted, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultVerdict:
    """What a verified result file proves."""

    descriptor: QueryDescriptor
    digest: ResultDigest
    receipts: int
    """Receipts of events that were verified."""
    hubs: tuple[HubId, ...]
    complete_before: int | None
    """Milliseconds: by the signed roots, the coverage has every entry of its sources that was committed
    before this time. None if a source has no entries."""
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
    aliases: Mapping[str, str] = field(default_factory=dict)
    """The stream's name at its hub of origin, by its name in the scope; only for names that differ."""
    policy: WitnessPolicy | None = None
    """Witnesses that must have cosigned the hub checkpoint of every source."""
    known: Sequence[Receipt] = ()
    """Receipts that the verifier holds: a coverage that ends before one of them is refused as an old prefix.
    ``executed_at`` does not excuse it, because only the executor vouches for that time."""
    asked_between: tuple[int, int] | None = None
    """For a client that asked for the result: when it asked, and when it had the answer, in milliseconds of
    its own clock. ``executed_at`` must lie between them, within ``MAX_CLOCK_SKEW_MS``."""


class _Verification:
    """The state of one verification: the parts of the file, as far as they are verified."""

    def __init__(self, file: ResultFile, trust: ResultTrust) -> None:
        self.file, self.trust = file, trust
        self.descriptor, self.digest = file.descriptor, file.digest
        self.rows: list[dict[str, Any]] = file.rows()
        self.encoded = split_rows(self.rows)
        self.keys: dict[HubId, KeysByTime] = {}
        self.heads: list[Receipt | None] = []
        self.receipts = ReceiptCheck(self.descriptor, self.digest, self.rows)
        self.steps: list[str] = []

    @property
    def coverage(self) -> tuple[SourceCoverage, ...]:
        return self.digest.coverage

    def sources(self) -> list[tuple[SourceCoverage, SourceEvidence]]:
        return list(zip(self.coverage, self.file.evidence.sources, strict=True))

    # 1 to 3
    def check_content(self) -> None:
        check_digest(self.descriptor, self.digest)
        self._check_time()
        check_rows(self.file, self.descriptor, self.rows, self.encoded)
        self.steps.append(f"{_count(len(self.rows), 'row')} with the rows_hash {self.digest.rows_hash[:16]}…")
        if len(self.file.evidence.sources) != len(self.coverage):
            raise EvidenceError("coverage and evidence have different numbers of sources (RESOLUTIONS P13)")
        check_coverage(self.descriptor, self.coverage, self.rows)
        for source in self.coverage:
            check_label(source, self.trust.aliases.get(source.stream, source.stream))
        scanned, matched = (sum(getattr(each, n) for each in self.coverage) for n in ("scanned", "matched"))
        self.steps.append(
            f"the coverage has {_count(len(self.coverage), 'source')} with {scanned} entries, of which "
            f"{matched} match"
        )

    def _check_time(self) -> None:
        """Refuse a time of execution that contradicts the clock of the client that asked."""
        if self.trust.asked_between is None:
            return
        asked, answered = self.trust.asked_between
        said = self.digest.executed_at
        if not asked - MAX_CLOCK_SKEW_MS <= said <= answered + MAX_CLOCK_SKEW_MS:
            raise EvidenceError(
                f"the result says that it was executed at {format_timestamp(said)}, but was asked for "
                f"between {format_timestamp(asked)} and {format_timestamp(answered)} by this machine's clock",
                action="set the clocks of this machine and of the executor, and ask again",
            )

    # 4
    def check_hubs(self) -> None:
        shown = {identity.hub_id: identity for identity in self.file.evidence.identities}
        hubs = sorted({source.hub_id for source in self.coverage})
        if [identity.hub_id for identity in self.file.evidence.identities] != hubs:
            raise EvidenceError(
                "the hub keys in the file are not exactly those of the hubs in its coverage (core §8.4)"
            )
        for hub in hubs:
            if self.trust.pinned is not None and hub not in self.trust.pinned:
                raise EvidenceError(
                    f"the result rests on hub {hub.hex()}, which is not pinned (core §8.4)",
                    action="pin this hub_id, if you trust the hub",
                )
            identity = self.trust.identities.get(hub, shown[hub])
            hub_identity.verify_identity(identity, pinned=hub)
            self.keys[hub] = KeysByTime(identity)
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
            self._check_executed_after(source, head)
            self.heads.append(head)
        unmatched = [receipt for receipt in self.trust.known if not self._check_known(receipt)]
        for receipt in unmatched:
            self._check_left_out(receipt)
        self.steps.append("a hub signed the root at the end of each source")
        self.steps += [
            f"not compared: your receipt of entry {receipt.stream_seq} of label {receipt.label.hex()}, which "
            "the coverage does not have; if it is of a stream in the scope, the result leaves out an epoch"
            for receipt in unmatched
        ]

    def _check_executed_after(self, source: SourceCoverage, head: Receipt | None) -> None:
        """Refuse a result that was executed before its last entry was committed."""
        if head is not None and head.hub_ts * 1000 > self.digest.executed_at + MAX_CLOCK_SKEW_MS:
            raise EvidenceError(
                f"{named(source)}: the hub committed entry {source.to_seq} at "
                f"{format_timestamp(head.hub_ts * 1000)}, after the query was executed, at "
                f"{format_timestamp(self.digest.executed_at)} (query-api §5.1)",
                action="set the clocks of hub and executor, and ask for the query again",
            )

    def _check_left_out(self, known: Receipt) -> None:
        """Refuse a coverage that leaves out the source of a known receipt whose stream is in the scope.

        At a hub without epochs a stream has one label, that of epoch 0. The labels of other epochs cannot be
        distinguished from those of other streams, unless the length of the hub's epochs is known.
        """
        for source in self.coverage:
            name = self.trust.aliases.get(source.stream, source.stream)
            routing = streams.routing_key(source.hub_id)
            if streams.label(routing, streams.stream_id(name), Epoch(0)) != known.label:
                continue
            hub_identity.verify_receipt(self.keys[source.hub_id].identity, known)
            raise EvidenceError(
                f"stream {source.stream!r} at hub {source.hub_id.hex()[:16]}…, epoch 0: the coverage leaves "
                f"this source out, although the hub had committed entry {known.stream_seq} at "
                f"{format_timestamp(known.hub_ts * 1000)} (RESOLUTIONS P13)",
                action=ROWS_ACTION,
            )

    def _check_known(self, known: Receipt) -> bool:
        """Refuse a source that contradicts a known receipt or ends before it; return whether one applies."""
        matched = False
        for source, head in zip(self.coverage, self.heads, strict=True):
            if source.label != known.label:
                continue
            matched = True
            hub_identity.verify_receipt(self.keys[source.hub_id].identity, known)
            if known.stream_seq == source.to_seq and head is not None and known.mmr_root != head.mmr_root:
                raise EvidenceError(
                    f"{named(source)}: the hub signed two roots for {source.to_seq} entries (core §9)",
                    action="keep both receipts: together they convict the hub",
                )
            if known.stream_seq > source.to_seq:
                committed = format_timestamp(known.hub_ts * 1000)
                raise EvidenceError(
                    f"{named(source)}: the coverage ends at entry {source.to_seq}, although the hub had "
                    f"committed entry {known.stream_seq} at {committed} (RESOLUTIONS P13)",
                    action="ask the executor to run the query over the newer entries; leave this receipt out "
                    "if you had the result before that time",
                )
        return matched

    # 6 to 8
    def check_receipts(self) -> None:
        evidence, check = self.file.evidence, self.receipts
        check.check_signatures(evidence, self.keys)
        mode = self.descriptor.evidence.mode
        self.steps.append(
            "no receipt of an event was verified (mode none)"
            if mode == EvidenceMode.NONE
            else f"a hub signed the receipts of {_count(check.count, 'event')} (mode {mode})"
        )
        check.check_inclusion()
        if check.count:
            self.steps.append("each of these events is in the tree of its source")
        check.check_evidence_hash(self.encoded)
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
            if self.trust.policy is not None and evidence.link.head.upto_seq < source.to_seq:
                raise EvidenceError(
                    f"{named(source)}: no witness vouches for the entries after "
                    f"{evidence.link.head.upto_seq} (RESOLUTIONS P2)",
                    action="verify without a witness policy, or run the query after the next checkpoint",
                )
            links += 1
        if links:
            cosigned = " and the witnesses cosigned" if self.trust.policy is not None else ""
            self.steps.append(f"the hub signed{cosigned} the hub checkpoint of {_count(links, 'source')}")

    def complete_before(self) -> int | None:
        times = [head.hub_ts * 1000 for head in self.heads if head is not None]
        return min(times) if len(times) == len(self.heads) else None


def _placed(source: SourceCoverage, exc: VerificationError) -> str:
    return exc.message if isinstance(exc, EvidenceError) else f"{named(source)}: {exc.message}"


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
    made.check_links()
    complete = made.complete_before()
    if complete is not None:
        until = format_timestamp(complete)
        made.steps.append(f"the coverage has every entry of its sources that was committed before {until}")
    return ResultVerdict(
        descriptor=made.descriptor,
        digest=made.digest,
        receipts=made.receipts.count,
        hubs=tuple(made.keys),
        complete_before=complete,
        steps=tuple(made.steps),
    )
