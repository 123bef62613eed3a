"""Planning an export: which entries of which label, up to which head in the hub log (AGB0 4.4, P6).

A plan has everything of the header that is known before the entries are read. The range begins after the last
bundle that the audit log has, and ends at the label's head in the hub checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from veen_bridge.bundles.staging import ExportPlan
from veen_bridge.exporting.audit_log import ExportAudit
from veen_bridge.roles.session import RoleSession
from veen_core import hub_log
from veen_core.bundle import AttachmentRule, BundleCounts, BundleHeader, HeadProof
from veen_core.errors import ConfigError, StateError
from veen_core.hub_log import HubProofResponse
from veen_core.ids import NO_BUNDLE, Epoch, Label, NodeHash, StreamSeq, UnixTime
from veen_core.mmr import root_of
from veen_core.stream import stream_id
from veen_core.tlog.tree_head import parse_signed_head
from veen_hub.client import Hub, NotFound

MAX_REQUESTED_EPOCHS = 64
"""With more epochs than this to look at, the hub log tells which labels exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportWishes:
    """The operator's options for one export, the same for all streams."""

    from_seq: int | None = None
    to_seq: int | None = None
    attachments: bool = True
    part_size: int | None = None
    checkpoint_now: bool = False
    """Wait for a hub checkpoint that covers the newest entry."""
    timeout: float = 30.0
    """Seconds to wait for such a hub checkpoint, or for a quorum of its witnesses."""
    heartbeat: bool = True
    """Write a bundle without events if there is nothing new."""


