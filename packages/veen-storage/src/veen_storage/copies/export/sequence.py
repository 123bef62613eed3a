"""Reading the files of an export: CBOR sequences through a window, and small files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from veen_core import cbor
from veen_core.errors import DecodeError
from veen_core.export import PrunedRange
from veen_core.ids import StreamSeq
from veen_storage.errors import DamageError

WINDOW_BYTES: Final = 1_048_576
"""Bytes that are read at once."""
MAX_SMALL_ITEM: Final = 65_536
"""Bytes of the largest receipt, pruned payload's marker or checkpoint with its witnesses."""
ASK_AGAIN: Final = "ask for the export again"


def damaged(name: str, what: str, offset: int | None = None) -> DamageError:
    """Return the error for a damaged file of an export."""
    return DamageError(name, offset, what, ASK_AGAIN)


def note_pruned(ranges: list[PrunedRange], seq: StreamSeq) -> None:
    """Add a pruned entry to the ranges of pruned entries before it."""
    if ranges and ranges[-1].end_seq == seq - 1:
        ranges[-1] = PrunedRange(start_seq=ranges[-1].start_seq, end_seq=seq)
    else:
        ranges.append(PrunedRange(start_seq=seq, end_seq=seq))


def read_sequence(path: Path, max_item: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of every item, each at most ``max_item`` bytes, without loading the file."""
    with path.open("rb") as file:
        base, rest = 0, b""
        while (data := file.read(max(WINDOW_BYTES, max_item))) or rest:
            window, used = rest + data, 0
            try:
                for item in cbor.split_sequence(window):
                    yield base + used, item
                    used += len(item)
            except DecodeError as exc:
                if not data or len(window) - used > max_item:
                    raise damaged(path.name, f"is not a CBOR item: {exc.found}", base + used) from exc
            base, rest = base + used, window[used:]


def read_small(path: Path) -> bytes:
    """Return the first ``MAX_SMALL_ITEM`` bytes of a file; decoding fails if the file is longer."""
    with path.open("rb") as file:
        return file.read(MAX_SMALL_ITEM)
