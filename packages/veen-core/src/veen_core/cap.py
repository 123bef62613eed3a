"""Cap tokens: permission to write to named streams, signed by one issuer (§6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal

from veen_core import cbor
from veen_core.errors import CapError, SignatureError
from veen_core.hashing import U64_MAX, H, Ht
from veen_core.ids import AuthRef, ClientId, FixedBytes, Signature, StreamId, UnixTime, VerifyKey
from veen_core.keys import SigningKey, verify
from veen_core.limits import DEFAULT_LIMITS, MAX_CAP_CHAIN, Limits
from veen_core.utc import format_utc
from veen_core.wire import Wire, int_map

_NO_SIGNATURE: Final = bytes(Signature.SIZE)
"""``prev_sig`` of the first link (§6)."""


class ClaimsRef(FixedBytes):
    """Identifier of a token's signed claims, the same for every length of its signature chain."""

    __slots__ = ()


class TokenHash(FixedBytes):
    """``H(CBOR(cap_token))``, by which a revocation record names a token (spec-2 §4.3)."""

    __slots__ = ()


@int_map("cap_token.allow.rate", section="6")
@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Wire):
    """The rate of a token: a bucket of ``burst`` messages, refilled by ``per_sec`` each second (H8)."""

    per_sec: int
    burst: int


@int_map("cap_token.allow", section="6")
@dataclass(frozen=True, slots=True, kw_only=True)
class Allow(Wire):
    """The permissions of a token: these streams, for ``ttl`` seconds, at this rate."""

    stream_ids: tuple[StreamId, ...]
    ttl: int
    rate: Rate | None = None


@int_map("cap_token", section="6")
@dataclass(frozen=True, slots=True, kw_only=True)
class CapToken(Wire):
    """A cap token. The issuer signed every link of ``sig_chain``; v0.0.1 has no delegation."""

    ver: Literal[1] = 1
    issuer_pk: VerifyKey
    subject_pk: ClientId
    allow: Allow
    sig_chain: tuple[Signature, ...]

    @property
    def auth_ref(self) -> AuthRef:
        """The reference by which a MSG names its token: ``Ht("veen/cap", CBOR(cap_token))`` (§6)."""
        return _auth_ref(self)

    @property
    def claims_ref(self) -> ClaimsRef:
        """Reference to the signed claims: ``Ht("veen/cap-claims", CBOR(cap_token without sig_chain))``.

        A chain may be shortened by its holder, and each prefix is a valid token with its own auth_ref.
        Rate buckets and issued_at are therefore kept per claims_ref, not per auth_ref (ADR 0003).
        """
        return ClaimsRef(Ht("veen/cap-claims", _claims(self)))

    @property
    def token_hash(self) -> TokenHash:
        """The hash that a revocation of this token names (spec-2 §4.3)."""
        return TokenHash(H(self.encode()))

    def expires_at(self, issued_at: UnixTime) -> UnixTime:
        """Return the last second at which the token is valid, if the hub authorized it at ``issued_at`` (§6).

        §6 allows any uint as ttl, so the sum is capped at the largest time. No hub_ts is later, so
        ``hub_ts <= issued_at + ttl`` has the same result.
        """
        return UnixTime(min(issued_at + self.allow.ttl, U64_MAX))


@lru_cache(maxsize=64)
def _auth_ref(token: CapToken) -> AuthRef:
    """Return the token's reference, cached because a sender needs it for every message."""
    return AuthRef(Ht("veen/cap", token.encode()))


def link_digest(token: CapToken, prev_sig: bytes) -> bytes:
    """Return the digest that a link signs: the token without its chain, plus the previous signature (§6)."""
    return Ht("veen/cap-link", _claims(token) + prev_sig)


def _claims(token: CapToken) -> bytes:
    """Encode the token without its signature chain."""
    items = token.codec.write(token)
    del items[5]
    return cbor.encode_items(items)


def mint(
    issuer: SigningKey, subject: ClientId, stream_ids: Iterable[StreamId], ttl: int, rate: Rate | None = None
) -> CapToken:
    """Return a token with one signature; the same inputs give the same bytes (§6.1)."""
    allow = Allow(stream_ids=tuple(sorted(set(stream_ids))), ttl=ttl, rate=rate)
    bare = CapToken(issuer_pk=issuer.public, subject_pk=subject, allow=allow, sig_chain=())
    return resign(issuer, bare)


def resign(issuer: SigningKey, token: CapToken) -> CapToken:
    """Append the issuer's next signature; a token with a longer chain has another auth_ref."""
    if issuer.public != token.issuer_pk:
        raise CapError("cap_token.sig_chain (core §6): only the issuer may sign a token again")
    prev_sig = token.sig_chain[-1] if token.sig_chain else _NO_SIGNATURE
    signed = dataclasses.replace(
        token, sig_chain=(*token.sig_chain, issuer.sign(link_digest(token, prev_sig)))
    )
    check_rules(signed)
    return signed


def check_rules(token: CapToken, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check the rules of §6 that need no signature, bounds first (SH0.4)."""
    if not 1 <= len(token.sig_chain) <= MAX_CAP_CHAIN:
        raise CapError(
            f"cap_token.sig_chain (core §14): {len(token.sig_chain)} signatures, want 1 to {MAX_CAP_CHAIN}"
        )
    ids = token.allow.stream_ids
    if not ids:
        raise CapError("cap_token.allow.stream_ids (core §6): must not be empty")
    if any(a >= b for a, b in pairwise(ids)):
        raise CapError("cap_token.allow.stream_ids (core §6): must be ascending without duplicates")
    rate = token.allow.rate
    if rate is not None and (
        rate.per_sec > limits.max_cap_rate_per_sec or rate.burst > limits.max_cap_rate_burst
    ):
        raise CapError(
            f"cap_token.allow.rate (core §14.1): {rate.per_sec}/s and burst {rate.burst} exceed "
            f"{limits.max_cap_rate_per_sec}/s and {limits.max_cap_rate_burst}"
        )


def verify_token(token: CapToken, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check the rules of §6, then verify every link of the chain under the issuer's key."""
    check_rules(token, limits)
    prev_sig: bytes = _NO_SIGNATURE
    for position, sig in enumerate(token.sig_chain):
        try:
            verify(
                token.issuer_pk,
                link_digest(token, prev_sig),
                sig,
                f"cap_token.sig_chain[{position}] (core §6)",
            )
        except SignatureError as exc:
            raise CapError(str(exc)) from None
        prev_sig = sig


def verify_ttl(token: CapToken, issued_at: UnixTime, now: UnixTime) -> None:
    """Raise ``CapError`` if the token has expired: ``now > issued_at + ttl`` (§6)."""
    if now > token.expires_at(issued_at):
        raise CapError(
            f"cap_token.allow.ttl (core §6): expired at {format_utc(token.expires_at(issued_at))}, the time "
            f"is {format_utc(now)}"
        )
