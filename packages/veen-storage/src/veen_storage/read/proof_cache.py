"""A bounded LRU cache of inclusion proofs; the proof of a leaf against a tree never changes."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from veen_core.ids import Label, StreamSeq
from veen_core.lru import Lru
from veen_core.proof import MmrProof

MAX_PROOFS: Final = 4_096
"""Proofs that are cached; a proof of a long label takes about 4 KB."""


class ProofKey(NamedTuple):
    """The leaf and the tree size that a proof is about."""

    label: Label
    stream_seq: StreamSeq
    tree_size: StreamSeq


class ProofCache:
    """A thread-safe LRU cache."""

    def __init__(self, capacity: int = MAX_PROOFS) -> None:
        self._proofs: Lru[ProofKey, MmrProof] = Lru(capacity)
        self._lock = threading.Lock()

    def get(self, key: ProofKey) -> MmrProof | None:
        with self._lock:
            return self._proofs.use(key)

    def put(self, key: ProofKey, proof: MmrProof) -> None:
        with self._lock:
            self._proofs.put(key, proof)

    def clear(self) -> None:
        with self._lock:
            self._proofs.clear()
