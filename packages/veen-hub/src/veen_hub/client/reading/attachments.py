"""Attachments on their way: sealed one at a time, sent and fetched in pieces, checked by coid (H17).

An AEAD opens whole or not at all, so one attachment (at most ``max_attachment_bytes``) is in memory at a
time, however many a message has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from pathlib import Path

from veen_core import attachment
from veen_core.attachment import Attachment
from veen_core.ciphertext import Binding, Sealer
from veen_core.errors import OpenError, StateError
from veen_core.hpke import TAG_SIZE
from veen_core.ids import Coid, SchemaId
from veen_core.keys import DhSecret, SigningKey
from veen_core.msg import SealedMsg, check_size, sign_msg
from veen_core.payload import PayloadHeader
from veen_core.status import AttachmentResponse, attachment_digest
from veen_hub.client.errors import Misbehaved
from veen_hub.client.sending.body import ATTACHED, Attached, AttachmentRef, Body, Composer, Draft, encode_body
from veen_hub.client.sending.sealing import header_of
from veen_hub.client.wire.connection import HubConnection
from veen_hub.client.wire.endpoints import decode_response
from veen_hub.client.wire.transport import PIECE

Source = bytes | Path | str
"""An attachment's content, or the file that holds it."""


async def put(connection: HubConnection, sealed: Attachment, binding: Binding, signer: SigningKey) -> None:
    """Store one; durable when this returns. Doing it again changes nothing."""
    digest = attachment_digest(binding.label, sealed.coid, binding.auth_ref)
    headers = {
        "VEEN-Label": binding.label.hex(),
        "VEEN-Client": binding.client_id.hex(),
        "VEEN-Sig": signer.sign(digest).hex(),
        "Content-Length": str(len(sealed.ciphertext)),
    }
    if binding.auth_ref is not None:
        headers["VEEN-Auth-Ref"] = binding.auth_ref.hex()

    async def pieces() -> AsyncIterator[bytes]:
        view = memoryview(sealed.ciphertext)
        for at in range(0, len(view), PIECE):
            yield bytes(view[at : at + PIECE])

    path = f"/v1/attachment/{sealed.coid.hex()}"
    body = await connection.ask(
        lambda: connection.api.transport.call(
            "PUT", path, pieces, content_type="application/octet-stream", headers=headers
        ),
        least=connection.api.transport.timeouts.transfer,
    )
    if decode_response(AttachmentResponse, body).coid != sealed.coid:
        raise Misbehaved("the hub stored another attachment")


async def get(connection: HubConnection, coid: Coid) -> bytes:
    """The ciphertext, of the hash that names it; never more than the limit in memory."""
    return await connection.ask(
        lambda: _get(connection, coid), least=connection.api.transport.timeouts.transfer
    )


async def _get(connection: HubConnection, coid: Coid) -> bytes:
    most, timeouts = connection.limits.max_attachment_bytes, connection.api.transport.timeouts
    digest, parts, size = sha256(), [], 0
    async with connection.api.transport.open(
        "GET", f"/v1/attachment/{coid.hex()}", timeout=timeouts.transfer, idle=timeouts.request
    ) as response:
        async for part in response.content.iter_chunked(PIECE):
            size += len(part)
            if size > most:
                raise Misbehaved(f"attachment {coid.hex()} is longer than max_attachment_bytes = {most}")
            digest.update(part)
            parts.append(part)
    if digest.digest() != coid:
        raise Misbehaved(f"what the hub sent is not attachment {coid.hex()}")
    return b"".join(parts)


class Parcel:
    """A message with attachments in the making: they are sealed and stored first, then the message (§4.6)."""

    def __init__(self, connection: HubConnection, draft: Draft, binding: Binding, signer: SigningKey) -> None:
        self._connection = connection
        self._draft = draft
        self._binding = binding
        self._signer = signer
        self._sealer = Sealer(draft.recipient, binding, DhSecret(connection.randomness(DhSecret.SIZE)))

    async def add_all(self, sources: Sequence[Source]) -> tuple[AttachmentRef, ...]:
        """In order; each is durable at the hub before the next is read."""
        if len(sources) > self._connection.limits.max_attachments_per_msg:
            attachment.check_bounds([0] * len(sources), self._connection.limits)
        return tuple([await self._add(source) for source in sources])

    async def _add(self, source: Source) -> AttachmentRef:
        plaintext = await self._connection.workers.run(self._read, source)
        sealed = await self._connection.workers.run(self._sealer.attach, plaintext)
        await put(self._connection, sealed, self._binding, self._signer)
        return AttachmentRef(coid=sealed.coid, size=len(plaintext))

    def _read(self, source: Source) -> bytes:
        """Bounds before bytes (§14.2)."""
        limits = self._connection.limits
        if isinstance(source, bytes):
            attachment.check_bounds([len(source) + TAG_SIZE], limits)
            return source
        path = Path(source)
        try:
            attachment.check_bounds([path.stat().st_size + TAG_SIZE], limits)
            content = path.read_bytes()
        except OSError as exc:
            raise StateError(f"attachment {path}: {exc.strerror}") from exc
        attachment.check_bounds([len(content) + TAG_SIZE], limits)
        return content

    def seal(
        self, body: Body | Composer, schema: SchemaId | str | None, refs: Sequence[AttachmentRef]
    ) -> SealedMsg:
        """The message itself: the body lists the attachments, or was composed around them."""
        if callable(body):
            own, content = encode_body(body(refs), schema)
        else:
            inner, plain = encode_body(body, schema)
            own = ATTACHED
            content = Attached(schema=inner, body=plain, attachments=tuple(refs)).encode()
        header: PayloadHeader = dataclasses.replace(
            header_of(self._draft, self._binding.auth_ref),
            schema=own,
            att_root=attachment.att_root([ref.coid for ref in refs]) if refs else None,
        )
        connection = self._connection
        ciphertext = self._sealer.seal(
            header, content, pad_block=connection.profile.pad_block, limits=connection.limits
        )
        msg = sign_msg(self._signer, self._binding, ciphertext)
        wire = msg.encode()
        check_size(len(wire), connection.limits)
        return SealedMsg(msg, wire, ())


def check_size_of(ref: AttachmentRef, plaintext: bytes) -> bytes:
    """The size is declared in the encrypted body and must be kept (§4.6)."""
    if len(plaintext) != ref.size:
        raise OpenError(f"an attachment of {len(plaintext)} bytes, declared were {ref.size} (§4.6)")
    return plaintext
