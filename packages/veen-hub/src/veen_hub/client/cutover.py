"""A planned cutover as a client sees it: from a hub that has handed over to the successor that it names (P9).

The client follows only a handover that the pinned hub has signed, and only to a hub whose hub_id the handover
names. The user gives the successor's address; the handover's own ``url`` is not used. The verified record is
stored, so that the client finds the successor later, when the old hub runs no longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from veen_core import stream as streams
from veen_core.errors import DecodeError, StateError
from veen_core.handover import Handover, verify_handover
from veen_core.hub_identity import HubIdentity, verify_identity
from veen_core.ids import Epoch, HubId, HubPk, LeafHash, StreamId
from veen_core.plural import plural
from veen_core.profile import Profile
from veen_core.rejection import Code
from veen_hub.client.atomic_files import expand_user
from veen_hub.client.errors import Unavailable
from veen_hub.client.sending.epochs import EPOCHS_FOLDER
from veen_hub.client.sending.moving import MOVED_FOLDER
from veen_hub.client.sending.settling import Delivery
from veen_hub.client.state.records import EpochsRecord, LabelRecord, MovedMessages, decode_record
from veen_hub.client.state.store import StateStore
from veen_hub.client.trust import Pin, PinOnFirstUse
from veen_hub.client.wire.connection import IDENTITY_RECORD, PROFILE_RECORD, HubConnection

if TYPE_CHECKING:
    from veen_hub.client.stream import Stream

HANDOVER_RECORD: Final = "fixed/handover"


async def verified_handover(connection: HubConnection) -> Handover:
    """Return the hub's handover, verified and stored; wait for it as the retry policy allows."""
    attempts = connection.retry.begin()
    await connection.refresh()
    while (record := connection.status.handover) is None:
        await attempts.wait(
            Unavailable(
                Code.UNAVAILABLE,
                f"hub {connection.hub_id.hex()} is not primary and shows no handover",
                action="send to the primary hub; nothing moves to a successor without a signed handover",
            )
        )
        await connection.refresh()
    check_handover(record, connection.status.identity)
    await connection.workers.run(connection.store.save, connection.hub_id, HANDOVER_RECORD, record.encode())
    return record


def check_handover(record: Handover, old: HubIdentity) -> None:
    """Verify that ``old`` signed the handover and its last hub checkpoint."""
    verify_identity(old, pinned=record.old_hub)
    verify_handover(record, old, origin=record.signed_head.head.origin)


def stored_handover(store: StateStore, trust: Pin) -> Handover | None:
    """Return the handover of the pinned hub that this client has verified before, verified again."""
    if (hub_id := _pinned_hub(trust)) is None or (content := store.load(hub_id, HANDOVER_RECORD)) is None:
        return None
    identity = store.load(hub_id, IDENTITY_RECORD)
    if identity is None:
        return None
    record = decode_record(Handover, content, HANDOVER_RECORD)
    check_handover(record, decode_record(HubIdentity, identity, IDENTITY_RECORD))
    return record


def _pinned_hub(trust: Pin) -> HubId | None:
    match trust:
        case PinOnFirstUse():
            path = expand_user(trust.path)
            return HubIdentity.decode(path.read_bytes()).hub_id if path.exists() else None
        case HubIdentity():
            return trust.hub_id
        case HubPk():
            return streams.hub_id(trust)
        case HubId():
            return trust
        case str():
            try:
                return HubId.from_hex(trust.strip().lower())
            except DecodeError:
                return None


class SilentHub:
    """A predecessor that does not answer: a stream with a message pending there cannot be moved."""

    def __init__(self, store: StateStore, old: HubId) -> None:
        self.resealed: dict[LeafHash, LeafHash] = {}
        self._store = store
        self._old = old

    async def move(self, stream: Stream) -> Delivery:
        workers = stream.hub.connection.workers
        await workers.run(refuse_pending, self._store, self._old, stream.id)
        return Delivery()


def refuse_pending(store: StateStore, old: HubId, stream_id: StreamId) -> None:
    """Raise ``StateError`` if a message of the stream is pending at a hub that cannot be asked any more."""
    profile = store.load(old, PROFILE_RECORD)
    if profile is None:
        return
    epochs: tuple[Epoch, ...] = (Epoch(0),)
    if decode_record(Profile, profile, PROFILE_RECORD).epoch_sec:
        name = f"{EPOCHS_FOLDER}/{stream_id.hex()}"
        content = store.load(old, name)
        epochs = decode_record(EpochsRecord, content, name).epochs if content is not None else ()
    for epoch in epochs:
        label = streams.label(streams.routing_key(old), stream_id, epoch)
        content, moved = store.load(old, label.hex()), store.load(old, f"{MOVED_FOLDER}/{label.hex()}")
        pending = decode_record(LabelRecord, content, label.hex()).state.pending if content else ()
        moving = decode_record(MovedMessages, moved, MOVED_FOLDER).messages if moved else ()
        if pending or moving:
            raise StateError(
                f"hub {old.hex()} has handed over and does not answer; it is not known whether it accepted "
                f"{plural(len(pending) or len(moving), 'pending message')}",
                action="make the old hub or its replica reachable at the address of the old hub, and repeat "
                "the operation",
            )
