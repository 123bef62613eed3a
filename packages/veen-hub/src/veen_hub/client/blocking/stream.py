"""A stream of the blocking client: the methods of ``Stream`` without ``await``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from veen_core.cap import CapToken
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency
from veen_core.hub_evidence import HubEvidence
from veen_core.ids import (
    AuthRef,
    ClientId,
    Coid,
    Epoch,
    Label,
    LeafHash,
    SchemaId,
    StreamId,
    UnixTime,
)
from veen_core.keys import DhKey
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_hub.client.blocking.sending import BlockingSending
from veen_hub.client.hub_log import CONFIRM_TIMEOUT_SEC
from veen_hub.client.loop_thread import LoopThread
from veen_hub.client.reading.message import Message
from veen_hub.client.sending.attachments import Source
from veen_hub.client.sending.body import AttachmentRef, Body, Composer
from veen_hub.client.sending.settling import Delivery
from veen_hub.client.stream import Recipient, Stream


class BlockingStream:
    """One named stream on one hub. Made by ``BlockingHub.stream``."""

    def __init__(self, loop: LoopThread, stream: Stream) -> None:
        self._loop = loop
        self._stream = stream

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._stream.name

    @property
    def id(self) -> StreamId:
        """The stream's id, which is the hash of its name (B12)."""
        return self._stream.id

    @property
    def hub_time(self) -> UnixTime:
        """The hub's time now, as its status and receipts have shown it; not proved."""
        return self._stream.hub_time

    @property
    def has_epochs(self) -> bool:
        """Whether the stream changes its label with each epoch (§12)."""
        return self._stream.has_epochs

    def label(self, epoch: Epoch | None = None) -> Label:
        """Return the label of an epoch, by default the hub's current one (§3.2)."""
        return self._stream.label(epoch)

    def client_id(self) -> ClientId:
        """Return the client_id to request a token for; messages without a token use it too (§6)."""
        return self._loop.run(self._stream.client_id())

    def rotate(self) -> ClientId:
        """Switch to a fresh client_id, before the old one reaches its bounds, and return it (KEX1+ 4.1)."""
        return self._loop.run(self._stream.rotate())

    def settle(self) -> Delivery:
        """Settle the messages that a crash, a lost answer or a cancellation left pending.

        Each pending message is sent again byte for byte, or found in the log. ``send`` does this first.
        ``failure`` of the result says why a message is not in the log and never will be.
        """
        return self._loop.run(self._stream.settle())

    def send(
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

        ``to`` is the recipient: by default the stream's reader key, else the sender (H11). ``schema`` names
        the body's schema, ``parent`` the message that this one answers. ``cap`` is the token to send with; by
        default an authorized one that fits is chosen. With ``attachments`` the body is wrapped so that it
        lists them, unless ``body`` is a function that makes a body from their list. With ``confirm`` the call
        waits until a quorum of witnesses covers the message, for at most ``confirm_timeout`` seconds (P2).
        """
        return self._loop.run(
            self._stream.send(
                body,
                schema=schema,
                to=to,
                attachments=attachments,
                cap=cap,
                parent=parent,
                expires_at=expires_at,
                confirm=confirm,
                confirm_timeout=confirm_timeout,
            )
        )

    def send_many(
        self,
        bodies: Iterable[Body],
        *,
        schema: SchemaId | str | None = None,
        to: Recipient | None = None,
        cap: CapToken | AuthRef | None = None,
        parent: LeafHash | None = None,
        expires_at: UnixTime | None = None,
        confirm: bool = False,
        confirm_timeout: float = CONFIRM_TIMEOUT_SEC,
    ) -> BlockingSending:
        """Send messages in batches; returns an iterator of their receipts, in order.

        The caller's thread iterates over ``bodies``, so they may be read from the same hub. If a message
        fails, the receipts of the messages before it come first, then its error; no later message is sent.
        ``BlockingSending.acknowledged`` counts the messages that arrived, also after an interruption. With
        ``confirm`` the iterator ends once a quorum of witnesses covers the last message (P2).
        """
        if confirm:
            self._stream.hub.require_witnesses()
        source, count = iter(bodies), 2 * self._stream.hub.connection.batch
        batches = (
            self._stream.send_many(batch, schema=schema, to=to, cap=cap, parent=parent, expires_at=expires_at)
            for batch in iter(lambda: list(islice(source, count)), [])
        )
        wait = partial(self._stream.hub.wait_confirmed, timeout=confirm_timeout) if confirm else None
        return BlockingSending(self._loop, batches, wait)

    def read(
        self, from_seq: int = 1, to_seq: int | None = None, *, epoch: Epoch | None = None
    ) -> Iterator[Message]:
        """Yield verified messages in order, up to ``to_seq`` or the end of the log."""
        return self._loop.each(self._stream.read(from_seq, to_seq, epoch=epoch))

    def follow(self, from_seq: int = 1) -> Iterator[Message]:
        """Yield verified messages from ``from_seq`` on, and wait for new ones; the iterator has no end.

        Under a profile with epochs the iterator starts with the oldest label that still takes messages, and
        ignores ``from_seq``.
        """
        return self._loop.each(self._stream.follow(from_seq))

    def attachment(self, message: Message, which: AttachmentRef | int) -> bytes:
        """Fetch and open an attachment of ``message``, by its reference or its index from 0 (§4.6)."""
        return self._loop.run(self._stream.attachment(message, which))

    def receipt(self, stream_seq: int, *, epoch: Epoch | None = None) -> Receipt:
        """Return the receipt of a message: signed by the hub, and part of the verified log."""
        return self._loop.run(self._stream.receipt(stream_seq, epoch=epoch))

    def proof(self, stream_seq: int, tree_size: int | None = None, *, epoch: Epoch | None = None) -> MmrProof:
        """Return a verified proof that a message is in the log's first ``tree_size`` entries (§5.4).

        By default ``tree_size`` is ``stream_seq``: the tree that the message completed.
        """
        return self._loop.run(self._stream.proof(stream_seq, tree_size, epoch=epoch))

    def evidence(
        self, stream_seq: int, *, epoch: Epoch | None = None, timeout: float = CONFIRM_TIMEOUT_SEC
    ) -> HubEvidence:
        """Return verified evidence that proves one message without the log (``HubEvidence``, P1)."""
        return self._loop.run(self._stream.evidence(stream_seq, epoch=epoch, timeout=timeout))

    def consistency(self, from_seq: int, to_seq: int, *, epoch: Epoch | None = None) -> MmrConsistency:
        """Return a verified proof that the log at ``to_seq`` extends the log at ``from_seq`` (B11)."""
        return self._loop.run(self._stream.consistency(from_seq, to_seq, epoch=epoch))

    def checkpoint(self, upto_seq: int = 0, *, epoch: Epoch | None = None) -> Checkpoint | None:
        """Return the checkpoint at ``upto_seq``, verified, or the latest (0); None if there is none."""
        return self._loop.run(self._stream.checkpoint(upto_seq, epoch=epoch))

    def head(self, *, epoch: Epoch | None = None) -> Receipt | None:
        """Return the newest receipt, verified; None if the stream is empty."""
        return self._loop.run(self._stream.head(epoch=epoch))

    @property
    def keys(self) -> tuple[DhKey, ...]:
        """The keys that are tried to open a message, in order."""
        return self._stream.keys

    @property
    def opens_what_it_sends(self) -> bool:
        """Whether this client has a key that opens the messages it seals to the default recipient."""
        return self._stream.opens_what_it_sends

    def store_attachment(self, ciphertext: bytes, *, cap: CapToken | AuthRef | None = None) -> Coid:
        """Store the ciphertext of an attachment under its own coid; durable when this returns (H17)."""
        return self._loop.run(self._stream.store_attachment(ciphertext, cap=cap))
