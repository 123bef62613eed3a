"""The primitives against their RFCs: Ed25519 (RFC 8032), HPKE (RFC 9180 A.2.1), HKDF (RFC 5869)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl import signing
from pyhpke import KEMKeyPair

from veen_core.errors import OpenError, SignatureError
from veen_core.hashing import hkdf
from veen_core.hpke import SUITE, OpenContext, SealContext
from veen_core.ids import DhPublicKey, Signature, VerifyKey
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed, verify

VECTORS = Path(__file__).parent / "vectors"
ED25519 = ["test_1", "test_2", "test_3", "test_1024", "test_sha_abc"]
SEQUENCE = [0, 1, 2, 4, 255, 256]


def read(folder: str, name: str) -> dict[str, Any]:
    """A vector with its hex fields as bytes."""
    return _unhex(json.loads((VECTORS / folder / f"{name}.json").read_bytes()))


def _unhex(value: Any, name: str = "") -> Any:
    match value:
        case dict():
            return {key: _unhex(inner, key) for key, inner in value.items()}
        case list():
            return [_unhex(inner, name) for inner in value]
        case str() if name != "source":
            return bytes.fromhex(value)
        case _:
            return value


def test_the_files_are_the_vectors_named_here() -> None:
    assert {path.stem for path in (VECTORS / "rfc8032").iterdir()} == set(ED25519)
    assert {path.stem for path in (VECTORS / "rfc9180").iterdir()} == {"a_2_1_base"}


@pytest.mark.parametrize("name", ED25519)
def test_signing_gives_the_signature_of_rfc_8032(name: str) -> None:
    vector = read("rfc8032", name)
    key = SigningKey(SigningSeed(vector["seed"]))
    assert key.public == vector["public"]
    assert key.sign(vector["message"]) == vector["signature"]
    verify(key.public, vector["message"], Signature(vector["signature"]), name)


@pytest.mark.parametrize("name", ED25519)
def test_two_other_implementations_agree_on_the_vector(name: str) -> None:
    vector = read("rfc8032", name)
    libsodium = signing.SigningKey(vector["seed"])
    openssl = Ed25519PrivateKey.from_private_bytes(vector["seed"])
    assert bytes(libsodium.verify_key) == openssl.public_key().public_bytes_raw() == vector["public"]
    assert libsodium.sign(vector["message"]).signature == vector["signature"]
    assert openssl.sign(vector["message"]) == vector["signature"]
    openssl.public_key().verify(vector["signature"], vector["message"])


@pytest.mark.parametrize("name", ED25519)
def test_a_signature_of_rfc_8032_covers_every_byte(name: str) -> None:
    vector = read("rfc8032", name)
    key, signature = VerifyKey(vector["public"]), Signature(vector["signature"])
    with pytest.raises(SignatureError, match=name):
        verify(key, vector["message"] + b"\x00", signature, name)
    with pytest.raises(SignatureError, match=name):
        verify(key, vector["message"], Signature(signature[:-1] + bytes([signature[-1] ^ 1])), name)


@pytest.fixture
def base() -> dict[str, Any]:
    return read("rfc9180", "a_2_1_base")


@pytest.fixture
def ephemeral(base: dict[str, Any]) -> KEMKeyPair:
    return SUITE.kem.derive_key_pair(base["ikmE"])


def test_key_pairs_derive_as_rfc_9180_says(base: dict[str, Any], ephemeral: KEMKeyPair) -> None:
    recipient = SUITE.kem.derive_key_pair(base["ikmR"])
    assert ephemeral.private_key.to_private_bytes() == base["skEm"]
    assert ephemeral.public_key.to_public_bytes() == base["pkEm"]
    assert recipient.private_key.to_private_bytes() == base["skRm"]
    assert recipient.public_key.to_public_bytes() == base["pkRm"]
    assert DhKey(DhSecret(base["skRm"])).public == base["pkRm"]
    assert DhKey(DhSecret(base["skEm"])).public == base["pkEm"]


def test_the_shared_secret_is_that_of_rfc_9180(base: dict[str, Any], ephemeral: KEMKeyPair) -> None:
    shared_secret, enc = SUITE.kem.encap(SUITE.kem.deserialize_public_key(base["pkRm"]), eks=ephemeral)
    assert (enc, shared_secret) == (base["enc"], base["shared_secret"])
    private = SUITE.kem.deserialize_private_key(base["skRm"])
    assert SUITE.kem.decap(enc, private) == base["shared_secret"]


def test_sealing_in_sequence_gives_the_ciphertexts_of_rfc_9180(
    base: dict[str, Any], ephemeral: KEMKeyPair
) -> None:
    public = SUITE.kem.deserialize_public_key(base["pkRm"])
    enc, sender = SUITE.create_sender_context(public, info=base["info"], eks=ephemeral)
    recipient = SUITE.create_recipient_context(
        enc, SUITE.kem.deserialize_private_key(base["skRm"]), info=base["info"]
    )
    published = {row["seq"]: row for row in base["encryptions"]}
    assert enc == base["enc"]
    assert sorted(published) == SEQUENCE
    for seq in range(257):
        aad = b"Count-%d" % seq
        sealed = sender.seal(base["pt"], aad)
        assert recipient.open(sealed, aad) == base["pt"]
        if seq in published:
            assert (aad, sealed) == (published[seq]["aad"], published[seq]["ct"])


def test_exports_are_those_of_rfc_9180(base: dict[str, Any], ephemeral: KEMKeyPair) -> None:
    public = SUITE.kem.deserialize_public_key(base["pkRm"])
    private = SUITE.kem.deserialize_private_key(base["skRm"])
    _, sender = SUITE.create_sender_context(public, info=base["info"], eks=ephemeral)
    recipient = SUITE.create_recipient_context(base["enc"], private, info=base["info"])
    for row in base["exports"]:
        for side in (sender, recipient):
            assert side.export(row["exporter_context"], row["L"]) == row["exported_value"]


def test_our_contexts_are_the_suite_with_an_empty_info(base: dict[str, Any], ephemeral: KEMKeyPair) -> None:
    ours = SealContext(DhPublicKey(base["pkRm"]), DhSecret(base["skEm"]))
    public = SUITE.kem.deserialize_public_key(base["pkRm"])
    enc, theirs = SUITE.create_sender_context(public, info=b"", eks=ephemeral)
    sealed = ours.seal(base["pt"], b"aad")
    assert ours.enc == enc == base["enc"]
    assert sealed == theirs.seal(base["pt"], b"aad")
    opener = OpenContext(DhKey(DhSecret(base["skRm"])), ours.enc)
    assert opener.open(sealed, b"aad") == base["pt"]
    assert opener.export(b"veen/body-k") == ours.export(b"veen/body-k") == theirs.export(b"veen/body-k", 32)


def test_a_message_sealed_with_another_info_does_not_open(base: dict[str, Any]) -> None:
    row = base["encryptions"][0]
    with pytest.raises(OpenError, match="does not open"):
        OpenContext(DhKey(DhSecret(base["skRm"])), base["enc"]).open(row["ct"], row["aad"])


def test_hkdf_gives_the_bytes_of_rfc_5869_without_salt() -> None:
    """Test case 3, of which the first 32 bytes do not depend on the length asked for."""
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert hkdf(b"\x0b" * 22, b"").hex() == expected
