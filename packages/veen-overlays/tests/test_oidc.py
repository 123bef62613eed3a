"""The OpenID Connect gateway (ID 10.2): real keys, real tokens, and everything that must be refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA256

from veen_core.errors import VerificationError
from veen_core.ids import UnixTime
from veen_overlays.identifiers import CtxId, realm_id
from veen_overlays.identity.oidc import MAX_ID_TOKEN_CHARS, Provider, jwks_keys, verify_id_token

NOW = UnixTime(1_700_000_000)
RSA = rsa.generate_private_key(65_537, 2_048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(n: int, size: int | None = None) -> str:
    return b64(n.to_bytes(size or (n.bit_length() + 7) // 8, "big"))


def jwks(**changed: Any) -> str:
    rsa_numbers, ec_numbers = RSA.public_key().public_numbers(), EC.public_key().public_numbers()
    keys: list[dict[str, Any]] = [
        {"kty": "RSA", "kid": "rsa", "use": "sig", "n": number(rsa_numbers.n), "e": number(rsa_numbers.e)},
        {
            "kty": "EC",
            "crv": "P-256",
            "kid": "ec",
            "x": number(ec_numbers.x, 32),
            "y": number(ec_numbers.y, 32),
        },
        {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": b64(ED.public_key().public_bytes_raw())},
        {"kty": "oct", "kid": "secret", "k": b64(b"shared")},
        {"kty": "RSA", "kid": "encryption", "use": "enc", "n": "AQ", "e": "AQ"},
    ]
    return json.dumps({"keys": [*keys, changed] if changed else keys})


PROVIDER = Provider(name="corp", issuer="https://id.example", audience="app", keys=jwks_keys(jwks()))
CLAIMS: dict[str, Any] = {
    "iss": "https://id.example",
    "aud": "app",
    "sub": "user-7",
    "iat": NOW - 10,
    "exp": NOW + 300,
    "nonce": "n",
}


def sign_rsa(data: bytes) -> bytes:
    return RSA.sign(data, padding.PKCS1v15(), SHA256())


def sign_ec(data: bytes) -> bytes:
    r, s = utils.decode_dss_signature(EC.sign(data, ec.ECDSA(SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


SIGNERS: dict[str, tuple[str, str, Callable[[bytes], bytes]]] = {
    "RS256": ("RS256", "rsa", sign_rsa),
    "ES256": ("ES256", "ec", sign_ec),
    "EdDSA": ("EdDSA", "ed", ED.sign),
}


def token(claims: dict[str, Any], signer: str = "EdDSA", header: dict[str, Any] | None = None) -> str:
    alg, kid, sign = SIGNERS[signer]
    head = {"alg": alg, "kid": kid, "typ": "JWT"} | (header or {})
    signed = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}"
    return f"{signed}.{b64(sign(signed.encode()))}"


@pytest.mark.parametrize("signer", SIGNERS)
def test_a_providers_token_names_its_subject(signer: str) -> None:
    subject = verify_id_token(token(CLAIMS, signer), PROVIDER, NOW, nonce="n")
    assert (subject.provider, subject.sub) == ("corp", "user-7")
    link = subject.link(realm_id("app"), CtxId(b"\x01" * 32), NOW)
    assert (link.provider, link.external_sub, link.broken_rule()) == ("corp", "user-7", None)


WRONG_CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "another issuer": ({"iss": "https://evil.example"}, "iss"),
    "another audience": ({"aud": "other"}, "aud"),
    "no audience": ({"aud": None}, "aud"),
    "several audiences without azp": ({"aud": ["app", "other"]}, "azp"),
    "expired": ({"exp": NOW - 61}, "exp"),
    "no expiry": ({"exp": None}, "exp"),
    "expiry as text": ({"exp": str(NOW + 5)}, "exp"),
    "from the future": ({"iat": NOW + 61}, "not valid yet"),
    "not yet": ({"nbf": NOW + 61}, "not valid yet"),
    "another login": ({"nonce": "m"}, "nonce"),
    "nobody": ({"sub": ""}, "sub"),
}


@pytest.mark.parametrize("case", WRONG_CLAIMS.values(), ids=WRONG_CLAIMS)
def test_a_token_with_wrong_claims_is_refused(case: tuple[dict[str, Any], str]) -> None:
    changed, why = case
    with pytest.raises(VerificationError, match=why):
        verify_id_token(token(CLAIMS | changed), PROVIDER, NOW, nonce="n")


def test_the_clock_may_be_a_minute_off_and_audiences_several() -> None:
    verify_id_token(token(CLAIMS | {"exp": NOW - 60, "iat": NOW + 60}), PROVIDER, NOW)
    verify_id_token(token(CLAIMS | {"aud": ["app", "other"], "azp": "app"}), PROVIDER, NOW)


WRONG_HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "no algorithm": ({"alg": "none"}, "alg"),
    "another algorithm": ({"alg": "RS256"}, "alg"),
    "shared secret": ({"alg": "HS256", "kid": "secret"}, "kid"),
    "unknown key": ({"kid": "new"}, "kid"),
    "no key": ({"kid": None}, "kid"),
    "encryption key": ({"kid": "encryption"}, "kid"),
    "critical extension": ({"crit": ["b64"]}, "crit"),
}


@pytest.mark.parametrize("case", WRONG_HEADERS.values(), ids=WRONG_HEADERS)
def test_a_token_with_a_wrong_header_is_refused(case: tuple[dict[str, Any], str]) -> None:
    changed, why = case
    with pytest.raises(VerificationError, match=why):
        verify_id_token(token(CLAIMS, header=changed), PROVIDER, NOW)


@pytest.mark.parametrize("signer", SIGNERS)
def test_a_changed_token_is_refused(signer: str) -> None:
    good = token(CLAIMS, signer)
    head, claims, signature = good.split(".")
    other = b64(json.dumps(CLAIMS | {"sub": "admin"}).encode())
    for changed in (f"{head}.{other}.{signature}", f"{head}.{claims}.{b64(bytes(64))}"):
        with pytest.raises(VerificationError, match="signature"):
            verify_id_token(changed, PROVIDER, NOW)


@pytest.mark.parametrize(
    "text", ["", "a.b", "a.b.c.d", "!.b.c", "x" * (MAX_ID_TOKEN_CHARS + 1), "e30.e30.", "bnVsbA.e30.e30"]
)
def test_a_text_that_is_not_a_token_is_refused(text: str) -> None:
    with pytest.raises(VerificationError):
        verify_id_token(text, PROVIDER, NOW)


def test_a_second_spelling_of_base64_is_refused() -> None:
    head, claims, signature = token(CLAIMS).split(".")
    padded = f"{head}.{claims}.{signature}="
    with pytest.raises(VerificationError, match="base64url"):
        verify_id_token(padded, PROVIDER, NOW)


def test_a_key_set_with_a_weak_broken_or_doubled_key_is_refused() -> None:
    weak = rsa.generate_private_key(65_537, 1_024).public_key().public_numbers()
    for bad in (
        {"kty": "RSA", "kid": "weak", "n": number(weak.n), "e": number(weak.e)},
        {"kty": "EC", "crv": "P-256", "kid": "off the curve", "x": number(1), "y": number(1)},
        {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": b64(ED.public_key().public_bytes_raw())},
        {"kty": "OKP", "crv": "Ed25519", "kid": "short", "x": "AQ"},
    ):
        with pytest.raises(VerificationError, match="key"):
            jwks_keys(jwks(**bad))
    with pytest.raises(VerificationError, match="not an object"):
        jwks_keys("[]")
    for no_list in ("{}", '{"keys": 5}', '{"keys": null}', '{"keys": {"kid": "ed"}}'):
        with pytest.raises(VerificationError, match="no list of keys"):
            jwks_keys(no_list)


@pytest.mark.parametrize(
    "said",
    [{"use": "enc"}, {"alg": "PS256"}, {"alg": "RS256"}, {"key_ops": ["encrypt"]}, {"key_ops": "verify"}],
    ids=["for encryption", "another algorithm", "another type's algorithm", "other operations", "no list"],
)
def test_a_key_declared_for_another_use_verifies_nothing(said: dict[str, Any]) -> None:
    """RFC 7517 4.2-4.4: a key is used only for its declared purpose."""
    key = {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": b64(ED.public_key().public_bytes_raw())}
    assert set(jwks_keys(_set(key))) == {"ed"}
    assert set(jwks_keys(_set(key | {"alg": "EdDSA", "key_ops": ["verify"]}))) == {"ed"}
    assert jwks_keys(_set(key | said)) == {}


def test_a_key_of_small_order_verifies_nothing() -> None:
    """With the neutral element as key, R = B and S = 1 would verify every text."""
    weak = {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": b64(b"\x01" + bytes(31))}
    provider = Provider(name="p", issuer="https://id.example", audience="app", keys=jwks_keys(_set(weak)))
    head, claims, _ = token(CLAIMS).split(".")
    forged = b"\x58" + b"\x66" * 31 + b"\x01" + bytes(31)
    with pytest.raises(VerificationError, match="is not valid"):
        verify_id_token(f"{head}.{claims}.{b64(forged)}", provider, NOW)


def _set(*keys: dict[str, Any]) -> str:
    return json.dumps({"keys": keys})
