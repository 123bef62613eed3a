"""A Bloom filter of the subjects in a data file: most files that lack a subject are not opened at all.

The filter has ``BITS_PER_SUBJECT`` bits for each distinct subject and sets ``PROBES`` of them, so that about
1 % of absent subjects seem present. It never misses a subject that is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

BITS_PER_SUBJECT: Final = 10
PROBES: Final = 7


def subject_filter(subjects: Iterable[str]) -> bytes:
    """Return the filter of these subjects; the same set gives the same bytes."""
    distinct = set(subjects)
    bits = bytearray((len(distinct) * BITS_PER_SUBJECT + 7) // 8)
    for subject in distinct:
        for bit in _probes(subject, 8 * len(bits)):
            bits[bit >> 3] |= 1 << (bit & 7)
    return bytes(bits)


def may_contain(bits: bytes, subject: str) -> bool:
    """Return False if the subject is certainly not in the file."""
    return bool(bits) and all(bits[bit >> 3] >> (bit & 7) & 1 for bit in _probes(subject, 8 * len(bits)))


def _probes(subject: str, size: int) -> list[int]:
    digest = int.from_bytes(blake2b(subject.encode(), digest_size=16).digest(), "big")
    first, step = digest >> 64, (digest & (1 << 64) - 1) | 1
    return [(first + n * step) % size for n in range(PROBES)]
