"""Verify exported chunk files, each with its summary and the peaks before it (core §4.8.3)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from veen_core.chunk import (
    SEQ_WIDTH,
    ChunkName,
    ChunkSummary,
    PrunedEntry,
    PrunedHead,
    checkpoint_name,
    chunk_name,
    decode_peaks,
    parse_chunk_name,
    peaks_name,
    pruned_name,
    summary_name,
)
from veen_core.entry import unframe
from veen_core.errors import DecodeError, VeenError
from veen_core.export import IDENTITY
from veen_core.hub_export import HUB_HEAD
from veen_core.ids import EntryHash, StreamSeq
from veen_core.mmr import Mmr
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.chunks.pruned_chunk import encode_offsets
from veen_storage.copies.export.range_verifier import CheckpointQueue, IndexedItem, RangeVerifier
from veen_storage.copies.export.sequence import MAX_SMALL_ITEM, damaged, read_sequence, read_small

_BYTE_STRING: Final = 2
"""CBOR major type of the last item of a pruned chunk."""


def check_chunks(path: Path, verifier: RangeVerifier) -> None:
    """Verify every chunk of an export; raise if a file is left that belongs to none."""
    manifest = verifier.manifest
    names = {file.name for file in manifest.files} - {*IDENTITY, HUB_HEAD}
    chunks = [
        parsed for name in names if (parsed := parse_chunk_name(name)) and parsed.kind in ("log", "pruned")
    ]
    made = _checkpoint_files(path, verifier, names)
    checkpoints = CheckpointQueue(made, verifier, partial(checkpoint_name, manifest.label))
    checkpoints.verify_due()
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        if chunk.label != manifest.label or chunk.start != verifier.tree.size + 1:
            raise damaged(_name_of(chunk), f"does not follow entry {verifier.tree.size} of the label")
        names -= {_name_of(chunk), summary_name(chunk.label, chunk.start, _end_of(chunk))}
        _check_peaks(path, verifier, names)
        _check_chunk(path, verifier, chunk, checkpoints)
    _check_peaks(path, verifier, names)
    checkpoints.check_empty()
    for name in sorted(names):
        raise damaged(name, "does not belong to the exported chunks")


def _name_of(chunk: ChunkName) -> str:
    name = pruned_name if chunk.kind == "pruned" else chunk_name
    return name(chunk.label, chunk.start, _end_of(chunk))


def _end_of(chunk: ChunkName) -> StreamSeq:
    assert chunk.end is not None  # by its kind
    return chunk.end


def _checkpoint_files(path: Path, verifier: RangeVerifier, names: set[str]) -> Iterator[IndexedItem]:
    """Yield the checkpoints in order; remove their names from ``names``."""
    stem = checkpoint_name(verifier.manifest.label, StreamSeq(0))[: -len(".cbor") - SEQ_WIDTH]
    found = sorted(name for name in names if name.startswith(stem))
    names -= set(found)
    for name in found:
        digits = name.removeprefix(stem).removesuffix(".cbor")
        if len(digits) != SEQ_WIDTH or not (digits.isascii() and digits.isdecimal()):
            raise damaged(name, "is not the name of a checkpoint")
    return ((0, read_small(path / name), StreamSeq(int(name[len(stem) : -len(".cbor")]))) for name in found)


def _check_peaks(path: Path, verifier: RangeVerifier, names: set[str]) -> None:
    """Check the peaks before a chunk, which make it verifiable alone, or those after the last chunk."""
    if not verifier.tree.size:
        return
    name = peaks_name(verifier.manifest.label, verifier.tree.stream_seq)
    try:
        peaks = decode_peaks(read_small(path / name))
    except FileNotFoundError:
        raise damaged(name, "is missing") from None
    except VeenError as exc:
        raise damaged(name, str(exc)) from exc
    if peaks != verifier.tree.peaks:
        raise damaged(name, f"does not contain the peaks after entry {verifier.tree.size}")
    names.discard(name)


def _check_chunk(path: Path, verifier: RangeVerifier, chunk: ChunkName, checkpoints: CheckpointQueue) -> None:
    name, hashes = _name_of(chunk), Mmr()
    size = (path / name).stat().st_size
    if size > verifier.registry.limits.max_chunk_bytes:
        raise damaged(name, f"has {size} bytes, more than max_chunk_bytes (core §4.8.2)")
    for digest in _chunk_entries(path / name, verifier, chunk):
        hashes.append(digest)
        checkpoints.verify_due()
    expected = ChunkSummary(
        label=chunk.label,
        start_seq=chunk.start,
        end_seq=_end_of(chunk),
        mmr_root_end=verifier.tree.root,
        entry_count=hashes.size,
        total_bytes=size,
        entry_hashes_root=hashes.root,
    )
    if verifier.tree.size != chunk.end:
        raise damaged(name, f"ends at entry {verifier.tree.size}, but its name says {chunk.end}", size)
    summary = summary_name(chunk.label, chunk.start, _end_of(chunk))
    try:
        if read_small(path / summary) != expected.encode():
            raise damaged(summary, "does not match its chunk (core §4.8.3)")
    except FileNotFoundError:
        raise damaged(summary, "is missing") from None


def _chunk_entries(path: Path, verifier: RangeVerifier, name: ChunkName) -> Iterator[EntryHash]:
    """Verify every entry of a chunk; yield their entry hashes."""
    if name.kind == "pruned":
        yield from _pruned_entries(path, verifier, _end_of(name))
        return
    with ChunkFile(path, compressed=False) as chunk:
        for offset, frame in chunk.walk():
            try:
                entry = unframe(frame)
            except VeenError as exc:
                raise damaged(path.name, str(exc), offset) from exc
            verifier.accept(entry, path.name, offset)
            yield entry.entry_hash


def _pruned_entries(path: Path, verifier: RangeVerifier, end: StreamSeq) -> Iterator[EntryHash]:
    items = read_sequence(path, MAX_SMALL_ITEM + 5 * verifier.registry.limits.max_checkpoint_interval)
    first, places, ended = verifier.tree.size + 1, list[int](), False
    for offset, item in items:
        if ended:
            raise damaged(path.name, "continues after the table of its entries' offsets", offset)
        try:
            if offset == 0:
                _check_head(PrunedHead.decode(item), verifier, end)
                continue
            places.append(offset)
            if ended := item[0] >> 5 == _BYTE_STRING:
                if item != encode_offsets(places):
                    raise DecodeError("the table does not contain the offsets of the entries")
                continue
            kept = PrunedEntry.decode(item)
        except VeenError as exc:
            raise damaged(path.name, str(exc), offset) from exc
        verifier.accept(kept, path.name, offset)
        yield kept.entry_hash
    if not ended or verifier.tree.size != end:
        raise damaged(
            path.name,
            f"ends after {verifier.tree.size + 1 - first} entries, before the table of their offsets",
        )


def _check_head(head: PrunedHead, verifier: RangeVerifier, end: StreamSeq) -> None:
    first = verifier.tree.size + 1
    if (head.label, head.start_seq, head.end_seq) != (verifier.manifest.label, first, end):
        raise DecodeError("the head has another label or range than the file name")
    if len(head.sizes) != end + 1 - first:
        raise DecodeError(f"the head lists {len(head.sizes)} sizes for {end + 1 - first} entries")
