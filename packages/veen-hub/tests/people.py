"""Writers for the tests: fixed keys, their tokens and messages; the same names give the same bytes.

    alice = Writer("alice", hub.hub_id, hub.profile)     writes to the stream "orders"
    wire = alice.next()                                  her next message, encoded and signed
    wire = alice.message(3, ver=2)                       any message, with whatever is wrong in it

Messages are signed and laid out as §4.2 says, but not sealed: a hub never looks inside. So they cost one
signature each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from veen_core import cbor, stream
from veen_core.cap import CapToken, Rate, mint
from veen_core.hashing import H, Ht
from veen_core.ids import AuthRef, ClientId, Epoch, HubId, Label
from veen_core.keys import SigningKey, SigningSeed
from veen_core.profile import DEFAULT_PROFILE, Profile
from veen_core.status import admin_digest, attachment_digest

BORN = 1_700_000_040
"""When every hub of these tests is created: the first second of an epoch of 60."""


def signing_key(name: str) -> SigningKey:
    return SigningKey(SigningSeed(H(b"sign:" + name.encode())))


HUB_KEY = signing_key("hub/0")
ADMIN = signing_key("admin")


def ciphertext(body: bytes) -> bytes:
    """Something that has the layout of §4.2, with ``body`` readable in it."""
    return H(b"enc" + body) + struct.pack(">II", 0, len(body)) + body


SEALED = ciphertext(b"some sealed words")


def envelope(wire: bytes) -> bytes:
    """A submit request (§10.4.1)."""
    return bytes.fromhex("a2010102") + wire


class Writer:
    """One client_id on one label."""

    def __init__(
        self,
        name: str,
        hub_id: HubId,
        profile: Profile = DEFAULT_PROFILE,
        *,
        to: str = "orders",
        epoch: int | None = None,
        auth_ref: AuthRef | None = None,
    ) -> None:
        self.key = signing_key(name)
        self.client_id = ClientId(self.key.public)
        self.stream_id = stream.stream_id(to)
        self._profile_id = profile.profile_id
        when = epoch if epoch is not None else (BORN // profile.epoch_sec if profile.epoch_sec else 0)
        self.label: Label = stream.label(stream.routing_key(hub_id), self.stream_id, Epoch(when))
        self.auth_ref = auth_ref
        self.seq = 0

    def next(self, **changes: Any) -> bytes:
        self.seq += 1
        return self.message(self.seq, **changes)

    def message(self, seq: int, *, sig: bytes | None = None, **changes: Any) -> bytes:
        """An encoded MSG; ``changes`` by field name. It is signed as it stands, unless ``sig`` is given."""
        fields: dict[str, Any] = {
            "ver": 1,
            "profile_id": bytes(self._profile_id),
            "label": bytes(self.label),
            "client_id": bytes(self.client_id),
            "client_seq": seq,
            "prev_ack": 0,
            "auth_ref": bytes(self.auth_ref) if self.auth_ref is not None else None,
            "ct_hash": None,
            "ciphertext": SEALED,
        }
        fields |= changes
        if "ct_hash" not in changes:
            fields["ct_hash"] = H(fields["ciphertext"])
        nine = list(fields.values())
        return cbor.encode([*nine, sig or self.key.sign(Ht("veen/sig", cbor.encode(nine)))])

    def token(
        self,
        *,
        streams: Iterable[str] | None = None,
        ttl: int = 1_000_000,
        rate: Rate | None = None,
        issuer: SigningKey = ADMIN,
        subject: SigningKey | None = None,
    ) -> CapToken:
        ids = [self.stream_id] if streams is None else [stream.stream_id(name) for name in streams]
        return mint(issuer, ClientId((subject or self.key).public), ids, ttl, rate)

    def attachment_headers(self, content: bytes, **changes: str) -> dict[str, str]:
        """What signs a put (H17)."""
        coid = H(content)
        headers = {
            "VEEN-Label": self.label.hex(),
            "VEEN-Client": self.client_id.hex(),
            "VEEN-Sig": self.key.sign(attachment_digest(self.label, coid, self.auth_ref)).hex(),  # type: ignore[arg-type]
            "Content-Type": "application/octet-stream",
        }
        if self.auth_ref is not None:
            headers["VEEN-Auth-Ref"] = self.auth_ref.hex()
        return headers | changes


def admin_headers(
    hub_id: HubId, path: str, body: bytes, at: int, *, by: SigningKey = ADMIN, method: str = "POST"
) -> dict[str, str]:
    """Headers that sign a tooling request (H19)."""
    digest = admin_digest(hub_id, method, path, body, at)  # type: ignore[arg-type]
    return {"VEEN-Admin-Ts": str(at), "VEEN-Admin-Sig": by.sign(digest).hex()}
