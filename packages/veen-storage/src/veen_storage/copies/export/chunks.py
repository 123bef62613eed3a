"""Exported chunk files, each with its summary and the peaks before it, before the judge (§4.8.3)."""

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
from veen_core.errors import InvariantError, VeenError
from veen_core.ids import EntryHash, StreamSeq
from veen_core.mmr import Mmr
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.chunks.pruned_chunk import encode_places
from veen_storage.copies.export.checkpoints import Indexed, Waiting
from veen_storage.copies.export.format import IDENTITY, SMALL_ITEM, read_sequence, read_small
from veen_storage.copies.export.judge import Judge, damage

_BYTES: Final = 2
"""CBOR's major type of the last item of a pruned chunk."""


def judge_chunks(path: Path, judge: Judge) -> None:
    manifest = judge.manifest
    names = {file.name for file in manifest.files} - set(IDENTITY)
    chunks = [
        parsed for name in names if (parsed := parse_chunk_name(name)) and parsed.kind in ("log", "pruned")
    ]
    made = _checkpoint_files(path, judge, names)
    waiting = Waiting(made, judge, partial(checkpoint_name, manifest.label))
    waiting.judge_due()
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        if chunk.label != manifest.label or chunk.start != judge.tree.size + 1:
            raise damage(_name_of(chunk), f"does not follow entry {judge.tree.size} of the label")
        names -= {_name_of(chunk), summary_name(chunk.label, chunk.start, _end_of(chunk))}
        _judge_peaks(path, judge, names)
        _judge_chunk(path, judge, chunk, waiting)
    _judge_peaks(path, judge, names)
    waiting.must_be_empty()
    for name in sorted(names):
        raise damage(name, "has no place among exported chunks")


def _name_of(chunk: ChunkName) -> str:
    name = pruned_name if chunk.kind == "pruned" else chunk_name
    return name(chunk.label, chunk.start, _end_of(chunk))


def _end_of(chunk: ChunkName) -> StreamSeq:
    assert chunk.end is not None  # by its kind
    return chunk.end


def _checkpoint_files(path: Path, judge: Judge, names: set[str]) -> Iterator[Indexed]:
    """Each checkpoint's bytes and place, in order; takes their names out of ``names``."""
    stem = checkpoint_name(judge.manifest.label, StreamSeq(0))[: -len(".cbor") - SEQ_WIDTH]
    found = sorted(name for name in names if name.startswith(stem))
    names -= set(found)
    for name in found:
        digits = name.removeprefix(stem).removesuffix(".cbor")
        if len(digits) != SEQ_WIDTH or not (digits.isascii() and digits.isdecimal()):
            raise damage(name, "is not named as a checkpoint is")
    return ((0, read_small(path / name), StreamSeq(int(name[len(stem) : -len(".cbor")]))) for name in found)


def _judge_peaks(path: Path, judge: Judge, names: set[str]) -> None:
    """The peaks where a chunk begins, so that each can be judged apart, and where the last one ends."""
    if not judge.tree.size:
        return
    name = peaks_name(judge.manifest.label, judge.tree.stream_seq)
    try:
        peaks = decode_peaks(read_small(path / name))
    except FileNotFoundError:
        raise damage(name, "is missing") from None
    except VeenError as exc:
        raise damage(name, str(exc)) from exc
    if peaks != judge.tree.peaks:
        raise damage(name, f"are not the peaks after entry {judge.tree.size}")
    names.discard(name)


def _judge_chunk(path: Path, judge: Judge, chunk: ChunkName, waiting: Waiting) -> None:
    name, hashes = _name_of(chunk), Mmr()
    size = (path / name).stat().st_size
    if size > judge.registry.limits.max_chunk_bytes:
        raise damage(name, f"{size} bytes exceed max_chunk_bytes (§4.8.2)")
    for digest in _chunk_entries(path / name, judge, chunk):
        hashes.append(digest)
        waiting.judge_due()
    expected = ChunkSummary(
        label=chunk.label,
        start_seq=chunk.start,
        end_seq=_end_of(chunk),
        mmr_root_end=judge.tree.root,
        entry_count=hashes.size,
        total_bytes=size,
        entry_hashes_root=hashes.root,
    )
    if judge.tree.size != chunk.end:
        raise damage(name, f"ends at entry {judge.tree.size}, its name says {chunk.end}", size)
    summary = summary_name(chunk.label, chunk.start, _end_of(chunk))
    try:
        if read_small(path / summary) != expected.encode():
            raise damage(summary, "does not sum up its chunk (§4.8.3)")
    except FileNotFoundError:
        raise damage(summary, "is missing") from None


def _chunk_entries(path: Path, judge: Judge, name: ChunkName) -> Iterator[EntryHash]:
    """Judge every entry of a chunk; yields their entry hashes."""
    if name.kind == "pruned":
        yield from _pruned_entries(path, judge, _end_of(name))
        return
    with ChunkFile(path, compressed=False) as chunk:
        for offset, frame in chunk.walk():
            try:
                entry = unframe(frame)
            except VeenError as exc:
                raise damage(path.name, str(exc), offset) from exc
            judge.entry(entry, path.name, offset)
            yield entry.entry_hash


def _pruned_entries(path: Path, judge: Judge, end: StreamSeq) -> Iterator[EntryHash]:
    items = read_sequence(path, SMALL_ITEM + 5 * judge.registry.limits.max_checkpoint_interval)
    first, places, ended = judge.tree.size + 1, list[int](), False
    for offset, item in items:
        if ended:
            raise damage(path.name, "goes on after the places of its entries", offset)
        try:
            if offset == 0:
                _check_head(PrunedHead.decode(item), judge, end)
                continue
            places.append(offset)
            if ended := item[0] >> 5 == _BYTES:
                if item != encode_places(places):
                    raise InvariantError("I3", "are not the places of its entries")
                continue
            kept = PrunedEntry.decode(item)
        except VeenError as exc:
            raise damage(path.name, str(exc), offset) from exc
        judge.pruned(kept, path.name, offset)
        yield kept.entry_hash
    if not ended or judge.tree.size != end:
        raise damage(path.name, f"ends after {judge.tree.size + 1 - first} entries, without their places")


def _check_head(head: PrunedHead, judge: Judge, end: StreamSeq) -> None:
    first = judge.tree.size + 1
    if (head.label, head.start_seq, head.end_seq) != (judge.manifest.label, first, end):
        raise InvariantError("I3", "the head is of another chunk")
    if len(head.sizes) != end + 1 - first:
        raise InvariantError("I3", f"the head counts {len(head.sizes)} entries")
