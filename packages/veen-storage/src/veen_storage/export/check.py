"""Judges an export from its files alone: no store, no hub, memory that does not grow with it.

In order: the manifest; every file's size and hash, none missing and none too many; the identity, up to
what the verifier pinned, with its key map; the hub's signature of the manifest, if there is one; then the
entries and checkpoints (``judge``), the tree after the last one, and the later checkpoint. Whatever does not
hold raises ``DamageError`` with file, offset and clause; another hub's export raises ``MismatchError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Final

from veen_core import hub_identity
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import (
    SEQ_WIDTH,
    ChunkName,
    ChunkSummary,
    PrunedEntry,
    checkpoint_name,
    chunk_name,
    decode_peaks,
    parse_chunk_name,
    peaks_name,
    pruned_name,
    summary_name,
)
from veen_core.entry import FLAG_AUTHORIZE, Entry, decode_entry
from veen_core.errors import InvariantError, VeenError, VerificationError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import EntryHash, HubId, Signature, StreamSeq
from veen_core.keys import verify
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_storage.chunk_files import ChunkFile
from veen_storage.errors import MismatchError, StorageError
from veen_storage.export.format import (
    CHECKPOINTS,
    IDENTITY,
    MANIFEST,
    PAYLOADS,
    RECEIPTS,
    SIGNATURE,
    AuthorizePayload,
    ExportedFile,
    IndexRow,
    Manifest,
    PrunedPayload,
    manifest_digest,
    read_sequence,
    sequence_name,
    sidecar_name,
)
from veen_storage.export.judge import Judge, Verified, damage
from veen_storage.hub_keys import encode_key_map
from veen_storage.pruned_chunk import PrunedHead, encode_places
from veen_storage.registry import Registry

MAX_MANIFEST: Final = 64 * 1_048_576
SMALL_ITEM: Final = 65_536
"""Bounds a receipt, a pruned payload's marker or a checkpoint with its witnesses."""
_ARRAY: Final = 4
"""CBOR's major type of a MSG (§4.1)."""
_BYTES: Final = 2
"""CBOR's major type of the last item of a pruned chunk."""


def verify_export(path: Path, pinned: HubId) -> Verified:
    """Raise unless the folder is a complete, verifiable export of the pinned hub."""
    manifest = _read_manifest(path)
    if manifest.hub_id != pinned:
        raise MismatchError(f"the export is of hub {manifest.hub_id.hex()}, pinned is {pinned.hex()}")
    _check_files(path, manifest)
    identity, registry = _read_identity(path, pinned)
    signed = _check_signature(path, identity)
    judge = Judge(manifest, identity, registry)
    if manifest.form == "set":
        _judge_set(path, judge)
    else:
        _judge_chunks(path, judge)
    return replace(judge.conclude(), signed=signed)


# --- manifest, files, identity


