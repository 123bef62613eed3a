"""The verifier of bundles: header, parts, every MSG and RECEIPT, roots, hub checkpoint (P6, AGB0 4.5).

    verifier = BundleVerifier(trailer, BundleTrust(pinned=hub_id), previous=header_before)
    part = verifier.begin_part(trailer, index_bytes)
    for block in blocks of the part's content before the index:
        events = part.feed(block)          # not verified until finish() has returned
    part.finish()
    verdict = verifier.finish()

Memory is bounded by one batch of events, whatever the size of the bundle. Each error names part and
stream_seq, as far as they are known, and the clause. Parts may come in any order, and each is verified
completely by itself; the rules between the last event of a part and the first of the next are checked if the
next part is verified right after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from veen_core.bundle.chain import verify_chain_step
from veen_core.bundle.header import SECTION, AttachmentRule, BundleHeader, PartRow, bundle_id
from veen_core.bundle.header_rules import BundleTrust, verify_header
from veen_core.bundle.part import BundleError, PartIndex, PartTrailer
from veen_core.bundle.records import RecordParser
from veen_core.entry import Entry
from veen_core.errors import DecodeError, InvariantError, VeenError
from veen_core.ids import BundleId, UnixTime
from veen_core.log_rules import LogTerms
from veen_core.log_verifier import HubSignatures, LogVerifier
from veen_core.mmr import Mmr
from veen_core.signatures import SignatureBatch
from veen_core.tlog.policy import Cosigned

EVENTS_PER_BATCH: Final = 1_024
"""Events whose signatures are verified together, on all cores."""
EVENTS_PER_START: Final = 32
"""Events whose signatures are offered to the assistant together, if this process has an assistant."""
CLAIMS_PER_EVENT: Final = 2
"""MSG.sig and RECEIPT.hub_sig."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleVerdict:
    """The facts that a valid bundle proves."""

    bundle_id: BundleId
    header: BundleHeader
    cosigned: Cosigned | None
    """The witnesses that cosigned the hub checkpoint; None without a witness policy."""
    chained: bool
    """Whether the previous bundle was given, and this one continues it."""


class BundleVerifier:
    """The state of verifying one bundle. The header is verified when the verifier is made."""

    def __init__(
        self,
        trailer: PartTrailer,
        trust: BundleTrust,
        *,
        previous: BundleHeader | None = None,
        threads: int | None = None,
    ) -> None:
        """Verify the header of one of the parts; ``previous`` is the verified header of the bundle before.

        ``threads`` verify signatures; by default all cores are used.
        """
        self.header = trailer.header
        self.bundle_id = bundle_id(trailer.header)
        self.cosigned = verify_header(trailer.header, trailer.signature, trust)
        self.threads = threads
        self.chained = previous is not None
        if previous is not None:
            verify_chain_step(previous, self.header)
        self.terms = LogTerms(
            label=self.header.label,
            identity=trust.known or self.header.identity,
            profile=self.header.profile,
            origin=self.header.label_origin,
        )
        self.verified: dict[int, PartIndex] = {}
        """Index of every part that was verified."""
        self._log: tuple[int, LogVerifier] | None = None
        """Number of the part verified last, and its log after its last event."""
        self._event_bytes = self._attachment_bytes = 0

    def begin_part(self, trailer: PartTrailer, index_bytes: bytes) -> PartVerifier:
        """Begin a part: it must belong to this bundle and must not have been verified already."""
        number = trailer.number
        if bundle_id(trailer.header) != self.bundle_id:
            raise BundleError(
                f"it belongs to bundle {bundle_id(trailer.header).hex()}, not to {self.bundle_id.hex()}",
                part=number,
            )
        if not 1 <= number <= len(self.header.parts):
            raise BundleError(f"the bundle has {len(self.header.parts)} parts", part=number)
        if number in self.verified:
            raise BundleError("the part was given twice", part=number)
        try:
            index = PartIndex.decode(index_bytes)
        except DecodeError as exc:
            raise BundleError(f"the index is damaged: {exc}", part=number) from None
        return PartVerifier(self, number, index, index_bytes)

    def log_before(self, number: int, index: PartIndex) -> LogVerifier:
        """Return the log up to a part: continued from the part before it, or from the peaks in its index."""
        row = self.header.parts[number - 1]
        first = number == 1
        if first and (index.peaks, index.hub_ts) != (self.header.peaks_before, 0):
            raise BundleError("the index does not begin with the header's peaks_before", part=number)
        if self._log is not None and self._log[0] == number - 1:
            log = self._log[1]
            self._log = None  # if this part fails, the log is in an unknown state
            assert log.tree is not None  # started with peaks
            if (index.peaks, index.hub_ts) != (log.tree.peaks, log.hub_ts or 0):
                raise BundleError("the index does not continue the part before it", part=number)
            return log
        try:
            Mmr(row.first_seq - 1, index.peaks)
        except VeenError as exc:
            raise BundleError(f"the index is damaged: {exc}", "core §5.1", part=number) from None
        hub_ts = UnixTime(index.hub_ts) if index.hub_ts else None
        return LogVerifier(self.terms, size=row.first_seq - 1, peaks=index.peaks, hub_ts=hub_ts)

    def note_part(self, part: PartVerifier) -> None:
        """Record a part that was verified completely."""
        self.verified[part.number] = part.index
        self._log = part.number, part.log
        self._event_bytes += part.parser.event_bytes
        self._attachment_bytes += sum(each.size for each in part.index.attachments)

    @property
    def missing(self) -> list[int]:
        """Numbers of the parts that were not verified."""
        return [number for number in range(1, len(self.header.parts) + 1) if number not in self.verified]

    def finish(self) -> BundleVerdict:
        """Check that no part is missing and that the counts are those of the parts."""
        if missing := self.missing:
            names = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
            raise BundleError(
                f"{len(missing)} of {len(self.header.parts)} parts are missing: {names}",
                part=missing[0],
                action="give the files of all parts",
            )
        counts = self.header.counts
        unopened = sum(index.unopened for index in self.verified.values())
        found = self._event_bytes, self._attachment_bytes, unopened
        if found != (counts.event_bytes, counts.attachment_bytes, counts.unopened):
            raise BundleError("counts of bytes or unopened messages are not those of the parts")
        return BundleVerdict(
            bundle_id=self.bundle_id, header=self.header, cosigned=self.cosigned, chained=self.chained
        )


