"""The blocking client, for scripts: the methods of ``veen_hub.client`` without ``await``.

    alice = Identity.load("alice", passphrase)
    with connect("https://hub.example", alice, trust="<hub_id>", state="alice/state") as hub:
        for message in hub.stream("orders").read():
            print(message.text)

Each connection runs an event loop in a thread of its own. Ctrl-C cancels the call under way and is raised
once that call has ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from veen_core.cap import CapToken
from veen_core.checkpoint import Checkpoint
from veen_core.client_state import ClientBounds
from veen_core.consistency import MmrConsistency
from veen_core.equivocation import Equivocation
from veen_core.handover import Handover
from veen_core.hub_evidence import HubEvidence
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import HubProofResponse
from veen_core.ids import (
    AuthRef,
    ClientId,
    Coid,
    Epoch,
    HubId,
    Label,
    LeafHash,
    SchemaId,
    StreamId,
    UnixTime,
)
from veen_core.keys import DhKey, SigningKey
from veen_core.keystore import Secrets
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_core.status import CapStatus, Status
from veen_core.tlog.policy import WitnessPolicy
from veen_core.tlog.tree_head import SignedHead
from veen_hub.client import hub as asynchronous
from veen_hub.client.admin import Admin
from veen_hub.client.hub import BATCH, LOCK_TIMEOUT, MAX_POW_DIFFICULTY
from veen_hub.client.hub_log import CONFIRM_TIMEOUT, LabelHeads
from veen_hub.client.identity import Identity, Randomness
from veen_hub.client.loop_thread import LoopThread
from veen_hub.client.reading.message import Message
from veen_hub.client.sending.attachments import Source
from veen_hub.client.sending.body import AttachmentRef, Body, Composer
from veen_hub.client.sending.send_many import Sending
from veen_hub.client.sending.settling import Delivery
from veen_hub.client.state.store import StateStore
from veen_hub.client.stream import Recipient, Stream
from veen_hub.client.tokens import TokenSource
from veen_hub.client.trust import Pin
from veen_hub.client.wire.retry import Retry
from veen_hub.client.wire.transport import Timeouts, Tls


class BlockingSending:
    """Messages that ``BlockingStream.send_many`` sends: an iterator of their receipts, in order.

    ``acknowledged`` counts the messages that the hub has made durable, beginning with the first; it is
    correct after an error or Ctrl-C too. ``settle`` finds out which unanswered messages are in the log.
    """

    def __init__(
        self,
        loop: LoopThread,
        batches: Iterator[Sending],
        confirm: Callable[[Iterable[Receipt]], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """``confirm`` waits until a quorum of witnesses covers the newest receipt of each label (P2)."""
        self._loop = loop
        self._batches = batches
        self._confirm = confirm
        self._current: Sending | None = None
        self._before = 0
        self._last: Receipt | None = None
        self._receipts = self._send()

    def _send(self) -> Iterator[Receipt]:
        newest: dict[Label, Receipt] = {}
        for sending in self._batches:
            self._before, self._last = self.acknowledged, self.last
            self._current = sending
            yield from self._loop.each(sending)
            newest |= sending.newest
        if self._confirm is not None:
            self._loop.run(self._confirm(newest.values()))

    def __iter__(self) -> BlockingSending:
        return self

    def __next__(self) -> Receipt:
        return next(self._receipts)

    @property
    def acknowledged(self) -> int:
        """Messages that the hub has made durable, beginning with the first."""
        return self._before + (self._current.acknowledged if self._current is not None else 0)

    @property
    def last(self) -> Receipt | None:
        """The receipt of the last message acknowledged."""
        return self._current.last if self._current is not None and self._current.last else self._last

    @property
    def unanswered(self) -> int:
        """Messages after the acknowledged ones that may or may not have reached the hub."""
        return self._current.unanswered if self._current is not None else 0

    def settle(self) -> None:
        """Settle the unanswered messages; afterwards ``acknowledged`` is exact. See ``Sending.settle``."""
        if self._current is not None:
            self._loop.run(self._current.settle())


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
        confirm_timeout: float = CONFIRM_TIMEOUT,
    ) -> Receipt:
        """Seal and send a message; returns the verified receipt once the message is durable (H2).

        ``to`` is the recipient: by default the stream's reader key, else the sender (H11). ``schema`` names
        the body's schema, ``parent`` the message that this one answers. ``cap`` is the token to send with; by
        default an authorized one that fits is chosen. With ``attachments`` the body is wrapped so that it
        lists them, unless ``body`` is a function that makes a body from their list. With ``confirm`` it waits
        until a quorum of witnesses covers the message, for at most ``confirm_timeout`` seconds (P2).
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
        confirm_timeout: float = CONFIRM_TIMEOUT,
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
        """Yield verified messages from ``from_seq`` on, and wait for new ones; it does not end.

        Under a profile with epochs it starts with the oldest label that still takes messages, and ignores
        ``from_seq``.
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
        self, stream_seq: int, *, epoch: Epoch | None = None, timeout: float = CONFIRM_TIMEOUT
    ) -> HubEvidence:
        """Return evidence of a message that travels alone, verified; see ``veen_core.hub_evidence`` (P1)."""
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


class BlockingAdmin:
    """Requests that need the hub's admin key (H19). Made by ``BlockingHub.admin``."""

    def __init__(self, loop: LoopThread, admin: Admin) -> None:
        self._loop = loop
        self._admin = admin

    def checkpoint(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        """Make a checkpoint of one label, or of all labels that grew; returns the verified checkpoints."""
        return self._loop.run(self._admin.checkpoint(label))

    def anchor(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        """Publish the newest checkpoints now; returns the published checkpoints, verified."""
        return self._loop.run(self._admin.anchor(label))

    def retention(self) -> tuple[int, int]:
        """Apply the retention rules now; returns how many chunks and entries lost their payloads."""
        return self._loop.run(self._admin.retention())

    def hand_over(self, new_hub: HubId, url: str = "") -> Handover:
        """End the hub in favour of its successor; returns the verified record (P9)."""
        return self._loop.run(self._admin.hand_over(new_hub, url))


class BlockingHub:
    """A connected hub. Made by ``connect``."""

    def __init__(self, loop: LoopThread, hub: asynchronous.Hub) -> None:
        self._loop = loop
        self._hub = hub

    @property
    def hub_id(self) -> HubId:
        """The hub's identifier, which is the hash of its first key."""
        return self._hub.hub_id

    @property
    def identity(self) -> HubIdentity:
        """The hub's verified identity: its keys and their validity."""
        return self._hub.identity

    @property
    def url(self) -> str:
        """The hub's address."""
        return self._hub.url

    def epoch_at(self, hub_ts: UnixTime) -> Epoch:
        """Return the epoch of a receipt's time; 0 under a profile without epochs (§3.2)."""
        return self._hub.epoch_at(hub_ts)

    def stream(
        self, name: str, *, to: Recipient | None = None, readers: Sequence[DhKey] = ()
    ) -> BlockingStream:
        """Return a stream, by name or by its id in 64 hex digits (B12).

        ``readers`` are the keys that the stream's readers share: they are tried first when a message is
        opened, and messages are sealed to the first of them, or to ``to`` if it is given (H11).
        """
        return BlockingStream(self._loop, self._hub.stream(name, to=to, readers=readers))

    def status(self) -> Status:
        """Read the hub's status and check its identity against the known one."""
        return self._loop.run(self._hub.status())

    def authorize(self, token: CapToken) -> Receipt:
        """Authorize a token at the hub; messages to its streams use it from then on (H5)."""
        return self._loop.run(self._hub.authorize(token))

    def hold(self, token: CapToken) -> None:
        """Keep the token of an access grant (spec-3 3.3); messages to its streams use it from then on."""
        self._loop.run(self._hub.hold(token))

    def cap_status(self, auth_ref: AuthRef) -> CapStatus:
        """Read the status of a token. The hub does not sign it; it signs the receipt of ``authorize``."""
        return self._loop.run(self._hub.cap_status(auth_ref))

    @property
    def hub_checkpoint(self) -> SignedHead | None:
        """The newest hub checkpoint that fulfils the witness policy; None without a policy."""
        return self._hub.hub_checkpoint

    def confirm(self, *receipts: Receipt, timeout: float = CONFIRM_TIMEOUT) -> None:
        """Wait until a quorum of witnesses covers the receipts; raise ``Unconfirmed`` after ``timeout`` s."""
        self._loop.run(self._hub.confirm(*receipts, timeout=timeout))

    def evidence(self, label: Label, stream_seq: int, *, timeout: float = CONFIRM_TIMEOUT) -> HubEvidence:
        """Return evidence of a message that travels alone, verified; see ``veen_core.hub_evidence`` (P1)."""
        return self._loop.run(self._hub.evidence(label, stream_seq, timeout=timeout))

    def label_head(
        self, label: Label, stream_seq: int | None = None, *, timeout: float = CONFIRM_TIMEOUT
    ) -> HubProofResponse:
        """Return a label's newest head in the hub log, or the first that covers ``stream_seq`` (P1)."""
        return self._loop.run(self._hub.label_head(label, stream_seq, timeout=timeout))

    def label_heads(self, *, progress: Callable[[int], None] | None = None) -> LabelHeads:
        """Return the newest head of every label, complete under one hub checkpoint (P1).

        The whole hub log is read; ``progress`` is called in another thread with the number of entries read.
        """
        return self._loop.run(self._hub.label_heads(progress=progress))

    def cut_over(self) -> bool:
        """Move to the successor that this hub's verified handover names; False without an address (P9)."""
        return self._loop.run(self._hub.cut_over())

    def admin(self, key: SigningKey) -> BlockingAdmin:
        """Return the requests that need the hub's admin key (H19)."""
        return BlockingAdmin(self._loop, self._hub.admin(key))

    def report_equivocation(self, evidence: Equivocation) -> None:
        """Verify evidence against any hub and report it to this hub."""
        self._loop.run(self._hub.report_equivocation(evidence))

    def fetch(self, coid: Coid) -> bytes:
        """Fetch an attachment's ciphertext and check it against ``coid``."""
        return self._loop.run(self._hub.fetch(coid))


@contextmanager
def connect(
    url: str,
    identity: Identity | Secrets | None = None,
    *,
    trust: Pin,
    successor: str | None = None,
    witnesses: WitnessPolicy | Path | str | None = None,
    state: StateStore | Path | str | None = None,
    tokens: TokenSource | None = None,
    tls: Tls | None = None,
    timeouts: Timeouts | None = None,
    retry: Retry | None = None,
    bounds: ClientBounds | None = None,
    batch: int = BATCH,
    lock_timeout: float = LOCK_TIMEOUT,
    max_pow_difficulty: int = MAX_POW_DIFFICULTY,
    randomness: Randomness = os.urandom,
) -> Iterator[BlockingHub]:
    """Connect to the hub at ``url``, if it is the one that ``trust`` names.

    ``successor`` is the address of the hub that replaces this one: after a signed handover, streams send
    there, if that hub is the one that the handover names (P9).
    ``identity`` holds the keys to sign and open with; a client that only verifies needs none. ``witnesses``
    is a witness policy or its file: witnesses must have cosigned the hub's log as it says (P2). ``state`` is
    a folder or a ``StateStore``; without it, nothing survives the connection. ``tokens`` is an async function
    that returns a cap token when a gated hub demands one. ``bounds`` limits the use of one client_id,
    ``batch`` is the number of messages per request, ``lock_timeout`` the seconds to wait for a label that
    another process owns, and ``max_pow_difficulty`` the largest proof of work done for a message.
    """
    loop = LoopThread()
    try:
        opening = asynchronous.connect(
            url,
            identity,
            trust=trust,
            successor=successor,
            witnesses=witnesses,
            state=state,
            tokens=tokens,
            tls=tls,
            timeouts=timeouts,
            retry=retry,
            bounds=bounds,
            batch=batch,
            lock_timeout=lock_timeout,
            max_pow_difficulty=max_pow_difficulty,
            randomness=randomness,
        )
        hub = loop.run(opening.__aenter__())
        try:
            yield BlockingHub(loop, hub)
        finally:
            loop.cancel_calls()
            loop.run(opening.__aexit__(None, None, None))
    finally:
        loop.close()
