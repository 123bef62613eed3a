"""Verify an OpenID Connect ID token against a configured key set (ID 10.2, level External).

Nothing is fetched: keys and time are arguments. RS256, ES256 and EdDSA are accepted, each with a key of its
own type; ``none``, shared secrets and all other algorithms are refused. The order of checks is form, key,
algorithm, signature, issuer, audience, times, nonce. A key that the set declares for another algorithm or
use is not used.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA256

from veen_core.errors import DecodeError, SignatureError, VerificationError
from veen_core.ids import Signature, UnixTime, VerifyKey
from veen_core.keys import verify
from veen_core.strict_json import parse_json
from veen_core.utc import format_utc
from veen_overlays.identifiers import CtxId, RealmId
from veen_overlays.identity.records import ExternalLink

MAX_ID_TOKEN_CHARS: Final = 16_384
"""Longest accepted ID token, in characters."""
MIN_RSA_BITS: Final = 2_048
"""Shortest accepted RSA key, in bits."""
LEEWAY_SEC: Final = 60
"""Tolerated difference to the provider's clock, in seconds."""

ALGORITHMS: Final = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}
"""The accepted algorithm of each key type (``kty``)."""

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | VerifyKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider that a deployment trusts (ID 10.2)."""

    name: str
    issuer: str
    audience: str
    keys: Mapping[str, PublicKey]
    """The provider's keys by ``kid``; ``jwks_keys`` reads them from a JWK set."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a verified ID token, and its claims."""

    provider: str
    sub: str
    claims: Mapping[str, Any]

    def link(self, realm: RealmId, ctx: CtxId, ts: UnixTime) -> ExternalLink:
        """The record that binds this subject to an account."""
        return ExternalLink(realm_id=realm, ctx_id=ctx, provider=self.provider, external_sub=self.sub, ts=ts)


def _bytes(text: object, what: str) -> bytes:
    """Decode base64url without padding; refuse any but the canonical spelling."""
    if not isinstance(text, str) or not text.isascii():
        raise VerificationError(f"{what}: is not base64url")
    try:
        value = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise VerificationError(f"{what}: is not base64url") from None
    if base64.urlsafe_b64encode(value).rstrip(b"=") != text.encode():
        raise VerificationError(f"{what}: is not canonical base64url")
    return value


def _object(data: str | bytes, what: str) -> dict[str, Any]:
    try:
        item = parse_json(data)
    except (DecodeError, UnicodeDecodeError) as exc:
        raise VerificationError(f"{what}: {exc}") from None
    if type(item) is not dict:
        raise VerificationError(f"{what}: is not an object")
    return item


def _public_key(jwk: Mapping[str, Any]) -> PublicKey | None:
    """The public key of a JWK; None for a key type that is not supported."""
    match jwk.get("kty"), jwk.get("crv"):
        case "RSA", None:
            n, e = (int.from_bytes(_bytes(jwk.get(part), f"key set, {part}"), "big") for part in ("n", "e"))
            return rsa.RSAPublicNumbers(e, n).public_key()
        case "EC", "P-256":
            x, y = (int.from_bytes(_bytes(jwk.get(part), f"key set, {part}"), "big") for part in ("x", "y"))
            return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        case "OKP", "Ed25519":
            return VerifyKey(_bytes(jwk.get("x"), "key set, x"))
    return None


def _verifies(jwk: Mapping[str, Any]) -> bool:
    """Whether a JWK is declared for verifying signatures with a supported algorithm (RFC 7517 §4.2-4.4)."""
    operations, kty = jwk.get("key_ops", ["verify"]), jwk.get("kty")
    algorithm = ALGORITHMS.get(kty) if type(kty) is str else None
    return (
        jwk.get("use", "sig") == "sig"
        and type(operations) is list
        and "verify" in operations
        and jwk.get("alg", algorithm) == algorithm
    )


def jwks_keys(jwks: str | bytes) -> dict[str, PublicKey]:
    """The signature keys of a JWK set by ``kid``; keys of other types and uses are skipped."""
    keys: dict[str, PublicKey] = {}
    listed = _object(jwks, "key set").get("keys")
    if type(listed) is not list:
        raise VerificationError("the key set has no list of keys under `keys` (RFC 7517 §5.1)")
    for jwk in listed:
        if type(jwk) is not dict or type(jwk.get("kid")) is not str or not _verifies(jwk):
            continue
        try:
            key = _public_key(jwk)
        except (ValueError, UnsupportedAlgorithm, DecodeError):
            raise VerificationError(f"key {jwk['kid']!r} of the key set is not a valid key") from None
        if isinstance(key, rsa.RSAPublicKey) and key.key_size < MIN_RSA_BITS:
            raise VerificationError(f"key {jwk['kid']!r} of the key set is shorter than {MIN_RSA_BITS} bits")
        if key is not None and jwk["kid"] in keys:
            raise VerificationError(f"key {jwk['kid']!r} occurs twice in the key set")
        if key is not None:
            keys[jwk["kid"]] = key
    return keys


