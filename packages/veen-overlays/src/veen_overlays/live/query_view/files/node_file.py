"""The MMR nodes of a source in a file: any earlier root and any inclusion proof in O(log n) reads (core §5).

Nodes are stored in the order in which appending completes them, 32 bytes each, so a node's address gives its
offset. The file is appended to before the manifest commits the new size. Bytes beyond the committed size are
left by a crash; the next append overwrites them. A changed node is detected when a root or a proof does not
verify.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from veen_core.hashing import HASH_SIZE
from veen_core.ids import MmrRoot, NodeHash, StreamSeq
from veen_core.mmr import Mmr, mmr_at
from veen_core.proof import MmrProof, prove_inclusion, verify_inclusion
from veen_overlays.live.private_files import FILE_MODE, write_all
from veen_overlays.live.query_view.files.manifest import DamagedViewError
from veen_overlays.query.result.inclusion import prove_from_nodes

_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


def nodes_of(leaves: int) -> int:
    """Return the number of nodes of a tree of this many leaves."""
    return 2 * leaves - leaves.bit_count()


class NodeFile:
    """The nodes of one source."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, before: Mmr, leaves: Iterable[bytes]) -> Mmr:
        """Write the nodes of new leaves durably; return the tree with them. ``before`` is the committed tree.

        Nodes that an earlier, uncommitted call wrote are overwritten.
        """
        tree = before.copy()
        content = b"".join(node.hash for leaf in leaves for node in tree.append(leaf))
        fd = os.open(self.path, _OPEN, FILE_MODE)
        try:
            os.lseek(fd, HASH_SIZE * nodes_of(before.size), os.SEEK_SET)
            write_all(fd, content)
            os.ftruncate(fd, HASH_SIZE * nodes_of(tree.size))
            os.fdatasync(fd)
        finally:
            os.close(fd)
        return tree

    def check(self, size: int, root: MmrRoot) -> None:
        """Raise ``DamagedViewError`` unless the file holds a tree of ``size`` leaves with this root."""
        if not self.path.is_file() or self.path.stat().st_size < HASH_SIZE * nodes_of(size):
            raise DamagedViewError(f"{self.path}: the file is missing or shorter than its {size} leaves")
        if self.root(size) != root:
            raise DamagedViewError(f"{self.path}: the tree of {size} leaves does not have the committed root")

    def root(self, size: int) -> MmrRoot:
        """Return the root of the first ``size`` leaves."""
        with self.path.open("rb") as file:
            return mmr_at(size, _Lookup(file.fileno(), self.path)).root

    def prove(self, seq: StreamSeq, size: int, root: MmrRoot) -> MmrProof:
        """Return the verified inclusion proof of a leaf in the tree of ``size`` leaves with this root."""
        with self.path.open("rb") as file:
            proof = prove_inclusion(_Lookup(file.fileno(), self.path), seq, size)
        verify_inclusion(proof, root, seq, proof.leaf_hash, size)
        return proof

    def prove_many(self, seqs: Sequence[int], size: int) -> bytes:
        """Return one inclusion proof of several leaves in the tree of ``size`` leaves."""
        with self.path.open("rb") as file:
            return prove_from_nodes(_Lookup(file.fileno(), self.path), seqs, size)

    def leaf(self, seq: int) -> bytes:
        """Return the leaf hash of an entry."""
        with self.path.open("rb") as file:
            return _Lookup(file.fileno(), self.path)(0, seq - 1)


class _Lookup:
    """Reads nodes by their address."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: Path) -> None:
        self._fd, self._path = fd, path

    def __call__(self, height: int, index: int) -> NodeHash:
        last_leaf = (index + 1 << height) - 1
        offset = HASH_SIZE * (nodes_of(last_leaf) + height)
        found = os.pread(self._fd, HASH_SIZE, offset)
        if len(found) != HASH_SIZE:
            raise DamagedViewError(f"{self._path}: node {index} of height {height} is missing")
        return NodeHash(found)
