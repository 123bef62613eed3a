"""Iteration over any segment, independent of the form of its log."""

from __future__ import annotations

import dataclasses
from hashlib import file_digest

from veen_core.export import MANIFEST
from veen_spark.read.chunk_walk import ChunkWalk
from veen_spark.read.pruned_walk import walk_pruned
from veen_spark.read.segment import Damage, Items, Span, SparkSegment
from veen_spark.read.set_walk import walk_set


def walk(segment: SparkSegment) -> Items:
    """Yield the segment's entries in order; yield ``Damage`` for bytes that are not an entry."""
    if segment.form == "set":
        return walk_set(segment)
    if segment.form == "pruned":
        return walk_pruned(segment)
    return ChunkWalk(segment).items()


def walk_to_end(segment: SparkSegment) -> Items:
    """Yield what ``walk`` yields, and ``Damage`` for missing entries and changed files.

    The last ``Damage`` names the entries that the file name or manifest states and the file lacks. It
    is also yielded if the file ends cleanly between two entries, or is empty. A set-form export has no
    entry hashes, so its files are compared with the digests in the manifest.
    """
    seq, offset = segment.start_seq - 1, segment.begin
    pending: Damage | None = None
    for item in _walk_readable(segment):
        if pending is not None:
            yield pending
            pending = None
        if isinstance(item, Damage):
            pending = item
            continue
        at = (item.seq[-1], item.offset[-1]) if isinstance(item, Span) else (item.seq, item.offset)
        seq, offset = int(at[0]), int(at[1])
        yield item
    if segment.end_seq is not None and seq < segment.end_seq:
        missing = f"entries {seq + 1} to {segment.end_seq} are missing"
        pending = pending or Damage(offset, 0, "core §4.8.3: the log ends too early", b"")
        pending = dataclasses.replace(pending, reason=f"{pending.reason}; {missing}")
    if pending is not None:
        yield pending
    yield from _changed_files(segment)


def _walk_readable(segment: SparkSegment) -> Items:
    """Yield what ``walk`` yields, and ``Damage`` where the operating system refuses to read on."""
    try:
        yield from walk(segment)
    except OSError as exc:
        yield Damage(segment.begin, 0, f"the file cannot be read: {exc.strerror or exc}", b"")


def _changed_files(segment: SparkSegment) -> Items:
    """Yield ``Damage`` for each file of a set-form export whose SHA-256 is not the manifest's."""
    if segment.file_digests is None or segment.receipts is None:
        return
    for path, expected in zip((segment.path, segment.receipts), segment.file_digests, strict=True):
        try:
            with open(path, "rb") as file:
                if file_digest(file, "sha256").digest() == expected:
                    continue
                size = file.seek(0, 2)
        except OSError:
            continue  # ``_walk_readable`` has reported it
        yield Damage(0, size, f"{path}: the SHA-256 of the file differs from the one in {MANIFEST}", b"")
