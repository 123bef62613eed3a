"""Fetching attachments: read in chunks, bounded, and checked against the hash that names them (H17)."""

from __future__ import annotations

from hashlib import sha256

from veen_core.errors import OpenError
from veen_core.ids import Coid
from veen_hub.client.errors import Misbehaved
from veen_hub.client.sending.body import AttachmentRef
from veen_hub.client.wire.connection import HubConnection


async def fetch_attachment(connection: HubConnection, coid: Coid) -> bytes:
    """Return the ciphertext whose hash is ``coid``; at most ``max_attachment_bytes`` are read."""
    transfer = connection.api.transport.timeouts.transfer
    return await connection.ask(lambda: _fetch(connection, coid), min_seconds=transfer)


async def _fetch(connection: HubConnection, coid: Coid) -> bytes:
    max_bytes, timeouts = connection.limits.max_attachment_bytes, connection.api.transport.timeouts
    digest, parts, size = sha256(), [], 0
    async with connection.api.transport.open(
        "GET", f"/v1/attachment/{coid.hex()}", timeout=timeouts.transfer, idle=timeouts.request
    ) as arriving:
        async for part in arriving:
            size += len(part)
            if size > max_bytes:
                raise Misbehaved(f"attachment {coid.hex()} is longer than max_attachment_bytes = {max_bytes}")
            digest.update(part)
            parts.append(part)
    if digest.digest() != coid:
        raise Misbehaved(f"the hub sent other bytes than attachment {coid.hex()}: their hash differs")
    return b"".join(parts)


def check_attachment_size(ref: AttachmentRef, plaintext: bytes) -> bytes:
    """Return the plaintext if it has the size that the encrypted body declares (§4.6)."""
    if len(plaintext) != ref.size:
        raise OpenError(
            f"attachment {ref.coid.hex()} has {len(plaintext)} bytes; its message declares {ref.size}"
        )
    return plaintext