def _read_manifest(path: Path) -> Manifest:
    try:
        if (size := (path / MANIFEST).stat().st_size) > MAX_MANIFEST:
            raise damage(MANIFEST, f"{size} bytes are no manifest: at most {MAX_MANIFEST}")
        content = (path / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError(f"{path} is not an export: it has no {MANIFEST}") from None
    try:
        manifest = Manifest.decode(content)
        Mmr(manifest.from_seq - 1, manifest.peaks_before)
    except VeenError as exc:
        raise damage(MANIFEST, str(exc)) from exc
    if not 1 <= manifest.from_seq <= manifest.to_seq:
        raise damage(MANIFEST, f"a range of {manifest.from_seq} to {manifest.to_seq}")
    if any(a.name >= b.name for a, b in pairwise(manifest.files)):
        raise damage(MANIFEST, "files are not in ascending order of names")
    return manifest


def _check_files(path: Path, manifest: Manifest) -> None:
    there = {entry.name for entry in path.iterdir()} - {SIGNATURE}
    listed = {file.name for file in manifest.files} | {MANIFEST}
    for name in sorted(listed - there) + [name for name in IDENTITY if name not in listed]:
        raise damage(name, "is missing")
    for name in sorted(there - listed):
        raise damage(name, "is not in the manifest")
    for file in manifest.files:
        _check_file(path / file.name, file)


def _check_file(path: Path, file: ExportedFile) -> None:
    size, digest = 0, sha256()
    with path.open("rb") as content:
        while part := content.read(1_048_576):
            size += len(part)
            digest.update(part)
    if size != file.size:
        raise damage(file.name, f"has {size} bytes, the manifest says {file.size}", min(size, file.size))
    if digest.digest() != file.digest:
        raise damage(file.name, "does not match its hash in the manifest")


def _read_identity(path: Path, pinned: HubId) -> tuple[HubIdentity, Registry]:
    record, signature, key_map, registry_name = IDENTITY
    try:
        identity = HubIdentity.decode((path / record).read_bytes())
        hub_identity.verify_identity(identity, pinned=pinned)
    except VeenError as exc:
        raise damage(record, str(exc)) from exc
    try:
        signed = Signature((path / signature).read_bytes())
        hub_identity.verify_identity_signature(identity, signed)
    except VeenError as exc:
        raise damage(signature, str(exc)) from exc
    if (path / key_map).read_bytes() != encode_key_map(identity):
        raise damage(key_map, f"does not match {record}")
    try:
        registry = Registry.decode((path / registry_name).read_bytes())
    except VeenError as exc:
        raise damage(registry_name, str(exc)) from exc
    if registry.hub_id != pinned:
        raise damage(registry_name, f"is of hub {registry.hub_id.hex()}")
    return identity, registry


def _check_signature(path: Path, identity: HubIdentity) -> bool:
    """Whether the hub signed the manifest: by any of its keys, each of which the identity endorses (§8.4)."""
    try:
        signature = Signature(_small(path / SIGNATURE))
    except FileNotFoundError:
        return False
    except VeenError as exc:
        raise damage(SIGNATURE, str(exc)) from exc
    digest = manifest_digest((path / MANIFEST).read_bytes())
    for key in identity.hub_keys:
        try:
            verify(key.hub_pk, digest, signature, "manifest.sig ADR 0008")
        except VerificationError:
            continue
        return True
    raise damage(SIGNATURE, f"no key of the hub made it for this {MANIFEST}")


# --- the portable set


def _judge_set(path: Path, judge: Judge) -> None:
    expected = {
        name(stem) for stem in (RECEIPTS, PAYLOADS, CHECKPOINTS) for name in (sequence_name, sidecar_name)
    }
    for name in sorted({file.name for file in judge.manifest.files} ^ {*expected, *IDENTITY}):
        raise damage(name, "has no place in a portable set, or is missing from it")
    receipts, payloads = (_indexed(path, stem, _most(stem, judge)) for stem in (RECEIPTS, PAYLOADS))
    waiting = _Waiting(_indexed(path, CHECKPOINTS, SMALL_ITEM), judge)
    waiting.judge_due()
    for (_at, receipt_bytes, seq), (offset, payload, payload_seq) in _together(receipts, payloads):
        where = sequence_name(PAYLOADS)
        if seq != payload_seq:
            raise damage(where, f"payload {payload_seq} stands beside receipt {seq}", offset)
        _judge_payload(judge, payload, receipt_bytes, seq, offset)
        waiting.judge_due()
    waiting.must_be_empty()


def _most(stem: str, judge: Judge) -> int:
    return SMALL_ITEM if stem == RECEIPTS else judge.registry.limits.max_msg_bytes + SMALL_ITEM


def _judge_payload(judge: Judge, payload: bytes, receipt_bytes: bytes, seq: StreamSeq, offset: int) -> None:
    where = sequence_name(PAYLOADS)
    label = judge.manifest.label
    try:
        receipt = Receipt.decode(receipt_bytes)
        if receipt.stream_seq != seq:
            raise InvariantError("I3", f"the index says {seq}, the RECEIPT {receipt.stream_seq}")
        if payload[0] >> 5 == _ARRAY:
            found: Entry | PrunedEntry = Entry(label, seq, payload, receipt_bytes)
        elif (token := _authorized(payload)) is not None:
            found = Entry(label, seq, token, receipt_bytes, FLAG_AUTHORIZE)
        else:
            found = PrunedPayload.decode(payload).pruned
            if found.receipt != receipt:
                raise InvariantError("I2", "the pruned payload is of another RECEIPT")
    except VeenError as exc:
        raise damage(where, f"entry {seq}: {exc}", offset) from exc
    if isinstance(found, PrunedEntry):
        judge.pruned(found, where, offset)
    else:
        judge.entry(found, where, offset)


def _authorized(payload: bytes) -> bytes | None:
    try:
        return AuthorizePayload.decode(payload).authorize
    except VeenError:
        return None


Indexed = tuple[int, bytes, StreamSeq]


def _indexed(path: Path, stem: str, most: int) -> Iterator[Indexed]:
    """Items of a sequence with what the sidecar says of each: offsets must be the true ones."""
    items = read_sequence(path / sequence_name(stem), most)
    sidecar = sidecar_name(stem)
    for row_at, row in read_sequence(path / sidecar, SMALL_ITEM):
        try:
            claimed = IndexRow.decode(row)
        except VeenError as exc:
            raise damage(sidecar, str(exc), row_at) from exc
        offset, item = next(items, (-1, b""))
        if offset != claimed.offset:
            raise damage(sidecar, f"names an item at byte {claimed.offset} where none begins", row_at)
        yield offset, item, claimed.stream_seq
    if (beyond := next(items, None)) is not None:
        raise damage(sequence_name(stem), "an item that the index does not name", beyond[0])


def _together(receipts: Iterator[Indexed], payloads: Iterator[Indexed]) -> Iterator[tuple[Indexed, Indexed]]:
    for receipt in receipts:
        if (payload := next(payloads, None)) is None:
            raise damage(sequence_name(PAYLOADS), f"has nothing for receipt {receipt[2]}")
        yield receipt, payload
    if (payload := next(payloads, None)) is not None:
        raise damage(sequence_name(PAYLOADS), "has more items than there are receipts", payload[0])


class _Waiting:
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


# --- chunk files


def _judge_chunks(path: Path, judge: Judge) -> None:
    manifest = judge.manifest
    names = {file.name for file in manifest.files} - set(IDENTITY)
    chunks = [
        parsed for name in names if (parsed := parse_chunk_name(name)) and parsed.kind in ("log", "pruned")
    ]
    made = _checkpoint_files(path, judge, names)
    waiting = _Waiting(made, judge)
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
        if len(digits) != SEQ_WIDTH or not digits.isdecimal():
            raise damage(name, "is not named as a checkpoint is")
    return ((0, _small(path / name), StreamSeq(int(name[len(stem) : -len(".cbor")]))) for name in found)


def _judge_peaks(path: Path, judge: Judge, names: set[str]) -> None:
    """The peaks where a chunk begins, so that each can be judged apart, and where the last one ends."""
    if not judge.tree.size:
        return
    name = peaks_name(judge.manifest.label, judge.tree.stream_seq)
    try:
        peaks = decode_peaks(_small(path / name))
    except FileNotFoundError:
        raise damage(name, "is missing") from None
    except VeenError as exc:
        raise damage(name, str(exc)) from exc
    if peaks != judge.tree.peaks:
        raise damage(name, f"are not the peaks after entry {judge.tree.size}")
    names.discard(name)


def _judge_chunk(path: Path, judge: Judge, chunk: ChunkName, waiting: _Waiting) -> None:
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
        if _small(path / summary) != expected.encode():
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
                entry = decode_entry(frame)
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


def _small(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SMALL_ITEM)
