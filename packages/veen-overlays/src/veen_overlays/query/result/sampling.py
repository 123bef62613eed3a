"""Spot sampling: which receipts a result in mode "spot" verifies (query-api §6.2, RESOLUTIONS P14)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from veen_core.hashing import H


def draw(query_id: str, receipt_id: str) -> int:
    """Return the first 8 bytes of ``H(query_id || receipt_id)`` as a number (P14)."""
    return int.from_bytes(H(query_id.encode() + receipt_id.encode())[:8], "big")


def sampled(query_id: str, receipt_ids: Sequence[str], sample_rate: float) -> list[int]:
    """Return the positions of the sampled receipts, ascending; at least one if there is any (P14).

    A receipt is sampled if its draw, as a fraction of 2^64, is below the rate. If none is, the receipt with
    the smallest draw is sampled.
    """
    threshold = Fraction(sample_rate) * 2**64
    draws = [draw(query_id, receipt_id) for receipt_id in receipt_ids]
    chosen = [position for position, value in enumerate(draws) if value < threshold]
    if not chosen and draws:
        return [min(range(len(draws)), key=lambda position: (draws[position], receipt_ids[position]))]
    return chosen
