"""Messages that are signed before a measurement starts, for clients that neither seal nor verify.

All messages carry the same ciphertext: a hub cannot tell, and each costs one signature.
"""

from __future__ import annotations

from typing import Final

from veen_core.api import wrap_submit
from veen_core.ciphertext import Binding
from veen_core.hashing import H
from veen_core.ids import AuthRef, ClientId, ClientSeq, Label, SchemaId, StreamSeq
from veen_core.keys import DhKey, DhSecret, SigningKey
from veen_core.msg import seal_msg, sign_msg
from veen_core.payload import PayloadHeader
from veen_core.profile import Profile

NEVER_OPENED: Final = DhSecret(H(b"nobody opens these messages"))


class MessageSigner:
    """One client_id that signs the next messages of any number of labels."""

    def __init__(self, key: SigningKey, profile: Profile, auth_ref: AuthRef | None, body: bytes) -> None:
        self._key = key
        self._profile = profile
        self._auth_ref = auth_ref
        self._next: dict[Label, int] = {}
        self._sealed = seal_msg(
            key,
            DhKey(NEVER_OPENED).public,
            self._binding(Label(H(b"")), 1),
            PayloadHeader(schema=SchemaId(H(b"veen load"))),
            body,
            profile=profile,
            ephemeral=NEVER_OPENED,
        ).msg.ciphertext

    def _binding(self, label: Label, seq: int) -> Binding:
        return Binding(
            profile_id=self._profile.profile_id,
            label=label,
            client_id=ClientId(self._key.public),
            client_seq=ClientSeq(seq),
            prev_ack=StreamSeq(0),
            auth_ref=self._auth_ref,
        )

    def bodies(self, label: Label, count: int) -> list[bytes]:
        """Return the label's next messages, each in a submit envelope."""
        first = self._next.get(label, 1)
        self._next[label] = first + count
        return [
            wrap_submit(sign_msg(self._key, self._binding(label, seq), self._sealed).encode())
            for seq in range(first, first + count)
        ]
