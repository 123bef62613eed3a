"""A connected hub: its streams, tokens, logs and checkpoints. ``connecting`` makes one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from veen_core import stream as streams
from veen_core.cap import CapToken
from veen_core.checkpoint import LabelOrigin
from veen_core.equivocation import Equivocation, verify_evidence
from veen_core.errors import StateError
from veen_core.hub_evidence import HubEvidence
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import HubProofResponse
from veen_core.ids import AuthRef, Coid, Epoch, HubId, Label, StreamId, StreamSeq, UnixTime
from veen_core.keys import DhKey, SigningKey
from veen_core.receipt import Receipt
from veen_core.status import CapStatus, Status
from veen_core.tlog.tree_head import SignedHead
from veen_hub.client.admin import Admin
from veen_hub.client.cutover import verified_handover
from veen_hub.client.hub_log import (
    CONFIRM_TIMEOUT_SEC,
    Confirmations,
    LabelHeads,
    gather_evidence,
    gather_head,
    read_label_heads,
)
from veen_hub.client.label.label_log import LabelLog
from veen_hub.client.log import HubLogReader, HubLogWriter
from veen_hub.client.reading.attachments import fetch_attachment
from veen_hub.client.sending.epochs import EpochLabels, EpochOutboxes, current_window
from veen_hub.client.sending.moving import ClosedHub, Predecessor
from veen_hub.client.sending.outbox import Outbox
from veen_hub.client.sending.shared_sends import SharedSends
from veen_hub.client.stream import Recipient, Stream
from veen_hub.client.tokens import Tokens, TokenSource
from veen_hub.client.wire.connection import HubConnection


class Hub:
    """A connected hub. Made by ``connect``."""

    def __init__(
        self,
        connection: HubConnection,
        tokens: TokenSource | None,
        confirmations: Confirmations | None = None,
        successors: Successors | None = None,
    ) -> None:
        """``successors`` connects to the hub that a handover names; without it the client never moves."""
        self.connection = connection
        self.successor: Hub | None = None
        """The hub that this one has handed over to, once this client has moved there (P9)."""
        self.predecessor: Predecessor | None = None
        """The hub that has handed over to this one, if this client came from there."""
        self._successors = successors
        self._after = AsyncExitStack()
        self._moving = asyncio.Lock()
        self.confirmations = confirmations
        """The confirmations by a quorum of witnesses; None without a witness policy."""
        self._logs: dict[Label, LabelLog] = {}
        self._outboxes: dict[Label, Outbox] = {}
        self._shared = SharedSends(connection)
        self._epochs: dict[StreamId, EpochOutboxes] = {}
        self._opening = asyncio.Lock()
        control = LabelLog.load(connection, connection.status.control_label, None)
        self._logs[control.label] = control
        self.tokens = Tokens(connection, control, tokens)

    # --- for applications

    @property
    def hub_id(self) -> HubId:
        """The hub's identifier, which is the hash of its first key."""
        return self.connection.hub_id

    @property
    def identity(self) -> HubIdentity:
        """The hub's verified identity: its keys and their validity."""
        return self.connection.status.identity

    @property
    def url(self) -> str:
        """The hub's address."""
        return self.connection.api.transport.url

    @property
    def current(self) -> Hub:
        """The hub to send to: this one, or the successor that this client has moved to (P9)."""
        return self.successor.current if self.successor is not None else self

    async def cut_over(self) -> bool:
        """Move to the successor that this hub's verified handover names; False if no address is known (P9).

        Streams send there from now on. A stream's messages that are pending here are settled first.
        """
        if self._successors is None:
            return False
        async with self._moving:
            if self.successor is None:
                record = await verified_handover(self.connection)
                new = await self._after.enter_async_context(self._successors(record.new_hub))
                new.predecessor = ClosedHub(self, new, record)
                self.successor = new
        return True

    def epoch_at(self, hub_ts: UnixTime) -> Epoch:
        """Return the epoch of a receipt's time; 0 under a profile without epochs (§3.2)."""
        return streams.epoch_at(hub_ts, self.connection.profile.epoch_sec)

    def stream(self, name: str, *, to: Recipient | None = None, readers: Sequence[DhKey] = ()) -> Stream:
        """Return a stream, by name or by its id in 64 hex digits (B12).

        ``readers`` are the keys that the stream's readers share: they are tried first when a message is
        opened, and messages are sealed to the first of them, or to ``to`` if it is given (H11).
        """
        return Stream(self, name, streams.stream_id(name), to=to, readers=readers)

    def admin(self, key: SigningKey) -> Admin:
        """Return the requests that need the hub's admin key (H19)."""
        return Admin(self, key)

    async def status(self) -> Status:
        """Read the hub's status and check its identity against the known one."""
        await self.connection.refresh()
        return self.connection.status

    async def authorize(self, token: CapToken) -> Receipt:
        """Authorize a token at the hub; messages to its streams use it from then on (H5)."""
        return await self.tokens.authorize(token)

    async def hold(self, token: CapToken) -> None:
        """Keep the token of an access grant (spec-3 3.3); messages to its streams use it from then on."""
        await self.tokens.hold(token)

    async def cap_status(self, auth_ref: AuthRef) -> CapStatus:
        """Read the status of a token. The hub does not sign it; it signs the receipt of ``authorize``."""
        return await self.connection.ask(lambda: self.connection.api.cap_status(auth_ref))

    async def report_equivocation(self, evidence: Equivocation) -> None:
        """Verify evidence against any hub and report it to this hub."""
        verify_evidence(evidence)
        wire = evidence.encode()
        await self.connection.ask(lambda: self.connection.api.report(wire))

    async def fetch(self, coid: Coid) -> bytes:
        """Fetch an attachment's ciphertext and check it against ``coid``."""
        return await fetch_attachment(self.connection, coid)

    # --- the hub log and its witnesses (RESOLUTIONS P1, P2)

    @property
    def hub_checkpoint(self) -> SignedHead | None:
        """The newest hub checkpoint that fulfils the witness policy; None without a policy."""
        newest = self.confirmations.checkpoints.newest if self.confirmations is not None else None
        return newest.signed if newest is not None else None

    async def confirm(self, *receipts: Receipt, timeout: float = CONFIRM_TIMEOUT_SEC) -> None:
        """Wait until a quorum of witnesses covers the receipts; raise ``Unconfirmed`` after ``timeout`` s."""
        for receipt in receipts:
            await (await self.log(receipt.label)).verify(receipt)
        await self.wait_confirmed(receipts, timeout)

    async def evidence(
        self, label: Label, stream_seq: int, *, timeout: float = CONFIRM_TIMEOUT_SEC
    ) -> HubEvidence:
        """Return verified evidence that proves one message without the log (``HubEvidence``, P1).

        The call waits up to ``timeout`` seconds until the hub log covers the message and, with a witness
        policy, until a quorum has cosigned the hub checkpoint.
        """
        log = await self.log(label)
        return await gather_evidence(log, StreamSeq(stream_seq), self.confirmations, timeout)

    async def label_head(
        self, label: Label, stream_seq: int | None = None, *, timeout: float = CONFIRM_TIMEOUT_SEC
    ) -> HubProofResponse:
        """Return a label's newest head in the hub log, or wait for the first that covers ``stream_seq`` (P1).

        Its inclusion, the hub's signature and, with a witness policy, the quorum are verified. Its root is
        not compared with the label's log: the caller has read the log up to the head and compares the roots.
        Raises ``NotFound`` without ``stream_seq`` if the hub log does not have the label.
        """
        log = await self.log(label)
        wanted = StreamSeq(stream_seq) if stream_seq is not None else None
        return await gather_head(log, wanted, self.confirmations, timeout)

    async def label_heads(self, *, progress: Callable[[int], None] | None = None) -> LabelHeads:
        """Return the newest head of every label, complete under one hub checkpoint.

        With a witness policy it is the newest one that a quorum has cosigned. The whole hub log is read;
        ``progress`` is called with the number of entries read so far.
        """
        return await read_label_heads(self.connection, self.confirmations, progress)

    def log_reader(self) -> HubLogReader:
        """Return a ``veen_core.LogReader`` of this hub."""
        return HubLogReader(self)

    def log_writer(self) -> HubLogWriter:
        """Return a ``veen_core.LogWriter`` to this hub."""
        return HubLogWriter(self)

    def epoch_labels(self, stream_id: StreamId) -> EpochLabels | None:
        """Return the stream's labels by epoch, for a reader; None under a profile without epochs (§12)."""
        connection = self.connection
        if not connection.profile.epoch_sec:
            return None
        first_key = min(key.valid_from for key in self.identity.hub_keys)
        first_window = streams.epoch_window(
            first_key, connection.profile.epoch_sec, connection.limits.max_epoch_skew_sec
        )
        return EpochLabels(
            label_of=lambda epoch: connection.label(stream_id, epoch),
            window=lambda: current_window(connection),
            confirmed=self._confirmed_window,
            since=Epoch(first_window[0]),
            forget=self.leave,
        )

    async def _confirmed_window(self) -> range:
        connection = self.connection
        await connection.refresh()
        return streams.epoch_window(
            connection.status.hub_ts, connection.profile.epoch_sec, connection.limits.max_epoch_skew_sec
        )

    # --- for the other modules of the client

    async def log(self, label: Label, origin: LabelOrigin | None = None) -> LabelLog:
        """Return a label's verified log; there is one per connection."""
        known = self._logs.get(label)
        if known is not None and (origin is None or known.client.trust.origin is not None):
            return known
        async with self._opening:
            if label not in self._logs:
                self._logs[label] = await self.connection.workers.run(
                    LabelLog.load, self.connection, label, origin
                )
            log = self._logs[label]
            if origin is not None and log.client.trust.origin is None:
                log.client.trust = self.connection.trust(origin)  # the log was opened without its origin
            return log

    async def knows(self, label: Label) -> bool:
        """Return whether this client has ever verified a part of a label's log."""
        if label in self._logs:
            return True
        load = self.connection.store.load
        return await self.connection.workers.run(load, self.hub_id, label.hex()) is not None

    async def outbox(self, label: Label, origin: LabelOrigin | None = None) -> Outbox:
        """Return a label's outbox; there is one per connection."""
        log = await self.log(label, origin)
        if (outbox := self._outboxes.get(label)) is None:
            outbox = self._outboxes[label] = Outbox(log, self._shared)
        return outbox

    def require_witnesses(self) -> Confirmations:
        """Return the confirmations; raise if there is no witness policy."""
        if self.confirmations is None:
            raise StateError(
                "without a witness policy no message is ever confirmed",
                action="connect with witnesses= (`--witnesses FILE`)",
            )
        return self.confirmations

    async def wait_confirmed(self, receipts: Iterable[Receipt], timeout: float) -> None:
        """Wait until receipts that are in their verified logs are confirmed."""
        confirmations = self.require_witnesses()
        logs = [(await self.log(receipt.label), receipt) for receipt in receipts]
        await asyncio.gather(*(confirmations.wait(log, receipt, timeout) for log, receipt in logs))

    async def leave(self, label: Label) -> None:
        """Release a label that takes no messages any more, unless a message is pending on it."""
        log = self._logs.get(label)
        if log is not None and not log.client.state.pending:
            del self._logs[label]
            self._outboxes.pop(label, None)
            if self.confirmations is not None:
                self.confirmations.forget(label)
            await log.state.close()

    def epochs(self, stream_id: StreamId) -> EpochOutboxes:
        """Return a stream's outboxes by epoch; there is one such object per connection."""
        if (epochs := self._epochs.get(stream_id)) is None:
            epochs = self._epochs[stream_id] = EpochOutboxes(self, stream_id)
        return epochs

    async def close(self) -> None:
        """Stop sending, write unwritten progress and release all labels; the same at the successor."""
        try:
            await self._after.aclose()
        finally:
            await self._close()

    async def _close(self) -> None:
        try:
            outboxes = tuple(self._outboxes.values())
            for outbox in outboxes:
                outbox.singles.stop()
            await self._shared.close()
            for outbox in outboxes:
                await outbox.singles.close()
            for log in tuple(self._logs.values()):  # a label that is opened meanwhile is released below
                await log.state.close()
        finally:
            for log in self._logs.values():
                with contextlib.suppress(StateError):  # the error was raised above already
                    log.state.release()


Successors = Callable[[HubId], AbstractAsyncContextManager[Hub]]
"""Connects to the hub with this hub_id, at the address that the user gave for the successor."""
