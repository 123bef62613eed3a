"""The MMR as it shows in receipts and proofs, against a second way to compute it (§5.1, TS0.2, TS0.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veen_core.api import ConsistencyRequest, ConsistencyResponse, ProofRequest, ProofResponse
from veen_core.consistency import verify_consistency
from veen_core.hashing import Ht
from veen_core.ids import StreamSeq
from veen_core.proof import verify_inclusion
from veen_core.receipt import Receipt
from veen_selftest.hubs.http_hub import Hub
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Check, require, same
from veen_selftest.runner.context import Bench

MOST: Final = 300
TRIES: Final = 60


def plain_root(leaves: Sequence[bytes]) -> bytes:
    """§5.1 read as a definition: perfect trees over the binary digits of the size, largest first."""
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


def _grown(bench: Bench) -> tuple[Hub, Writer, list[Receipt]]:
    """A log of a size that chance decides, sent in groups that chance decides."""
    hub = bench.hub()
    writer = bench.writer(hub)
    size = bench.chance.randint(MOST // 2, MOST)
    receipts: list[Receipt] = []
    while len(receipts) < size:
        group = writer.many(min(size - len(receipts), bench.chance.choice([1, 1, 2, 7, 16, 33, 64])))
        receipts += hub.accept_many(group)
    return hub, writer, receipts


def _roots(bench: Bench) -> None:
    """However messages are grouped, each receipt's root is that of the leaves so far (TS0.2, TS0.4)."""
    _hub, _writer, receipts = _grown(bench)
    leaves = [receipt.leaf_hash for receipt in receipts]
    for size, receipt in enumerate(receipts, start=1):
        same(receipt.stream_seq, size, "stream_seq")
        same(receipt.mmr_root, plain_root(leaves[:size]), f"mmr_root of {size} leaves")


def _inclusion(bench: Bench) -> None:
    """Any leaf in any later tree has a proof that holds, is as long as the sizes dictate, and no longer."""
    hub, writer, receipts = _grown(bench)
    for _ in range(TRIES):
        size = bench.chance.randint(1, len(receipts))
        seq = bench.chance.randint(1, size)
        asked = ProofRequest(label=writer.label, stream_seq=StreamSeq(seq), tree_size=StreamSeq(size))
        proof = hub.ask("/v1/proof", asked, ProofResponse).mmr_proof
        root, leaf = receipts[size - 1].mmr_root, receipts[seq - 1].leaf_hash
        verify_inclusion(proof, root, StreamSeq(seq), leaf, size)
        require(len(proof.path) + len(proof.peaks_after) <= 2 * size.bit_length(), "a proof too long (§5.3)")


def _consistency(bench: Bench) -> None:
    """Any two sizes have a consistency proof, and three sizes agree two by two (B11)."""
    hub, writer, receipts = _grown(bench)

    def between(old: int, new: int) -> None:
        asked = ConsistencyRequest(label=writer.label, from_seq=StreamSeq(old), to_seq=StreamSeq(new))
        proof = hub.ask("/v1/consistency", asked, ConsistencyResponse).mmr_consistency
        verify_consistency(proof, receipts[old - 1].mmr_root, receipts[new - 1].mmr_root)

    for _ in range(TRIES // 3):
        first, second, third = sorted(bench.chance.sample(range(1, len(receipts) + 1), 3))
        between(first, second)
        between(second, third)
        between(first, third)


def _append_once(bench: Bench) -> None:
    """A message that is sent again changes neither size nor root: appending is idempotent (TS0.2, I8)."""
    hub, writer, receipts = _grown(bench)
    hub.submit_many([writer.message(bench.chance.randint(1, len(receipts))) for _ in range(20)])
    last = hub.accept(writer.next())
    same(last.stream_seq, len(receipts) + 1, "the next stream_seq after replays")
    leaves = [receipt.leaf_hash for receipt in receipts]
    same(last.mmr_root, plain_root([*leaves, last.leaf_hash]), "mmr_root after replays")


CHECKS: Final = (
    Check("mmr.roots", "§5.1, TS0.4", _roots),
    Check("mmr.inclusion", "§5.3, §5.4, B10", _inclusion),
    Check("mmr.consistency", "B11", _consistency),
    Check("mmr.append-once", "TS0.2, I8", _append_once),
)
