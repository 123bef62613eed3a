"""Recognize what a file holds: one object of any kind, a chunk, a journal segment, or a sequence of objects.

Hex text counts as the bytes that it spells. A damaged file is reported as damaged if its kind can still be
recognized.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Final

from veen_cli.evidence import journal_segment
from veen_cli.evidence.recognition.foreign_files import describe_foreign
from veen_cli.evidence.recognition.other_formats import journal_floor, policy_error, recognize_other
from veen_cli.evidence.recognition.recognized import Bare, Recognized, Thing, Unknown
from veen_cli.evidence.recognition.wire_kinds import decode_any
from veen_cli.frame.exits import CommandFailed, Exit
from veen_core import cbor, chunk
from veen_core.entry import split_frames
from veen_core.errors import DecodeError
from veen_core.tlog.policy import POLICY_ACTION
from veen_storage import DamageError, formats

MAX_FILE_BYTES: Final = 256 * 1_048_576
"""No object and no chunk is larger."""
MAX_OBJECTS: Final = 4 * 65_536
"""Most objects in one file; a chunk holds at most a quarter as many entries (core §14.1)."""
MAX_UNKNOWN_BYTES: Final = 1_048_576
"""Largest CBOR item of an unknown kind, in bytes: the largest size of a MSG (core §14)."""
MIN_HEX_BYTES: Final = 5
"""Shorter hex text is a number, such as a process id, not an object."""
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ARRAYS_AND_MAPS: Final = range(0x80, 0xC0)


def read(path: str) -> bytes:
    """Read a file or stdin, at most MAX_FILE_BYTES; decode hex text."""
    if path == "-":
        content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    else:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
            if content.startswith(_ZSTD):
                content = _decompress(file.fileno(), path)
    if len(content) > MAX_FILE_BYTES:
        raise CommandFailed(
            f"{path} is not a VEEN file: it has more than {MAX_FILE_BYTES} bytes", Exit.PROTOCOL
        )
    if journal_floor(path, content) is not None:
        return content  # two numbers and a checksum, which may look like hex
    try:
        spelled = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        return content
    return spelled if len(spelled) >= MIN_HEX_BYTES else content


def _decompress(fd: int, path: str) -> bytes:
    """Decompress a compressed chunk (core §4.8.4)."""
    if (size := formats.raw_size(fd, path)) > MAX_FILE_BYTES:
        raise CommandFailed(
            f"{path} is not a chunk: decompressed it has {size} bytes, more than {MAX_FILE_BYTES}",
            Exit.PROTOCOL,
        )
    return formats.read_range(fd, path, 0, size)


def recognize(where: str, data: bytes) -> list[Recognized]:
    """Return everything in a file; ``where`` is its name."""
    if not data:
        raise CommandFailed(f"{where} is empty", Exit.PROTOCOL, "fetch it again, or restore it from a copy")
    if (one := decode_any(data) or recognize_other(where, data)) is not None:
        return [Recognized(where, one, data)]
    if journal_segment.is_segment(where, data):
        return _bounded(where, journal_segment.split(where, data))
    if (why := policy_error(data)) is not None:
        raise CommandFailed(
            f"{where} is not a VEEN file; read as a witness policy: {why}", Exit.PROTOCOL, POLICY_ACTION
        )
    if (foreign := describe_foreign(data)) is not None:
        raise CommandFailed(
            f"{where} is not a VEEN file, but {foreign}",
            Exit.PROTOCOL,
            "name a file that VEEN wrote, such as a receipt, a proof or an export",
        )
    named = chunk.parse_chunk_name(Path(where).name)
    if data[0] in _ARRAYS_AND_MAPS:
        is_pruned = (named is not None and named.kind == "pruned") or _begins_pruned(data)
        return _bounded(where, _pruned_chunk(where, data) if is_pruned else _sequence(where, data))
    return _bounded(where, _chunk(where, data, is_chunk=named is not None))


def _bounded(where: str, found: Iterator[Recognized]) -> list[Recognized]:
    kept = list(islice(found, MAX_OBJECTS + 1))
    if len(kept) > MAX_OBJECTS:
        raise CommandFailed(
            f"{where} holds more than {MAX_OBJECTS} objects",
            Exit.PROTOCOL,
            "verify an export as a folder (`veen verify FOLDER`), and a data directory with `veen hub fsck`",
        )
    return kept


def _chunk(where: str, data: bytes, *, is_chunk: bool) -> Iterator[Recognized]:
    """Yield the entries of a chunk (core §4.8.1)."""
    entries = split_frames(data)
    while True:
        try:
            entry = next(entries, None)
        except DecodeError as exc:
            if is_chunk:
                raise DamageError(where, None, f"is a damaged chunk: {exc}") from None
            raise CommandFailed(
                f"{where} is not a VEEN file: neither an object nor a chunk ({exc})", Exit.PROTOCOL
            ) from None
        if entry is None:
            return
        is_chunk = True
        yield Recognized(f"{where} entry {entry.stream_seq}", entry, entry.encode())


def _begins_pruned(data: bytes) -> bool:
    try:
        return isinstance(decode_any(next(cbor.split_sequence(data))), chunk.PrunedHead)
    except DecodeError:
        return False


def _pruned_chunk(where: str, data: bytes) -> Iterator[Recognized]:
    """Yield what retention has left of a chunk (spec-2 COMP0.1)."""
    head, kept = formats.decode_pruned_chunk(where, data)
    yield Recognized(where, head, head.encode())
    for _position, entry in kept:
        yield Recognized(f"{where} entry {entry.receipt.stream_seq}", entry, entry.encode())


def _sequence(where: str, data: bytes) -> Iterator[Recognized]:
    """Yield the items of a CBOR sequence (RFC 8742), which may be one item of an unknown kind."""
    at, left = 0, MAX_UNKNOWN_BYTES
    for n in count(1):
        try:
            end = cbor.item_end(data, at)
            item = data[at:end]
            thing: Thing | None = decode_any(item)
            if thing is None:
                left -= len(item)
                thing = _record_or_unknown(item, left)
        except DecodeError as exc:
            place = f"from byte {at} on " if at else ""
            raise CommandFailed(
                f"{where} is damaged, or not a VEEN file: {place}it holds no object ({exc})",
                Exit.PROTOCOL,
                "fetch it again, or restore it from a copy",
            ) from None
        yield Recognized(where if item == data else f"{where} item {n}", thing, item)
        if (at := end) == len(data):
            return


def _record_or_unknown(item: bytes, left: int) -> Bare | Unknown:
    """Return an overlay record, or CBOR of an unknown kind.

    Text and zeros are CBOR sequences too, of bare values; VEEN's objects are arrays and maps.
    """
    if left < 0:
        raise DecodeError(f"more than {MAX_UNKNOWN_BYTES} bytes of CBOR of an unknown kind")
    if item[0] not in _ARRAYS_AND_MAPS:
        raise DecodeError("want an array or a map")
    # Imported here: it loads all overlays, which few files need.
    from veen_cli.evidence.recognition.overlay_records import recognize_record  # noqa: PLC0415

    decoded = cbor.decode(item)
    return recognize_record(item, decoded) or Unknown(decoded)


def recognize_all(paths: Iterable[str]) -> list[Recognized]:
    return [found for path in paths for found in recognize(path, read(path))]
