"""Submits on their way to the shard that owns their labels: one connection from each shard to each other.

    request:   number, count, length, source, then for each message: length, MSG
    answer:    number, count, then for each message: kind, stream_seq, length, RECEIPT or error

Each side prefixes a frame with its length. Requests of one connection enter the owner's pipeline in the
order in which they were sent; answers come when they are ready. If the connection ends, every request
without an answer is refused with E.UNAVAILABLE: its messages may have been accepted, as when a hub's answer
is lost.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol, cast

from veen_core.entry import Entry
from veen_core.errors import AdmissionError, ApiError, DecodeError, VeenError
from veen_core.ids import Label, StreamSeq
from veen_core.rejection import TABLE, Code
from veen_hub.api.errors import as_api_error
from veen_hub.ops.logs import LOGGER
from veen_hub.pipeline.pending_requests import Outcome, PendingRequest

CONNECT_SEC: Final = 2.0
MAX_FRAME_BYTES: Final = 64 * 1_048_576
"""Largest frame; a request has at most 512 messages and 8 MiB, an answer less."""
MAX_WAITING: Final = 8_192
"""Requests without an answer on one link, beyond which others are refused."""
LABEL_AT: Final = slice(38, 70)
"""Where the label is in a MSG in canonical CBOR. Every shard refuses a MSG in another encoding."""
_LENGTH: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">QH")
_SOURCE: Final = struct.Struct(">B")
_MESSAGE: Final = struct.Struct(">I")
_OUTCOME: Final = struct.Struct(">BQI")
RECEIPT, ERROR = 0, 1

OnOutcomes = Callable[[Sequence[Outcome]], None]


class _Frames(asyncio.Protocol):
    """A connection that carries frames with a length in front."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not inherit from it

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while len(received) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, at)
            if length > MAX_FRAME_BYTES:
                self.close()
                return
            if len(received) - at - _LENGTH.size < length:
                break
            start = at + _LENGTH.size
            at = start + length
            try:
                self.frame_received(bytes(received[start:at]))
            except (struct.error, DecodeError, ValueError, LookupError, StopIteration):
                LOGGER.exception("shard_frame_invalid")
                self.close()
                return
        del received[:at]

    def frame_received(self, frame: bytes) -> None:
        raise NotImplementedError

    def send_frame(self, parts: list[bytes]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join([_LENGTH.pack(sum(map(len, parts))), *parts]))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class SubmitLink:
    """The way to one other shard; used from the event loop."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name
        self._connection: _ClientConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[tuple[list[bytes], OnOutcomes, bytes]] = []
        """Requests that wait for the connection."""

    def send(self, wires: list[bytes], on_outcomes: OnOutcomes, source: bytes) -> None:
        """Send messages to their owner; ``on_outcomes`` is called with one outcome for each, later."""
        connection = self._connection
        if connection is not None and connection.is_open:
            if len(connection.open) >= MAX_WAITING:
                self._refuse(wires, on_outcomes, "too many messages wait for it")
            else:
                connection.request(wires, on_outcomes, source)
            return
        self._waiting.append((wires, on_outcomes, source))
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SEC):
                _transport, made = await loop.create_unix_connection(
                    lambda: _ClientConnection(partial(self._refuse, why="its process ended")), self._path
                )
            self._connection = made
        except (OSError, TimeoutError):
            made = None
        finally:
            self._connecting = None
        waiting, self._waiting = self._waiting, []
        for wires, on_outcomes, source in waiting:
            if made is not None:
                made.request(wires, on_outcomes, source)
            else:
                self._refuse(wires, on_outcomes, "it is being started")

    def _refuse(self, wires: Sequence[bytes], on_outcomes: OnOutcomes, why: str) -> None:
        error = ApiError(
            Code.UNAVAILABLE,
            f"the part of this hub that owns the label is not available: {why}",
            retry_after=1,
        )
        on_outcomes([error] * len(wires))

    def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()


class _ClientConnection(_Frames):
    def __init__(self, lost: Callable[[list[bytes], OnOutcomes], None]) -> None:
        super().__init__()
        self._lost = lost
        self._number = 0
        self.open: dict[int, tuple[list[bytes], OnOutcomes]] = {}

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def request(self, wires: list[bytes], on_outcomes: OnOutcomes, source: bytes) -> None:
        self._number += 1
        self.open[self._number] = (wires, on_outcomes)
        parts = [_HEAD.pack(self._number, len(wires)), _SOURCE.pack(len(source)), source]
        for wire in wires:
            parts += (_MESSAGE.pack(len(wire)), wire)
        self.send_frame(parts)

    def frame_received(self, frame: bytes) -> None:
        number, count = _HEAD.unpack_from(frame)
        wires, on_outcomes = self.open[number]
        outcomes = list(_outcomes(frame, wires))
        if count != len(wires):
            raise ValueError(f"{count} outcomes for {len(wires)} messages")
        del self.open[number]
        on_outcomes(outcomes)

    def connection_lost(self, _exc: Exception | None) -> None:
        open_requests, self.open = self.open, {}
        for wires, on_outcomes in open_requests.values():
            self._lost(wires, on_outcomes)


def _outcomes(frame: bytes, wires: list[bytes]) -> Iterator[Outcome]:
    at = _HEAD.size
    for wire in wires:
        kind, seq, length = _OUTCOME.unpack_from(frame, at)
        at += _OUTCOME.size
        data = frame[at : at + length]
        at += length
        if len(data) != length:
            raise ValueError("an answer ends within an outcome")
        if kind == RECEIPT:
            yield Entry(Label(wire[LABEL_AT]), StreamSeq(seq), wire, data)
        else:
            yield decode_error(data)
    if at != len(frame):
        raise ValueError("an answer has bytes behind its outcomes")


class Enter(Protocol):
    """Sends messages through the owner's pipeline; ``ShardHub`` without passing anything on."""

    def __call__(
        self, wires: list[bytes], on_settled: Callable[[], None], source: bytes
    ) -> PendingRequest: ...


