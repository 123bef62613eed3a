"""What is in a file: one object of any kind, a chunk, a journal segment, or a sequence of objects.

Hex text stands for the bytes it spells. What is damaged is said to be that, where it shows what it was.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Final

from veen_cli.evidence import segment
from veen_cli.evidence.bare import bare, floor
from veen_cli.evidence.foreign import foreign
from veen_cli.evidence.found import Bare, Found, Thing, Unknown
from veen_cli.evidence.kinds import known
from veen_cli.frame.exits import CommandFailed, Exit
from veen_core import cbor, chunk
from veen_core.entry import split_frames
from veen_core.errors import DecodeError
from veen_storage.chunks import compression
from veen_storage.chunks.pruned_chunk import decode_pruned_chunk
from veen_storage.errors import DamageError

MOST: Final = 256 * 1_048_576
"""A file larger than this is no object, and no chunk either."""
MOST_OBJECTS: Final = 4 * 65_536
"""In one file; a chunk holds a quarter of it at most (§14.1)."""
MOST_UNKNOWN: Final = 1_048_576
"""Bytes of CBOR of no known kind: as large as a MSG may be (§14)."""
SHORTEST: Final = 5
"""Bytes of an object; shorter hex is a number that somebody wrote, such as a process id."""
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ARRAYS_AND_MAPS: Final = range(0x80, 0xC0)


def read(path: str) -> bytes:
    """A file, or stdin; hex is decoded. No more is read than an object may have: a device has no end."""
    if path == "-":
        content = sys.stdin.buffer.read(MOST + 1)
    else:
        with Path(path).open("rb") as file:
            content = file.read(MOST + 1)
            if content.startswith(_ZSTD):
                content = _decompressed(file.fileno(), path)
    if len(content) > MOST:
        raise CommandFailed(f"{path}: more than {MOST} bytes are no VEEN object", Exit.PROTOCOL)
    if floor(path, content) is not None:
        return content  # two numbers and a checksum, which may look like hex
    try:
        spelled = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        return content
    return spelled if len(spelled) >= SHORTEST else content


def _decompressed(fd: int, path: str) -> bytes:
    """A chunk that is kept compressed (§4.8.4)."""
    if (size := compression.raw_size(fd, path)) > MOST:
        raise CommandFailed(f"{path}: {size} bytes, decompressed, are no chunk", Exit.PROTOCOL)
    return compression.read_range(fd, path, 0, size)


def recognize(where: str, data: bytes) -> list[Found]:
    """Everything in a file; ``where`` is its name."""
    if not data:
        raise CommandFailed(f"{where} is empty", Exit.PROTOCOL)
    if (one := known(data) or bare(where, data)) is not None:
        return [Found(where, one, data)]
    if segment.is_segment(where, data):
        return _few(where, segment.split(where, data))
    if (other := foreign(data)) is not None:
        raise CommandFailed(f"{where}: no VEEN bytes, but {other}", Exit.PROTOCOL)
    named = chunk.parse_chunk_name(Path(where).name)
    if data[0] in _ARRAYS_AND_MAPS:
        is_pruned = (named is not None and named.kind == "pruned") or _begins_pruned(data)
        return _few(where, _pruned(where, data) if is_pruned else _sequence(where, data))
    return _few(where, _entries(where, data, is_chunk=named is not None))


def _few(where: str, found: Iterator[Found]) -> list[Found]:
    kept = list(islice(found, MOST_OBJECTS + 1))
    if len(kept) > MOST_OBJECTS:
        raise CommandFailed(
            f"{where}: more than {MOST_OBJECTS} objects are too many to look at in one file; an export is "
            "judged as a folder (`veen verify FOLDER`), a hub by `veen hub fsck`",
            Exit.PROTOCOL,
        )
    return kept


def _entries(where: str, data: bytes, *, is_chunk: bool) -> Iterator[Found]:
    """Of a chunk (§4.8.1)."""
    entries = split_frames(data)
    while True:
        try:
            entry = next(entries, None)
        except DecodeError as exc:
            if is_chunk:
                raise DamageError(where, None, f"is a damaged chunk: {exc}") from None
            what = f"{where}: no VEEN bytes: neither an object nor a chunk ({exc})"
            raise CommandFailed(what, Exit.PROTOCOL) from None
        if entry is None:
            return
        is_chunk = True
        yield Found(f"{where} entry {entry.stream_seq}", entry, entry.encode())


def _begins_pruned(data: bytes) -> bool:
    try:
        return isinstance(known(next(cbor.split_sequence(data))), chunk.PrunedHead)
    except DecodeError:
        return False


def _pruned(where: str, data: bytes) -> Iterator[Found]:
    """What retention left of a chunk (COMP0.1)."""
    head, kept = decode_pruned_chunk(where, data)
    yield Found(where, head, head.encode())
    for _place, entry in kept:
        yield Found(f"{where} entry {entry.receipt.stream_seq}", entry, entry.encode())


def _sequence(where: str, data: bytes) -> Iterator[Found]:
    """One object of no known kind, or a sequence of any (RFC 8742)."""
    at, left = 0, MOST_UNKNOWN
    for n in count(1):
        try:
            end = cbor.item_end(data, at)
            item = data[at:end]
            thing: Thing | None = known(item)
            if thing is None:
                left -= len(item)
                thing = _other(item, left)
        except DecodeError as exc:
            raise CommandFailed(
                f"{where}: no VEEN bytes, or damaged: {f'from byte {at} on ' if at else ''}no object of ours "
                f"({exc}); fetch it again, or restore it from a copy",
                Exit.PROTOCOL,
            ) from None
        yield Found(where if item == data else f"{where} item {n}", thing, item)
        if (at := end) == len(data):
            return


def _other(item: bytes, left: int) -> Bare | Unknown:
    """None that says itself what it is. Text and zeros are sequences too, of bare values: none of ours."""
    if left < 0:
        raise DecodeError(f"more than {MOST_UNKNOWN} bytes of CBOR of no known kind")
    if item[0] not in _ARRAYS_AND_MAPS:
        raise DecodeError("want an array or a map")
    # Imported here: all overlays, which few files are of.
    from veen_cli.evidence.records import record  # noqa: PLC0415

    decoded = cbor.decode(item)
    return record(item, decoded) or Unknown(decoded)


def recognize_all(paths: Iterable[str]) -> list[Found]:
    return [found for path in paths for found in recognize(path, read(path))]