class BundlePlanner:
    """Makes the plans of one stream's next bundles."""

    def __init__(self, session: RoleSession, audit: ExportAudit, wishes: ExportWishes) -> None:
        self._session, self._hub = session, session.hub
        self._audit, self._wishes = audit, wishes

    async def epochs(self, stream: str) -> list[Epoch]:
        """Return the epochs of a stream that may have new entries, in order; without epochs, [0]."""
        labels = self._hub.epoch_labels(stream_id(stream))
        if labels is None:
            return [Epoch(0)]
        last = self._audit.last(stream_id(stream))
        window = await labels.confirmed()
        first = int(labels.since)
        if last is not None:
            seconds = self._hub.connection.profile.epoch_sec
            skew = self._hub.connection.limits.max_epoch_skew_sec // seconds
            first = max(first, last.ts // seconds - 2 * skew - 1)
        wanted = range(first, window.stop)
        known: set[Label] | None = None
        if len(wanted) > MAX_REQUESTED_EPOCHS:
            known = set((await self._hub.label_heads()).table.newest)
        return [Epoch(e) for e in wanted if known is None or labels.label_of(Epoch(e)) in known]

    async def plan(self, stream: str, epoch: Epoch) -> ExportPlan | None:
        """Plan the next bundle of a label; None if it has no entry after the last bundle."""
        wished = self._wishes.from_seq, self._wishes.to_seq
        if wished[0] is not None and wished[1] is not None and wished[0] > wished[1]:
            raise ConfigError(f"--from {wished[0]} is after --upto {wished[1]}: the range is reversed")
        label = self._label(stream, epoch)
        head = await self._head(label)
        before = self._audit.last_in_label(label)
        from_seq = self._wishes.from_seq or (before.to_seq + 1 if before is not None else 1)
        if before is not None and from_seq > before.to_seq + 1:
            raise ConfigError(
                f"stream {stream}: entries {before.to_seq + 1} to {from_seq - 1} would be in no bundle, "
                f"because the next export continues after this one",
                action=f"give --from {before.to_seq + 1}, or leave --from out",
            )
        to_seq = head.head.upto_seq if head is not None else 0
        if self._wishes.to_seq is not None:
            if self._wishes.to_seq > to_seq:
                raise StateError(
                    f"stream {stream}: the hub checkpoint covers {to_seq} entries, not {self._wishes.to_seq}",
                    action="give --checkpoint-now, or a smaller --upto",
                )
            to_seq = self._wishes.to_seq
        if from_seq > to_seq + 1 and self._wishes.from_seq is not None:
            raise ConfigError(f"stream {stream} has no entry {from_seq}: the hub checkpoint covers {to_seq}")
        if from_seq > to_seq:
            return None
        return await self._draft(stream, epoch, head, StreamSeq(from_seq), StreamSeq(to_seq))

    async def heartbeat(self, stream: str, epoch: Epoch) -> ExportPlan | None:
        """Plan a bundle without events, after the last entry that the hub checkpoint covers.

        None if the hub has no hub checkpoint yet: a bundle could prove nothing.
        """
        head = await self._head(self._label(stream, epoch))
        if head is None and await self._checkpoint() is None:
            return None
        to_seq = head.head.upto_seq if head is not None else 0
        return await self._draft(stream, epoch, head, StreamSeq(to_seq + 1), StreamSeq(to_seq))

    def _label(self, stream: str, epoch: Epoch) -> Label:
        return self._hub.connection.label(stream_id(stream), epoch)

    async def _head(self, label: Label) -> HubProofResponse | None:
        hub, wishes = self._hub, self._wishes
        await hub.log(label)
        if wishes.checkpoint_now:
            newest = await hub.log_reader().head(label)
            if newest is None:
                return None
            return await hub.label_head(label, newest.stream_seq, timeout=wishes.timeout)
        try:
            return await hub.label_head(label, timeout=wishes.timeout)
        except NotFound:
            return None

    async def _draft(
        self, stream: str, epoch: Epoch, head: HubProofResponse | None, from_seq: StreamSeq, to_seq: StreamSeq
    ) -> ExportPlan:
        hub, connection = self._hub, self._hub.connection
        label = self._label(stream, epoch)
        peaks = await peaks_at(hub, label, from_seq - 1)
        checkpoint = head.checkpoint if head is not None else await self._checkpoint()
        if checkpoint is None:
            raise StateError(f"stream {stream}: the hub has no hub checkpoint any more")
        origin = parse_signed_head(checkpoint).head.origin
        last, before = self._audit.last(stream_id(stream)), self._audit.ending_at(label, from_seq - 1)
        none = BundleCounts(events=0, event_bytes=0, attachments=0, attachment_bytes=0, unopened=0)
        root = root_of(peaks)
        head_ts = head.head.hub_ts if head is not None else UnixTime(0)
        draft = BundleHeader(
            prev_bundle_id=last.bundle_id if last is not None else NO_BUNDLE,
            prev_in_label=before.bundle_id if before is not None and from_seq > 1 else NO_BUNDLE,
            identity=connection.status.identity,
            profile=connection.profile,
            stream=stream,
            epoch=epoch,
            label=label,
            from_seq=from_seq,
            to_seq=to_seq,
            from_ts=head_ts,
            to_ts=head_ts,
            counts=none,
            root_before=root,
            peaks_before=peaks,
            root_after=root,
            checkpoint=checkpoint,
            attachments=AttachmentRule.OPENED if self._wishes.attachments else AttachmentRule.OMITTED,
            bridge_id=self._session.keys.bridge_id,
            exported_at=connection.time.now(),
            parts=(),
            head=await self._proof(label, head, to_seq),
            origin=None if origin == hub_log.origin_of(hub.hub_id) else origin,
        )
        return ExportPlan(draft=draft, part_size=self._wishes.part_size)

    async def _proof(
        self, label: Label, head: HubProofResponse | None, to_seq: StreamSeq
    ) -> HeadProof | None:
        if head is None:
            return None
        consistency = None
        if head.head.upto_seq != to_seq:
            consistency = await self._hub.log_reader().consistency(label, to_seq, head.head.upto_seq)
        return HeadProof(head=head.head, index=head.index, proof=head.proof, consistency=consistency)

    async def _checkpoint(self) -> bytes | None:
        """Return the published hub checkpoint, for the heartbeat of a label without entries."""
        connection = self._hub.connection
        signed = await connection.ask(connection.api.hub_checkpoint)
        return signed.encode() if signed is not None else None


async def peaks_at(hub: Hub, label: Label, size: int) -> tuple[NodeHash, ...]:
    """Return the peaks of a label's tree of ``size`` entries, verified."""
    log = await hub.log(label)
    if size > log.client.size:
        await log.receipt(StreamSeq(size))  # extends the verified prefix to this entry
    if size == log.client.size:
        return log.client.tree.peaks
    if size == 0:
        return ()
    proof = await hub.log_reader().consistency(label, StreamSeq(size), log.client.size)
    return proof.peaks_from
