"""The independent oracle: every promise was kept, and all answers of a store agree with each other.

The oracle reads a ``Store`` as a hub does (labels, entries, proofs, checkpoints, cursors) and recomputes
leaves, roots, client cursors, token records and buckets from the entries, with a Merkle tree of its own. It
shares no fold with the writer, with core's ``LogVerifier`` or with fsck: it is the second opinion on all
three (ADR 0008). fsck checks files; the oracle checks answers.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import lmdb

from veen_core import cbor, hub_identity
from veen_core.cap import CapToken
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import PrunedEntry
from veen_core.consistency import verify_consistency
from veen_core.entry import Entry, authorize_leaf
from veen_core.errors import VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import verify_hub_checkpoint
from veen_core.ids import AuthRef, ClientId, Coid, Label, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.msg import verify_msg
from veen_core.proof import verify_inclusion
from veen_core.receipt import Receipt
from veen_core.tlog.tiles import ENTRIES, Tile, decode_bundle
from veen_core.tlog.tree_head import parse_signed_head
from veen_storage.commit.writer import Batch
from veen_storage.errors import REPAIR, DamageError
from veen_storage.fsck import fsck, index_check
from veen_storage.store import Store

from .sample import BORN, ORIGIN, add

T = TypeVar("T")
FOREVER = UnixTime(2**64 - 1)
NOW = UnixTime(BORN + 100_000)
"""Later than anything a run writes."""
Place = tuple[Label, int]


# --- what was promised


@dataclass
class Promises:
    """What was acknowledged to clients, in order."""

    receipts: dict[Place, bytes] = field(default_factory=dict)
    checkpoints: dict[Place, bytes] = field(default_factory=dict)
    anchors: dict[Place, bytes] = field(default_factory=dict)
    pruned: dict[Place, int] = field(default_factory=dict)
    attachments: dict[Coid, bytes] = field(default_factory=dict)
    hub_checkpoints: dict[int, bytes] = field(default_factory=dict)
    """Hub checkpoints that were handed out, by size."""
    published: dict[int, bytes] = field(default_factory=dict)
    attempted: list[list[Receipt]] = field(default_factory=list)
    """The receipts of every batch passed to ``commit``, whether or not it returned."""
    created: bool = False
    told: list[tuple[str, object, object]] = field(default_factory=list)

    def commit(self, store: Store, batch: Batch) -> None:
        """Commit a batch and note its receipts as promised, as a hub does after ``commit`` has returned."""
        self.attempted.append(list(batch.receipts))
        store.commit(batch)
        for receipt in batch.receipts:
            self.tell("receipts", (receipt.label, receipt.stream_seq), receipt.encode())

    def tell(self, kind: str, key: object, value: object) -> None:
        getattr(self, kind)[key] = value
        self.told.append((kind, key, value))

    def first(self, count: int) -> Promises:
        """Return the promises as of the moment when ``count`` of them had been made."""
        earlier = Promises(attempted=self.attempted)
        for kind, key, value in self.told[:count]:
            if kind == "created":
                earlier.created = True
            else:
                getattr(earlier, kind)[key] = value
        earlier.told = self.told[:count]
        return earlier

    def tell_created(self) -> None:
        self.created = True
        self.told.append(("created", None, None))


# --- an MMR of its own (§5.1)


@dataclass
class Tree:
    """A Merkle Mountain Range written as plainly as possible (core §5.1)."""

    leaves: list[bytes] = field(default_factory=list)
    peaks: list[tuple[int, bytes]] = field(default_factory=list)
    """(number of leaves, hash), left to right."""

    def grow(self, leaf: bytes) -> bytes:
        self.leaves.append(leaf)
        self.peaks.append((1, leaf))
        while len(self.peaks) > 1 and self.peaks[-1][0] == self.peaks[-2][0]:
            (size, right), (_size, left) = self.peaks.pop(), self.peaks.pop()
            self.peaks.append((2 * size, sha256(b"veen/mmr-node\x00" + left + right).digest()))
        return self.root

    @property
    def root(self) -> bytes:
        if len(self.peaks) == 1:
            return self.peaks[0][1]
        return sha256(b"veen/mmr-root\x00" + b"".join(peak for _size, peak in reversed(self.peaks))).digest()


# --- what is there


@lru_cache(maxsize=100_000)
def receipt_verifies(identity: HubIdentity, receipt: Receipt) -> bool:
    hub_identity.verify_receipt(identity, receipt)
    return True


@lru_cache(maxsize=100_000)
def leaf_of(entry: Entry) -> LeafHash:
    """Recompute the leaf of an entry; a MSG is verified too."""
    if entry.is_authorize:
        return authorize_leaf(CapToken.decode(entry.msg_bytes).auth_ref, entry.msg_bytes)
    return verify_msg(entry.msg_bytes)[1]


@lru_cache(maxsize=100_000)
def checkpoint_verifies(identity: HubIdentity, checkpoint: Checkpoint, epoch_sec: int) -> bool:
    hub_identity.verify_checkpoint(identity, checkpoint, epoch_sec)
    return True


@dataclass
class Seen:
    """One label as a reader finds it, entry by entry."""

    label: Label
    tree: Tree = field(default_factory=Tree)
    roots: list[bytes] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    clients: dict[ClientId, int] = field(default_factory=dict)
    uses: list[tuple[AuthRef, UnixTime]] = field(default_factory=list)
    tokens: dict[AuthRef, tuple[CapToken, Receipt]] = field(default_factory=dict)
    pruned: set[int] = field(default_factory=set)
    checkpointed: int = 0
    """The last checkpoint that was examined."""

    def take(self, found: Entry | PrunedEntry, identity: HubIdentity) -> None:
        receipt, at = found.receipt, f"entry {len(self.receipts) + 1} of {self.label.hex()[:8]}"
        assert receipt.label == self.label, at
        assert receipt.stream_seq == len(self.receipts) + 1, at
        assert receipt_verifies(identity, receipt), at
        leaf = found.leaf_hash if isinstance(found, PrunedEntry) else leaf_of(found)
        assert receipt.leaf_hash == leaf, f"{at}: leaf hash"
        assert receipt.mmr_root == self.tree.grow(leaf), f"{at}: root"
        assert not self.receipts or receipt.hub_ts >= self.receipts[-1].hub_ts, f"{at}: hub_ts (H3)"
        self.roots.append(receipt.mmr_root)
        self.receipts.append(receipt)
        if isinstance(found, PrunedEntry):
            self.pruned.add(receipt.stream_seq)
        if isinstance(found, Entry) and found.is_authorize:
            token = CapToken.decode(found.msg_bytes)
            self.tokens[token.auth_ref] = (token, receipt)
            return
        msg = found if isinstance(found, PrunedEntry) else found.msg
        assert msg.client_seq == self.clients.get(msg.client_id, 0) + 1, f"{at}: client_seq (I9)"
        self.clients[msg.client_id] = msg.client_seq
        if msg.auth_ref is not None:
            self.uses.append((msg.auth_ref, receipt.hub_ts))


def walk(store: Store, known: dict[Label, Seen] | None = None, page: int = 7) -> dict[Label, Seen]:
    """Read every entry of every label in pages; with ``known``, only the entries after it."""
    seen = known if known is not None else {}
    for label in store.read.labels():
        held = seen.setdefault(label, Seen(label))
        while found := store.read.entries(label, StreamSeq(len(held.receipts) + 1), page):
            for entry in found:
                held.take(entry, store.identity)
    return seen


def examine(store: Store, promises: Promises, seen: dict[Label, Seen] | None = None) -> dict[Label, Seen]:
    """Assert everything that must hold of an open store after any history."""
    seen = walk(store, seen)
    _examine_promises(store, promises, seen)
    for held in seen.values():
        _examine_answers(store, held)
        _examine_checkpoints(store, held)
    _examine_cursors(store, seen)
    _examine_hub_log(store, promises, seen)
    return seen


def present(seen: dict[Label, Seen], receipt: Receipt) -> bool:
    held = seen.get(receipt.label)
    return held is not None and receipt in held.receipts[receipt.stream_seq - 1 : receipt.stream_seq]


def _examine_promises(store: Store, promises: Promises, seen: dict[Label, Seen]) -> None:
    for (label, seq), wire in promises.receipts.items():
        assert label in seen, f"label {label.hex()[:8]} is lost"
        assert len(seen[label].receipts) >= seq, f"entry {seq} of {label.hex()[:8]} is lost"
        assert seen[label].receipts[seq - 1].encode() == wire, f"entry {seq}: another receipt than handed out"
    for (label, seq), wire in list(promises.receipts.items())[:: len(promises.receipts) // 200 + 1]:
        assert store.read.receipt(label, StreamSeq(seq)).encode() == wire, "read alone it is another"
    for (label, upto), wire in promises.checkpoints.items():
        assert store.read.checkpoint(label, StreamSeq(upto)).encode() == wire, f"checkpoint at {upto}"
    for (label, upto), reference in promises.anchors.items():
        assert store.read.anchor(label, StreamSeq(upto)) == reference, f"anchor at {upto}"
    for (label, start), end in promises.pruned.items():
        assert set(range(start, end + 1)) <= seen[label].pruned, f"chunk from {start} is not pruned"
    for coid, content in promises.attachments.items():
        assert b"".join(store.attachments.get(coid)) == content, f"attachment {coid.hex()[:8]}"


def half_visible(seen: dict[Label, Seen], promises: Promises) -> list[Receipt]:
    """Return receipts that are in the log although others of their batch are not."""
    halves: list[Receipt] = []
    for batch in promises.attempted:
        there = [receipt for receipt in batch if present(seen, receipt)]
        if len(there) != len(batch):
            halves.extend(there)
    return halves


def describe_halves(seen: dict[Label, Seen], promises: Promises) -> str:
    """Describe every batch that is in the log only in part."""
    lines = []
    for number, batch in enumerate(promises.attempted):
        there = [present(seen, receipt) for receipt in batch]
        if any(there) and not all(there):
            lines.append(f"batch {number} of {len(promises.attempted)}:")
            lines += [_describe(seen, receipt) for receipt in batch]
    return "\n".join(lines)


def _describe(seen: dict[Label, Seen], receipt: Receipt) -> str:
    held = seen[receipt.label].receipts if receipt.label in seen else []
    found = held[receipt.stream_seq - 1 : receipt.stream_seq]
    there = [(r.hub_ts, r.leaf_hash.hex()[:8], r.mmr_root.hex()[:8]) for r in found]
    tried = (receipt.hub_ts, receipt.leaf_hash.hex()[:8], receipt.mmr_root.hex()[:8])
    return f"  {receipt.label.hex()[:8]} {receipt.stream_seq} of {len(held)}: {tried}, there is {there}"


def _examine_answers(store: Store, held: Seen) -> None:
    label, size = held.label, len(held.receipts)
    head = store.read.head(label)
    assert head is not None
    assert (head.stream_seq, head.mmr_root) == (size, held.roots[-1])
    assert head.hub_ts == held.receipts[-1].hub_ts
    assert store.read.window(label, UnixTime(0), FOREVER) == (1, size)
    root = MmrRoot(held.roots[-1])
    for seq in sorted({1, (size + 1) // 2, size}):
        proof = store.read.proof(label, StreamSeq(seq), StreamSeq(size))
        verify_inclusion(proof, root, StreamSeq(seq), LeafHash(held.tree.leaves[seq - 1]), size)
        if seq < size:
            grown = store.read.consistency(label, StreamSeq(seq), StreamSeq(size))
            verify_consistency(grown, MmrRoot(held.roots[seq - 1]), root)


def checkpoints(store: Store, label: Label) -> Iterator[Checkpoint]:
    """Yield the checkpoints of a label, newest first."""
    found = store.read.latest_checkpoint(label)
    while found is not None:
        yield found
        found = store.read.checkpoint_before(label, StreamSeq(found.upto_seq - 1))


def _examine_checkpoints(store: Store, held: Seen) -> None:
    profile = store.registry.profile
    newest = store.read.latest_checkpoint(held.label)
    for checkpoint in checkpoints(store, held.label):
        if checkpoint.upto_seq <= held.checkpointed:
            break
        assert checkpoint.label_curr == held.label
        assert checkpoint.upto_seq <= len(held.roots), "a checkpoint of what is not there"
        assert checkpoint.mmr_root == held.roots[checkpoint.upto_seq - 1]
        assert checkpoint_verifies(store.identity, checkpoint, profile.epoch_sec)
    held.checkpointed = newest.upto_seq if newest is not None else 0


def _examine_cursors(store: Store, seen: dict[Label, Seen]) -> None:
    """Assert that the cursors that admission reads agree with the log (core §3.4.1, H5, H8)."""
    view = store.batch(NOW).view
    tokens = {ref: found for held in seen.values() for ref, found in held.tokens.items()}
    for auth_ref, (token, receipt) in tokens.items():
        record = view.cap(auth_ref)
        assert record is not None
        assert (record.token, record.issued_at, record.control_seq) == (
            token,
            receipt.hub_ts,
            receipt.stream_seq,
        )
    for held in seen.values():
        cursor = view.label(held.label)
        assert cursor is not None
        assert (cursor.log.size, cursor.log.root) == (len(held.roots), held.roots[-1])
        for client, last in held.clients.items():
            found = view.client(held.label, client)
            assert found is not None
            assert found.last_seq == last
        for auth_ref in {ref for ref, _at in held.uses}:
            tokens_left = bucket_of(held, auth_ref, tokens)
            bucket = view.bucket(auth_ref, held.label)
            assert (bucket.tokens if bucket is not None else None) == tokens_left, "bucket (H8)"


def bucket_of(held: Seen, auth_ref: AuthRef, tokens: dict[AuthRef, tuple[CapToken, Receipt]]) -> int | None:
    """Recompute a bucket from receipts alone (H8)."""
    if auth_ref not in tokens or (rate := tokens[auth_ref][0].allow.rate) is None:
        return None
    left, refilled = rate.burst, None
    for ref, at in held.uses:
        if ref == auth_ref:
            left = min(rate.burst, left + (at - refilled) * rate.per_sec) if refilled is not None else left
            left, refilled = left - 1, at
    return left


# --- the hub log (P1), with a tree of its own (RFC 6962 §2.1)


@dataclass
class PlainTree:
    """The tree of RFC 6962 as a stack of complete subtrees."""

    stack: list[tuple[int, bytes]] = field(default_factory=list)

    def grow(self, entry: bytes) -> bytes:
        self.stack.append((1, sha256(b"\x00" + entry).digest()))
        while len(self.stack) > 1 and self.stack[-1][0] == self.stack[-2][0]:
            (size, right), (_size, left) = self.stack.pop(), self.stack.pop()
            self.stack.append((2 * size, sha256(b"\x01" + left + right).digest()))
        root = self.stack[-1][1]
        for _size, left in reversed(self.stack[:-1]):
            root = sha256(b"\x01" + left + root).digest()
        return root


def hub_entries(store: Store) -> list[bytes]:
    """Return all entries of the hub log, read in bundles."""
    found: list[bytes] = []
    while len(found) < (size := store.hub_log.size):
        width = min(256, size - len(found))
        found += decode_bundle(store.hub_log.bundle(Tile(ENTRIES, len(found) // 256, width)))
    return found


def _examine_hub_log(store: Store, promises: Promises, seen: dict[Label, Seen]) -> None:
    """Assert that the hub log has the labels' receipts, and never another root at a size it was shown."""
    tree, roots, newest = PlainTree(), [sha256().digest()], dict[Label, int]()
    entries = hub_entries(store)
    for number, entry in enumerate(entries):
        _version, name, upto, root, hub_ts = cbor.decode_items(entry)
        label = Label(name)
        receipt = seen[label].receipts[upto - 1]
        assert (receipt.mmr_root, receipt.hub_ts) == (root, hub_ts), f"entry {number} of the hub log"
        assert newest.get(label, 0) < upto, f"entry {number} of the hub log goes back"
        newest[label] = upto
        roots.append(tree.grow(entry))
    signed = store.hub_log.checkpoint
    assert (signed is None) == (not entries)
    if signed is not None:
        assert (signed.head.size, signed.head.root) == (len(entries), roots[-1])
        verify_hub_checkpoint(store.identity, signed)
    for size, note in (*promises.hub_checkpoints.items(), *promises.published.items()):
        assert size < len(roots), f"the hub checkpoint at {size} is lost"
        assert parse_signed_head(note).head.root == roots[size], f"two roots at size {size}"
    published = store.hub_log.published
    last = max(promises.published, default=0)
    assert last <= (published.head.size if published is not None else 0) <= len(entries)
    moved = [label for label, held in seen.items() if newest.get(label, 0) != len(held.receipts)]
    assert store.hub_log.moved == len(moved), "labels that moved"


