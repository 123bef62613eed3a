"""The index against what the files say, in a process of its own: a damaged page can take LMDB down with it.

``survey`` reads what only the index knows (the labels' numbers, the last batch applied); ``compare`` holds
every row of every table against an index that was derived from the files. Both go through ``apart``.
"""

from __future__ import annotations

import multiprocessing
import signal
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

import lmdb

from veen_core.cap import ClaimsRef
from veen_core.errors import VeenError
from veen_core.ids import Label
from veen_storage.errors import DamageError, StorageError
from veen_storage.fsck.report import REPAIR
from veen_storage.index.lmdb_index import TABLES, Index, View
from veen_storage.index.records import (
    CAP_LABEL,
    EPOCH_LABEL_SEQ,
    LABEL_SEQ,
    MANIFEST_KEY,
    NODE,
    TIME_LABEL,
    U32,
    U64,
    LabelCursor,
    LabelNo,
)

T = TypeVar("T")
MOST_ROWS: Final = 1_000
"""Rows of one table that are reported one by one."""
FILE: Final = "index/data.mdb"


def context() -> multiprocessing.context.BaseContext:
    """How to start a process: forked if this one has a single thread, as a command has, in milliseconds.

    Else from a server that inherits nothing: of several threads one may hold a lock, which would stay held.
    """
    tasks = Path("/proc/self/task")
    if tasks.is_dir() and len(list(tasks.iterdir())) == 1:
        return multiprocessing.get_context("fork")
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["veen_storage.fsck.index", "veen_storage.fsck.entries"])
    return made


def apart(call: Callable[..., T], *args: Any) -> T:
    """Call in another process; ``DamageError`` if it finds damage or dies of it."""
    here, there = multiprocessing.Pipe(duplex=False)
    child = context().Process(target=_answer, args=(there, call, args), daemon=True)  # type: ignore[attr-defined]  # every context has it
    child.start()
    there.close()
    try:
        fine, answer = here.recv()
    except EOFError:
        child.join()
        if (code := child.exitcode or 0) >= 0:
            raise StorageError(f"the process that reads the index did not start (exit code {code})") from None
        how = signal.Signals(-code).name
        fine, answer = False, f"reading it kills the process that does ({how})"
    finally:
        here.close()
    child.join()
    if not fine:
        raise DamageError(FILE, None, answer, REPAIR)
    return answer  # type: ignore[no-any-return]  # what ``call`` returned


