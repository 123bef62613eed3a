"""Somebody who writes to a stream: a key made from the run's seed, a token, and any message, right or wrong.

Messages are signed and laid out as §4.2 says, but not sealed: a hub never looks inside, and so they cost one
signature each. ``seal`` makes one that opens.
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
from veen_selftest.hubs.http_hub import Hub
from veen_selftest.runner.check import Skip

LONG = 1_000_000
"""Seconds: a ttl that no run reaches."""


def key_of(seed: bytes, name: str) -> SigningKey:
    return SigningKey(SigningSeed(H(seed + b"/sign/" + name.encode())))


def laid_out(body: bytes) -> bytes:
    """Bytes with the layout of a ciphertext (§4.2), and nothing in it that could be opened."""
    return H(b"enc" + body) + struct.pack(">II", 0, len(body)) + body


class Writer:
    """One client_id on one label of one hub."""

    def __init__(self, hub: Hub, seed: bytes, name: str, stream_name: str, epoch: int | None = None) -> None:
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
        """An encoded MSG with ``changes`` by field name, signed as it stands unless ``sig`` is given."""
        fields: dict[str, Any] = {
            "ver": 1,
            "profile_id": bytes(self.hub.known.profile.profile_id),
            "label": bytes(self.label),
            "client_id": bytes(self.client_id),
            "client_seq": seq,
            "prev_ack": 0,
            "auth_ref": bytes(self.auth_ref) if self.auth_ref is not None else None,
            "ct_hash": None,
            "ciphertext": laid_out(b"message %d" % seq),
            **changes,
        }
        if "ct_hash" not in changes:
            fields["ct_hash"] = H(fields["ciphertext"])
        unsigned = list(fields.values())
        signature = self.key.sign(Ht("veen/sig", cbor.encode(unsigned))) if sig is None else sig
        return cbor.encode([*unsigned, signature])

    def seal(self, recipient: DhPublicKey, body: bytes, attachments: Iterable[bytes] = ()) -> SealedMsg:
        """The next message, sealed whole (§4.2, §4.6)."""
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
        ttl: int = LONG,
        rate: Rate | None = None,
        issuer: SigningKey | None = None,
        subject: ClientId | None = None,
    ) -> CapToken:
        """By the hub's admin, for this writer and stream, unless told otherwise."""
        signer = issuer or self.hub.admin
        if signer is None:
            raise Skip("it takes a cap token, and only the hub's admin can issue one: give --admin-key")
        ids = [self.stream_id] if streams is None else [stream.stream_id(name) for name in streams]
        return mint(signer, subject or self.client_id, ids, ttl, rate)

    def authorized(self, **about: Any) -> Writer:
        """With a token that was handed to the hub; ``about`` as for ``token``."""
        self.auth_ref = self.hub.authorize(self.token(**about)).auth_ref
        return self

    def attachment_headers(self, coid: Coid) -> dict[str, str]:
        """What signs a put (H17)."""
        headers = {
            "VEEN-Label": self.label.hex(),
            "VEEN-Client": self.client_id.hex(),
            "VEEN-Sig": self.key.sign(attachment_digest(self.label, coid, self.auth_ref)).hex(),
            "Content-Type": "application/octet-stream",
        }
        if self.auth_ref is not None:
            headers["VEEN-Auth-Ref"] = self.auth_ref.hex()
        return headers
