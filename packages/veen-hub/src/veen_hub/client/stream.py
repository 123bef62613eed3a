"""One stream of a hub: what an application reads from and writes to (§9).

    stream = hub.stream("orders")
    receipt = await stream.send("two coffees")
    async for message in stream.follow(from_seq=1):
        print(message.stream_seq, message.text)

Under a profile with epochs (§12) messages go to the label of the hub's current epoch. ``read``, ``receipt``,
``proof``, ``consistency``, ``checkpoint`` and ``head`` are about one label: the current epoch's, or that of
``epoch``. ``follow`` goes through all labels.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from veen_core.cap import CapToken
from veen_core.card import IdentityCard
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency
from veen_core.entry import Entry
from veen_core.errors import StateError, VeenError
from veen_core.ids import (
    AuthRef,
    ClientId,
    DhPublicKey,
    Epoch,
    Label,
    LeafHash,
    SchemaId,
    StreamId,
    StreamSeq,
    UnixTime,
)
from veen_core.keys import DhKey
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_core.rejection import EPOCH
from veen_hub.client.errors import BoundsReached, Refused
from veen_hub.client.label.label_log import LabelLog
from veen_hub.client.reading import attachments as parcels
from veen_hub.client.reading import follow
from veen_hub.client.reading.attachments import Parcel, Source
from veen_hub.client.reading.message import Message, open_all
from veen_hub.client.sending.batching import Lookahead
from veen_hub.client.sending.body import AttachmentRef, Body, Composer, Draft, encode_body
from veen_hub.client.sending.outbox import Outbox, Sending
from veen_hub.client.sending.sealing import SealedBatch
from veen_hub.client.sending.settling import Delivery

if TYPE_CHECKING:
    from veen_hub.client.hub import Hub

Recipient = DhPublicKey | IdentityCard
_EPOCH_TRIES: Final = 3


class Stream:
    """A name, the keys of its readers, and a hub."""

    def __init__(
        self, hub: Hub, name: str, stream_id: StreamId, *, to: Recipient | None, readers: Sequence[DhKey]
    ) -> None:
        self.hub = hub
        self.name = name
        self.id = stream_id
        self._to = to
        self._readers = tuple(readers)

    # --- places

    def label(self, epoch: Epoch | None = None) -> Label:
        connection = self.hub.connection
        return connection.label(self.id, connection.epoch if epoch is None else epoch)

    async def _log(self, epoch: Epoch | None = None) -> LabelLog:
        return await self.hub.log(self.label(epoch), self.hub.connection.origin(self.id))

    async def _outbox(self) -> Outbox:
        return await self.hub.epochs(self.id).outbox()

    async def client_id(self) -> ClientId:
        """The client_id of the next message sent without a token: the one to ask for a token for (§6)."""
        log = await self._log()
        await log.state.own()
        async with log.prefix:
            await log.state.save(durable=True)  # it must still be ours when the token comes
        return log.client_id

    async def rotate(self) -> ClientId:
        """A fresh client_id now, before its bounds are reached (KEX1+ 4.1)."""
        await (await self._outbox()).rotate()
        return await self.client_id()

    async def settle(self) -> Delivery:
        """Get answered what a crash, a lost answer or a cancellation left open; ``send`` does so first.

        ``failure`` says why something is not in the log and will not be.
        """
        return await self.hub.epochs(self.id).settle()

    # --- sending

    async def send(
        self,
        body: Body | Composer,
        *,
        schema: SchemaId | str | None = None,
        to: Recipient | None = None,
        attachments: Sequence[Source] = (),
        cap: CapToken | AuthRef | None = None,
        parent: LeafHash | None = None,
        expires_at: UnixTime | None = None,
    ) -> Receipt:
        """Seal, send, verify; durable at the hub when this returns (H2).

        Without ``to`` it is sealed to the stream's reader key, else to the sender (H11). With ``attachments``
        the body is wrapped so that it lists them, unless it is a function that makes a body from their list.
        """
        if attachments or callable(body):
            draft = self._draft(b"", schema, to, parent, expires_at)
            return await self._send_parcel(draft, body, schema, attachments, cap)
        draft = self._draft(body, schema, to, parent, expires_at)
        async with aclosing(self._deliver(Lookahead.of([draft]), cap)) as receipts:
            async for receipt in receipts:
                return receipt
        raise StateError("nothing was sent")

    async def send_many(
        self,
        bodies: Iterable[Body] | AsyncIterable[Body],
        *,
        schema: SchemaId | str | None = None,
        to: Recipient | None = None,
        cap: CapToken | AuthRef | None = None,
        parent: LeafHash | None = None,
        expires_at: UnixTime | None = None,
    ) -> AsyncGenerator[Receipt, None]:
        """Receipts in order of ``bodies``; batches travel in one request each, the next is sealed meanwhile.

        If a message fails, the receipts of those before it come first, then its error: none after it is sent.
        """
        drafts = Lookahead.mapped(bodies, lambda body: self._draft(body, schema, to, parent, expires_at))
        async with aclosing(self._deliver(drafts, cap)) as receipts:
            async for receipt in receipts:
                yield receipt

    def _draft(
        self,
        body: Body,
        schema: SchemaId | str | None,
        to: Recipient | None,
        parent: LeafHash | None,
        expires_at: UnixTime | None,
    ) -> Draft:
        schema_id, encoded = encode_body(body, schema)
        return Draft(
            recipient=self._recipient(to),
            schema=schema_id,
            body=encoded,
            parent=parent,
            expires_at=expires_at,
        )

    def _recipient(self, to: Recipient | None) -> DhPublicKey:
        chosen = to if to is not None else self._to
        if isinstance(chosen, IdentityCard):
            return chosen.recipient_at(self.hub.connection.time.now())
        if chosen is not None:
            return chosen
        if self._readers:
            return self._readers[0].public
        if (identity := self.hub.connection.identity) is None:
            raise StateError("to whom? this connection has no identity: name a recipient with to=")
        return identity.recipient

    async def _deliver(
        self, drafts: Lookahead[Draft], cap: CapToken | AuthRef | None
    ) -> AsyncGenerator[Receipt, None]:
        """Chunk after chunk through the label of the moment; a failure comes after what went well."""
        batch, ready, tries = self.hub.connection.batch, None, 0
        async with aclosing(drafts):
            while chunk := await drafts.peek(batch):
                delivery = await self._deliver_chunk(chunk, drafts.waiting(batch), cap, ready)
                ready = delivery.ahead
                drafts.drop(len(delivery.receipts))
                for receipt in delivery.receipts:
                    yield receipt
                if delivery.failure is None:
                    tries = 0
                elif tries < _EPOCH_TRIES and await self._can_go_on(delivery.failure):
                    tries += 1
                else:
                    raise delivery.failure

    async def _deliver_chunk(
        self,
        chunk: Sequence[Draft],
        ahead: Sequence[Draft],
        cap: CapToken | AuthRef | None,
        ready: SealedBatch | None,
    ) -> Sending:
        outbox = await self._outbox()
        try:
            token = await self.hub.tokens.choose(outbox.log, self.id, cap)
        except BoundsReached as exc:
            return Sending(failure=exc)
        return await outbox.send(chunk, token=token, ready=ready, ahead=ahead)

    async def _can_go_on(self, why: VeenError) -> bool:
        """The epoch turned, or the token's client_id is used up and another can be had."""
        if isinstance(why, Refused) and why.detail_enum == EPOCH.detail:
            await self.hub.connection.refresh()
            return True
        if isinstance(why, BoundsReached) and self.hub.tokens.source is not None:
            await self.rotate()
            return True
        return False

    async def _send_parcel(
        self,
        draft: Draft,
        body: Body | Composer,
        schema: SchemaId | str | None,
        sources: Sequence[Source],
        cap: CapToken | AuthRef | None,
    ) -> Receipt:
        for attempt in range(_EPOCH_TRIES):
            outbox = await self._outbox()
            connection, log = self.hub.connection, outbox.log
            try:
                token = await self.hub.tokens.choose(log, self.id, cap)
                async with outbox.place(token) as slot:
                    signer = log.ring.signer(slot.client_id)
                    parcel = Parcel(connection, draft, slot.binding(connection, log.client), signer)
                    refs = await parcel.add_all(sources)
                    sealed = await connection.workers.run(parcel.seal, body, schema, refs)
                    delivery = await outbox.fill(slot, sealed)
                if delivery.failure is not None:
                    raise delivery.failure
                return delivery.receipts[0]
            except (Refused, BoundsReached) as exc:
                if attempt + 1 == _EPOCH_TRIES or not await self._can_go_on(exc):
                    raise
        raise StateError("nothing was sent")

    # --- reading

    @property
    def _keys(self) -> tuple[DhKey, ...]:
        identity = self.hub.connection.identity
        return (*self._readers, *(identity.dh_keys if identity is not None else ()))

    async def _open(self, entries: Sequence[Entry]) -> list[Message]:
        return await self.hub.connection.workers.run(
            open_all, entries, self._keys, self.hub.connection.limits
        )

    async def read(
        self, from_seq: int = 1, to_seq: int | None = None, *, epoch: Epoch | None = None
    ) -> AsyncGenerator[Message, None]:
        """Verified messages in order, to ``to_seq`` or the end."""
        end = StreamSeq(to_seq) if to_seq is not None else None
        async with aclosing(follow.read(await self._log(epoch), StreamSeq(from_seq), end)) as pages:
            async for entries in pages:
                for message in await self._open(entries):
                    yield message

    async def follow(self, from_seq: int = 1) -> AsyncGenerator[Message, None]:
        """Verified messages from ``from_seq`` on, for ever; under epochs, from the window's oldest label."""
        connection = self.hub.connection
        pages = (
            follow.follow_epochs(connection, self._log, self.hub.leave)
            if connection.profile.epoch_sec
            else follow.follow(await self._log(), StreamSeq(from_seq))
        )
        async with aclosing(pages):
            async for entries in pages:
                for message in await self._open(entries):
                    yield message

    async def attachment(self, message: Message, which: AttachmentRef | int) -> bytes:
        """The plaintext of one of a message's attachments, checked against coid, place and size (§4.6)."""
        refs = message.attachments
        index = which if isinstance(which, int) else refs.index(which)
        if not 0 <= index < len(refs):
            raise StateError(f"message {message.stream_seq} has {len(refs)} attachments, not {index + 1}")
        ciphertext = await parcels.get(self.hub.connection, refs[index].coid)
        plaintext = await self.hub.connection.workers.run(message.opened.attachment, index, ciphertext)
        return parcels.check_size_of(refs[index], plaintext)

    # --- evidence

    async def receipt(self, stream_seq: int, *, epoch: Epoch | None = None) -> Receipt:
        return await (await self._log(epoch)).receipt(StreamSeq(stream_seq))

    async def proof(
        self, stream_seq: int, tree_size: int | None = None, *, epoch: Epoch | None = None
    ) -> MmrProof:
        size = StreamSeq(tree_size) if tree_size is not None else None
        return await (await self._log(epoch)).proof(StreamSeq(stream_seq), size)

    async def consistency(self, from_seq: int, to_seq: int, *, epoch: Epoch | None = None) -> MmrConsistency:
        return await (await self._log(epoch)).consistency(StreamSeq(from_seq), StreamSeq(to_seq))

    async def checkpoint(self, upto_seq: int = 0, *, epoch: Epoch | None = None) -> Checkpoint | None:
        """The latest one, or the one at ``upto_seq``; None if there is none."""
        return await (await self._log(epoch)).checkpoint(StreamSeq(upto_seq))

    async def head(self, *, epoch: Epoch | None = None) -> Receipt | None:
        """The newest receipt; None while the stream holds nothing."""
        return await (await self._log(epoch)).head()