def _answer(there: Connection, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        there.send((True, call(*args)))
    except (lmdb.Error, struct.error, OSError, VeenError) as exc:
        there.send((False, exc.what if isinstance(exc, DamageError) else str(exc)))
    there.close()


# --- survey


class Recorded(NamedTuple):
    """Where a label stood when the index last committed."""

    size: int = 0
    chunk_start: int = 1
    chunk_bytes: int = 0
    """Of the growing chunk: what follows in the file is of a round that was cut off."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What only the index knows."""

    numbers: dict[Label, LabelNo]
    heads: dict[Label, Recorded]
    """Of each label, as far as it can be read."""
    meta: dict[bytes, bytes]


def recorded_batch(held: Survey | None) -> int:
    """The last batch that the index says is applied, as far as it says anything."""
    stored = held.meta.get(b"applied", b"") if held is not None else b""
    return int(U64.unpack(stored)[0]) if len(stored) == U64.size else 0


def survey(path: Path) -> Survey:
    index = Index(path, readonly=True)
    try:
        with index.reading() as view:
            numbers = {Label(key): LabelNo(U32.unpack(value)[0]) for key, value in _rows(view, "labels")}
            return Survey(numbers, dict(_heads(view, numbers)), dict(_rows(view, "meta")))
    finally:
        index.close()


def _heads(view: View, numbers: dict[Label, LabelNo]) -> Iterator[tuple[Label, Recorded]]:
    for label, number in numbers.items():
        try:
            cursor = LabelCursor.unpack(number, view.get("heads", U32.pack(number)) or b"")
        except (struct.error, VeenError):
            continue  # reported as a row that differs
        if cursor.label == label:
            yield label, Recorded(cursor.log.size, cursor.chunk_start, cursor.chunk_bytes)


def _rows(view: View, table: str) -> Iterator[tuple[bytes, bytes]]:
    return _in_order(table, view.rows(table), None)


def _in_order(
    table: str, rows: Iterable[tuple[bytes, bytes]], before: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    """Those that follow ``before``; a damaged tree that leads in circles ends here."""
    for key, value in rows:
        if before is not None and key <= before:
            raise DamageError(FILE, None, f"table {table} is not in order", REPAIR)
        before = key
        yield key, value


# --- compare


@dataclass(frozen=True, slots=True, kw_only=True)
class Excused:
    """Rows that the files do not allow to judge."""

    numbers: frozenset[int] = frozenset()
    rows: frozenset[tuple[str, bytes]] = frozenset()
    late: frozenset[ClaimsRef] = frozenset()
    caps: bool = False
    meta: frozenset[bytes] = frozenset()

    def excuses(self, table: str, key: bytes) -> bool:
        if table == "meta":
            return key in self.meta or (key.startswith(b"control") and bool(self.numbers))
        if table == "caps":
            return self.caps
        if table == "buckets" and key[:32] in self.late:
            return True
        return (table, key) in self.rows or number_of(table, key) in self.numbers


@dataclass(frozen=True, slots=True)
class Row:
    """A row that is not as it must be."""

    table: str
    wrong: Literal["missing", "differs", "extra", "gap"]
    key: bytes
    value: bytes


@dataclass(slots=True)
class Comparison:
    """What was found; ``more`` counts what is beyond ``MOST_ROWS`` of a table."""

    rows: list[Row] = field(default_factory=list)
    more: dict[str, int] = field(default_factory=dict)
    checked: int = 0
    unrecorded: int = 0
    """Attachments that are there and of which the index does not know."""


def compare(actual: Path, derived: Path, excused: Excused) -> Comparison:
    """Every row of every table, in order of keys."""
    found = Comparison()
    have, want = Index(actual, readonly=True), Index(derived, readonly=True)
    try:
        with have.reading() as left, want.reading() as right:
            for table in TABLES:
                count = 0
                for row in _differences(table, left, right, found):
                    if excused.excuses(table, row.key):
                        continue
                    if table == "attachments" and row.wrong == "missing":
                        found.unrecorded += 1
                        continue
                    count += 1
                    if count <= MOST_ROWS:
                        found.rows.append(row)
                if count > MOST_ROWS:
                    found.more[table] = count - MOST_ROWS
            found.rows.extend(_gaps(left))
    finally:
        have.close()
        want.close()
    return found


def changed_attachments(actual: Path, derived: Path) -> Comparison:
    """Those that the index recorded and of which there is no file, or one of another size."""
    found = Comparison()
    have, want = Index(actual, readonly=True), Index(derived, readonly=True)
    try:
        with have.reading() as left, want.reading() as right:
            rows = (row for row in _differences("attachments", left, right, found) if row.wrong != "missing")
            found.rows.extend(islice(rows, MOST_ROWS))
            found.more["attachments"] = sum(1 for _row in rows)
    finally:
        have.close()
        want.close()
    return found


_END: Final = (None, b"")
AT_ONCE: Final = 1_024
"""Rows that are compared at once while they are alike."""


def _differences(table: str, left: View, right: View, found: Comparison) -> Iterator[Row]:
    """Most rows are alike, and are compared many at a time: only from where they part one by one."""
    have, want = left.rows(table), right.rows(table)
    before = None
    while (ours := list(islice(have, AT_ONCE))) == (theirs := list(islice(want, AT_ONCE))) and ours:
        found.checked += len(ours)
        before = ours[-1][0]
    yield from _one_by_one(table, _in_order(table, chain(ours, have), before), chain(theirs, want), found)


def _one_by_one(
    table: str, have: Iterator[tuple[bytes, bytes]], want: Iterator[tuple[bytes, bytes]], found: Comparison
) -> Iterator[Row]:
    (a, x), (b, y) = next(have, _END), next(want, _END)
    while a is not None or b is not None:
        found.checked += 1
        if b is None or (a is not None and a < b):
            assert a is not None
            yield Row(table, "extra", a, x)
            a, x = next(have, _END)
        elif a is None or b < a:
            if not (table == "meta" and not any(y)):  # an empty directory has not counted yet
                yield Row(table, "missing", b, y)
            b, y = next(want, _END)
        else:
            if x != y:
                yield Row(table, "differs", a, x)
            (a, x), (b, y) = next(have, _END), next(want, _END)


def _gaps(view: View) -> Iterator[Row]:
    """The manifest's ranges of each label tile everything up to the growing chunk (§3.4.1)."""
    number, expected = -1, 1
    for key, value in _rows(view, "manifest"):
        of, _epoch, start, end = MANIFEST_KEY.unpack(key)
        if of != number:
            number, expected = of, 1
        if start != expected:
            yield Row("manifest", "gap", key, value)
        expected = end + 1


NUMBER_AT: Final = {  # where in its key a row has the label's number
    "heads": 0,
    "clients": 0,
    "entries": 0,
    "nodes": 0,
    "chunks": 0,
    "manifest": 0,
    "tombstones": 0,
    "times": 0,
    "all_times": TIME_LABEL.size - U32.size,
    "buckets": CAP_LABEL.size - U32.size,
    "checkpoints": 0,
    "epochs": U32.size * 2,
    "anchors": 0,
}
_SEQ_OF: Final = {
    "entries": (LABEL_SEQ, 1),
    "chunks": (LABEL_SEQ, 1),
    "tombstones": (LABEL_SEQ, 1),
    "checkpoints": (LABEL_SEQ, 1),
    "anchors": (LABEL_SEQ, 1),
    "manifest": (MANIFEST_KEY, 2),
    "epochs": (EPOCH_LABEL_SEQ, 2),
}


def number_of(table: str, key: bytes) -> int | None:
    """The label's number in a row's key."""
    at = NUMBER_AT.get(table)
    if at is None or len(key) < at + U32.size:
        return None
    return int(U32.unpack_from(key, at)[0])


def seq_of(table: str, key: bytes) -> int | None:
    """The entry in a row's key, where it has one."""
    layout, at = _SEQ_OF.get(table, (NODE, 0))
    return int(layout.unpack(key)[at]) if table in _SEQ_OF and len(key) == layout.size else None
