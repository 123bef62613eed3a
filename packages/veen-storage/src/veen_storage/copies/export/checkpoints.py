"""Checkpoints of an export, each judged when the tree has grown to it. For both forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from veen_core.checkpoint import Checkpoint
from veen_core.errors import VeenError
from veen_core.ids import StreamSeq
from veen_storage.copies.export.format import CHECKPOINTS, sequence_name
from veen_storage.copies.export.judge import Judge, damage

Indexed = tuple[int, bytes, StreamSeq]
"""Where an item begins, its bytes, and the entry it is of."""


class Waiting:
    """Checkpoints in order, judged when the tree has grown to them."""

    def __init__(
        self,
        made: Iterator[Indexed],
        judge: Judge,
        name: Callable[[StreamSeq], str] = lambda _upto: sequence_name(CHECKPOINTS),
    ) -> None:
        """``name`` says which file the checkpoint at a place is in."""
        self._made = made
        self._judge = judge
        self._name = name
        self._next = next(made, None)

    def judge_due(self) -> None:
        while self._next is not None and self._next[2] == self._judge.tree.size:
            offset, content, upto = self._next
            where = self._name(upto)
            try:
                made = Checkpoint.decode(content)
            except VeenError as exc:
                raise damage(where, str(exc), offset) from exc
            self._judge.checkpoint(made, where, offset)
            self._next = next(self._made, None)

    def must_be_empty(self) -> None:
        if self._next is not None:
            offset, _content, upto = self._next
            raise damage(self._name(upto), f"a checkpoint at {upto} is not of the range", offset)
