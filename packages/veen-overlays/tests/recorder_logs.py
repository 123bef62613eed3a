"""Recorder streams in memory, with the events that a query must find in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from memory_log import HUB, READER, MemoryLog

from veen_core import DhKey, DhSecret, Entry, Label, Receipt, SigningKey, StreamSeq
from veen_core.hashing import H
from veen_core.hub_identity import HubIdentity, new_identity
from veen_core.ids import ClientId, Epoch, HubPk, UnixTime
from veen_core.stream import hub_id, label, routing_key, stream_id
from veen_overlays.kv import Put
from veen_overlays.live.query_view import EntryOpener, OriginHub, StreamFeed
from veen_overlays.query import canonical_json
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.event import SourceEvent
from veen_overlays.query.plain_engine import SourceLog
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.recorder.records import RecordEvent, UnixMilliseconds

HUB_ID = hub_id(HubPk(HUB.public))
STRANGER = DhKey(DhSecret(b"\x55" * 32))
NOON = 1_700_006_400


def identity_of(hub: SigningKey) -> HubIdentity:
    return new_identity(hub, UnixTime(0))


def event(n: int = 0, **changes: Any) -> RecordEvent:
    values: dict[str, Any] = {
        "subject_id": f"user:{n % 7}",
        "principal_id": ClientId(bytes(32)),
        "event_type": ("login", "logout", "read")[n % 3],
        "event_time": UnixMilliseconds(1000 * NOON + n),
        "origin": f"api-{n % 2}",
        "payload": {"n": n, "path": "/login"},
    }
    return RecordEvent(**{**values, **changes})


class RecorderLog(MemoryLog):
    """One label of a recorder stream; it remembers what a query must find."""

    def __init__(self, stream: str, epoch: int = 0, **keys: SigningKey) -> None:
        self.stream, self.epoch = stream, epoch
        hub = keys.get("hub", HUB)
        self.hub_id = hub_id(HubPk(hub.public))
        super().__init__(label(routing_key(self.hub_id), stream_id(stream), Epoch(epoch)), **keys)
        self.now = UnixTime(NOON)
        self.found: list[SourceEvent | EntryKind] = []

    def record(self, each: RecordEvent) -> Receipt:
        """Write a recorder event."""
        receipt = self.append(self.seal(each))
        self.found.append(
            SourceEvent(
                stream=self.stream,
                hub_id=self.hub_id,
                label=self.label,
                epoch=self.epoch,
                seq=receipt.stream_seq,
                hub_commit_time=1000 * receipt.hub_ts,
                subject_id=each.subject_id,
                principal_id=bytes(each.principal_id),
                event_type=each.event_type,
                event_time=each.event_time,
                origin=each.origin,
                payload_json=canonical_json.encode(each.payload),
                attributed=each.principal_id == self.writer.public,
                receipt=receipt.encode(),
                leaf_hash=receipt.leaf_hash,
            )
        )
        return receipt

    def unopened(self) -> None:
        """Write a recorder event that the reader cannot open."""
        self.append(self.seal(event(), STRANGER))
        self.found.append(EntryKind.UNOPENED)

    def other(self) -> None:
        """Write a message that is not a recorder event."""
        self.append(self.seal(Put(key=b"k", value=b"v")))
        self.found.append(EntryKind.OTHER)

    def prefix(self, size: int | None = None) -> Prefix:
        """The prefix of the first ``size`` entries, or of all."""
        size = self.mmr.size if size is None else size
        return Prefix(
            stream=self.stream,
            hub_id=self.hub_id,
            label=self.label,
            epoch=self.epoch,
            to_seq=size,
            mmr_root=self.entries[size - 1].receipt.mmr_root if size else None,
        )

    def source(self) -> SourceLog:
        """The log as the plain loop reads it."""
        return SourceLog(prefix=self.prefix(), entries=self.found)


class Logs:
    """A hub with several labels; implements ``LogReader``."""

    def __init__(self, *logs: MemoryLog) -> None:
        self.logs = {log.label: log for log in logs}

    def _log(self, wanted: Label) -> MemoryLog:
        return self.logs.setdefault(wanted, MemoryLog(wanted))

    async def head(self, label: Label) -> Receipt | None:
        return await self._log(label).head(label)

    async def page(self, label: Label, from_seq: StreamSeq, max_items: int) -> Sequence[Entry]:
        return await self._log(label).page(label, from_seq, max_items)

    def follow(self, label: Label, from_seq: StreamSeq) -> AsyncIterator[Entry]:
        return self._log(label).follow(label, from_seq)

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt:
        return await self._log(label).receipt(label, stream_seq)

    async def proof(self, label: Label, stream_seq: StreamSeq, tree_size: StreamSeq | None = None) -> Any:
        return await self._log(label).proof(label, stream_seq, tree_size)

    async def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> Any:
        return await self._log(label).consistency(label, from_seq, to_seq)

    async def checkpoint(self, label: Label) -> None: ...


def opener(**origins: OriginHub) -> EntryOpener:
    return EntryOpener(keys=(READER,), origins={hub.identity.hub_id: hub for hub in origins.values()})


def feed_of(log: RecorderLog, **changes: Any) -> StreamFeed:
    values: dict[str, Any] = {
        "stream": log.stream,
        "hub_id": log.hub_id,
        "reader": log,
        "labels": log.label,
        "opener": opener(),
    }
    return StreamFeed(**{**values, **changes})


def nonce(n: int) -> bytes:
    return H(n.to_bytes(8, "big"))
