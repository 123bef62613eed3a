"""Replays are in order and complete, and their proofs verify (SDR0 3.2.5, I1, I2)."""

from __future__ import annotations

from typing import Any, Final

from veen_core.ids import LeafHash, MmrRoot, StreamSeq
from veen_core.proof import MmrProof, verify_inclusion
from veen_core.receipt import Receipt
from veen_selftest.recorder.site import AUTH, ORDERS, logins, orders, recorder_site
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext


def _order(context: CheckContext) -> None:
    """A replay has every event once, in the order of its stream and of commit time, with valid proofs."""
    with recorder_site(context) as site:
        site.emit("door", logins(5))
        for _ in range(2):
            site.emit("shop", orders(6))
        made = site.checkpoint("points")
        rows = site.replay("--checkpoint", "points", "--verify", "full")[1:-1]
        for stream, count in ((AUTH, 5), (ORDERS, 12)):
            seqs = [row["seq"] for row in rows if row["stream"] == stream]
            require_equal(seqs, list(range(1, count + 1)), f"entries of {stream} (I1)")
        times = [row["hub_commit_time"] for row in rows]
        require(times == sorted(times), "commit times decrease in a replay over streams")
        payloads = [row["payload"]["n"] for row in rows if row["stream"] == ORDERS]
        require_equal(payloads, list(range(6)) * 2, "payloads in order")
        heads = {each["stream"]: each for each in made["streams"]}
        for row in rows:
            _verify_proof(row, heads[row["stream"]])


def _verify_proof(row: dict[str, Any], head: dict[str, Any]) -> None:
    receipt = Receipt.decode(bytes.fromhex(row["receipt"]))
    require_equal(receipt.leaf_hash.hex(), row["leaf_hash"], "leaf of the receipt")
    proof = MmrProof.decode(bytes.fromhex(row["proof"]))
    leaf, root = LeafHash.from_hex(row["leaf_hash"]), MmrRoot.from_hex(head["mmr_root"])
    verify_inclusion(proof, root, StreamSeq(row["seq"]), leaf, head["last_seq"])


CHECKS: Final = (Check("recorder.order", "SDR0 3.2.5, I1", _order),)
