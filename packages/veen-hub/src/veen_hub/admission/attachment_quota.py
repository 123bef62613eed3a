"""Attachment quotas: bytes and puts per token, bytes and attachments per hub (H17, SH0.4).

What a token used is kept on disk, keyed by the token's claims, or by client_id where the hub asks for no
token. An upload reserves its announced size first, so that uploads at the same time cannot pass the quota
together.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Final

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.ops.config import AttachmentLimits
from veen_hub.pipeline.log_access import LogAccess
from veen_storage import ViewStore

_USAGE: Final = struct.Struct(">QQ")
_PREFIX: Final = b"attachments/"


@dataclass(frozen=True, slots=True)
class Reservation:
    """Quota reserved for one upload: its writer and its size in bytes."""

    writer: bytes
    size: int


class AttachmentQuota:
    """The quotas of one hub; used from the event loop only."""

    def __init__(self, limits: AttachmentLimits, state: ViewStore, log: LogAccess) -> None:
        self._limits = limits
        self._state = state
        self._log = log
        self._counting = asyncio.Lock()
        self._reserved: Counter[bytes] = Counter()
        self._uploads: Counter[bytes] = Counter()
        self._stored = 0
        """Attachments in the store."""
        self._stored_bytes = 0

    def start_at(self, stored: int, stored_bytes: int) -> None:
        """Set the number and the bytes of the attachments that the store has at the start."""
        self._stored, self._stored_bytes = stored, stored_bytes

    def usage(self, writer: bytes) -> tuple[int, int]:
        """Puts and bytes that count against the writer."""
        packed = self._state.get(_PREFIX + writer)
        puts, size = _USAGE.unpack(packed) if packed is not None else (0, 0)
        return puts, size

    def reserve(self, writer: bytes, size: int) -> Reservation:
        """Reserve room for an upload of at most ``size`` bytes; raise E.LIMIT if a quota is exceeded."""
        limits = self._limits
        puts, used = self.usage(writer)
        puts += self._uploads[writer]
        if limits.max_puts_per_token and puts >= limits.max_puts_per_token:
            raise _exceeded("attachments.max_puts_per_token", limits.max_puts_per_token, "puts by this token")
        if limits.max_bytes_per_token and used + self._reserved[writer] + size > limits.max_bytes_per_token:
            raise _exceeded(
                "attachments.max_bytes_per_token", limits.max_bytes_per_token, "bytes by this token"
            )
        if limits.max_count and self._stored + self._uploads.total() >= limits.max_count:
            raise _exceeded("attachments.max_count", limits.max_count, "attachments on this hub")
        if limits.max_bytes and self._stored_bytes + self._reserved.total() + size > limits.max_bytes:
            raise _exceeded("attachments.max_bytes", limits.max_bytes, "bytes on this hub")
        self._reserved[writer] += size
        self._uploads[writer] += 1
        return Reservation(writer, size)

    def release(self, reservation: Reservation) -> None:
        """Release the reservation of an upload that has ended."""
        writer = reservation.writer
        self._reserved[writer] -= reservation.size
        self._uploads[writer] -= 1
        if not self._uploads[writer]:
            del self._reserved[writer], self._uploads[writer]

    async def count(self, reservation: Reservation, stored_bytes: int | None) -> None:
        """Record a successful put durably; ``stored_bytes`` is None if the hub had the attachment already."""
        if stored_bytes is not None:
            self._stored += 1
            self._stored_bytes += stored_bytes
        async with self._counting:  # the lock covers reading, changing and writing a count
            puts, used = self.usage(reservation.writer)
            row = {_PREFIX + reservation.writer: _USAGE.pack(puts + 1, used + (stored_bytes or 0))}
            await self._log.read(lambda: self._state.write(row))


def _exceeded(key: str, limit: int, what: str) -> ApiError:
    return ApiError(Code.LIMIT, f"the attachment quota of {limit} {what} is used up ({key})")
