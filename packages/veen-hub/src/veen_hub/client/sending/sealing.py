"""Sealing and signing drafts; safe to run in a thread, since nothing shared changes (§4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veen_core.ciphertext import Binding
from veen_core.ids import AuthRef, ClientId, ClientSeq, StreamSeq
from veen_core.keys import DhSecret, SigningKey
from veen_core.msg import SealedMsg, seal_msg
from veen_core.payload import PayloadHeader
from veen_core.pipelined_client import PipelinedClient
from veen_hub.client.sending.body import MessageDraft
from veen_hub.client.wire.connection import HubConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The place of a batch in a label: client_id and first client_seq, with prev_ack and auth_ref."""

    client_id: ClientId
    first: ClientSeq
    prev_ack: StreamSeq
    auth_ref: AuthRef | None

    def is_next(self, client: PipelinedClient, auth_ref: AuthRef | None) -> bool:
        """Return whether the slot still begins with the next client_seq, and nothing is pending."""
        state = client.state
        expected = (state.client_id, state.client_seq + 1, auth_ref)
        return (self.client_id, self.first, self.auth_ref) == expected and not state.pending

    def after(self, count: int, prev_ack: StreamSeq) -> Slot:
        return Slot(
            client_id=self.client_id,
            first=ClientSeq(self.first + count),
            prev_ack=prev_ack,
            auth_ref=self.auth_ref,
        )

    def binding(self, connection: HubConnection, client: PipelinedClient, position: int = 0) -> Binding:
        return Binding(
            profile_id=connection.profile.profile_id,
            label=client.state.label,
            client_id=self.client_id,
            client_seq=ClientSeq(self.first + position),
            prev_ack=self.prev_ack,
            auth_ref=self.auth_ref,
        )


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """Sealed drafts and the slot that they were sealed for."""

    slot: Slot
    sealed: tuple[SealedMsg, ...]


def header_of(draft: MessageDraft, auth_ref: AuthRef | None) -> PayloadHeader:
    """Build the encrypted header; its ``cap_ref`` repeats the public ``auth_ref`` (§6)."""
    return PayloadHeader(
        schema=draft.schema, parent_id=draft.parent, cap_ref=auth_ref, expires_at=draft.expires_at
    )


def seal_all(
    connection: HubConnection,
    client: PipelinedClient,
    signer: SigningKey,
    slot: Slot,
    drafts: Sequence[MessageDraft],
) -> SealedBatch:
    """Seal and sign each draft, about 180 µs each."""
    sealed = tuple(
        seal_msg(
            signer,
            draft.recipient,
            slot.binding(connection, client, position),
            header_of(draft, slot.auth_ref),
            draft.body,
            profile=connection.profile,
            ephemeral=DhSecret(connection.randomness(DhSecret.SIZE)),
            limits=connection.limits,
        )
        for position, draft in enumerate(drafts)
    )
    return SealedBatch(slot, sealed)
