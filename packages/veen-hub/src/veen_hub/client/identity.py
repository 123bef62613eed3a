"""Who is talking: a signing key, and the keys that open what is sealed to it (KEX0.2, H11)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from veen_core.card import IdentityCard, sign_card
from veen_core.ids import ClientId, DhPublicKey
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.keystore import Secrets

Randomness = Callable[[int], bytes]
"""``os.urandom``, or what a test hands in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Long-term keys. ``dh_keys`` are tried in order; messages to oneself are sealed to the first.

    ``signing_key`` signs a MSG only where a cap token names it as its subject: other client_ids are
    drawn per label and stay in the state store (KEX0.2).
    """

    signing_key: SigningKey
    dh_keys: tuple[DhKey, ...]

    @classmethod
    def of(cls, given: Identity | Secrets) -> Identity:
        """From an opened keystore."""
        if isinstance(given, Identity):
            return given
        return cls(signing_key=given.signing_key, dh_keys=given.dh_keys)

    @classmethod
    def generate(cls, randomness: Randomness = os.urandom) -> Identity:
        return cls(
            signing_key=SigningKey(SigningSeed(randomness(32))), dh_keys=(DhKey(DhSecret(randomness(32))),)
        )

    def with_readers(self, keys: Iterable[DhKey]) -> Identity:
        """The same, holding the reader keys of shared streams too (H11)."""
        return Identity(signing_key=self.signing_key, dh_keys=(*self.dh_keys, *keys))

    @property
    def client_id(self) -> ClientId:
        """What a token for this identity names."""
        return ClientId(self.signing_key.public)

    @property
    def recipient(self) -> DhPublicKey:
        """What others seal to."""
        return self.dh_keys[0].public

    @property
    def card(self) -> IdentityCard:
        """Publishable: the keys that others need (KEX0.2)."""
        return sign_card(self.signing_key, self.recipient)
