"""Flow control of a QUIC connection that follows what was read (RFC 9000 §4).

aioquic doubles its windows whenever half of one has arrived, read or not. A peer that leaves out the first
byte of a stream could so fill the memory. Here a window reaches ``STREAM_WINDOW_BYTES`` bytes beyond what the
program has read, and all windows of a connection ``CONNECTION_WINDOW_BYTES``.

The private names of aioquic used here are ``_write_stream_limits``, ``_write_connection_limits``, the limits
that these write, ``_streams``, and the buffer of a stream's sender; the package pins the minor version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import (
    CONNECTION_LIMIT_FRAME_CAPACITY,
    MAX_STREAM_DATA_FRAME_CAPACITY,
)
from aioquic.quic.packet import QuicFrameType

STREAM_WINDOW_BYTES: Final = 1_048_576
CONNECTION_WINDOW_BYTES: Final = 4 * 1_048_576
MAX_UNSENT_BYTES: Final = 1_048_576
"""Bytes of one answer or request that wait in a stream before its writer pauses."""


def bounded(configuration: QuicConfiguration) -> QuicConfiguration:
    """Set the first windows of a connection."""
    configuration.max_data = CONNECTION_WINDOW_BYTES
    configuration.max_stream_data = STREAM_WINDOW_BYTES
    return configuration


class Windows:
    """The windows of one connection, in place of aioquic's."""

    def __init__(self, quic: Any, unread: Callable[[int], int]) -> None:
        """``unread`` returns the bytes of a stream that have arrived and wait in the program."""
        self._quic = quic
        self._unread = unread
        quic._write_stream_limits = self._write_stream_limits
        quic._write_connection_limits = self._write_connection_limits

    def unsent(self, stream_id: int) -> int:
        """Return the bytes of a stream that the peer has not acknowledged, or that were not sent yet."""
        stream = self._quic._streams.get(stream_id)
        if stream is None:
            return 0
        return int(stream.sender._buffer_stop - stream.sender._buffer_start)

    def reset(self, stream_id: int, error: int) -> None:
        """End the sending of a stream early; aioquic alone would keep the data until the peer confirms it."""
        self._quic.reset_stream(stream_id, error)
        if (stream := self._quic._streams.get(stream_id)) is not None:
            stream.sender._buffer.clear()
            stream.sender._buffer_start = stream.sender._buffer_stop

    def _held(self, stream: Any) -> int:
        """Bytes of a stream between what was read and the highest byte that has arrived."""
        receiver = stream.receiver
        return int(receiver.highest_offset - receiver.starting_offset() + self._unread(stream.stream_id))

    def _write_stream_limits(self, builder: Any, space: Any, stream: Any) -> None:  # noqa: ARG002
        if not stream.max_stream_data_local:
            return  # a stream on which this side only sends
        wanted = stream.receiver.highest_offset - self._held(stream) + STREAM_WINDOW_BYTES
        if wanted - stream.max_stream_data_local_sent < STREAM_WINDOW_BYTES // 2:
            wanted = stream.max_stream_data_local
        stream.max_stream_data_local = max(wanted, stream.max_stream_data_local)
        if stream.max_stream_data_local_sent != stream.max_stream_data_local:
            frame = builder.start_frame(
                QuicFrameType.MAX_STREAM_DATA,
                capacity=MAX_STREAM_DATA_FRAME_CAPACITY,
                handler=self._quic._on_max_stream_data_delivery,
                handler_args=(stream,),
            )
            frame.push_uint_var(stream.stream_id)
            frame.push_uint_var(stream.max_stream_data_local)
            stream.max_stream_data_local_sent = stream.max_stream_data_local

    def _write_connection_limits(self, builder: Any, space: Any) -> None:  # noqa: ARG002
        data = self._quic._local_max_data
        if (
            data.used + CONNECTION_WINDOW_BYTES - data.value >= CONNECTION_WINDOW_BYTES // 2
        ):  # else nothing can be granted
            held = sum(map(self._held, self._quic._streams.values()))
            wanted = data.used - held + CONNECTION_WINDOW_BYTES
            if wanted - data.value >= CONNECTION_WINDOW_BYTES // 2:
                data.value = wanted
        for limit in (data, self._quic._local_max_streams_bidi, self._quic._local_max_streams_uni):
            if limit is not data and limit.sent - limit.used >= limit.value - limit.sent:
                continue  # few more streams are granted at once
            if limit.value != limit.sent:
                frame = builder.start_frame(
                    limit.frame_type,
                    capacity=CONNECTION_LIMIT_FRAME_CAPACITY,
                    handler=self._quic._on_connection_limit_delivery,
                    handler_args=(limit,),
                )
                frame.push_uint_var(limit.value)
                limit.sent = limit.value
