"""The items that a hub sends to a replica, as a CBOR sequence of arrays (docs/http-api.md).

["hello", identity, identity_sig]     first: the identity record (core §8.4)
["batches", bytes, last]              whole journal batches, in order; the number of the hub's last batch
["published", note]                   the hub checkpoint that the hub serves, with its cosignatures
["attachments", coids]                content ids of 32 bytes each: all at first, then each new one
["handover", record]                  after the last batch: the hub has named its successor
["alive", last]                       nothing else was sent for ``ALIVE_SEC``
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veen_core import cbor
from veen_core.errors import DecodeError
from veen_core.handover import Handover
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Coid, Signature
from veen_core.tlog.tree_head import SignedHead, parse_signed_head

ALIVE_SEC: Final = 5.0
"""Longest silence of a hub towards its replica."""
MAX_ITEM_BYTES: Final = 64 * 1_048_576
"""Largest item that a replica accepts: one batch, with the first extension of a hub log over many labels."""
COIDS_PER_ITEM: Final = 1_024


@dataclass(frozen=True, slots=True)
class Hello:
    """The primary's identity record and its signature."""

    identity: HubIdentity
    signature: Signature


@dataclass(frozen=True, slots=True)
class Batches:
    """Whole journal batches, and the number of the primary's last one."""

    data: bytes
    last: int


@dataclass(frozen=True, slots=True)
class PublishedItem:
    """The hub checkpoint that the primary serves."""

    signed: SignedHead


@dataclass(frozen=True, slots=True)
class AttachmentIds:
    """Content ids of attachments that the primary has."""

    coids: tuple[Coid, ...]


@dataclass(frozen=True, slots=True)
class HandoverItem:
    """The primary's handover to its successor."""

    record: Handover


@dataclass(frozen=True, slots=True)
class Alive:
    """A sign of life, with the number of the primary's last batch."""

    last: int


ReplicaItem = Hello | Batches | PublishedItem | AttachmentIds | HandoverItem | Alive


def encode_item(item: ReplicaItem) -> bytes:
    match item:
        case Hello():
            return cbor.encode(["hello", item.identity.encode(), bytes(item.signature)])
        case Batches():
            return cbor.encode(["batches", item.data, item.last])
        case PublishedItem():
            return cbor.encode(["published", item.signed.encode()])
        case AttachmentIds():
            return cbor.encode(["attachments", b"".join(item.coids)])
        case HandoverItem():
            return cbor.encode(["handover", item.record.encode()])
        case Alive():
            return cbor.encode(["alive", item.last])


def decode_item(data: bytes) -> ReplicaItem:
    """Decode an item; raise ``DecodeError`` if it has none of the forms above."""
    match cbor.decode_items(data):
        case ["hello", bytes(identity), bytes(signature)]:
            return Hello(HubIdentity.decode(identity), Signature(signature))
        case ["batches", bytes(batches), int(last)]:
            return Batches(batches, last)
        case ["published", bytes(note)]:
            return PublishedItem(parse_signed_head(note))
        case ["attachments", bytes(coids)] if len(coids) % Coid.SIZE == 0:
            steps = range(0, len(coids), Coid.SIZE)
            return AttachmentIds(tuple(Coid(coids[at : at + Coid.SIZE]) for at in steps))
        case ["handover", bytes(record)]:
            return HandoverItem(Handover.decode(record))
        case ["alive", int(last)]:
            return Alive(last)
        case _:
            raise DecodeError("want an item of a replica's stream", where="replica item (ADR 0019)")
