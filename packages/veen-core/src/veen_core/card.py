"""Identity cards: published so that others can write to their owner (KEX0.2, spec-1 §3, §15)."""

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
    """A receiving key with an end; signed by ``id_sign`` together with that end (KEX0.2)."""

    dh_pk: DhPublicKey
    expires_at: UnixTime
    sig: Signature


@int_map("identity_card", section="spec-1 §15")
@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityCard(Wire):
    """Public and signed: long-term keys and the current prekeys."""

    ver: Literal[1] = 1
    id_sign: VerifyKey
    id_dh: DhPublicKey
    prekeys: tuple[Prekey, ...]
    sig: Signature = _UNSIGNED

    def recipient_at(self, now: UnixTime) -> DhPublicKey:
        """The key to seal to: the freshest prekey that has not expired, else ``id_dh`` (H11)."""
        usable = [prekey for prekey in self.prekeys if now < prekey.expires_at]
        return max(usable, key=lambda p: (p.expires_at, p.dh_pk)).dh_pk if usable else self.id_dh


def prekey_digest(id_sign: VerifyKey, dh_pk: DhPublicKey, expires_at: UnixTime) -> bytes:
    return Ht("veen/prekey", id_sign + dh_pk + u64be(expires_at))


def sign_prekey(key: SigningKey, dh_pk: DhPublicKey, expires_at: UnixTime) -> Prekey:
    sig = key.sign(prekey_digest(key.public, dh_pk, expires_at))
    return Prekey(dh_pk=dh_pk, expires_at=expires_at, sig=sig)


def card_digest(card: IdentityCard) -> bytes:
    return Ht("veen/identity-card", dataclasses.replace(card, sig=_UNSIGNED).encode())


def sign_card(key: SigningKey, id_dh: DhPublicKey, prekeys: Iterable[Prekey] = ()) -> IdentityCard:
    """Publishable bytes: ``sign_card(...).encode()``."""
    unsigned = IdentityCard(id_sign=key.public, id_dh=id_dh, prekeys=tuple(prekeys))
    return dataclasses.replace(unsigned, sig=key.sign(card_digest(unsigned)))


def verify_card(card: IdentityCard, *, pinned: VerifyKey | None = None) -> None:
    """The card's signature and every prekey's; ``pinned`` is the id_sign the verifier expects."""
    if pinned is not None and card.id_sign != pinned:
        raise VerificationError(f"identity_card.id_sign: is {card.id_sign.hex()}, pinned is {pinned.hex()}")
    verify(card.id_sign, card_digest(card), card.sig, "identity_card.sig")
    for position, prekey in enumerate(card.prekeys):
        digest = prekey_digest(card.id_sign, prekey.dh_pk, prekey.expires_at)
        try:
            verify(card.id_sign, digest, prekey.sig, f"identity_card.prekeys[{position}].sig")
        except SignatureError as exc:
            raise VerificationError(str(exc)) from None
