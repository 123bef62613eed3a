"""Rows of verified entries, as a view stores them (RESOLUTIONS P10, P11).

An entry is opened after its position in the log was verified, never before. An event that a bridge wrapped
(P4, P7) has the hub, label, seq, time and receipt of its origin. Its origin receipt is verified under
the pinned identity of the origin hub, and its original MSG under its own signature. A wrapper that fails any
of these checks is not an import: it counts as an ordinary message of the log that contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from veen_core.ciphertext import Opened
from veen_core.entry import Entry
from veen_core.errors import DecodeError, VerificationError
from veen_core.hub_identity import HubIdentity, verify_receipt
from veen_core.ids import ClientId, Epoch, HubId, Label
from veen_core.keys import DhKey
from veen_core.msg import Msg, verify_signature
from veen_core.receipt import Receipt
from veen_core.stream import epoch_window, label, routing_key, stream_id
from veen_overlays.bridge.records import EnvelopedEvent, ImportedEvent
from veen_overlays.bridge.unwrapping import MAX_HOPS
from veen_overlays.live.opening import open_msg
from veen_overlays.live.query_view.files.data_files import ViewRow
from veen_overlays.query import canonical_json
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.errors import QueryError
from veen_overlays.recorder.records import KeyContinuity, RecordEvent

MAX_EPOCH: Final = 2**32 - 1
_EVENT: Final = bytes(RecordEvent.SCHEMA)
_CONTINUITY: Final = bytes(KeyContinuity.SCHEMA)
_WRAPPER: Final = bytes(ImportedEvent.SCHEMA)
_ENVELOPE: Final = bytes(EnvelopedEvent.SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginHub:
    """A hub whose events bridges bring: its pinned identity, and the epochs of its labels."""

    identity: HubIdentity
    epoch_of: Callable[[Label, Receipt], Epoch | None] = lambda _label, _receipt: Epoch(0)
    """Returns the epoch of a label, from a receipt on it; None if the label is not of the expected stream."""

    @classmethod
    def for_stream(cls, identity: HubIdentity, name: str, *, epoch_sec: int) -> Self:
        """Accept events of one stream only: its labels follow from hub_id and name (core §2, B13).

        A hub accepts messages for the labels around its present epoch (core §12).
        """
        routing, stream = routing_key(identity.hub_id), stream_id(name)

        def epoch_of(found: Label, receipt: Receipt) -> Epoch | None:
            window = epoch_window(receipt.hub_ts, epoch_sec, max_skew_sec=epoch_sec)
            return next((Epoch(e) for e in window if label(routing, stream, Epoch(e)) == found), None)

        return cls(identity=identity, epoch_of=epoch_of)


class CommitPlace(NamedTuple):
    """Where an event was first committed."""

    hub_id: HubId
    label: Label
    epoch: int
    receipt: Receipt
    wire: bytes


class Found(NamedTuple):
    """The kind of an opened entry, with the values of its record."""

    kind: EntryKind
    event: RecordEvent | None = None
    payload: str = ""
    continuity: KeyContinuity | None = None
    """The record of an entry that links two keys (P10); such an entry is not an event."""
    client: ClientId | None = None
    """The key that signed the MSG; None if nothing proves it."""
    origin: CommitPlace | None = None
    """The origin of a wrapped event; None for an entry of the log itself."""
    parent: bytes | None = None
    """``parent_id`` of the message: in a resealed copy, the msg_id of the original (P4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOpener:
    """Opens verified entries with the reader's keys, which stay in memory."""

    keys: Sequence[DhKey]
    origins: Mapping[HubId, OriginHub]

    def open(self, entry: Entry) -> Found:
        """Open an entry of a log."""
        if entry.is_authorize:
            return Found(EntryKind.OTHER)
        msg = entry.msg
        if (opened := open_msg(msg, self.keys)) is None:
            return Found(EntryKind.UNOPENED)
        if opened.header.schema in (_WRAPPER, _ENVELOPE) and self.origins:
            return self._unwrapped(opened)
        return self._found(opened, msg.client_id)

    def _found(self, opened: Opened, client: ClientId, origin: CommitPlace | None = None) -> Found:
        parent = None if opened.header.parent_id is None else bytes(opened.header.parent_id)
        other = Found(EntryKind.OTHER, client=client, origin=origin, parent=parent)
        try:
            if opened.header.schema == _CONTINUITY:
                return other._replace(continuity=KeyContinuity.decode(opened.body))
            if opened.header.schema != _EVENT:
                return other
            event = RecordEvent.decode(opened.body)
            payload = canonical_json.encode(event.payload).decode()
        except (DecodeError, QueryError):
            return other
        return other._replace(kind=EntryKind.EVENT, event=event, payload=payload)

    def _unwrapped(self, wrapper: Opened) -> Found:
        """Return the event inside wrappers with its origin; ``OTHER`` without origin if a check fails.

        An original that travels as an attachment (P7) counts as unopened: a view fetches no attachments.
        """
        outer = wrapper
        for _ in range(MAX_HOPS):
            try:
                record = _import_in(outer)
                place = self.verified_place(record.source_hub_id, record.origin_receipt)
                if outer.header.parent_id != place.receipt.leaf_hash:
                    break
                if record.origin_msg is None:
                    return Found(EntryKind.UNOPENED, origin=place)
                original = Msg.decode(record.origin_msg)
                verify_signature(original, record.origin_msg)
            except (DecodeError, VerificationError):
                break
            opened = open_msg(original, self.keys)
            if opened is None:
                return Found(EntryKind.UNOPENED, origin=place)
            if opened.header.schema not in (_WRAPPER, _ENVELOPE):
                return self._found(opened, original.client_id, place)
            outer = opened
        return Found(EntryKind.OTHER)

    def verified_place(self, hub_id: HubId, wire: bytes) -> CommitPlace:
        """Return the position that an origin receipt proves; raise unless the pinned hub signed it."""
        if (hub := self.origins.get(hub_id)) is None:
            raise VerificationError(f"the identity of origin hub {hub_id.hex()} is not pinned")
        receipt = Receipt.decode(wire)
        epoch = hub.epoch_of(receipt.label, receipt)
        if epoch is None or epoch > MAX_EPOCH:
            raise VerificationError(
                f"label {receipt.label.hex()} does not belong to the stream that this feed imports"
            )
        verify_receipt(hub.identity, receipt)
        return CommitPlace(hub_id, receipt.label, epoch, receipt, wire)


def _import_in(opened: Opened) -> ImportedEvent:
    if opened.header.schema == _ENVELOPE:
        return EnvelopedEvent.decode(opened.body).event
    return ImportedEvent.decode(opened.body)


def row_of(place: CommitPlace, kind: int, found: Found | None = None, *, attributed: bool = False) -> ViewRow:
    """Return the row of an entry at its position; ``found`` has the values of an event."""
    receipt = place.receipt
    head = bytes(place.hub_id), bytes(place.label), place.epoch, receipt.stream_seq, 1000 * receipt.hub_ts
    tail = bytes(receipt.leaf_hash), place.wire, int(kind)
    if found is None or found.event is None:
        return ViewRow(*head, None, None, None, None, None, None, None, *tail)
    event = found.event
    return ViewRow(
        *head,
        event.subject_id,
        bytes(event.principal_id),
        event.event_type,
        event.event_time,
        event.origin,
        found.payload,
        attributed,
        *tail,
    )
