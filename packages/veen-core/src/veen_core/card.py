"""Identity cards: the signed public keys that others need to write to a person (KEX0.2, spec-1 §3, §15)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from veen_core.errors import SignatureError, VerificationError
from veen_core.hashing import Ht, u64be
from veen_core.ids import DhPublicKey, Signature, UnixTime, VerifyKey
from veen_core.keys import SigningKey, verify
from veen_core.wire import Wire, int_map

_UNSIGNED: Final = Signature(bytes(Signature.SIZE))


@int_map("prekey", section="spec-1 §3")
@dataclass(frozen=True, slots=True, kw_only=True)
class Prekey(Wire):
    """A receiving key that expires; ``id_sign`` signs the key together with its expiry (KEX0.2)."""

    dh_pk: DhPublicKey
    expires_at: UnixTime
    sig: Signature


@int_map("identity_card", section="spec-1 §15")
@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityCard(Wire):
    """The long-term keys and current prekeys of one identity, signed by ``id_sign``."""

    ver: Literal[1] = 1
    id_sign: VerifyKey
    id_dh: DhPublicKey
    prekeys: tuple[Prekey, ...]
    sig: Signature = _UNSIGNED

    def recipient_at(self, now: UnixTime) -> DhPublicKey:
        """Return the key to seal to: the prekey that expires last, or ``id_dh`` if none is valid (H11)."""
        usable = [prekey for prekey in self.prekeys if now < prekey.expires_at]
        return max(usable, key=lambda p: (p.expires_at, p.dh_pk)).dh_pk if usable else self.id_dh


def prekey_digest(id_sign: VerifyKey, dh_pk: DhPublicKey, expires_at: UnixTime) -> bytes:
    """Return the digest that ``id_sign`` signs for a prekey."""
    return Ht("veen/prekey", id_sign + dh_pk + u64be(expires_at))


def sign_prekey(key: SigningKey, dh_pk: DhPublicKey, expires_at: UnixTime) -> Prekey:
    """Return a prekey signed by its owner's long-term key."""
    sig = key.sign(prekey_digest(key.public, dh_pk, expires_at))
    return Prekey(dh_pk=dh_pk, expires_at=expires_at, sig=sig)


def card_digest(card: IdentityCard) -> bytes:
    """Return the digest that ``id_sign`` signs for the whole card."""
    return Ht("veen/identity-card", dataclasses.replace(card, sig=_UNSIGNED).encode())


def sign_card(key: SigningKey, id_dh: DhPublicKey, prekeys: Iterable[Prekey] = ()) -> IdentityCard:
    """Return a signed card, ready to be published."""
    unsigned = IdentityCard(id_sign=key.public, id_dh=id_dh, prekeys=tuple(prekeys))
    return dataclasses.replace(unsigned, sig=key.sign(card_digest(unsigned)))


def verify_card(card: IdentityCard, *, pinned: VerifyKey | None = None) -> None:
    """Verify the signatures of a card and its prekeys; ``pinned`` is the id_sign that must be in it."""
    if pinned is not None and card.id_sign != pinned:
        raise VerificationError(
            f"identity_card.id_sign is {card.id_sign.hex()}, but the pinned key is {pinned.hex()}"
        )
    verify(card.id_sign, card_digest(card), card.sig, "identity_card.sig")
    for position, prekey in enumerate(card.prekeys):
        digest = prekey_digest(card.id_sign, prekey.dh_pk, prekey.expires_at)
        try:
            verify(card.id_sign, digest, prekey.sig, f"identity_card.prekeys[{position}].sig")
        except SignatureError as exc:
            raise VerificationError(str(exc)) from None
