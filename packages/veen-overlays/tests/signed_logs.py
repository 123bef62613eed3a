"""Logs of records with their signers, for profiles that compare a party with the signer of its message."""

from __future__ import annotations

from typing import Any

from veen_core.hashing import H, u64be
from veen_core.ids import ClientId, OperationId
from veen_core.keys import SigningKey, SigningSeed
from veen_core.msg import operation_id
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.operations.operation import IdentityId
from veen_overlays.recorder.records import sign_continuity
from veen_overlays.schema.record import Record

KEYS = [SigningKey(SigningSeed(bytes([n]) * 32)) for n in range(1, 7)]
IDS = [IdentityId(key.public) for key in KEYS]
STREAM_KEYS = [ClientId(bytes([0xA0 + n]) * 32) for n in range(6)]
"""Keys that clients draw for a stream of an open hub, one per identity."""

Signed = tuple[Record, bytes | None]


def msg_id(seq: int) -> bytes:
    return H(b"signed" + u64be(seq))


def operation_at(seq: int) -> OperationId:
    return operation_id(msg_id(seq))


def link(person: int) -> Signed:
    """The record that links a person's stream key to its identity."""
    client = STREAM_KEYS[person]
    return sign_continuity(KEYS[person], client), client


def signed_log(*entries: Signed) -> list[Message]:
    return [
        Message(n, msg_id(n), record.SCHEMA, record.encode(), None, None if client is None else bytes(client))
        for n, (record, client) in enumerate(entries, 1)
    ]


def state_after(overlay: Overlay[Any], *entries: Signed) -> Any:
    """The state after a log, folded by ``overlay``."""
    return overlay.fold(signed_log(*entries)).inner
