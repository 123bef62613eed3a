"""A short life of a data directory in which everything happens once: for faults and power cuts.

Created, opened, batches to three labels, a token authorized and used, checkpoints, an anchor, rolls, a
journal of several segments, an attachment, a pruned chunk, hub checkpoints, one of them published, closed
with work left, opened again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from veen_core.cap import Rate
from veen_core.hashing import H
from veen_core.ids import AuthRef, Coid, Label, StreamSeq
from veen_core.limits import Limits
from veen_storage.commit import journal
from veen_storage.commit.changes import Prune
from veen_storage.disk.files import Files
from veen_storage.errors import PoisonedError
from veen_storage.store import Store, create

from .oracle import Promises
from .sample import BORN, CONTROL, HUB_KEY, INVOICES, ORDERS, ORIGIN, add, at, label, token

FEW = Limits(max_msg_bytes=1_024, max_body_bytes=600, max_chunk_bytes=4_096, max_checkpoint_interval=4)
"""A chunk ends after four entries."""
NEWS = label("news")
ATTACHMENT = b"an attachment's ciphertext " * 30
TOKEN = token(rate=Rate(per_sec=1, burst=3))


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder where syncing costs nothing, if there is one: these tests simulate the disk anyway."""
    shm = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="veen-test-", dir=shm if shm.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def short_segments(size: int = 2_500) -> Iterator[None]:
    """Journal segments of a few batches, so that some are trimmed."""
    with patch.object(journal, "SEGMENT_BYTES", size):
        yield


@dataclass
class Run:
    """The life so far; when something fails, ``step`` says what was being done."""

    root: Path
    files: Files
    background: bool = False
    zstd_level: int | None = None
    promises: Promises = field(default_factory=Promises)
    store: Store | None = None
    step: str = "nothing"

    def play(self) -> None:
        """All of it."""
        with short_segments():
            self.create()
            self.open()
            self.first_day()
            self.close()
            self.open()
            self.second_day()
            self.close()

    def create(self) -> None:
        self.step = "create"
        create(self.root, HUB_KEY, BORN, limits=FEW, zstd_level=self.zstd_level, files=self.files)
        self.promises.tell_created()

    def open(self) -> None:
        self.step = "open"
        self.store = Store(self.root, files=self.files, background=self.background)

    def close(self) -> None:
        self.step = "close"
        store, self.store = self.opened, None
        store.close()

    @property
    def opened(self) -> Store:
        assert self.store is not None
        return self.store

    def first_day(self) -> None:
        self.send(1, (ORDERS, 3), (INVOICES, 1))
        self.authorize(2)
        self.hub_checkpoint(2)
        self.apply()
        self.send(2, (NEWS, 1))
        self.apply()  # of nothing but a new chunk
        self.send(3, (ORDERS, 2), auth_ref=TOKEN.auth_ref)
        self.checkpoint(4, INVOICES)
        self.anchor(5, INVOICES)
        self.send(6, (ORDERS, 3), (INVOICES, 2), body=bytes(520))
        self.apply()
        self.attach(ATTACHMENT)
        self.hub_checkpoint(7)
        self.prune(7, ORDERS, 1, 4)
        self.publish()
        self.apply()
        self.hub_checkpoint(7, (NEWS, 1))
        self.apply()  # of nothing but an entry and a hub checkpoint
        self.checkpoint(7, INVOICES)
        self.apply()  # of nothing but a checkpoint
        self.anchor(7, INVOICES)
        self.apply()  # of nothing but an anchor
        self.send(8, (ORDERS, 1))
        self.send(8, (INVOICES, 3), (ORDERS, 1), auth_ref=TOKEN.auth_ref)
        self.hub_checkpoint(8)

    def second_day(self) -> None:
        self.send(9, (INVOICES, 2), (CONTROL, 1))
        self.apply()
        self.attach(ATTACHMENT)
        self.hub_checkpoint(10, (ORDERS, 1))
        self.publish()

    # --- steps

    def send(
        self, now: int, *what: tuple[Label, int], auth_ref: AuthRef | None = None, body: bytes | None = None
    ) -> None:
        self.step = "commit"
        batch = self.opened.batch(at(now))
        for to, n in what:
            for _ in range(n):
                add(batch, to, "alice", body, auth_ref)
        self.promises.commit(self.opened, batch)

    def authorize(self, now: int) -> None:
        self.step = "commit"
        batch = self.opened.batch(at(now))
        batch.authorize(TOKEN, TOKEN.encode(), CONTROL)
        self.promises.commit(self.opened, batch)

    def checkpoint(self, now: int, label: Label) -> None:
        self.step = "commit"
        batch = self.opened.batch(at(now))
        made = batch.checkpoint(label)
        assert made is not None
        self.promises.commit(self.opened, batch)
        self.promises.tell("checkpoints", (label, made.upto_seq), made.encode())

    def hub_checkpoint(self, now: int, *what: tuple[Label, int]) -> None:
        self.step = "commit"
        batch = self.opened.batch(at(now))
        for to, n in what:
            for _ in range(n):
                add(batch, to)
        signed = batch.hub_checkpoint(ORIGIN)
        assert signed is not None
        self.promises.commit(self.opened, batch)
        self.promises.tell("hub_checkpoints", signed.head.size, signed.encode())

    def publish(self) -> None:
        self.step = "publish"
        signed = self.opened.hub_log.checkpoint
        assert signed is not None
        self.opened.publish(signed)
        self.promises.tell("published", signed.head.size, signed.encode())

    def anchor(self, now: int, label: Label) -> None:
        self.step = "commit"
        checkpoint = self.opened.read.latest_checkpoint(label)
        assert checkpoint is not None
        batch = self.opened.batch(at(now))
        batch.anchor(label, checkpoint.upto_seq, b"somewhere public")
        self.promises.commit(self.opened, batch)
        self.promises.tell("anchors", (label, checkpoint.upto_seq), b"somewhere public")

    def prune(self, now: int, label: Label, start: int, end: int) -> None:
        self.step = "commit"
        batch = self.opened.batch(at(now))
        batch.prune(Prune(label=label, start_seq=StreamSeq(start), end_seq=StreamSeq(end), pruned_at=at(now)))
        self.promises.commit(self.opened, batch)
        self.promises.tell("pruned", (label, start), end)

    def apply(self) -> None:
        self.step = "apply"
        if not self.background:
            self.opened.apply()
        elif not self.opened.settle():
            raise PoisonedError(self.opened.poisoned or "not settled")

    def attach(self, content: bytes) -> None:
        self.step = "attach"
        coid = Coid(H(content))
        self.opened.attachments.put(coid, [content[:500], content[500:]])
        self.promises.tell("attachments", coid, content)
