"""The copy of an origin entry: the message that the target gets for it (RESOLUTIONS P4, P7).

- ``wrap``: the body is ``bridge.import.v1`` with the original MSG and RECEIPT, byte for byte. The bridge has
  no key of the source; readers of the target need the source's reader key to see the inner message.
- ``reseal``: the bridge opens the message and seals its schema and body, byte for byte, to the target's
  readers (ID 12.1, WALBR0 11.3).
- ``reference``: the body is ``federation.mirror.v1`` alone, without the message (spec-3 §10).

A message that cannot be resealed is wrapped instead: no key of the bridge opens it, or it has attachments,
whose keys derive from the original seal (core §4.6). Nothing is skipped.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from veen_bridge.transfer.origin import OriginEntry
from veen_core.ciphertext import Opened
from veen_core.errors import VeenError
from veen_core.ids import NO_BUNDLE, BundleId, ClientId, Label, SchemaId, UnixTime
from veen_core.keys import DhKey
from veen_core.limits import Limits
from veen_core.wire import Wire
from veen_overlays.bridge import ImportedEvent
from veen_overlays.federation import mirror_of

MSG_OVERHEAD_BYTES: Final = 4_096
"""Room in a MSG for its fields, the payload header, the seal and one padding block."""


class Mode(enum.StrEnum):
    """How an origin entry travels (P4)."""

    WRAP = "wrap"
    RESEAL = "reseal"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The content of a target message; its ``parent_id`` is the original msg_id."""

    origin: OriginEntry
    mode: Mode
    """The mode used: WRAP if the entry could not be resealed."""
    schema: SchemaId
    body: bytes
    expires_at: UnixTime | None = None
    attachment: bytes | None = None
    """The original MSG, if the body would be too large with it (P7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyMaker:
    """Makes copies for one target hub in one mode. Pure: the caller passes the time."""

    mode: Mode
    bridge_id: ClientId
    """The bridge's identity key, by which records name the bridge."""
    limits: Limits
    """The target's limits."""
    source_hub_identifier: str = ""
    """Names the source hub in mirror records; the hub_id in hex by default."""
    readers: tuple[DhKey, ...] = ()
    """Reader keys of the source stream, for mode reseal."""
    bundle_id: BundleId = NO_BUNDLE
    """The bundle that the entries came in; zeros for a live mirror."""

    def copy(self, origin: OriginEntry, *, target_label: Label, now: UnixTime) -> Copy:
        """Return the copy of an origin entry."""
        if self.mode is Mode.REFERENCE:
            named = self.source_hub_identifier or origin.hub_id.hex()
            record = mirror_of(
                origin.entry.receipt, source_hub_identifier=named, target_label=target_label, mirror_time=now
            )
            return Copy(origin=origin, mode=self.mode, schema=record.SCHEMA, body=record.encode())
        if self.mode is Mode.RESEAL and (resealed := self._reseal(origin)) is not None:
            return resealed
        return self._wrap(origin, now)

    def _reseal(self, origin: OriginEntry) -> Copy | None:
        opened = open_origin(origin, self.readers)
        if opened is None or opened.header.att_root is not None or not self._fits(opened.body):
            return None
        header = opened.header
        return Copy(
            origin=origin,
            mode=Mode.RESEAL,
            schema=header.schema,
            body=opened.body,
            expires_at=header.expires_at,
        )

    def _wrap(self, origin: OriginEntry, now: UnixTime) -> Copy:
        record = ImportedEvent(
            bundle_id=self.bundle_id,
            source_hub_id=origin.hub_id,
            source_label=origin.label,
            source_stream_seq=origin.seq,
            origin_receipt=origin.entry.receipt_bytes,
            origin_msg=origin.entry.msg_bytes,
            import_time=now,
            bridge_id=self.bridge_id,
        )
        body = Wire.encode(record)  # the caller verified the entry; the record's rules would decode it again
        if self._fits(body):
            return Copy(origin=origin, mode=Mode.WRAP, schema=record.SCHEMA, body=body)
        return Copy(
            origin=origin,
            mode=Mode.WRAP,
            schema=record.SCHEMA,
            body=replace(record, origin_msg=None).encode(),
            attachment=origin.entry.msg_bytes,
        )

    def _fits(self, body: bytes) -> bool:
        limits = self.limits
        return len(body) <= min(limits.max_body_bytes, limits.max_msg_bytes - MSG_OVERHEAD_BYTES)


def open_origin(origin: OriginEntry, readers: Sequence[DhKey]) -> Opened | None:
    """Open an origin entry with the first key that fits; None if none does."""
    for key in readers:
        try:
            return origin.entry.msg.open(key)
        except VeenError:
            continue
    return None