def _verify(key: PublicKey, alg: object, signed: bytes, signature: bytes) -> None:
    """Verify a signature with the key's own algorithm, which the token's ``alg`` must name."""
    try:
        match key, alg:
            case rsa.RSAPublicKey(), "RS256":
                key.verify(signature, signed, padding.PKCS1v15(), SHA256())
            case ec.EllipticCurvePublicKey(), "ES256" if len(signature) == 64:
                r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
                key.verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(SHA256()))
            case VerifyKey(), "EdDSA":
                verify(key, signed, Signature(signature), "ID token")  # refuses keys of small order
            case _:
                raise VerificationError(
                    "ID token alg: differs from the algorithm of the provider's key",
                    action="fetch the provider's key set again",
                )
    except (InvalidSignature, SignatureError, DecodeError):
        raise VerificationError(
            "ID token signature: is not valid", action="fetch the token and the provider's key set again"
        ) from None


def verify_id_token(token: str, provider: Provider, now: UnixTime, nonce: str | None = None) -> Subject:
    """Return the subject of a token; raise unless the provider signed it for this audience and time."""
    if len(token) > MAX_ID_TOKEN_CHARS:
        raise VerificationError(f"ID token: has {len(token)} characters, more than {MAX_ID_TOKEN_CHARS}")
    parts = token.split(".")
    if len(parts) != 3:
        raise VerificationError("ID token: is not of the form header.claims.signature")
    header = _object(_bytes(parts[0], "ID token header"), "ID token header")
    key = provider.keys.get(header["kid"]) if type(header.get("kid")) is str else None
    if key is None:
        raise VerificationError(
            "ID token kid: the key set has no such key", action="fetch the provider's key set again"
        )
    if "crit" in header:
        raise VerificationError(
            "ID token crit: critical extensions are not supported", action="request a token without them"
        )
    signature = _bytes(parts[2], "ID token signature")
    _verify(key, header.get("alg"), f"{parts[0]}.{parts[1]}".encode(), signature)
    claims = _object(_bytes(parts[1], "ID token claims"), "ID token claims")
    _check_claims(claims, provider, now, nonce)
    return Subject(provider.name, claims["sub"], claims)


def _check_claims(claims: Mapping[str, Any], provider: Provider, now: int, nonce: str | None) -> None:
    if claims.get("iss") != provider.issuer:
        raise VerificationError(
            f"ID token iss: is not {provider.issuer}",
            action="check the expected issuer, or use a token of this issuer",
        )
    audiences = claims.get("aud")
    audiences = [audiences] if type(audiences) is str else audiences
    if type(audiences) is not list or provider.audience not in audiences:
        raise VerificationError(
            f"ID token aud: does not name {provider.audience}",
            action="check the expected audience, or request a token for it",
        )
    if len(audiences) > 1 and claims.get("azp") != provider.audience:
        raise VerificationError(
            f"ID token azp: is not {provider.audience}, and aud names several audiences",
            action="request a token for this audience only",
        )
    for name in ("exp", "iat"):
        if type(claims.get(name)) is not int:
            raise VerificationError(f"ID token {name}: is missing or not an integer")
    if now > claims["exp"] + LEEWAY_SEC:
        raise VerificationError(
            f"ID token exp: the token expired at {format_utc(claims['exp'])}", action="request a new token"
        )
    not_before = claims.get("nbf", claims["iat"])
    if type(not_before) is not int or now < max(not_before, claims["iat"]) - LEEWAY_SEC:
        raise VerificationError(
            "ID token iat or nbf: the token is not valid yet", action="check the clock of this machine"
        )
    if nonce is not None and claims.get("nonce") != nonce:
        raise VerificationError(
            "ID token nonce: differs from the expected nonce", action="request a token with this nonce"
        )
    if type(claims.get("sub")) is not str or not claims["sub"]:
        raise VerificationError("ID token sub: is missing")
