"""Checkpoints of an export, each judged when the tree has grown to it. For both forms."""

from __future__ import annotations

from collections.abc import Iterator

from veen_core.checkpoint import Checkpoint
from veen_core.errors import VeenError
from veen_core.ids import StreamSeq
from veen_storage.export.format import CHECKPOINTS, sequence_name
from veen_storage.export.judge import Judge, damage

Indexed = tuple[int, bytes, StreamSeq]
"""Where an item begins, its bytes, and the entry it is of."""


class Waiting:
    """Checkpoints in order, judged when the tree has grown to them."""

    def __init__(
        self, made: Iterator[Indexed], judge: Judge, where: str = sequence_name(CHECKPOINTS)
    ) -> None:
        self._made = made
        self._judge = judge
        self._where = where
        self._next = next(made, None)

    def judge_due(self) -> None:
        while self._next is not None and self._next[2] == self._judge.tree.size:
            offset, content, _upto = self._next
            try:
                made = Checkpoint.decode(content)
            except VeenError as exc:
                raise damage(self._where, str(exc), offset) from exc
            self._judge.checkpoint(made, self._where, offset)
            self._next = next(self._made, None)

    def must_be_empty(self) -> None:
        if self._next is not None:
            raise damage(self._where, f"a checkpoint at {self._next[2]} is not of the range", self._next[0])
