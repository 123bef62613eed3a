"""The existing index: a survey of its content, and its comparison with the derived index.

Both run in a process of their own (``run_isolated``), because a damaged page can crash LMDB.
"""

from __future__ import annotations

import multiprocessing
import signal
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, groupby, islice
from multiprocessing.connection import Connection
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

import lmdb

from veen_core.errors import VeenError
from veen_core.ids import Label
from veen_storage.errors import REPAIR, DamageError, StorageError
from veen_storage.fsck.workers import process_context
from veen_storage.index.lmdb_index import Index
from veen_storage.index.records import U64, LabelCursor, LabelNo
from veen_storage.index.tables import APPLIED, ATTACHMENTS, HEADS, LABELS, META, TABLES
from veen_storage.index.transactions import View

T = TypeVar("T")
INDEX_FILE: Final = "index/data.mdb"
MAX_ROWS: Final = 1_000
"""Rows of a table that are kept one by one; further ones are counted."""


def run_isolated(call: Callable[..., T], *args: Any) -> T:
    """Call in another process; raise ``DamageError`` if it finds damage or dies."""
    here, there = multiprocessing.Pipe(duplex=False)
    child = process_context().Process(target=_answer, args=(there, call, args), daemon=True)  # type: ignore[attr-defined]  # every context has it
    child.start()
    there.close()
    try:
        ok, answer = here.recv()
    except EOFError:
        child.join()
        if (code := child.exitcode or 0) >= 0:
            raise StorageError(f"the process that reads the index did not start (exit code {code})") from None
        ok, answer = False, f"crashes the process that reads it ({signal.Signals(-code).name})"
    finally:
        here.close()
    child.join()
    if not ok:
        raise DamageError(INDEX_FILE, None, answer, REPAIR)
    return answer  # type: ignore[no-any-return]  # what ``call`` returned


def _answer(there: Connection, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        there.send((True, call(*args)))
    except (lmdb.Error, struct.error, OSError, VeenError) as exc:
        there.send((False, exc.what if isinstance(exc, DamageError) else str(exc)))
    there.close()


# --- survey


@dataclass(frozen=True, slots=True)
class Survey:
    """The facts that only the existing index contains."""

    numbers: dict[Label, LabelNo]
    sizes: dict[Label, int]
    """Number of entries of each label whose cursor can be read."""
    meta: dict[bytes, bytes]

    @property
    def applied(self) -> int | None:
        """The last batch applied; None if that row is damaged."""
        stored = self.meta.get(APPLIED, bytes(U64.size))
        return int(U64.unpack(stored)[0]) if len(stored) == U64.size else None


def survey(path: Path) -> Survey:
    """Read the facts that only the index contains."""
    with _views(path) as (view,):
        labels = _in_order(LABELS.name, view.rows(LABELS.name))
        numbers = {Label(key): LABELS.row.unpack(row) for key, row in labels}
        meta = dict(_in_order(META.name, view.rows(META.name)))
        return Survey(numbers, dict(_sizes(view, numbers)), meta)


def _sizes(view: View, numbers: dict[Label, LabelNo]) -> Iterator[tuple[Label, int]]:
    for label, number in numbers.items():
        try:
            cursor = LabelCursor.unpack(number, HEADS.get(view, number) or b"")
        except (struct.error, VeenError):
            continue  # the comparison reports this row
        if cursor.label == label:
            yield label, cursor.log.size


def _in_order(
    table: str, rows: Iterable[tuple[bytes, bytes]], before: bytes | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Yield rows that follow ``before``; a damaged tree that leads in circles is refused."""
    for key, value in rows:
        if before is not None and key <= before:
            raise DamageError(INDEX_FILE, None, f"the keys of table {table} are not in order", REPAIR)
        before = key
        yield key, value


# --- comparison


class Row(NamedTuple):
    """A row that differs from what follows from the files."""

    wrong: Literal["missing", "differs", "extra"]
    key: bytes
    value: bytes


@dataclass(slots=True)
class TableDifference:
    """The rows of one table that do not follow from the files: the first ``MAX_ROWS``, and their number."""

    table: str
    rows: list[Row] = field(default_factory=list)
    count: int = 0
    unrecorded: int = 0
    """Attachments that are there and have no row; they are not counted."""


Unknown = frozenset[tuple[str, bytes]]
"""Rows that are not compared, because files do not tell their content: a table, and a prefix of the key."""
ALL_BUT_ATTACHMENTS: Final[Unknown] = frozenset((name, b"") for name in TABLES if name != ATTACHMENTS.name)


def compare(actual: Path, derived: Path, unknown: Unknown) -> list[TableDifference]:
    """Compare every row of every table."""
    with _views(actual, derived) as (have, want):
        return [_compare_table(table, have, want, unknown) for table in TABLES if (table, b"") not in unknown]


def _compare_table(table: str, have: View, want: View, unknown: Unknown) -> TableDifference:
    prefixes = tuple(prefix for name, prefix in unknown if name == table)
    found = TableDifference(table)
    for row in _differences(table, have, want):
        if table == ATTACHMENTS.name and row.wrong == "missing":
            found.unrecorded += 1
        elif not row.key.startswith(prefixes):
            found.count += 1
            if found.count <= MAX_ROWS:
                found.rows.append(row)
    return found


@contextmanager
def _views(*paths: Path) -> Iterator[list[View]]:
    with ExitStack() as stack:
        indices = [stack.enter_context(closing(Index(path, readonly=True))) for path in paths]
        yield [stack.enter_context(index.reading()) for index in indices]


ROWS_AT_ONCE: Final = 1_024


def _differences(table: str, have: View, want: View) -> Iterator[Row]:
    """Yield the rows that differ. Equal runs are compared many rows at a time."""
    left, right = have.rows(table), want.rows(table)
    before = None
    while (ours := list(islice(left, ROWS_AT_ONCE))) == (theirs := list(islice(right, ROWS_AT_ONCE))):
        if not ours:
            return
        before = ours[-1][0]
    rest = _in_order(table, chain(ours, left), before)
    merged = merge(((*row, True) for row in rest), ((*row, False) for row in chain(theirs, right)))
    for key, rows in groupby(merged, key=itemgetter(0)):
        values = {there: value for _key, value, there in rows}
        if False not in values:
            yield Row("extra", key, values[True])
        elif True in values:
            if values[True] != values[False]:
                yield Row("differs", key, values[True])
        elif table != META.name or any(values[False]):  # a new directory has no counters yet
            yield Row("missing", key, values[False])