class PartVerifier:
    """The state of verifying one part; ``feed`` takes its content in blocks, ``finish`` completes it."""

    def __init__(self, bundle: BundleVerifier, number: int, index: PartIndex, index_bytes: bytes) -> None:
        self.number, self.index = number, index
        self.row: PartRow = bundle.header.parts[number - 1]
        self.log = bundle.log_before(number, index)
        self.parser = RecordParser(number, self.row, bundle.header.label)
        self._bundle, self._index_bytes = bundle, index_bytes
        self._waiting: list[Entry] = []
        if len(index_bytes) != self.row.index_size:
            raise self._fail(f"an index of {len(index_bytes)} bytes, its row says {self.row.index_size}")

    def feed(self, block: bytes) -> Sequence[Entry]:
        """Take the next bytes before the index; return the events in them, some not yet verified.

        Rely on an event only after ``finish`` of the part, and on a bundle only after that of the bundle.
        """
        events = self.parser.feed(block)
        self._waiting.extend(events)
        while len(self._waiting) >= EVENTS_PER_BATCH:
            batch, self._waiting = self._waiting[:EVENTS_PER_BATCH], self._waiting[EVENTS_PER_BATCH:]
            self._verify(batch)
        return events

    def finish(self) -> None:
        """Verify the events that are left, the index and the hash of the content."""
        self.parser.finish()
        if self._waiting:
            self._verify(self._waiting)
            self._waiting = []
        self.parser.skip(self._index_bytes)
        if self.parser.digest != self.row.digest:
            raise self._fail("the content has another hash than the part table")
        if (tuple(self.parser.offsets), tuple(self.parser.attachments)) != (
            self.index.offsets,
            self.index.attachments,
        ):
            raise self._fail("the index does not describe the records")
        if self._bundle.header.attachments is AttachmentRule.OMITTED and self.index.unopened:
            raise self._fail("the index counts unopened messages, but the bundle omits attachments")
        self._check_ends()
        self._bundle.note_part(self)

    def _verify(self, entries: Sequence[Entry]) -> None:
        header, first = self._bundle.header, entries[0]
        verify_events(self.log, entries, part=self.number, threads=self._bundle.threads)
        if first.stream_seq == header.from_seq and first.receipt.hub_ts != header.from_ts:
            found = f"from_ts is not the hub_ts {first.receipt.hub_ts} of the first event"
            raise BundleError(found, part=self.number, seq=first.stream_seq)

    def _check_ends(self) -> None:
        header = self._bundle.header
        if self.number != len(header.parts):
            return
        assert self.log.tree is not None  # started with peaks
        if self.log.tree.root != header.root_after:
            raise self._fail("root_after is not the root after the last event", "core §5.1")
        if not header.is_heartbeat and self.log.hub_ts != header.to_ts:
            raise self._fail(f"to_ts is not the hub_ts {self.log.hub_ts} of the last event")

    def _fail(self, found: str, clause: str = "RESOLUTIONS P6") -> BundleError:
        return BundleError(found, clause, part=self.number)


def verify_events(
    log: LogVerifier, entries: Sequence[Entry], *, part: int, threads: int | None = None
) -> None:
    """Verify consecutive events, which extend ``log``; report the first fault in the order of the log.

    After a fault, ``log`` is in an unknown state.
    """
    failure: VeenError | None = None
    failed_at = entries[0].stream_seq
    with SignatureBatch(threads=threads) as batch:
        check = HubSignatures(log.terms, batch.claims)
        for position, entry in enumerate(entries, 1):
            try:
                log.accept(entry, check)
            except VeenError as exc:
                failure, failed_at = exc, entry.stream_seq
                break
            if batch.is_assisted and position % EVENTS_PER_START == 0:
                batch.start()
        invalid = batch.finish()
    if invalid:
        at = entries[invalid[0] // CLAIMS_PER_EVENT].stream_seq
        refusal = batch.claims[invalid[0]].refusal()
        raise BundleError(refusal.found, refusal.clause or "core §4.1, §4.3", part=part, seq=at)
    if isinstance(failure, InvariantError):
        found = f"{failure.invariant}: {failure.found}"
        raise BundleError(found, failure.clause or SECTION, part=part, seq=failed_at)
    if failure is not None:
        raise BundleError(failure.message, part=part, seq=failed_at)
