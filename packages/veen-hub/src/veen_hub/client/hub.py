"""A connection to a hub: who it is was checked before anything else, and stays checked (§8.4, §9)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from veen_core import stream as streams
from veen_core.cap import CapToken
from veen_core.checkpoint import LabelOrigin
from veen_core.client_state import ClientBounds
from veen_core.equivocation import Equivocation, verify_evidence
from veen_core.hub_identity import HubIdentity
from veen_core.ids import AuthRef, Coid, Epoch, HubId, Label, StreamId, UnixTime
from veen_core.keys import DhKey, SigningKey
from veen_core.keystore import Secrets
from veen_core.profile import Profile
from veen_core.receipt import Receipt
from veen_core.status import CapStatus, Status
from veen_hub.client.admin import Admin
from veen_hub.client.identity import Identity, Randomness
from veen_hub.client.label.label_log import LabelLog
from veen_hub.client.log import HubLogReader, HubLogWriter
from veen_hub.client.reading import attachments
from veen_hub.client.sending.epochs import EpochLabels, Epochs, window
from veen_hub.client.sending.outbox import Outbox
from veen_hub.client.state.records import decode_record
from veen_hub.client.state.store import FileStateStore, MemoryStateStore, StateStore
from veen_hub.client.stream import Recipient, Stream
from veen_hub.client.tokens import Tokens, TokenSource
from veen_hub.client.trust import Pin, check_profile, check_status
from veen_hub.client.wire.connection import IDENTITY_RECORD, PROFILE_RECORD, HubConnection, HubTime
from veen_hub.client.wire.endpoints import Endpoints
from veen_hub.client.wire.retry import Retry, retrying
from veen_hub.client.wire.threads import Workers
from veen_hub.client.wire.transport import Timeouts, Tls, Transport

BATCH: Final = 64
"""Messages in one request: what the hub's workers take at once."""
MAX_POW_DIFFICULTY: Final = 22
"""The most proof of work done for a message: about six seconds of it."""


class Hub:
    """One hub, connected. Made by ``connect``."""

    def __init__(self, connection: HubConnection, tokens: TokenSource | None) -> None:
        self.connection = connection
        self._logs: dict[Label, LabelLog] = {}
        self._outboxes: dict[Label, Outbox] = {}
        self._epochs: dict[StreamId, Epochs] = {}
        self._opening = asyncio.Lock()
        control = LabelLog.load(connection, connection.status.control_label, None)
        self._logs[control.label] = control
        self.tokens = Tokens(connection, control, tokens)

    @property
    def hub_id(self) -> HubId:
        return self.connection.hub_id

    @property
    def identity(self) -> HubIdentity:
        """The hub's, as verified."""
        return self.connection.status.identity

    @property
    def url(self) -> str:
        return self.connection.api.transport.url

    def epoch_at(self, hub_ts: UnixTime) -> Epoch:
        """The epoch of a receipt's time; 0 under a profile without epochs (§3.2)."""
        return streams.epoch_at(hub_ts, self.connection.profile.epoch_sec)

    def stream(self, name: str, *, to: Recipient | None = None, readers: Sequence[DhKey] = ()) -> Stream:
        """A stream by name, or by id in 64 hex digits (B12).

        ``readers`` are the stream's shared reader keys, tried first when opening and the first of them sealed
        to; ``to`` is whom to seal to otherwise (H11).
        """
        return Stream(self, name, streams.stream_id(name), to=to, readers=readers)

    async def log(self, label: Label, origin: LabelOrigin | None = None) -> LabelLog:
        """A label's verified prefix; one per connection."""
        async with self._opening:
            if label not in self._logs:
                self._logs[label] = await self.connection.workers.run(
                    LabelLog.load, self.connection, label, origin
                )
            log = self._logs[label]
            if origin is not None and log.client.trust.origin is None:
                log.client.trust = self.connection.trust(origin)  # opened by its label alone before
            return log

    async def knows(self, label: Label) -> bool:
        """Whether anything of it was seen, now or before."""
        if label in self._logs:
            return True
        return (
            await self.connection.workers.run(self.connection.store.load, self.hub_id, label.hex())
            is not None
        )

    async def outbox(self, label: Label, origin: LabelOrigin | None = None) -> Outbox:
        log = await self.log(label, origin)
        return self._outboxes.setdefault(label, Outbox(log))

    async def leave(self, label: Label) -> None:
        """Let go of a label that takes no messages any more; not while something is open under it."""
        log = self._logs.get(label)
        if log is not None and not log.client.state.pending:
            del self._logs[label]
            self._outboxes.pop(label, None)
            await log.state.close()

    def epochs(self, stream_id: StreamId) -> Epochs:
        """The outboxes of a stream; one of these per connection."""
        return self._epochs.setdefault(stream_id, Epochs(self, stream_id))

    def epoch_labels(self, stream_id: StreamId) -> EpochLabels | None:
        """How the stream's labels follow one another; None without epochs (§12)."""
        connection = self.connection
        if not connection.profile.epoch_sec:
            return None
        begun = min(key.valid_from for key in self.identity.hub_keys)
        first = streams.epoch_window(
            begun, connection.profile.epoch_sec, connection.limits.max_epoch_skew_sec
        )[0]
        return EpochLabels(
            label_of=lambda epoch: connection.label(stream_id, epoch),
            window=lambda: window(connection),
            confirmed=self._confirmed_window,
            since=Epoch(first),
            forget=self.leave,
        )

    async def _confirmed_window(self) -> range:
        connection = self.connection
        await connection.refresh()
        return streams.epoch_window(
            connection.status.hub_ts, connection.profile.epoch_sec, connection.limits.max_epoch_skew_sec
        )

    def log_reader(self) -> HubLogReader:
        return HubLogReader(self)

    def log_writer(self) -> HubLogWriter:
        return HubLogWriter(self)

    def admin(self, key: SigningKey) -> Admin:
        return Admin(self, key)

    async def status(self) -> Status:
        """Asked afresh, and checked against the identity known."""
        await self.connection.refresh()
        return self.connection.status

    async def authorize(self, token: CapToken) -> Receipt:
        """Hand a token to the hub; messages to its streams use it from then on (H5)."""
        return await self.tokens.authorize(token)

    async def cap_status(self, auth_ref: AuthRef) -> CapStatus:
        """As the hub says: nobody signs it. What it signed of a token is the receipt of ``authorize``."""
        return await self.connection.ask(lambda: self.connection.api.cap_status(auth_ref))

    async def report_equivocation(self, evidence: Equivocation) -> None:
        """Show this hub evidence against any hub; it is verified here first."""
        verify_evidence(evidence)
        wire = evidence.encode()
        await self.connection.ask(lambda: self.connection.api.report(wire))

    async def fetch(self, coid: Coid) -> bytes:
        """An attachment's ciphertext, checked against its name."""
        return await attachments.get(self.connection, coid)

    async def close(self) -> None:
        """Write down what was learned and let go of everything."""
        try:
            for log in self._logs.values():
                await log.state.close()
        finally:
            for log in self._logs.values():
                log.state.release()


