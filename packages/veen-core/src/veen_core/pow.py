"""Proof-of-work cookies: an optional, stateless check before admission (SH1+ 5.2, RESOLUTIONS H13)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from veen_core.errors import VerificationError
from veen_core.hashing import H, Ht, u64be
from veen_core.ids import FixedBytes, HubId, UnixTime
from veen_core.wire import Wire, text_map

SALT_PERIOD_SECONDS: Final = 3_600
"""Seconds for which a salt is current."""
MAX_DIFFICULTY: Final = 255
"""In leading zero bits; a uint8 (SH1+ 5.2)."""


class PowSalt(FixedBytes):
    """The salt that a hub publishes in its status for one hour (H13)."""

    __slots__ = ()


@text_map("pow_cookie", section="SH1+ 5.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class PowCookie(Wire):
    """A cookie for one message, sent as hex in the ``VEEN-PoW`` header."""

    challenge: bytes
    nonce: int
    difficulty: int


def pow_salt(hub: HubId, now: UnixTime) -> PowSalt:
    """Derive the salt from hub_id and the hour, so that the hub keeps no state and cookies expire (H13)."""
    return PowSalt(Ht("veen/pow-salt", hub + u64be(now // SALT_PERIOD_SECONDS)))


def accepted_salts(hub: HubId, now: UnixTime) -> tuple[PowSalt, PowSalt]:
    """Return the salts of the current and the previous hour: a cookie is valid for at least one hour."""
    return pow_salt(hub, now), pow_salt(hub, UnixTime(max(0, now - SALT_PERIOD_SECONDS)))


def challenge(salt: PowSalt, msg_bytes: bytes) -> bytes:
    """Return ``salt || H(MSG)``, the challenge of one message (H13)."""
    return salt + H(msg_bytes)


def leading_zero_bits(value: bytes) -> int:
    return 8 * len(value) - int.from_bytes(value, "big").bit_length()


def work_of(challenge: bytes, nonce: int) -> int:
    """Count the leading zero bits that a nonce achieves."""
    return leading_zero_bits(Ht("veen/pow", challenge + u64be(nonce)))


def solve(challenge: bytes, difficulty: int, *, start: int = 0) -> PowCookie:
    """Search for a nonce, upwards from ``start``; this takes about ``2**difficulty`` hashes."""
    nonce = next(n for n in _count(start) if work_of(challenge, n) >= difficulty)
    return PowCookie(challenge=challenge, nonce=nonce, difficulty=difficulty)


def _count(start: int) -> Iterator[int]:
    while True:
        yield start
        start += 1


def verify_cookie(cookie: PowCookie, expected_challenge: bytes, difficulty: int) -> None:
    """Verify that a cookie answers this challenge with at least the difficulty that the hub requires."""
    if cookie.challenge != expected_challenge:
        raise VerificationError("pow_cookie.challenge (SH1+ 5.2): was made for another hub, hour or message")
    if cookie.difficulty > MAX_DIFFICULTY:
        raise VerificationError(f"pow_cookie.difficulty (SH1+ 5.2): {cookie.difficulty} is not a uint8")
    if cookie.difficulty < difficulty:
        raise VerificationError(
            f"pow_cookie.difficulty (SH1+ 5.2): {cookie.difficulty}, but the hub requires {difficulty}"
        )
    if work_of(cookie.challenge, cookie.nonce) < cookie.difficulty:
        raise VerificationError("pow_cookie.nonce (SH1+ 5.2): does not reach the claimed difficulty")
