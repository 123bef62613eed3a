"""Vectors of evidence of a fork: in the hub log, and of one label (P1)."""

from __future__ import annotations

import dataclasses
from typing import Any

from veen_core import hub_fork, hub_log
from veen_core.errors import EvidenceError
from veen_core.hashing import H
from veen_core.hub_fork import HubLogFork, LabelFork, LabelStatement
from veen_core.ids import HubId, LeafHash, MmrRoot
from veen_core.keys import SigningKey
from veen_core.mmr import Mmr
from veen_core.tlog import note, tree
from veen_core.tlog.note import Note
from veen_core.tlog.tree_head import TreeHead

from . import cast
from .case import Bad, Context, Good, Object, unhex
from .hub_log import HEADS, ORIGIN

PINNED = {"pinned": cast.HUB_ID.hex()}


class Grown:
    """A tree with every node, and its root at every size."""

    def __init__(self, empty: tree.Tree | Mmr, leaves: list[bytes]) -> None:
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.roots = [tree.EMPTY_ROOT]
        for leaf in leaves:
            for node in empty.append(leaf):
                self.nodes[node.height, node.index] = node.hash
            self.roots.append(empty.root)

    def lookup(self, height: int, index: int) -> bytes:
        return self.nodes[height, index]


ENTRIES = [head.encode() for head in HEADS]
REAL = Grown(tree.Tree(), [tree.leaf_hash(entry) for entry in ENTRIES])
OTHER = Grown(tree.Tree(), [tree.leaf_hash(entry) for entry in (*ENTRIES[:2], ENTRIES[3], *ENTRIES[3:])])
"""A second history: another third entry."""


def _note(log: Grown, size: int, key: SigningKey = cast.HUB) -> bytes:
    text = TreeHead(ORIGIN, size, log.roots[size]).text
    return Note(text, (note.sign_note(key, ORIGIN, text),)).encode()


# --- hub log fork


def judge_hub_log_fork(wire: bytes, context: Context) -> Any:
    evidence = HubLogFork.decode(wire)
    hub_fork.verify_hub_log_fork(evidence, pinned=HubId(unhex(context, "pinned")))
    return {"earlier": evidence.earlier.decode(), "later": evidence.later.decode()}


LOG_FORK = HubLogFork(
    identity=cast.identity(),
    origin=ORIGIN,
    earlier=_note(REAL, 4),
    later=_note(OTHER, 7),
    cut=hub_fork.cut(OTHER.lookup, 4, 7),
)


def _bent_log(**changes: Any) -> bytes:
    return dataclasses.replace(LOG_FORK, **changes).encode()


HUB_LOG_FORK = Object(
    name="hub_log_fork",
    judge=judge_hub_log_fork,
    wire=HubLogFork,
    good=(
        Good("two_sizes", LOG_FORK.encode(), PINNED),
        Good("one_size", _bent_log(earlier=_note(REAL, 7), cut=None), PINNED),
    ),
    bad=tuple(
        Bad(name, wire, EvidenceError, match, context)
        for name, wire, match, context in (
            ("pinned_other", LOG_FORK.encode(), "the pinned hub is 0000", {"pinned": "00" * 32}),
            ("earlier_of_the_same_history", _bent_log(earlier=_note(OTHER, 4)), "do not contradict", PINNED),
            (
                "tree_of_the_first_history",
                _bent_log(cut=hub_fork.cut(REAL.lookup, 4, 7)),
                "does not lead to the later hub checkpoint",
                PINNED,
            ),
            (
                "later_not_signed_by_the_hub",
                _bent_log(later=_note(OTHER, 7, cast.OTHER_HUB)),
                "no key of the hub signed it",
                PINNED,
            ),
            ("tree_missing", _bent_log(cut=None), "the later tree is missing", PINNED),
            ("earlier_not_a_note", _bent_log(earlier=b"note"), "note (C2SP signed-note)", PINNED),
        )
    ),
)


# --- label fork

LOG = cast.log()
REPLACED = Grown(Mmr(), [*(LOG.leaf(seq) for seq in range(1, 5)), LeafHash(H(b"another")), LOG.leaf(6)])
"""A second history of the label: another fifth message."""


def judge_label_fork(wire: bytes, context: Context) -> Any:
    evidence = LabelFork.decode(wire)
    hub_fork.verify_label_fork(evidence, pinned=HubId(unhex(context, "pinned")))
    return {"origin": evidence.origin}


def _head_stated(index: int) -> LabelStatement:
    return LabelStatement(
        head=HEADS[index],
        index=index,
        proof=hub_log.hashes(tree.prove_inclusion(REAL.lookup, index, len(HEADS))),
        checkpoint=_note(REAL, len(HEADS)),
    )


def _receipt_stated(history: Grown, seq: int, key: SigningKey = cast.HUB) -> LabelStatement:
    made = cast.receipt(seq, LeafHash(history.nodes[0, seq - 1]), MmrRoot(history.roots[seq]), key=key)
    return LabelStatement(receipt=made)


LABEL_FORKED = LabelFork(
    identity=cast.identity(),
    origin=ORIGIN,
    earlier=_receipt_stated(REPLACED, 5),
    later=_head_stated(2),
    cut=hub_fork.cut(LOG.lookup, 5, 6),
)


def _bent_label(**changes: Any) -> bytes:
    return dataclasses.replace(LABEL_FORKED, **changes).encode()


LABEL_FORK = Object(
    name="label_fork",
    judge=judge_label_fork,
    wire=LabelFork,
    good=(
        Good("receipt_and_later_head", LABEL_FORKED.encode(), PINNED),
        Good("receipt_and_head", _bent_label(earlier=_receipt_stated(REPLACED, 6), cut=None), PINNED),
    ),
    bad=tuple(
        Bad(name, wire, EvidenceError, match, context)
        for name, wire, match, context in (
            ("pinned_other", LABEL_FORKED.encode(), "the pinned hub is 0000", {"pinned": "00" * 32}),
            (
                "receipt_of_the_same_history",
                _bent_label(earlier=LabelStatement(receipt=LOG.receipts[4])),
                "do not contradict",
                PINNED,
            ),
            (
                "receipt_not_signed_by_the_hub",
                _bent_label(earlier=_receipt_stated(REPLACED, 5, cast.OTHER_HUB)),
                "RECEIPT.hub_sig at stream_seq 5",
                PINNED,
            ),
            ("head_of_another_label", _bent_label(later=_head_stated(3)), "two labels", PINNED),
            (
                "head_at_another_place",
                _bent_label(later=dataclasses.replace(_head_stated(2), index=1)),
                "does not lead to the root",
                PINNED,
            ),
            (
                "receipts_with_places",
                _bent_label(
                    earlier=LabelStatement(receipt=LOG.receipts[4], index=9, checkpoint=b"note"),
                    later=LabelStatement(receipt=LOG.receipts[6], index=3, checkpoint=b"note"),
                    cut=None,
                ),
                "both a receipt and a head",
                PINNED,
            ),
            ("statement_empty", _bent_label(later=LabelStatement()), "neither a receipt nor a head", PINNED),
        )
    ),
)
OBJECTS = (HUB_LOG_FORK, LABEL_FORK)
