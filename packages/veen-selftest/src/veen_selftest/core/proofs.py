"""Inclusion and consistency proofs (§5.2-§5.4, B10, B11)."""

from __future__ import annotations

from typing import Final

from veen_core.api import (
    ConsistencyRequest,
    ConsistencyResponse,
    ProofRequest,
    ProofResponse,
)
from veen_core.consistency import prove_consistency, verify_consistency
from veen_core.ids import MmrRoot, StreamSeq
from veen_core.mmr import Mmr
from veen_core.proof import prove_inclusion, verify_inclusion
from veen_selftest.hubs.http_hub import HttpResponse
from veen_selftest.peers.verifier import VerifiedLog
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext

LEAVES: Final = 21
"""Leaves of the log: three peaks at the end, and all tree shapes up to 16 leaves on the way."""


def _log(context: CheckContext) -> VerifiedLog:
    hub = context.hub()
    writer = context.writer(hub)
    hub.accept_many(writer.many(LEAVES))
    return VerifiedLog(hub, writer.label).read()


def _nodes(log: VerifiedLog) -> dict[tuple[int, int], bytes]:
    """Compute every node of the tree."""
    tree = Mmr()
    nodes: dict[tuple[int, int], bytes] = {}
    for pair in log.entries:
        nodes |= {(node.height, node.index): node.hash for node in tree.append(pair.receipt.leaf_hash)}
    return nodes


def _proof(log: VerifiedLog, seq: int, size: int | None = None) -> ProofResponse:
    tree_size = StreamSeq(size) if size is not None else None
    asked = ProofRequest(label=log.label, stream_seq=StreamSeq(seq), tree_size=tree_size)
    return log.hub.ask("/v1/proof", asked, ProofResponse)


def _own(context: CheckContext) -> None:
    """Every leaf has a valid proof against its own receipt (core §5.4)."""
    log = _log(context)
    for pair in log.entries:
        receipt = pair.receipt
        proof = _proof(log, receipt.stream_seq).mmr_proof
        verify_inclusion(proof, receipt.mmr_root, receipt.stream_seq, pair.msg.leaf_hash)


def _later(context: CheckContext) -> None:
    """Every leaf has a valid proof against every later root (B10)."""
    log = _log(context)
    for size in range(1, LEAVES + 1):
        for seq in range(1, size + 1):
            proof = _proof(log, seq, size).mmr_proof
            leaf = log.entries[seq - 1].msg.leaf_hash
            verify_inclusion(proof, MmrRoot(log.roots[size - 1]), StreamSeq(seq), leaf, size)
        context.progress(size, LEAVES)


def _deterministic(context: CheckContext) -> None:
    """A proof is minimal and equals the one that a client computes itself (core §5.3, §10.2)."""
    log = _log(context)
    nodes = _nodes(log)
    for seq in (1, 2, 7, 16, 17, LEAVES):
        wanted = prove_inclusion(lambda height, index: nodes[height, index], StreamSeq(seq), LEAVES).encode()
        for _ in range(2):
            require_equal(
                _proof(log, seq, LEAVES).mmr_proof.encode(),
                wanted,
                f"the proof of entry {seq} in a tree of {LEAVES}",
            )


def _page(context: CheckContext) -> None:
    """The proof of a page is that of its last item (core §10.4.2)."""
    log = _log(context)
    for last in (1, 5, LEAVES):
        page = log.hub.page(log.label, 1, to_seq=StreamSeq(last), with_mmr_proof=True)
        require(page.mmr_proof is not None, "the page has no proof, although it was asked for (core §10.4.2)")
        assert page.mmr_proof is not None
        shown = min(last, log.hub.known.max_page_items)
        require_equal(page.items[-1].stream_seq, shown, "the last entry of the page")
        receipt = log.entries[shown - 1].receipt
        verify_inclusion(page.mmr_proof, receipt.mmr_root, receipt.stream_seq, receipt.leaf_hash)


def _require_absent(answer: HttpResponse, what: str) -> None:
    """Require a refusal as E.BAD_REQUEST or E.NOT_FOUND."""
    require(answer.status in (400, 404), f"{what}: expected status 400 or 404, found {answer.status}")
    code = answer.error.code
    require(
        code in ("E.BAD_REQUEST", "E.NOT_FOUND"),
        f"{what}: expected E.BAD_REQUEST or E.NOT_FOUND, found {code}",
    )


def _absent(context: CheckContext) -> None:
    """The hub refuses a proof of an entry or a tree that does not exist (core §5.4)."""
    log = _log(context)
    for seq, size in ((0, None), (LEAVES + 1, None), (5, 4), (1, LEAVES + 1)):
        asked = ProofRequest(
            label=log.label,
            stream_seq=StreamSeq(seq),
            tree_size=StreamSeq(size) if size is not None else None,
        )
        answer = log.hub.post("/v1/proof", asked)
        _require_absent(answer, f"a proof of entry {seq} in a tree of {size}")


def _consistency(log: VerifiedLog, old: int, new: int) -> ConsistencyResponse:
    asked = ConsistencyRequest(label=log.label, from_seq=StreamSeq(old), to_seq=StreamSeq(new))
    return log.hub.ask("/v1/consistency", asked, ConsistencyResponse)


def _grew(context: CheckContext) -> None:
    """A consistency proof shows every earlier tree to be a prefix of every later one (B11)."""
    log = _log(context)
    nodes = _nodes(log)
    for new in range(2, LEAVES + 1):
        for old in range(1, new):
            proof = _consistency(log, old, new).mmr_consistency
            require_equal(
                (proof.from_seq, proof.to_seq), (old, new), "from_seq and to_seq of a consistency proof"
            )
            verify_consistency(proof, MmrRoot(log.roots[old - 1]), MmrRoot(log.roots[new - 1]))
            wanted = prove_consistency(
                lambda height, index: nodes[height, index], StreamSeq(old), StreamSeq(new)
            )
            require_equal(proof, wanted, f"the consistency proof from {old} to {new}")
        context.progress(new, LEAVES)


def _not_backwards(context: CheckContext) -> None:
    """The hub refuses a consistency proof to a smaller tree or to one that does not exist (B11)."""
    log = _log(context)
    for old, new in ((0, 3), (3, 3), (5, 2), (1, LEAVES + 1)):
        asked = ConsistencyRequest(label=log.label, from_seq=StreamSeq(old), to_seq=StreamSeq(new))
        answer = log.hub.post("/v1/consistency", asked)
        _require_absent(answer, f"a consistency proof from {old} to {new}")


CHECKS: Final = (
    Check("proof.own-receipt", "core §5.4", _own),
    Check("proof.any-later-root", "B10", _later),
    Check("proof.deterministic", "core §5.3, §10.2", _deterministic),
    Check("proof.page", "core §10.4.2", _page),
    Check("proof.absent", "core §5.4", _absent),
    Check("proof.consistency", "B11", _grew),
    Check("proof.consistency.bounds", "B11", _not_backwards),
)
