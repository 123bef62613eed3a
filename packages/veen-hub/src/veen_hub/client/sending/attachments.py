"""Sending a message with attachments: each is sealed and stored at the hub before the message (§4.6, H17).

An AEAD opens whole or not at all, so one attachment (at most ``max_attachment_bytes``) is in memory at a
time, however many a message has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from veen_core import attachment
from veen_core.attachment import Attachment
from veen_core.ciphertext import Binding, Sealer
from veen_core.errors import StateError
from veen_core.hpke import TAG_SIZE
from veen_core.ids import AuthRef, Label, SchemaId
from veen_core.keys import DhSecret, SigningKey
from veen_core.msg import SealedMsg, check_size, sign_msg
from veen_core.payload import PayloadHeader
from veen_core.status import AttachmentResponse, attachment_digest
from veen_hub.client.errors import Misbehaved
from veen_hub.client.sending.body import (
    ATTACHED,
    Attached,
    AttachmentRef,
    Body,
    Composer,
    MessageDraft,
    encode_body,
)
from veen_hub.client.sending.sealing import header_of
from veen_hub.client.wire.connection import HubConnection
from veen_hub.client.wire.endpoints import decode_response

Source = bytes | Path | str
"""An attachment's content, or the path of the file that holds it."""


async def store_attachment(
    connection: HubConnection, sealed: Attachment, label: Label, auth_ref: AuthRef | None, signer: SigningKey
) -> None:
    """Store a sealed attachment at the hub; it is durable when this returns. Idempotent."""
    digest = attachment_digest(label, sealed.coid, auth_ref)
    headers = {
        "VEEN-Label": label.hex(),
        "VEEN-Client": signer.public.hex(),
        "VEEN-Sig": signer.sign(digest).hex(),
    }
    if auth_ref is not None:
        headers["VEEN-Auth-Ref"] = auth_ref.hex()

    path = f"/v1/attachment/{sealed.coid.hex()}"
    transport = connection.api.transport
    body = await connection.ask(
        lambda: transport.call(
            "PUT",
            path,
            sealed.ciphertext,
            content_type="application/octet-stream",
            headers=headers,
            timeout=transport.timeouts.transfer,
        ),
        min_seconds=transport.timeouts.transfer,
    )
    if (stored := decode_response(AttachmentResponse, body).coid) != sealed.coid:
        raise Misbehaved(f"the hub stored attachment {stored.hex()} instead of {sealed.coid.hex()}")


class AttachingMessage:
    """A message under construction: its attachments are sealed and stored first, then the message (§4.6)."""

    def __init__(
        self, connection: HubConnection, draft: MessageDraft, binding: Binding, signer: SigningKey
    ) -> None:
        self._connection = connection
        self._draft = draft
        self._binding = binding
        self._signer = signer
        self._sealer = Sealer(draft.recipient, binding, DhSecret(connection.randomness(DhSecret.SIZE)))

    async def add_all(self, sources: Sequence[Source]) -> tuple[AttachmentRef, ...]:
        """Seal and store attachments in order; each is durable at the hub before the next is read."""
        if len(sources) > self._connection.limits.max_attachments_per_msg:
            attachment.check_bounds([0] * len(sources), self._connection.limits)
        return tuple([await self._add(source) for source in sources])

    async def _add(self, source: Source) -> AttachmentRef:
        plaintext = await self._connection.workers.run(self._read, source)
        sealed = await self._connection.workers.run(self._sealer.attach, plaintext)
        binding = self._binding
        await store_attachment(self._connection, sealed, binding.label, binding.auth_ref, self._signer)
        return AttachmentRef(coid=sealed.coid, size=len(plaintext))

    def _read(self, source: Source) -> bytes:
        """Check the size, then read the content (§14.2)."""
        limits = self._connection.limits
        if isinstance(source, bytes):
            attachment.check_bounds([len(source) + TAG_SIZE], limits)
            return source
        path = Path(source)
        try:
            attachment.check_bounds([path.stat().st_size + TAG_SIZE], limits)
            content = path.read_bytes()
        except OSError as exc:
            raise StateError(f"attachment {path} cannot be read: {exc.strerror}") from exc
        attachment.check_bounds([len(content) + TAG_SIZE], limits)  # the file may have grown
        return content

    def seal(
        self, body: Body | Composer, schema: SchemaId | str | None, refs: Sequence[AttachmentRef]
    ) -> SealedMsg:
        """Seal and sign the message, whose body lists the attachments or was composed from their list."""
        if callable(body):
            outer, content = encode_body(body(refs), schema)
        else:
            inner, plain = encode_body(body, schema)
            outer = ATTACHED
            content = Attached(schema=inner, body=plain, attachments=tuple(refs)).encode()
        header: PayloadHeader = dataclasses.replace(
            header_of(self._draft, self._binding.auth_ref),
            schema=outer,
            att_root=attachment.att_root([ref.coid for ref in refs]) if refs else None,
        )
        pad_block, limits = self._connection.profile.pad_block, self._connection.limits
        ciphertext = self._sealer.seal(header, content, pad_block=pad_block, limits=limits)
        msg = sign_msg(self._signer, self._binding, ciphertext)
        wire = msg.encode()
        check_size(len(wire), limits)
        return SealedMsg(msg, wire, ())
