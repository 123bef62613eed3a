"""A writer of messages, valid or invalid, with a key from the run's seed and a token.

Messages are signed and have the layout of §4.2, but are not encrypted: a hub cannot tell, and each costs only
one signature. ``seal`` makes a message that opens.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from veen_core import cbor, stream
from veen_core.cap import CapToken, Rate, mint
from veen_core.ciphertext import Binding
from veen_core.hashing import H, Ht
from veen_core.ids import AuthRef, ClientId, ClientSeq, Coid, DhPublicKey, Label, SchemaId, StreamSeq
from veen_core.keys import DhSecret, SigningKey, SigningSeed
from veen_core.msg import SealedMsg, seal_msg
from veen_core.payload import PayloadHeader
from veen_core.status import attachment_digest
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.runner.check import Skip

LONG_TTL_SEC = 1_000_000
"""Lifetime of a token in seconds; longer than any run."""
NEEDS_TOKEN = "needs a cap token, which only the hub's admin can issue: give --admin-key"  # noqa: S105 - a reason


def key_of(seed: bytes, name: str) -> SigningKey:
    return SigningKey(SigningSeed(H(seed + b"/sign/" + name.encode())))


def ciphertext_layout(body: bytes) -> bytes:
    """Return bytes with the layout of a ciphertext (core §4.2) that cannot be opened."""
    return H(b"enc" + body) + struct.pack(">II", 0, len(body)) + body


class Writer:
    """One client_id on one label of one hub."""

    def __init__(
        self, hub: HttpHub, seed: bytes, name: str, stream_name: str, epoch: int | None = None
    ) -> None:
        self.hub = hub
        self.key = key_of(seed, name)
        self.client_id = ClientId(self.key.public)
        self.stream_id = stream.stream_id(stream_name)
        self.label: Label = hub.label(self.stream_id, epoch)
        self.auth_ref: AuthRef | None = None
        self.seq = 0
        self._seed = seed

    # --- messages

    def next(self, **changes: Any) -> bytes:
        self.seq += 1
        return self.message(self.seq, **changes)

    def many(self, count: int) -> list[bytes]:
        return [self.next() for _ in range(count)]

    def message(self, seq: int, *, sig: bytes | None = None, **changes: Any) -> bytes:
        """Encode a MSG with changed fields, signed after the changes unless ``sig`` is given."""
        fields: dict[str, Any] = {
            "ver": 1,
            "profile_id": bytes(self.hub.known.profile.profile_id),
            "label": bytes(self.label),
            "client_id": bytes(self.client_id),
            "client_seq": seq,
            "prev_ack": 0,
            "auth_ref": bytes(self.auth_ref) if self.auth_ref is not None else None,
            "ct_hash": None,
            "ciphertext": ciphertext_layout(b"message %d" % seq),
            **changes,
        }
        if "ct_hash" not in changes:
            fields["ct_hash"] = H(fields["ciphertext"])
        unsigned = list(fields.values())
        signature = self.key.sign(Ht("veen/sig", cbor.encode(unsigned))) if sig is None else sig
        return cbor.encode([*unsigned, signature])

    def seal(self, recipient: DhPublicKey, body: bytes, attachments: Iterable[bytes] = ()) -> SealedMsg:
        """Seal the next message, with attachments (core §4.2, §4.6)."""
        self.seq += 1
        binding = Binding(
            profile_id=self.hub.known.profile.profile_id,
            label=self.label,
            client_id=self.client_id,
            client_seq=ClientSeq(self.seq),
            prev_ack=StreamSeq(0),
            auth_ref=self.auth_ref,
        )
        ephemeral = DhSecret(H(self._seed + b"/ephemeral/" + self.label + bytes([self.seq % 256])))
        return seal_msg(
            self.key,
            recipient,
            binding,
            PayloadHeader(schema=SchemaId(H(b"veen-selftest"))),
            body,
            profile=self.hub.known.profile,
            ephemeral=ephemeral,
            attachments=list(attachments),
            limits=self.hub.known.limits,
        )

    # --- authority

    def token(
        self,
        *,
        streams: Iterable[str] | None = None,
        ttl: int = LONG_TTL_SEC,
        rate: Rate | None = None,
        issuer: SigningKey | None = None,
        subject: ClientId | None = None,
    ) -> CapToken:
        """Mint a token, by default signed by the hub's admin for this writer and stream."""
        signer = issuer or self.hub.admin
        if signer is None:
            raise Skip(NEEDS_TOKEN)
        ids = [self.stream_id] if streams is None else [stream.stream_id(name) for name in streams]
        return mint(signer, subject or self.client_id, ids, ttl, rate)

    def authorized(self, **about: Any) -> Writer:
        """Authorize a token at the hub and use it from now on; ``about`` is passed to ``token``."""
        self.auth_ref = self.hub.authorize(self.token(**about)).auth_ref
        return self

    def attachment_headers(self, coid: Coid) -> dict[str, str]:
        """Return the headers that sign the upload of an attachment (H17)."""
        headers = {
            "VEEN-Label": self.label.hex(),
            "VEEN-Client": self.client_id.hex(),
            "VEEN-Sig": self.key.sign(attachment_digest(self.label, coid, self.auth_ref)).hex(),
            "Content-Type": "application/octet-stream",
        }
        if self.auth_ref is not None:
            headers["VEEN-Auth-Ref"] = self.auth_ref.hex()
        return headers
