"""Find the root that a proof is about: try the roots of all trees whose size fits the proof."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from veen_core.errors import VerificationError
from veen_core.mmr import peak_heights
from veen_core.proof import MmrProof, own_peak

T = TypeVar("T")


def fits(proof: MmrProof, seq: int, size: int) -> bool:
    """Return whether a proof of this entry in a tree of this size has this number of hashes (§5.3)."""
    return (len(proof.path), len(proof.peaks_after)) == (
        own_peak(seq - 1, size)[0],
        len(peak_heights(size)) - 1,
    )


def first_that_verifies(candidates: Sequence[T], verify: Callable[[T], object]) -> T:
    """Return the first candidate that verifies; raise the error of the last if none does."""
    why: VerificationError | None = None
    for each in candidates:
        try:
            verify(each)
        except VerificationError as exc:
            why = exc
        else:
            return each
    assert why is not None  # there is at least one candidate
    raise why
