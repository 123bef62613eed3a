"""The summary tree: stored summaries of dyadic ranges of a log (core §11.3).

``tree`` is the tree itself, ``nodes`` reads, verifies and writes its nodes, ``node`` is the stored form of
one node, ``store`` the key-value interface that nodes are kept in.
"""

from veen_overlays.summary_tree.nodes import SeqRange
from veen_overlays.summary_tree.store import MemoryStore, SummaryStore
from veen_overlays.summary_tree.tree import FoldedRange, SummaryTree, drive

__all__ = ["FoldedRange", "MemoryStore", "SeqRange", "SummaryStore", "SummaryTree", "drive"]
