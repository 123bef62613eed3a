"""A bounded LRU of hot proofs; a leaf's proof against a tree never changes, so it never changes a result."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from veen_core.ids import Label, StreamSeq
from veen_core.proof import MmrProof

CAPACITY: Final = 4_096
"""Proofs; one of a long label has about 4 KB."""


class ProofKey(NamedTuple):
    """One leaf in one tree."""

    label: Label
    stream_seq: StreamSeq
    tree_size: StreamSeq


class ProofCache:
    """Thread-safe; least recently used goes first."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._proofs: OrderedDict[ProofKey, MmrProof] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, asked: ProofKey) -> MmrProof | None:
        with self._lock:
            proof = self._proofs.get(asked)
            if proof is not None:
                self._proofs.move_to_end(asked)
            return proof

    def put(self, asked: ProofKey, proof: MmrProof) -> None:
        with self._lock:
            self._proofs[asked] = proof
            if len(self._proofs) > self._capacity:
                self._proofs.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._proofs.clear()
