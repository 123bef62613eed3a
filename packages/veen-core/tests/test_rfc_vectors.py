"""The primitives against their RFCs: Ed25519 (RFC 8032), HPKE (RFC 9180 A.2.1), HKDF (RFC 5869)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings, signing
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKeyPair

from veen_core import hpke
from veen_core.errors import OpenError, SignatureError, StateError
from veen_core.hashing import hkdf
from veen_core.hpke import OpenContext, SealContext
from veen_core.ids import DhPublicKey, Signature, VerifyKey
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed, verify

VECTORS = Path(__file__).parent / "vectors"
ED25519 = ["test_1", "test_2", "test_3", "test_1024", "test_sha_abc"]


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
def seal(base: dict[str, Any]) -> SealContext:
    return SealContext(DhPublicKey(base["pkRm"]), DhSecret(base["skEm"]), hpke.schedule_context(base["info"]))


@pytest.fixture
def opener(base: dict[str, Any]) -> OpenContext:
    return OpenContext(DhKey(DhSecret(base["skRm"])), base["enc"], hpke.schedule_context(base["info"]))


def test_public_keys_are_those_of_rfc_9180(base: dict[str, Any]) -> None:
    assert DhKey(DhSecret(base["skRm"])).public == base["pkRm"]
    assert DhKey(DhSecret(base["skEm"])).public == base["pkEm"]


def test_the_shared_secret_is_that_of_rfc_9180(base: dict[str, Any]) -> None:
    for secret, public in ((base["skEm"], base["pkRm"]), (base["skRm"], base["enc"])):
        dh = bindings.crypto_scalarmult(secret, public)
        assert hpke.shared_secret(dh, base["enc"], base["pkRm"]) == base["shared_secret"]


def test_the_first_ciphertext_is_that_of_rfc_9180(
    base: dict[str, Any], seal: SealContext, opener: OpenContext
) -> None:
    first = next(row for row in base["encryptions"] if row["seq"] == 0)
    assert seal.enc == base["enc"]
    assert seal.seal(base["pt"], first["aad"]) == first["ct"]
    assert opener.open(first["ct"], first["aad"]) == base["pt"]


def test_a_context_seals_once(seal: SealContext) -> None:
    """A second plaintext with the same key and nonce would reveal both."""
    seal.seal(b"one", b"")
    with pytest.raises(StateError, match="seals one plaintext"):
        seal.seal(b"two", b"")


def test_exports_are_those_of_rfc_9180(base: dict[str, Any], seal: SealContext, opener: OpenContext) -> None:
    for row in base["exports"]:
        for side in (seal, opener):
            assert side.export(row["exporter_context"], row["L"]) == row["exported_value"]


@given(
    secrets=st.tuples(*[st.binary(min_size=32, max_size=32)] * 2),
    plaintext=st.binary(max_size=200),
    aad=st.binary(max_size=64),
    exporter_context=st.binary(max_size=40),
    length=st.integers(1, 300) | st.just(hpke.MAX_EXPORT),
)
@settings(max_examples=60, deadline=None)
def test_another_implementation_derives_the_same_bytes(
    secrets: tuple[bytes, bytes], plaintext: bytes, aad: bytes, exporter_context: bytes, length: int
) -> None:
    """pyhpke, with an empty info (B4), in both directions."""
    ephemeral, reader = DhKey(DhSecret(secrets[0])), DhKey(DhSecret(secrets[1]))
    suite = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)
    public = suite.kem.deserialize_public_key(bytes(reader.public))
    pair = KEMKeyPair(
        suite.kem.deserialize_private_key(bytes(ephemeral.secret)),
        suite.kem.deserialize_public_key(bytes(ephemeral.public)),
    )
    enc, theirs = suite.create_sender_context(public, eks=pair)
    ours = SealContext(reader.public, ephemeral.secret)
    sealed = ours.seal(plaintext, aad)
    assert (ours.enc, sealed) == (enc, theirs.seal(plaintext, aad))
    assert ours.export(exporter_context, length) == theirs.export(exporter_context, length)
    reading = suite.create_recipient_context(enc, suite.kem.deserialize_private_key(bytes(reader.secret)))
    assert reading.open(sealed, aad) == plaintext
    opened = OpenContext(reader, enc)
    assert opened.open(sealed, aad) == plaintext
    assert opened.export(exporter_context, length) == reading.export(exporter_context, length)


@pytest.mark.parametrize("length", [-1, hpke.MAX_EXPORT + 1])
def test_an_export_is_bounded_as_rfc_9180_says(seal: SealContext, length: int) -> None:
    with pytest.raises(StateError, match="cannot be exported"):
        seal.export(b"", length)


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31)], ids=["zero", "small order"])
def test_a_point_of_small_order_is_refused(base: dict[str, Any], point: bytes) -> None:
    with pytest.raises(OpenError, match="usable X25519 key"):
        SealContext(DhPublicKey(point), DhSecret(base["skEm"]))
    with pytest.raises(OpenError, match="usable X25519 key"):
        OpenContext(DhKey(DhSecret(base["skRm"])), point)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_an_enc_of_another_size_is_refused(base: dict[str, Any], size: int) -> None:
    with pytest.raises(OpenError, match="usable X25519 key"):
        OpenContext(DhKey(DhSecret(base["skRm"])), bytes(range(size)))


def test_a_message_sealed_with_another_info_does_not_open(base: dict[str, Any]) -> None:
    row = base["encryptions"][0]
    with pytest.raises(OpenError, match="does not open"):
        OpenContext(DhKey(DhSecret(base["skRm"])), base["enc"]).open(row["ct"], row["aad"])


def test_hkdf_gives_the_bytes_of_rfc_5869_without_salt() -> None:
    """Test case 3, of which the first 32 bytes do not depend on the length asked for."""
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert hkdf(b"\x0b" * 22, b"").hex() == expected
