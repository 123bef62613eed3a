"""Logs that tests read: real data directories, written through veen-storage, and what is exported of them.

    hub = Hub(tmp_path / "hub")                       a data directory that is open
    hub.send("orders", 20)                            sealed messages, one batch, committed
    hub.export("orders", tmp_path / "set")            a overlay_reference set; form="chunks" for chunk files
    hub.clone(tmp_path / "clone")                     a closed copy of the whole directory

The same names give the same keys and labels in every test. ``SMALL`` limits roll a chunk every eight entries.
``cheap=True`` leaves the sealing out: signed and laid out as §4.2 says, but nothing inside to open.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path

from veen_core import stream
from veen_core.cap import CapToken, mint
from veen_core.ciphertext import Binding
from veen_core.entry import Entry
from veen_core.export import ExportForm, Manifest
from veen_core.hashing import H
from veen_core.hub_log import origin_of
from veen_core.ids import (
    ClientId,
    ClientSeq,
    HubPk,
    Label,
    LeafHash,
    MmrRoot,
    SchemaId,
    StreamSeq,
    UnixTime,
)
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.limits import Limits
from veen_core.msg import Msg, seal_msg, sign_msg
from veen_core.payload import PayloadHeader
from veen_core.profile import DEFAULT_PROFILE
from veen_core.receipt import Receipt, sign_receipt
from veen_core.tlog.tree_head import SignedHead
from veen_overlays.schema.record import Record
from veen_storage.chunks.retention import PruneRule, due
from veen_storage.commit.writer import Batch
from veen_storage.copies.clone import clone
from veen_storage.copies.export import export_hub
from veen_storage.copies.export import write as exports
from veen_storage.disk.files import Files
from veen_storage.opening.rotation import rotate
from veen_storage.store import Store, create

BORN = UnixTime(1_700_000_000)
SMALL = Limits(max_msg_bytes=4_096, max_chunk_bytes=65_536, max_checkpoint_interval=8)
SCHEMA = SchemaId(H(b"test.note.v1"))


class Unsynced(Files):
    """Real files without waiting for the disk."""

    def sync(self, fd: int) -> None:
        """Nothing."""

    def sync_many(self, fds: list[int]) -> None:
        """Nothing."""

    def sync_directory(self, path: Path) -> None:
        """Nothing."""


def signing_key(name: str) -> SigningKey:
    return SigningKey(SigningSeed(H(b"sign:" + name.encode())))


def reader_key(name: str) -> DhKey:
    """Whoever may read the stream of that name holds this (H11)."""
    return DhKey(DhSecret(H(b"read:" + name.encode())))


class Hub:
    """A hub's data directory, open, with a clock that stands still unless it is moved."""

    def __init__(
        self, root: Path, *, key: str = "hub/0", limits: Limits = SMALL, zstd_level: int | None = None
    ) -> None:
        self.root = root
        self.now = BORN
        self.identity = create(
            root, signing_key(key), BORN, limits=limits, zstd_level=zstd_level, files=Unsynced()
        )
        self.store = self._open()
        self._sealed = 0

    def _open(self) -> Store:
        return Store(self.root, background=False, files=Unsynced())

    @property
    def hub_id(self) -> bytes:
        return self.identity.hub_id

    def label(self, name: str) -> Label:
        """Return the label of a stream; ``control`` is the hub's control label (RESOLUTIONS H5)."""
        routing_key = stream.routing_key(self.identity.hub_id)
        if name == "control":
            return stream.control_label(routing_key)
        return stream.label(routing_key, stream.stream_id(name), stream.epoch_at(BORN, 0))

    def send(
        self,
        name: str,
        count: int = 1,
        *,
        who: str = "alice",
        bodies: Iterable[bytes] | None = None,
        schema: SchemaId = SCHEMA,
        cheap: bool = False,
    ) -> list[Receipt]:
        """Messages to a stream in one committed batch, a second after the last; their receipts."""
        self.now = UnixTime(self.now + 1)
        batch = self.store.batch(self.now)
        given = bodies if bodies is not None else (f"{who} {n}".encode() for n in range(count))
        receipts = [self._add(batch, name, who, body, schema, cheap=cheap).receipt for body in given]
        self.store.commit(batch)
        self.store.apply()
        return receipts

    def send_records(
        self,
        name: str,
        records: Iterable[Record | tuple[SchemaId, bytes]],
        *,
        reader: str | None = None,
        parents: Iterable[LeafHash | None] | None = None,
        who: str = "alice",
    ) -> list[Receipt]:
        """Records, or schema ids and bodies; as copies, if ``parents`` says of what."""
        self.now = UnixTime(self.now + 1)
        batch = self.store.batch(self.now)
        plain = [(r.SCHEMA, r.encode()) if isinstance(r, Record) else r for r in records]
        receipts = []
        for (schema, body), parent in zip(plain, parents or repeat(None), strict=False):
            binding = self._binding(batch, name, who)
            header = PayloadHeader(schema=schema, parent_id=parent)
            msg, wire = self._sealed_as(signing_key(who), reader or name, binding, header, body)
            receipts.append(batch.add(msg, wire, msg.leaf_hash).entry.receipt)
        self.store.commit(batch)
        self.store.apply()
        return receipts

    def _add(self, batch: Batch, name: str, who: str, body: bytes, schema: SchemaId, *, cheap: bool) -> Entry:
        key, binding = signing_key(who), self._binding(batch, name, who)
        msg, wire = self._cheap(key, binding, body) if cheap else self._seal(key, name, binding, schema, body)
        return batch.add(msg, wire, msg.leaf_hash).entry

    def _binding(self, batch: Batch, name: str, who: str) -> Binding:
        """Of the next message of this client in this stream."""
        to, client_id = self.label(name), ClientId(signing_key(who).public)
        cursor, client = batch.label(to), batch.view.client(to, client_id)
        return Binding(
            profile_id=DEFAULT_PROFILE.profile_id,
            label=to,
            client_id=client_id,
            client_seq=ClientSeq(client.last_seq + 1 if client is not None else 1),
            prev_ack=StreamSeq(cursor.log.size if cursor is not None else 0),
            auth_ref=None,
        )

    def _seal(
        self, key: SigningKey, name: str, binding: Binding, schema: SchemaId, body: bytes
    ) -> tuple[Msg, bytes]:
        return self._sealed_as(key, name, binding, PayloadHeader(schema=schema), body)

    def _sealed_as(
        self, key: SigningKey, reader: str, binding: Binding, header: PayloadHeader, body: bytes
    ) -> tuple[Msg, bytes]:
        self._sealed += 1
        ephemeral = DhSecret(H(b"ephemeral" + self.identity.hub_id + self._sealed.to_bytes(8, "big")))
        sealed = seal_msg(
            key,
            reader_key(reader).public,
            binding,
            header,
            body,
            profile=DEFAULT_PROFILE,
            ephemeral=ephemeral,
        )
        return sealed.msg, sealed.wire

    @staticmethod
    def _cheap(key: SigningKey, binding: Binding, body: bytes) -> tuple[Msg, bytes]:
        msg = sign_msg(key, binding, H(b"enc" + body) + struct.pack(">II", 0, len(body)) + body)
        return msg, msg.encode()

    def authorize(self, who: str = "alice", streams: Iterable[str] = ("orders",)) -> CapToken:
        """A token in the control label (H5)."""
        ids = [stream.stream_id(name) for name in streams]
        token = mint(signing_key("admin"), ClientId(signing_key(who).public), ids, 3_600, None)
        batch = self.store.batch(self.now)
        batch.authorize(token, token.encode(), self.label("control"))
        self.store.commit(batch)
        self.store.apply()
        return token

    def rotate(self, key: str = "hub/1", window_sec: int = 10) -> None:
        """The next key signs from 100 seconds later on."""
        self.store.close()
        self.now = UnixTime(self.now + 100)
        self.identity = rotate(self.root, signing_key(key), self.now, window_sec, files=Unsynced())
        self.store = self._open()

    def prune(self, name: str, max_bytes: int = 0) -> int:
        """Retention takes the payloads of sealed chunks; how many chunks it took."""
        decisions = due(self.store.index, self.label(name), PruneRule(max_bytes=max_bytes), self.now)
        batch = self.store.batch(self.now)
        for decision in decisions:
            batch.prune(decision)
        self.store.commit(batch)
        self.store.apply()
        return len(decisions)

    def hub_checkpoint(self, *, publish: bool = False) -> SignedHead:
        """The hub log extended by every label that moved (RESOLUTIONS P1)."""
        batch = self.store.batch(self.now)
        signed = batch.hub_checkpoint(origin_of(self.identity.hub_id))
        assert signed is not None
        self.store.commit(batch)
        self.store.apply()
        if publish:
            self.store.publish(signed)
        return signed

    def export_hub(self, target: Path, *, form: ExportForm = "set") -> Path:
        """Every label, and the hub log."""
        export_hub(self.store, target, form=form, files=Unsynced())
        return target

    def export(
        self,
        name: str,
        target: Path,
        *,
        form: ExportForm = "set",
        from_seq: int = 1,
        to_seq: int | None = None,
    ) -> Manifest:
        head = self.store.read.head(self.label(name))
        assert head is not None
        end = StreamSeq(to_seq or head.stream_seq)
        return exports.export(
            self.store, self.label(name), StreamSeq(from_seq), end, target, form=form, files=Unsynced()
        )

    def clone(self, target: Path) -> Path:
        clone(self.store, target, files=Unsynced())
        return target

    def close(self) -> None:
        self.store.close()


def hub_pk(name: str) -> HubPk:
    return HubPk(signing_key(name).public)


def files_of(root: Path, pattern: str = "*.log") -> list[Path]:
    """Chunk files below a folder, in the order of their names."""
    return sorted(root.rglob(pattern))


def lone_entry(number: int, key: str = "hub/0", who: str = "alice") -> Entry:
    """The only entry of a label of its own: for logs of more labels than a hub writes in a test's time."""
    client, hub = signing_key(who), signing_key(key)
    binding = Binding(
        profile_id=DEFAULT_PROFILE.profile_id,
        label=Label(H(b"label" + number.to_bytes(8, "big"))),
        client_id=ClientId(client.public),
        client_seq=ClientSeq(1),
        prev_ack=StreamSeq(0),
        auth_ref=None,
    )
    msg = sign_msg(client, binding, bytes(32) + struct.pack(">II", 0, 4) + b"body")
    unsigned = Receipt(
        label=binding.label,
        stream_seq=StreamSeq(1),
        leaf_hash=msg.leaf_hash,
        mmr_root=MmrRoot(msg.leaf_hash),
        hub_ts=BORN,
    )
    return Entry(binding.label, StreamSeq(1), msg.encode(), sign_receipt(hub, unsigned).encode())