@asynccontextmanager
async def connect(
    url: str,
    identity: Identity | Secrets | None = None,
    *,
    trust: Pin,
    state: StateStore | Path | str | None = None,
    tokens: TokenSource | None = None,
    tls: Tls | None = None,
    timeouts: Timeouts | None = None,
    retry: Retry | None = None,
    bounds: ClientBounds | None = None,
    batch: int = BATCH,
    lock_timeout: float = 10.0,
    max_pow_difficulty: int = MAX_POW_DIFFICULTY,
    randomness: Randomness = os.urandom,
) -> AsyncIterator[Hub]:
    """Connect to the hub at ``url``, if it is the one that ``trust`` names.

    ``state`` is a folder or a ``StateStore``; without one, nothing survives the connection. ``identity`` may
    be None for whoever only verifies. ``tokens`` is asked for a cap token where a gated hub wants one.
    ``max_pow_difficulty`` bounds the proof of work done for a message.
    """
    store = state if isinstance(state, StateStore) else FileStateStore(state) if state else MemoryStateStore()
    policy, workers = retry or Retry(), Workers()
    transport = Transport(url, tls=tls, timeouts=timeouts or Timeouts())
    hub: Hub | None = None
    try:
        api = Endpoints(transport)
        status = await retrying(policy, api.status, where=transport.url)
        await workers.run(_check, store, status, trust)
        api.control_label = status.control_label
        connection = HubConnection(
            api=api,
            status=status,
            identity=Identity.of(identity) if identity is not None else None,
            store=store,
            retry=policy,
            bounds=bounds or ClientBounds(),
            workers=workers,
            randomness=randomness,
            time=HubTime(status.hub_ts),
            lock_timeout=lock_timeout,
            batch=batch,
            max_pow_difficulty=max_pow_difficulty,
        )
        hub = Hub(connection, tokens)
        yield hub
    finally:
        try:
            if hub is not None:
                await hub.close()
        finally:
            await transport.close()
            workers.close()


def _check(store: StateStore, status: Status, trust: Pin) -> None:
    """The pin first; then what was believed before: the identity may only have grown (§8.4)."""
    check_status(status, trust)
    hub_id, shown = status.identity.hub_id, status.identity
    if (profile := store.load(hub_id, PROFILE_RECORD)) is not None:
        check_profile(status.profile, decode_record(Profile, profile, PROFILE_RECORD))
    else:
        store.save(hub_id, PROFILE_RECORD, status.profile.encode())
    content = store.load(hub_id, IDENTITY_RECORD)
    if content is not None:
        check_status(status, decode_record(HubIdentity, content, IDENTITY_RECORD))
    if content != shown.encode():
        store.save(hub_id, IDENTITY_RECORD, shown.encode())
