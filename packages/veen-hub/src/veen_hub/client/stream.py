"""One stream of a hub: what an application reads from and writes to (§9).

    stream = hub.stream("orders")
    receipt = await stream.send("two coffees")
    async for message in stream.follow(from_seq=1):
        print(message.stream_seq, message.text)

Under a profile with epochs (§12) messages are sent to the label of the hub's current epoch. ``read``,
``receipt``, ``proof``, ``consistency``, ``checkpoint`` and ``head`` concern one label: that of ``epoch``, by
default the current one. ``follow`` follows all labels of the stream.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from veen_core.attachment import Attachment
from veen_core.cap import CapToken
from veen_core.card import IdentityCard
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency
from veen_core.entry import Entry
from veen_core.errors import StateError
from veen_core.hashing import H
from veen_core.hub_evidence import HubEvidence
from veen_core.ids import (
    AuthRef,
    ClientId,
    Coid,
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
from veen_core.plural import plural
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_hub.client import reading
from veen_hub.client.errors import BoundsReached, Refused
from veen_hub.client.hub_log import CONFIRM_TIMEOUT_SEC
from veen_hub.client.label import LabelLog
from veen_hub.client.reading import Message
from veen_hub.client.sending.attachments import AttachingMessage, Source, store_attachment
from veen_hub.client.sending.batching import Lookahead
from veen_hub.client.sending.body import (
    AttachmentRef,
    Body,
    Composer,
    MessageDraft,
    Outgoing,
    body_bytes,
    draft_of,
)
from veen_hub.client.sending.outbox import Outbox
from veen_hub.client.sending.send_many import MAX_CONTINUATIONS, Sending, can_continue, name_stream
from veen_hub.client.sending.settling import Delivery

if TYPE_CHECKING:
    from veen_hub.client.hub import Hub

T = TypeVar("T")
Recipient = DhPublicKey | IdentityCard
"""Whom to seal to: an X25519 key, or a card that carries one."""


class Stream:
    """One named stream on one hub, with the keys that its readers share. Made by ``Hub.stream``."""

    def __init__(
        self, hub: Hub, name: str, stream_id: StreamId, *, to: Recipient | None, readers: Sequence[DhKey]
    ) -> None:
        self._hub = hub
        self.name = name
        self.id = stream_id
        self._to = to
        self._readers = tuple(readers)

    @property
    def hub(self) -> Hub:
        """The hub that takes the stream's messages: after a cutover the successor (P9)."""
        return self._hub.current

    # --- label and client_id

    @property
    def has_epochs(self) -> bool:
        """Whether the stream changes its label with each epoch (§12)."""
        return self.hub.connection.profile.epoch_sec > 0

    @property
    def hub_time(self) -> UnixTime:
        """The hub's time now, as its status and receipts have shown it; not proved."""
        return self.hub.connection.time.now()

    def label(self, epoch: Epoch | None = None) -> Label:
        """Return the label of an epoch, by default the hub's current one (§3.2)."""
        connection = self.hub.connection
        return connection.label(self.id, connection.epoch if epoch is None else epoch)

    async def _log(self, epoch: Epoch | None = None) -> LabelLog:
        return await self.hub.log(self.label(epoch), self.hub.connection.origin(self.id))

    async def outbox(self) -> Outbox:
        """Return the outbox to send with, after a cutover with nothing pending at the old hub."""
        hub = self.hub
        if hub.predecessor is not None:
            await hub.predecessor.move(self)
        return await hub.epochs(self.id).outbox()

    async def client_id(self) -> ClientId:
        """Return the client_id of the next message sent without a token: ask for a token for it (§6)."""
        log = await self._log()
        await log.state.own()
        async with log.prefix:
            await log.state.save(durable=True)  # its key must still be here when the token arrives
        return log.client_id

    async def rotate(self) -> ClientId:
        """Switch to a fresh client_id now, before the old one reaches its bounds (KEX1+ 4.1)."""
        await (await self.outbox()).rotate()
        return await self.client_id()

    async def settle(self) -> Delivery:
        """Settle the messages that a crash, a lost answer or a cancellation left pending.

        Each pending message is sent again byte for byte, or found in the log. ``send`` does this first.
        ``failure`` says why a message is not in the log and never will be.
        """
        try:
            return await self._settle()
        except Refused as exc:
            if not await can_continue(self, exc):
                raise
            return await self._settle()

    async def _settle(self) -> Delivery:
        hub, moved = self.hub, Delivery()
        if hub.predecessor is not None:
            moved = await hub.predecessor.move(self)
        here = await hub.epochs(self.id).settle()
        return Delivery(moved.receipts + here.receipts, moved.failure or here.failure, here.unanswered)

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
        confirm: bool = False,
        confirm_timeout: float = CONFIRM_TIMEOUT_SEC,
    ) -> Receipt:
        """Seal and send a message; returns the verified receipt once the message is durable (H2).

        ``to`` is whom to seal to: by default the stream's reader key, else the sender (H11). ``schema`` names
        the body's schema, ``parent`` the message that this one answers. ``cap`` is the token to send with; by
        default an authorized one that fits is chosen. With ``attachments`` the body is wrapped so that it
        lists them, unless ``body`` is a function that makes a body from their list. With ``confirm`` the call
        waits until a quorum of witnesses covers the message, for at most ``confirm_timeout`` seconds (P2).
        """
        if confirm:
            self.hub.require_witnesses()
        if attachments or callable(body):
            draft = self._draft(b"", schema, to, parent, expires_at)
            receipt = await self._send_attaching(draft, body, schema, attachments, cap)
        else:
            draft = self._draft(body, schema, to, parent, expires_at)
            receipt = await self._send(cap, lambda outbox, token: outbox.singles.send(draft, token))
        if confirm:
            await self.hub.wait_confirmed([receipt], confirm_timeout)
        return receipt

    def send_many(
        self,
        bodies: Iterable[Body | Outgoing] | AsyncIterable[Body | Outgoing],
        *,
        schema: SchemaId | str | None = None,
        to: Recipient | None = None,
        cap: CapToken | AuthRef | None = None,
        parent: LeafHash | None = None,
        expires_at: UnixTime | None = None,
        confirm: bool = False,
        confirm_timeout: float = CONFIRM_TIMEOUT_SEC,
    ) -> Sending:
        """Send messages in batches; returns an async iterator of their receipts, in order.

        An ``Outgoing`` is a body with its own schema, parent and expiry; the arguments are the defaults.
        Each batch is one request, and the next one is sealed while a batch is on its way. If a message fails,
        the receipts of the messages before it come first, then its error; no later message is sent.
        ``Sending.acknowledged`` tells how many arrived, also after an interruption. With ``confirm`` the
        iterator ends once a quorum of witnesses covers the last message, and with it all before (P2).
        """
        if confirm:
            self.hub.require_witnesses()
        return Sending(
            self,
            lambda: Lookahead.mapped(
                bodies, lambda body: self._draft(body, schema, to, parent, expires_at), size_of=body_bytes
            ),
            cap,
            confirm_timeout=confirm_timeout if confirm else None,
        )

    def _draft(
        self,
        body: Body | Outgoing,
        schema: SchemaId | str | None,
        to: Recipient | None,
        parent: LeafHash | None,
        expires_at: UnixTime | None,
    ) -> MessageDraft:
        return draft_of(body, self._recipient(to), schema, parent, expires_at)

    def _recipient(self, to: Recipient | None) -> DhPublicKey:
        chosen = to if to is not None else self._to
        if isinstance(chosen, IdentityCard):
            return chosen.recipient_at(self.hub.connection.time.now())
        if chosen is not None:
            return chosen
        if self._readers:
            return self._readers[0].public
        if (identity := self.hub.connection.identity) is None:
            raise StateError(
                f"stream {self.name}: the message has no recipient, and this connection has no identity",
                action="name a recipient with to=",
            )
        return identity.recipient

    async def store_attachment(self, ciphertext: bytes, *, cap: CapToken | AuthRef | None = None) -> Coid:
        """Store the ciphertext of an attachment under its own coid; durable when this returns (H17).

        Use it for attachments of another hub's messages, which a bridge copies without opening them (P7).
        """
        connection, coid = self.hub.connection, Coid(H(ciphertext))

        async def attempt(outbox: Outbox, token: CapToken | None) -> Coid:
            log = outbox.log
            await log.state.own()
            client_id = token.subject_pk if token is not None else log.client_id
            await store_attachment(
                connection,
                Attachment(ciphertext=ciphertext, coid=coid),
                log.label,
                token.auth_ref if token is not None else None,
                log.ring.signer(client_id),
            )
            return coid

        return await self._send(cap, attempt)

    async def _send_attaching(
        self,
        draft: MessageDraft,
        body: Body | Composer,
        schema: SchemaId | str | None,
        sources: Sequence[Source],
        cap: CapToken | AuthRef | None,
    ) -> Receipt:
        async def attempt(outbox: Outbox, token: CapToken | None) -> Receipt:
            connection, log = self.hub.connection, outbox.log
            async with outbox.reserve(token) as slot:
                signer = log.ring.signer(slot.client_id)
                message = AttachingMessage(connection, draft, slot.binding(connection, log.client), signer)
                refs = await message.add_all(sources)
                sealed = await connection.workers.run(message.seal, body, schema, refs)
                delivery = await outbox.send_sealed(slot, sealed)
            if delivery.failure is not None:
                raise delivery.failure
            return delivery.receipts[0]

        return await self._send(cap, attempt)

    async def _send(
        self,
        cap: CapToken | AuthRef | None,
        attempt: Callable[[Outbox, CapToken | None], Awaitable[T]],
    ) -> T:
        """Send to the label of the current epoch; continue under the next epoch or a fresh client_id."""
        continuations = 0
        while True:
            try:
                outbox = await self.outbox()
                return await attempt(outbox, await self.hub.tokens.choose(outbox.log, self.id, cap))
            except (Refused, BoundsReached) as exc:
                if continuations == MAX_CONTINUATIONS or not await can_continue(self, exc):
                    raise name_stream(self, exc) from None
                continuations += 1

    # --- reading

    @property
    def opens_what_it_sends(self) -> bool:
        """Whether this client has a key that opens the messages it seals to the default recipient."""
        return self._recipient(None) in {key.public for key in self.keys}

    @property
    def keys(self) -> tuple[DhKey, ...]:
        """The keys that are tried to open a message, in order."""
        identity = self.hub.connection.identity
        return (*self._readers, *(identity.dh_keys if identity is not None else ()))

    async def _open(self, entries: Sequence[Entry]) -> list[Message]:
        connection = self.hub.connection
        messages = await connection.workers.run_sized(
            len(entries), reading.open_all, entries, self.keys, connection.limits
        )
        if self.hub.confirmations is not None:
            log = await self.hub.log(entries[-1].label)
            upto = await self.hub.confirmations.upto(log, entries)
            for message in messages:
                message.confirmed = message.stream_seq <= upto
        return messages

    async def read(
        self, from_seq: int = 1, to_seq: int | None = None, *, epoch: Epoch | None = None
    ) -> AsyncGenerator[Message, None]:
        """Yield verified messages in order, up to ``to_seq`` or the end of the log."""
        end = StreamSeq(to_seq) if to_seq is not None else None
        pages = reading.read(await self._log(epoch), StreamSeq(from_seq), end)
        async with aclosing(reading.one_ahead(pages)) as verified:  # a page is verified while one is opened
            async for entries in verified:
                for message in await self._open(entries):
                    yield message

    async def follow(self, from_seq: int = 1) -> AsyncGenerator[Message, None]:
        """Yield verified messages from ``from_seq`` on, and wait for new ones; the iterator has no end.

        Under a profile with epochs the iterator starts with the oldest label that still takes messages, and
        ignores ``from_seq``.
        """
        connection = self.hub.connection
        pages = (
            reading.follow_epochs(connection, self._log, self.hub.leave)
            if connection.profile.epoch_sec
            else reading.follow(await self._log(), StreamSeq(from_seq))
        )
        async with aclosing(reading.one_ahead(pages)) as verified:
            async for entries in verified:
                for message in await self._open(entries):
                    yield message

    async def attachment(self, message: Message, which: AttachmentRef | int) -> bytes:
        """Fetch and open an attachment of ``message``, by its reference or its index from 0 (§4.6).

        Its coid, its index and its size are checked.
        """
        refs = message.attachments
        index = which if isinstance(which, int) else refs.index(which)
        if not 0 <= index < len(refs):
            raise StateError(
                f"message {message.stream_seq} has {plural(len(refs), 'attachment')}, none with index {index}"
            )
        ciphertext = await reading.fetch_attachment(self.hub.connection, refs[index].coid)
        plaintext = await self.hub.connection.workers.run(message.opened.attachment, index, ciphertext)
        return reading.check_attachment_size(refs[index], plaintext)

    # --- evidence

    async def receipt(self, stream_seq: int, *, epoch: Epoch | None = None) -> Receipt:
        """Return the receipt of a message: signed by the hub, and part of the verified log."""
        return await (await self._log(epoch)).receipt(StreamSeq(stream_seq))

    async def proof(
        self, stream_seq: int, tree_size: int | None = None, *, epoch: Epoch | None = None
    ) -> MmrProof:
        """Return a verified proof that a message is in the log's first ``tree_size`` entries (§5.4).

        By default ``tree_size`` is ``stream_seq``: the tree that the message completed.
        """
        size = StreamSeq(tree_size) if tree_size is not None else None
        return await (await self._log(epoch)).proof(StreamSeq(stream_seq), size)

    async def evidence(
        self, stream_seq: int, *, epoch: Epoch | None = None, timeout: float = CONFIRM_TIMEOUT_SEC
    ) -> HubEvidence:
        """Return verified evidence that proves one message without the log (``HubEvidence``, P1)."""
        await self._log(epoch)
        return await self.hub.evidence(self.label(epoch), stream_seq, timeout=timeout)

    async def consistency(self, from_seq: int, to_seq: int, *, epoch: Epoch | None = None) -> MmrConsistency:
        """Return a verified proof that the log at ``to_seq`` extends the log at ``from_seq`` (B11)."""
        return await (await self._log(epoch)).consistency(StreamSeq(from_seq), StreamSeq(to_seq))

    async def checkpoint(self, upto_seq: int = 0, *, epoch: Epoch | None = None) -> Checkpoint | None:
        """Return the checkpoint at ``upto_seq``, verified, or the latest (0); None if there is none."""
        return await (await self._log(epoch)).checkpoint(StreamSeq(upto_seq))

    async def head(self, *, epoch: Epoch | None = None) -> Receipt | None:
        """Return the newest receipt, verified; None if the stream is empty."""
        return await (await self._log(epoch)).head()
