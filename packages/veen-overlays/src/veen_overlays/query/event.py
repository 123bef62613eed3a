"""SourceEvent: one opened recorder event, with the values of its origin (RESOLUTIONS P10, P11).

An event that a bridge imported has the hub, label, sequence number, time and receipt of its origin,
so that a query gives the same rows in both zones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veen_core.hashing import H
from veen_core.ids import HubId, Label, LeafHash
from veen_overlays.query import canonical_json
from veen_overlays.query.canonical_json import Json


def receipt_id(receipt: bytes) -> str:
    """Return ``rcpt-`` and the hash of the encoded origin RECEIPT in hex (P11)."""
    return f"rcpt-{H(receipt).hex()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvent:
    """A ``record.event.v1`` that was opened, and the receipt that proves its position."""

    stream: str
    """The name of the stream in the scope of the query."""
    hub_id: HubId
    label: Label
    epoch: int
    seq: int
    hub_commit_time: int
    """``hub_ts`` of the receipt, in milliseconds."""
    subject_id: str
    principal_id: bytes
    event_type: str
    event_time: int
    """The time that the producer claims, in milliseconds."""
    origin: str
    payload_json: bytes
    """The payload in canonical JSON."""
    attributed: bool
    """Whether ``principal_id`` is, or is linked to, the key that signed the MSG (SDR0 I3)."""
    receipt: bytes
    """The encoded origin RECEIPT."""
    leaf_hash: LeafHash

    @property
    def receipt_id(self) -> str:
        """The id of the origin receipt (P11)."""
        return receipt_id(self.receipt)

    @property
    def hub_commit_seq(self) -> int:
        """``stream_seq`` of the receipt (P10)."""
        return self.seq

    def payload(self) -> Json:
        """Return the decoded payload."""
        return canonical_json.decode(self.payload_json)

    def order(self, scope: Sequence[str]) -> tuple[int, bytes, int, int]:
        """Return the sort key of the rows: index in the scope, origin hub, epoch, sequence number (P11)."""
        return scope.index(self.stream), self.hub_id, self.epoch, self.seq
