"""The records of the service in a hub's streams, through the hub's client (query-api-spec 4.5, 5.5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from veen_core.entry import Entry
from veen_core.errors import DecodeError, QuorumError
from veen_core.ids import ClientId, Epoch, StreamSeq
from veen_core.keys import DhKey
from veen_core.receipt import Receipt
from veen_hub.client import Hub, Refused, Stream, Unreachable
from veen_overlays.live import open_entry
from veen_overlays.live.query_service.recording import HubUnavailableError
from veen_overlays.recorder.records import RecordEvent
from veen_overlays.schema.record import Record

PAGE_ENTRIES: Final = 256


@contextmanager
def hub_errors() -> Iterator[None]:
    """Name the errors after which a later attempt may succeed: no answer, a refusal, too few witnesses."""
    try:
        yield
    except (Unreachable, Refused, QuorumError) as exc:
        raise HubUnavailableError(exc.message, action=exc.action) from exc


class HubRecordLog:
    """Implements ``RecordLog``: records are sealed to the streams' readers and signed by the identity."""

    def __init__(self, hub: Hub, readers: Sequence[DhKey]) -> None:
        self._hub, self._readers = hub, tuple(readers)
        assert hub.connection.identity is not None
        self._identity = hub.connection.identity
        self._streams: dict[str, Stream] = {}

    @property
    def hub_id(self) -> bytes:
        return bytes(self._hub.hub_id)

    @property
    def identity(self) -> ClientId:
        return self._identity.client_id

    def _stream(self, name: str) -> Stream:
        if name not in self._streams:
            self._streams[name] = self._hub.stream(name, readers=self._readers)
        return self._streams[name]

    async def append(self, stream: str, record: Record) -> Receipt:
        with hub_errors():
            return await self._stream(stream).send(record)

    async def end(self, stream: str) -> str:
        """Return the current epoch and the last stream_seq of its label, as ``EPOCH:SEQ``."""
        epoch = self._hub.connection.epoch
        with hub_errors():
            head = await self._hub.log_reader().head(self._stream(stream).label(epoch))
        return f"{epoch}:{head.stream_seq if head is not None else 0}"

    async def find(self, stream: str, mark: str, matches: Callable[[RecordEvent], bool]) -> Receipt | None:
        with hub_errors():
            return await self._find(stream, mark, matches)

    async def _find(self, stream: str, mark: str, matches: Callable[[RecordEvent], bool]) -> Receipt | None:
        found = self._stream(stream)
        await found.settle()
        ours = {self.identity, await found.client_id()}
        keys = (*self._readers, *self._identity.dh_keys)
        async for entry in self._entries(found, mark):
            if entry.is_authorize or entry.msg.client_id not in ours:
                continue
            opened = open_entry(entry, entry.receipt, keys)
            if opened.schema != RecordEvent.SCHEMA:
                continue
            with suppress(DecodeError):
                if matches(RecordEvent.decode(opened.body)):
                    return entry.receipt
        return None

    async def _entries(self, stream: Stream, mark: str) -> AsyncIterator[Entry]:
        """Yield the entries after a mark: the rest of its label, and the labels of later epochs."""
        epoch, _, seq = mark.partition(":")
        reader, last = self._hub.log_reader(), self._hub.connection.epoch
        start = int(seq) + 1
        for number in range(int(epoch), last + 1):
            label = stream.label(Epoch(number))
            while entries := await reader.page(label, StreamSeq(start), PAGE_ENTRIES):
                for entry in entries:
                    yield entry
                start += len(entries)
            start = 1
