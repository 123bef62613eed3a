"""Key pairs: deterministic, strict in verifying, and silent about their secrets (§3.2, SH0.2)."""

import copy
import pickle
from collections.abc import Callable

import pytest

from veen_core import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.errors import DecodeError, OpenError, SignatureError
from veen_core.hpke import OpenContext, SealContext
from veen_core.ids import DhPublicKey, Signature, VerifyKey
from veen_core.keys import verify

from .simulator import dh_key, flip, signing_key

DIGEST = bytes(range(32))
L = 2**252 + 27742317777372353535851937790883648493  # order of the base point


def test_rfc_8032_test_1() -> None:
    seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
    key = SigningKey(SigningSeed.from_hex(seed))
    assert key.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert key.sign(b"").hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )


def test_rfc_7748_section_6_1() -> None:
    bob = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
    public = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    assert DhKey(DhSecret.from_hex(bob)).public.hex() == public


def test_signing_is_deterministic() -> None:
    assert signing_key("a").sign(DIGEST) == signing_key("a").sign(DIGEST)


def test_a_signature_verifies_under_its_own_key_and_digest_only() -> None:
    sig = signing_key("a").sign(DIGEST)
    verify(signing_key("a").public, DIGEST, sig, "x")
    for key, digest, signature in (
        (signing_key("b").public, DIGEST, sig),
        (signing_key("a").public, flip(DIGEST), sig),
        (signing_key("a").public, DIGEST, Signature(flip(sig))),
        (signing_key("a").public, DIGEST, Signature(flip(sig, 63))),
    ):
        with pytest.raises(SignatureError, match=r"^MSG\.sig .core §4\.1. does not verify under key"):
            verify(key, digest, signature, "MSG.sig (core §4.1)")


def test_a_scalar_that_is_not_canonical_is_refused() -> None:
    # S + L satisfies the same equation: accepting it would make signatures malleable.
    sig = signing_key("a").sign(DIGEST)
    scalar = int.from_bytes(sig[32:], "little") + L
    with pytest.raises(SignatureError):
        verify(signing_key("a").public, DIGEST, Signature(sig[:32] + scalar.to_bytes(32, "little")), "x")


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(b"\x01" + bytes(31), id="the identity"),
        pytest.param(bytes(32), id="order four"),
        pytest.param(b"\xec" + b"\xff" * 30 + b"\x7f", id="order two"),
        pytest.param(b"\xff" * 32, id="no point at all"),
    ],
)
def test_a_small_order_key_verifies_nothing(point: bytes) -> None:
    with pytest.raises(SignatureError):
        verify(VerifyKey(point), DIGEST, Signature(point + bytes(32)), "x")


def test_a_small_order_recipient_is_refused() -> None:
    with pytest.raises(OpenError, match="not a usable X25519 key"):
        SealContext(DhPublicKey(bytes(32)), DhSecret(DIGEST))


def test_a_small_order_enc_is_refused() -> None:
    with pytest.raises(OpenError, match="enc is not a usable X25519 key"):
        OpenContext(dh_key("reader"), bytes(32))


def test_sealing_is_a_function_of_the_ephemeral_key() -> None:
    contexts = [SealContext(dh_key("reader").public, DhSecret(DIGEST)) for _ in range(2)]
    assert contexts[0].enc == contexts[1].enc
    assert contexts[0].seal(b"x", b"aad") == contexts[1].seal(b"x", b"aad")


def test_both_sides_export_the_same_keys() -> None:
    sender = SealContext(dh_key("reader").public, DhSecret(DIGEST))
    reader = OpenContext(dh_key("reader"), sender.enc)
    assert sender.export(b"veen/body-k") == reader.export(b"veen/body-k")
    assert sender.export(b"veen/body-k") != sender.export(b"veen/att-k")
    assert reader.open(sender.seal(b"x", b"aad"), b"aad") == b"x"


@pytest.mark.parametrize("size", [0, 31, 33])
@pytest.mark.parametrize("kind", [SigningSeed, DhSecret])
def test_a_secret_of_another_size_is_refused(kind: type[SigningSeed | DhSecret], size: int) -> None:
    with pytest.raises(DecodeError, match=f"of 32 bytes, found {size}"):
        kind(bytes(size))


@pytest.mark.parametrize("key", [signing_key("a"), dh_key("a")], ids=["signing", "dh"])
@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_a_key_pair_cannot_be_pickled(key: object, way: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="cannot be pickled: pass its keystore"):
        way(key)