# --- a directory after something happened to it


def drop(store: Store) -> None:
    """Drop a store without a thread as a kill would: nothing is applied or closed in order."""
    assert store._queue.thread is None
    store._journal.close()
    store._index.close()
    store._lock.release()


def _call_here(call: Callable[..., T], *args: Any) -> T:
    try:
        return call(*args)
    except (lmdb.Error, struct.error, OSError, VeenError) as exc:
        what = exc.what if isinstance(exc, DamageError) else str(exc)
        raise DamageError(index_check.INDEX_FILE, None, what, REPAIR) from exc


def index_read_here() -> AbstractContextManager[object]:
    """Let fsck and repair read the index in this process: 10 ms instead of 500, and not safe if damaged."""
    return patch.object(index_check, "run_isolated", _call_here)


def check_files(root: Path, *, apart: bool = False) -> None:
    """Assert that fsck finds no fault. ``apart``: with all cores and a separate process for the index."""
    with ExitStack() as stack:
        if not apart:
            stack.enter_context(patch.object(tempfile, "tempdir", str(root.parent)))
            stack.enter_context(index_read_here())
        report = fsck(root, processes=None if apart else 1)
    assert report.ok, "\n".join(str(fault) for fault in report.faults)


def check_directory(root: Path, promises: Promises, *, as_it_is: bool = True) -> None:
    """Assert that a directory opens, keeps every promise, has no partial batch, continues, and is clean.

    ``as_it_is``: it must also be clean before it is opened, with work left for recovery.
    """
    if as_it_is:
        check_files(root)
    with Store(root, background=False) as store:
        seen = examine(store, promises)
        assert not half_visible(seen, promises), "a batch is there in part"
        batch = store.batch(NOW)
        for label in seen:
            place = (label, len(seen[label].receipts) + 1)
            promises.tell("receipts", place, add(batch, label, "zoe").entry.receipt.encode())
        signed = batch.hub_checkpoint(ORIGIN)
        store.commit(batch)
        if signed is not None:
            promises.tell("hub_checkpoints", signed.head.size, signed.encode())
        store.apply()
        examine(store, promises, seen)
    check_files(root)
