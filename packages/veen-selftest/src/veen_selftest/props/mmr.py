"""The MMR in receipts and proofs, compared with a second implementation (§5.1, TS0.2, TS0.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veen_core.api import ConsistencyRequest, ConsistencyResponse, ProofRequest, ProofResponse
from veen_core.consistency import verify_consistency
from veen_core.hashing import Ht
from veen_core.ids import StreamSeq
from veen_core.proof import verify_inclusion
from veen_core.receipt import Receipt
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext

MAX_LEAVES: Final = 300
TRIES: Final = 60


def plain_root(leaves: Sequence[bytes]) -> bytes:
    """Compute the root by the definition of core §5.1: one perfect tree per binary digit of the size."""
    peaks: list[bytes] = []
    start = 0
    for height in reversed(range(len(leaves).bit_length())):
        if len(leaves) >> height & 1:
            peaks.append(_perfect(leaves[start : start + (1 << height)]))
            start += 1 << height
    if len(peaks) == 1:
        return peaks[0]
    return Ht("veen/mmr-root", b"".join(reversed(peaks)))


def _perfect(leaves: Sequence[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    return Ht("veen/mmr-node", _perfect(leaves[:half]) + _perfect(leaves[half:]))


def _random_log(context: CheckContext) -> tuple[HttpHub, Writer, list[Receipt]]:
    """Write a log of random size, in groups of random size."""
    hub = context.hub()
    writer = context.writer(hub)
    size = context.rng.randint(MAX_LEAVES // 2, MAX_LEAVES)
    receipts: list[Receipt] = []
    while len(receipts) < size:
        group = writer.many(min(size - len(receipts), context.rng.choice([1, 1, 2, 7, 16, 33, 64])))
        receipts += hub.accept_many(group)
    return hub, writer, receipts


def _roots(context: CheckContext) -> None:
    """Each receipt's root is the root of all leaves so far, however messages are grouped (TS0.2, TS0.4)."""
    _hub, _writer, receipts = _random_log(context)
    leaves = [receipt.leaf_hash for receipt in receipts]
    for size, receipt in enumerate(receipts, start=1):
        require_equal(receipt.stream_seq, size, "stream_seq")
        require_equal(receipt.mmr_root, plain_root(leaves[:size]), f"mmr_root of {size} leaves")


def _inclusion(context: CheckContext) -> None:
    """The proof of any leaf in any later tree verifies and has no superfluous nodes (core §5.3)."""
    hub, writer, receipts = _random_log(context)
    for _ in range(TRIES):
        size = context.rng.randint(1, len(receipts))
        seq = context.rng.randint(1, size)
        asked = ProofRequest(label=writer.label, stream_seq=StreamSeq(seq), tree_size=StreamSeq(size))
        proof = hub.ask("/v1/proof", asked, ProofResponse).mmr_proof
        root, leaf = receipts[size - 1].mmr_root, receipts[seq - 1].leaf_hash
        verify_inclusion(proof, root, StreamSeq(seq), leaf, size)
        require(
            len(proof.path) + len(proof.peaks_after) <= 2 * size.bit_length(),
            "the proof is longer than needed (core §5.3)",
        )


def _consistency(context: CheckContext) -> None:
    """The consistency proof between any two sizes verifies, for each pair of three sizes (B11)."""
    hub, writer, receipts = _random_log(context)

    def between(old: int, new: int) -> None:
        asked = ConsistencyRequest(label=writer.label, from_seq=StreamSeq(old), to_seq=StreamSeq(new))
        proof = hub.ask("/v1/consistency", asked, ConsistencyResponse).mmr_consistency
        verify_consistency(proof, receipts[old - 1].mmr_root, receipts[new - 1].mmr_root)

    for _ in range(TRIES // 3):
        first, second, third = sorted(context.rng.sample(range(1, len(receipts) + 1), 3))
        between(first, second)
        between(second, third)
        between(first, third)


def _append_once(context: CheckContext) -> None:
    """A message that is sent again changes neither size nor root (TS0.2, I8)."""
    hub, writer, receipts = _random_log(context)
    hub.submit_many([writer.message(context.rng.randint(1, len(receipts))) for _ in range(20)])
    last = hub.accept(writer.next())
    require_equal(last.stream_seq, len(receipts) + 1, "the next stream_seq after replays")
    leaves = [receipt.leaf_hash for receipt in receipts]
    require_equal(last.mmr_root, plain_root([*leaves, last.leaf_hash]), "mmr_root after replays")


CHECKS: Final = (
    Check("mmr.roots", "core §5.1, TS0.4", _roots),
    Check("mmr.inclusion", "core §5.3, §5.4, B10", _inclusion),
    Check("mmr.consistency", "B11", _consistency),
    Check("mmr.append-once", "TS0.2, I8", _append_once),
)
