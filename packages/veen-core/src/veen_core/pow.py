"""Proof-of-work cookies, an optional stateless prefilter (SH1+ 5.2, H13)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from veen_core.errors import VerificationError
from veen_core.hashing import H, Ht, u64be
from veen_core.ids import FixedBytes, HubId, UnixTime
from veen_core.wire import Wire, text_map

SALT_PERIOD: Final = 3_600
MAX_DIFFICULTY: Final = 255


class PowSalt(FixedBytes):
    """What a hub publishes in its status for the hour (H13)."""

    __slots__ = ()


@text_map("pow_cookie", section="SH1+ 5.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class PowCookie(Wire):
    """Carried as hex in the ``VEEN-PoW`` header; one cookie serves one message."""

    challenge: bytes
    nonce: int
    difficulty: int


def pow_salt(hub: HubId, now: UnixTime) -> PowSalt:
    """Derived from hub_id and the hour: stateless, and old cookies die (H13)."""
    return PowSalt(Ht("veen/pow-salt", hub + u64be(now // SALT_PERIOD)))


def accepted_salts(hub: HubId, now: UnixTime) -> tuple[PowSalt, PowSalt]:
    """The salt of now and of an hour ago: a cookie made just before the hour still counts after it."""
    return pow_salt(hub, now), pow_salt(hub, UnixTime(max(0, now - SALT_PERIOD)))


def challenge(salt: PowSalt, msg_bytes: bytes) -> bytes:
    """``salt || H(MSG)`` (H13)."""
    return salt + H(msg_bytes)


def leading_zero_bits(value: bytes) -> int:
    return 8 * len(value) - int.from_bytes(value, "big").bit_length()


def work_of(challenge: bytes, nonce: int) -> int:
    """How many leading zero bits this nonce achieves."""
    return leading_zero_bits(Ht("veen/pow", challenge + u64be(nonce)))


def solve(challenge: bytes, difficulty: int, *, start: int = 0) -> PowCookie:
    """Search nonces upwards; about ``2**difficulty`` hashes."""
    nonce = next(n for n in _count(start) if work_of(challenge, n) >= difficulty)
    return PowCookie(challenge=challenge, nonce=nonce, difficulty=difficulty)


def _count(start: int) -> Iterator[int]:
    while True:
        yield start
        start += 1


def verify_cookie(cookie: PowCookie, expected_challenge: bytes, difficulty: int) -> None:
    """The cookie answers this challenge with at least the work the hub asks for now."""
    if cookie.challenge != expected_challenge:
        raise VerificationError("pow_cookie.challenge SH1+ 5.2: is not this hub's and this message's")
    if cookie.difficulty > MAX_DIFFICULTY:
        raise VerificationError(f"pow_cookie.difficulty SH1+ 5.2: {cookie.difficulty} is not a uint8")
    if cookie.difficulty < difficulty:
        raise VerificationError(
            f"pow_cookie.difficulty SH1+ 5.2: {cookie.difficulty}, the hub asks for {difficulty}"
        )
    if work_of(cookie.challenge, cookie.nonce) < cookie.difficulty:
        raise VerificationError("pow_cookie.nonce SH1+ 5.2: does not do the work it claims")
