"""Moving a stream from a hub that has handed over to its successor: no message is lost or sent twice (P9).

The old hub accepts nothing after its handover, so a pending message either is in the old log or never will
be. A message that is in the old log is delivered. Any other is opened, sealed again for the successor's
label, and sent there. Order of these steps:

    1. find the pending messages in the old log; those found are settled
    2. seal the others for the successor's label, and write them to the record ``moved/…``  ← commit point
    3. remove them from the old label's pending messages
    4. add them to the pending messages of the successor's label, and deliver them
    5. empty the record

A client that died after step 2 repeats steps 3 to 5 with the messages of the record. Step 4 is repeatable,
because a message names its client_seq: the successor's label has used it, or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from veen_core.errors import DecodeError, OpenError
from veen_core.handover import Handover
from veen_core.ids import Label, LeafHash, StreamId
from veen_core.keys import DhKey
from veen_core.msg import Msg, SealedMsg
from veen_core.plural import plural
from veen_core.receipt import Receipt
from veen_core.rejection import Code
from veen_core.tlog.tree_head import parse_signed_head
from veen_hub.client.errors import Misbehaved, NotFound, OutOfTime, Refused
from veen_hub.client.sending.body import MessageDraft
from veen_hub.client.sending.outbox import Outbox
from veen_hub.client.sending.settling import Delivery
from veen_hub.client.state.records import MovedMessages, decode_record

if TYPE_CHECKING:
    from veen_hub.client.hub import Hub
    from veen_hub.client.stream import Stream

logger: Final = logging.getLogger("veen.client")
MOVED_FOLDER: Final = "moved"


class Predecessor(Protocol):
    """The hub that has handed over to the successor."""

    resealed: dict[LeafHash, LeafHash]
    """By the leaf_hash of a moved message: the leaf_hash of the message that it was sealed from."""

    async def move(self, stream: Stream) -> Delivery:
        """Move a stream's pending messages at its first call; returns their outcome."""


class ClosedHub:
    """A predecessor that still answers: each stream is settled there before it is used at the successor."""

    def __init__(self, old: Hub, new: Hub, record: Handover) -> None:
        self.hub = old
        self.handover = record
        self.resealed: dict[LeafHash, LeafHash] = {}
        self._new = new
        self._moved: set[StreamId] = set()
        self._moving = asyncio.Lock()

    async def move(self, stream: Stream) -> Delivery:
        found = Delivery()
        if stream.id in self._moved:
            return found
        async with self._moving:
            if stream.id not in self._moved:
                for outbox in await self.hub.epochs(stream.id).all_outboxes():
                    await self._move_label(stream, outbox, found)
                self._moved.add(stream.id)
        return found

    async def _move_label(self, stream: Stream, old: Outbox, found: Delivery) -> None:
        await old.log.state.own()
        moved = await self._load(old.log.label)
        if not moved.messages:
            settled = await old.settle_closed()
            found.receipts += settled.receipts
            if not old.log.client.state.pending:
                return
            await self._check_complete(old)
        new = await self._new.epochs(stream.id).outbox()
        async with new.alone():
            if not moved.messages:
                moved = await self._seal(stream, old, new, found)
                await self._save(old.log.label, moved)  # the commit point
            await old.withdraw_all()
            if moved.messages:
                found.receipts += await self._deliver(new, moved, found)
        await self._save(old.log.label, MovedMessages(messages=(), sealed_from=()))

    async def _check_complete(self, old: Outbox) -> None:
        """Check that the old log was read to its end, as the handover's hub checkpoint has it (P1)."""
        try:
            proof = await self.hub.label_head(old.log.label)
        except NotFound:
            return  # the hub log ends without this label
        size = parse_signed_head(proof.checkpoint).head.size
        read = await old.log.head()
        if (
            size < self.handover.signed_head.head.size
            or read is None
            or read.stream_seq < proof.head.upto_seq
        ):
            raise Misbehaved(
                f"hub {self.hub.hub_id.hex()} has handed over, but serves only a part of label "
                f"{old.log.label.hex()}"
            )

    # --- sealing again

    async def _seal(self, stream: Stream, old: Outbox, new: Outbox, found: Delivery) -> MovedMessages:
        messages = old.log.client.unanswered
        drafts = [_draft_of(msg, stream.keys) for msg in messages]
        kept = [(msg, draft) for msg, draft in zip(messages, drafts, strict=True) if draft is not None]
        if lost := len(messages) - len(kept):
            found.failure = OutOfTime(
                Code.TIME,
                f"{plural(lost, 'message')} of stream {stream.name} did not reach hub "
                f"{self.hub.hub_id.hex()} before it handed over, and this client cannot open them to seal "
                "them again",
                action="send them again",
            )
            logger.warning("pending_messages_not_moved label=%s count=%d", old.log.label.hex(), lost)
        if not kept:
            return MovedMessages(messages=(), sealed_from=())
        token = await self._new.tokens.choose(new.log, stream.id, None)
        sealed = await new.seal_next([draft for _msg, draft in kept], token)
        return MovedMessages(
            messages=tuple(one.wire for one in sealed), sealed_from=tuple(msg.leaf_hash for msg, _ in kept)
        )

    async def _deliver(self, new: Outbox, moved: MovedMessages, found: Delivery) -> Sequence[Receipt]:
        sealed = [SealedMsg(Msg.decode(wire), wire, ()) for wire in moved.messages]
        for one, before in zip(sealed, moved.sealed_from, strict=True):
            self.resealed[one.msg.leaf_hash] = before
        delivery = await new.deliver_moved(sealed)
        if delivery.failure is not None and not isinstance(delivery.failure, Refused):
            raise delivery.failure  # the messages are pending at the successor, or still in the record
        found.failure = found.failure or delivery.failure
        return delivery.receipts

    # --- the record

    async def _load(self, label: Label) -> MovedMessages:
        connection, name = self.hub.connection, f"{MOVED_FOLDER}/{label.hex()}"
        content = await connection.workers.run(connection.store.load, connection.hub_id, name)
        if content is None:
            return MovedMessages(messages=(), sealed_from=())
        return decode_record(MovedMessages, content, name)

    async def _save(self, label: Label, moved: MovedMessages) -> None:
        connection, name = self.hub.connection, f"{MOVED_FOLDER}/{label.hex()}"
        await connection.workers.run(connection.store.save, connection.hub_id, name, moved.encode())


def _draft_of(msg: Msg, keys: Sequence[DhKey]) -> MessageDraft | None:
    """Open a message; None if no key opens it, or if it has attachments, which cannot be sealed again."""
    for key in keys:
        try:
            opened = msg.open(key)
        except (OpenError, DecodeError):
            continue
        header = opened.header
        if header.att_root is not None:
            return None
        return MessageDraft(
            recipient=key.public,
            schema=header.schema,
            body=opened.body,
            parent=header.parent_id,
            expires_at=header.expires_at,
        )
    return None
