"""Merkle roots with tags of their own: of attachments (§4.6, B6) and of published content (spec-3 6.2)."""

from __future__ import annotations

from collections.abc import Iterable

from veen_core.hashing import Ht


def wrapped_root(leaves: Iterable[bytes], *, node: str, root: str) -> bytes:
    """Return ``Ht(root, concat(peaks))`` of an MMR whose nodes are ``Ht(node, left || right)``.

    The peaks are in increasing height (§5.1). The root wraps them even if there is one, or none (B6).
    """
    peaks: list[bytes] = []  # leftmost and highest first
    for count, leaf in enumerate(leaves, start=1):
        made = leaf
        while count % 2 == 0:
            made = Ht(node, peaks.pop() + made)
            count //= 2  # noqa: PLW2901 - the carry of a binary counter
        peaks.append(made)
    return Ht(root, b"".join(reversed(peaks)))
