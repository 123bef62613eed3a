"""A segment of a hub's journal, with everything that its batches made durable (RESOLUTIONS H2).

Damage is reported, never skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from veen_cli.evidence.recognition.recognized import Bare, Recognized
from veen_core.checkpoint import Checkpoint
from veen_core.entry import Entry, unframe
from veen_core.errors import DecodeError
from veen_core.wire import Wire
from veen_storage import DamageError, formats
from veen_storage.formats import Anchor, HubExtension, Item, Prune

_NAME: Final = re.compile(r"journal-\d{20}\.wal")
_DECODERS: Final[dict[int, Callable[[bytes], Wire | Entry]]] = {
    formats.ENTRY: unframe,
    formats.CHECKPOINT: Checkpoint.decode,
    formats.ANCHOR: Anchor.decode,
    formats.PRUNE: Prune.decode,
    formats.HUB_CHECKPOINT: HubExtension.decode,
}


def is_segment(where: str, data: bytes) -> bool:
    """Return whether the file is a segment, by its first bytes or, if they are damaged, by its name."""
    return data.startswith(formats.MAGIC) or _NAME.fullmatch(Path(where).name) is not None


def split(where: str, data: bytes) -> Iterator[Recognized]:
    """Yield every item of every batch, then the segment itself, with a note if its end is torn."""
    torn: list[str] = []
    first = last = None
    for offset, batch in formats.split_segment(where, data, last=_is_newest(where), torn=torn.append):
        if last is not None and batch.number != last + 1:
            raise DamageError(where, offset, f"batch {batch.number} comes directly after batch {last}")
        first, last = batch.number if first is None else first, batch.number
        for n, item in enumerate(batch.items, 1):
            yield _item(f"{where} batch {batch.number} item {n}", offset, item)
    held = {"first batch": first, "last batch": last, "torn": torn[0] if torn else None}
    present = {name: value for name, value in held.items() if value is not None}
    yield Recognized(where, Bare("journal segment", "H2", present), data)


def _is_newest(where: str) -> bool:
    """Return whether this is the newest segment of its folder: only that one may end in a torn batch."""
    path = Path(where)
    return not (_NAME.fullmatch(path.name) and formats.list_segments(path.parent)[-1:] > [path])


def _item(where: str, batch_at: int, item: Item) -> Recognized:
    try:
        decode = _DECODERS[item.kind]
    except KeyError:
        raise DamageError(
            where,
            batch_at,
            f"an item of unknown kind {item.kind}",
            "read it with the newer veen that wrote it",
        ) from None
    try:
        return Recognized(where, decode(item.data), item.data)
    except DecodeError as exc:
        raise DamageError(where, batch_at, str(exc)) from None