class SubmitConnection(_Frames):
    """The owner's end of a link."""

    def __init__(self, enter: Enter) -> None:
        super().__init__()
        self._enter = enter

    def frame_received(self, frame: bytes) -> None:
        number, count = _HEAD.unpack_from(frame)
        (length,) = _SOURCE.unpack_from(frame, _HEAD.size)
        at = _HEAD.size + _SOURCE.size
        source = frame[at : at + length]
        wires, at = [], at + length
        for _ in range(count):
            (length,) = _MESSAGE.unpack_from(frame, at)
            at += _MESSAGE.size
            wires.append(frame[at : at + length])
            at += length
        if at != len(frame):
            raise ValueError("a request does not end with its last message")
        try:
            pending = self._enter(wires, lambda: self._answer(number, pending.settled), source)
        except ApiError as exc:
            self._answer(number, [exc] * count)

    def _answer(self, number: int, outcomes: Sequence[Outcome]) -> None:
        parts = [_HEAD.pack(number, len(outcomes))]
        for outcome in outcomes:
            if isinstance(outcome, Entry):
                data, kind, seq = outcome.receipt_bytes, RECEIPT, int(outcome.stream_seq)
            else:
                data, kind, seq = encode_error(outcome), ERROR, 0
            parts += (_OUTCOME.pack(kind, seq, len(data)), data)
        self.send_frame(parts)


def encode_error(error: VeenError) -> bytes:
    """Encode an error so that the other side refuses with the same code, detail and text."""
    shown = as_api_error(error)
    is_row = isinstance(shown, AdmissionError)
    return json.dumps(
        {
            "code": shown.rejection.code if isinstance(shown, AdmissionError) else shown.code,
            "detail": shown.rejection.detail if isinstance(shown, AdmissionError) else None,
            "row": is_row,
            "message": str(shown),
            "retry_after": shown.retry_after,
        }
    ).encode()


def decode_error(data: bytes) -> AdmissionError | ApiError:
    """Decode what ``encode_error`` made."""
    found: dict[str, Any] = json.loads(data)
    code, message, retry_after = Code(found["code"]), found["message"], found["retry_after"]
    if not found["row"]:
        return ApiError(code, message, retry_after=retry_after)
    row = next(row for row in TABLE if (row.code, row.detail) == (code, found["detail"]))
    return AdmissionError(row, message, retry_after=retry_after)
