"""What the storage's tests write: fixed keys, labels and messages; the same names give the same bytes.

    store = make_store()                          a fixture of conftest.py
    receipts = send(store, ORDERS, 5)             one batch of five messages, committed
    batch = store.batch(at(60)); add(batch, ORDERS); store.commit(batch)

Messages are signed and laid out as §4.2 says, but not sealed: storage never looks inside. The default
``SMALL`` limits roll a chunk after eight entries, so that a few messages make several files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from veen_core import stream
from veen_core.cap import CapToken, Rate, mint
from veen_core.ciphertext import Binding
from veen_core.hashing import H
from veen_core.hub_log import origin_of
from veen_core.ids import AuthRef, ClientId, ClientSeq, HubPk, Label, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.limits import Limits
from veen_core.msg import Msg, sign_msg
from veen_core.receipt import Receipt
from veen_core.tlog.tree_head import SignedHead
from veen_storage.chunks.retention import PruneRule, due
from veen_storage.commit.changes import Prune
from veen_storage.commit.writer import Batch, PendingEntry
from veen_storage.disk.files import Files
from veen_storage.store import Store

BORN = UnixTime(1_700_000_000)
"""When every hub of these tests is created; a multiple of no epoch, so that edges do not hide."""
SMALL = Limits(max_msg_bytes=2_048, max_chunk_bytes=8_192, max_checkpoint_interval=8)
"""A chunk ends after eight entries, or after about three of a kilobyte each."""


class Unsynced(Files):
    """Real files without waiting for the disk: for tests in which no machine loses power."""

    def sync(self, fd: int) -> None:
        """Nothing."""

    def sync_many(self, fds: list[int]) -> None:
        """Nothing."""

    def sync_directory(self, path: Path) -> None:
        """Nothing."""


def at(seconds: int) -> UnixTime:
    """So many seconds after the hub was born."""
    return UnixTime(BORN + seconds)


def signing_key(name: str) -> SigningKey:
    """The same name gives the same key in every test."""
    return SigningKey(SigningSeed(H(b"sign:" + name.encode())))


HUB_KEY = signing_key("hub/0")
HUB_ID = stream.hub_id(HubPk(HUB_KEY.public))

ORIGIN = origin_of(HUB_ID)


def label(name: str) -> Label:
    """Of a stream by name, at epoch 0, in the label space of ``HUB_KEY``'s hub."""
    return stream.label(stream.routing_key(HUB_ID), stream.stream_id(name), stream.epoch_at(BORN, 0))


ORDERS, INVOICES = label("orders"), label("invoices")
CONTROL = stream.control_label(stream.routing_key(HUB_ID))


def ciphertext(body: bytes) -> bytes:
    """Something that has the layout of §4.2, with ``body`` readable in it."""
    return H(b"enc" + body) + struct.pack(">II", 0, len(body)) + body


def compose(
    batch: Batch, to: Label, who: str = "alice", body: bytes | None = None, auth_ref: AuthRef | None = None
) -> Msg:
    """The writer's next message to a label, as the batch sees the label now."""
    key = signing_key(who)
    cursor, client = batch.label(to), batch.view.client(to, ClientId(key.public))
    seq = client.last_seq + 1 if client is not None else 1
    binding = Binding(
        profile_id=batch.view.ledger.registry.profile.profile_id,
        label=to,
        client_id=ClientId(key.public),
        client_seq=ClientSeq(seq),
        prev_ack=StreamSeq(cursor.log.size if cursor is not None else 0),
        auth_ref=auth_ref,
    )
    return sign_msg(key, binding, ciphertext(body if body is not None else f"{who} {seq}".encode()))


def add(
    batch: Batch, to: Label, who: str = "alice", body: bytes | None = None, auth_ref: AuthRef | None = None
) -> PendingEntry:
    """Compose a message and place it in the batch; nothing is durable yet."""
    msg = compose(batch, to, who, body, auth_ref)
    return batch.add(msg, msg.encode(), msg.leaf_hash)


def send(
    store: Store,
    to: Label,
    n: int = 1,
    *,
    who: str = "alice",
    now: UnixTime = BORN,
    body: bytes | None = None,
    auth_ref: AuthRef | None = None,
) -> list[Receipt]:
    """``n`` messages in one committed batch; their receipts."""
    batch = store.batch(now)
    places = [add(batch, to, who, body, auth_ref) for _ in range(n)]
    store.commit(batch)
    return [place.entry.receipt for place in places]


def send_each(store: Store, to: Label, n: int, *, who: str = "alice", now: UnixTime = BORN) -> list[Receipt]:
    """``n`` messages in ``n`` batches, one second apart, from ``now`` on."""
    times = count(now)
    return [send(store, to, who=who, now=UnixTime(next(times)))[0] for _ in range(n)]


def checkpoint(store: Store, of: Label, now: UnixTime = BORN) -> None:
    """A checkpoint made by hand, committed."""
    batch = store.batch(now)
    batch.checkpoint(of)
    store.commit(batch)


def hub_checkpoint(store: Store, now: UnixTime = BORN, origin: str = ORIGIN) -> SignedHead | None:
    """Extend the hub log by all labels that moved, committed."""
    batch = store.batch(now)
    signed = batch.hub_checkpoint(origin)
    store.commit(batch)
    return signed


def token(
    who: str = "alice", streams: Iterable[str] = ("orders",), ttl: int = 3_600, rate: Rate | None = None
) -> CapToken:
    """A cap token that the admin gave to somebody."""
    ids = [stream.stream_id(name) for name in streams]
    return mint(signing_key("admin"), ClientId(signing_key(who).public), ids, ttl, rate)


def authorize(store: Store, given: CapToken, now: UnixTime = BORN) -> Receipt:
    batch = store.batch(now)
    receipt = batch.authorize(given, given.encode(), CONTROL).entry.receipt
    store.commit(batch)
    return receipt


def prune(store: Store, of: Label, rule: PruneRule, now: UnixTime) -> list[Prune]:
    """Carry out what a retention rule demands, committed and applied."""
    store.apply()
    decisions = due(store.index, of, rule, now)
    batch = store.batch(now)
    for decision in decisions:
        batch.prune(decision)
    store.commit(batch)
    store.apply()
    return decisions


def tree(root: Path, *parts: str) -> dict[str, bytes]:
    """Every file below a folder, by its relative name."""
    top = root.joinpath(*parts)
    return {str(p.relative_to(top)): p.read_bytes() for p in sorted(top.rglob("*")) if p.is_file()}
