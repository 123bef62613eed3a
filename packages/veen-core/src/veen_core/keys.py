"""Key pairs: Ed25519 to sign, X25519 to receive (§3.2).

A key is made from 32 secret bytes that the caller draws. Neither ``repr`` nor an error shows a secret.
Signatures are verified by libsodium, which refuses non-canonical scalars and small-order keys. All inputs
of a verification are public, so its timing reveals nothing (SH0.2).
"""

from __future__ import annotations

from typing import NoReturn

from nacl import bindings
from nacl.exceptions import BadSignatureError, CryptoError

from veen_core.errors import SignatureError
from veen_core.ids import DhPublicKey, Secret, Signature, VerifyKey


class SigningSeed(Secret):
    """The 32 secret bytes of an Ed25519 key."""

    __slots__ = ()


class DhSecret(Secret):
    """The 32 secret bytes of an X25519 key."""

    __slots__ = ()


class SigningKey:
    """An Ed25519 key pair."""

    __slots__ = ("_expanded", "public", "seed")

    def __init__(self, seed: SigningSeed) -> None:
        public, expanded = bindings.crypto_sign_seed_keypair(bytes(seed))
        self.seed = seed
        self.public = VerifyKey(public)
        self._expanded = expanded

    def sign(self, digest: bytes) -> Signature:
        """Sign a digest; the same digest gives the same signature (RFC 8032)."""
        return Signature(bindings.crypto_sign(digest, self._expanded)[: Signature.SIZE])

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public.hex()})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a signing key cannot be pickled: pass its keystore instead")


class DhKey:
    """An X25519 key pair."""

    __slots__ = ("public", "secret")

    def __init__(self, secret: DhSecret) -> None:
        self.secret = secret
        self.public = DhPublicKey(bindings.crypto_scalarmult_base(bytes(secret)))

    def __repr__(self) -> str:
        return f"DhKey(public={self.public.hex()})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret key cannot be pickled: pass its keystore instead")


def verify(key: VerifyKey, digest: bytes, signature: Signature, what: str, clause: str | None = None) -> None:
    """Raise ``SignatureError`` unless ``key`` made ``signature`` over ``digest``.

    ``what`` names the signature in the error, for example ``"MSG.sig"``, and ``clause`` what requires it.
    """
    if not is_valid(key, digest, signature):
        raise refused(key, what, clause)


def is_valid(key: VerifyKey, digest: bytes, signature: Signature) -> bool:
    """Return whether ``key`` made ``signature`` over ``digest``; ``signatures`` verifies many."""
    # The binding takes about a tenth less time than nacl.signing.VerifyKey; both release the GIL.
    try:
        bindings.crypto_sign_open(signature + digest, key)
    except (BadSignatureError, CryptoError):
        return False
    return True


def refused(key: VerifyKey, what: str, clause: str | None = None) -> SignatureError:
    """Return the error for a signature that ``key`` did not make."""
    cited, refusal = f" ({clause})" if clause is not None else "", f"does not verify under key {key.hex()}"
    return SignatureError(f"{what}{cited} {refusal}", found=f"{what} {refusal}", clause=clause)
