"""The heads file: a memory on another volume, compared and swapped at each hub checkpoint (RESOLUTIONS P3).

The file holds the newest hub checkpoint that may have been shown to anybody, as the text of a C2SP
checkpoint without signatures:

    veen.hub/5f0c…
    1207
    k3oA…=
    claimed by 8d2f41c09a7be315       only while a process makes the next one

Order at each hub checkpoint:

1. ``claim``: swap in a line that names this process. A second process with the same identity finds other
   content than it read last, and stops before it signs.
2. The sequencer signs the hub checkpoint and makes it durable.
3. ``record``: swap in the new size and root, without the claim.
4. Only now is the hub checkpoint sent to witnesses and served.

A crash between 1 and 3 leaves the claim, and the old size: the hub starts from its own newer hub checkpoint,
which nobody has seen, and records it. A hub whose log does not contain the recorded tree is behind.

A swap is a comparison of the whole content with what this process read or wrote last, and a replacement by
rename, both under a lock on ``<file>.lock``. File and folder are synced.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from veen_core.errors import DecodeError
from veen_core.tlog.tree import EMPTY_ROOT
from veen_core.tlog.tree_head import TreeHead, parse_head
from veen_hub.ops.memories import ContradictedError, SilentMemoryError, check_contained
from veen_hub.pipeline.threads import in_own_thread
from veen_storage import Files
from veen_storage.read.hub_log import HubLogReader

T = TypeVar("T")

TIMEOUT_SEC: Final = 5.0
"""Longest time that the volume may take for one step."""
MAX_FILE_BYTES: Final = 4_096
_CLAIM: Final = "claimed by "


class HeadsFile:
    """The heads file of one process; its calls run one at a time, each in a thread of its own.

    A volume that hangs therefore delays hub checkpoints, and nothing else.
    """

    def __init__(self, path: Path, origin: str, hub_log: HubLogReader, *, is_new: bool) -> None:
        """``is_new``: the hub has no entries, so that a missing file means a first start."""
        self.name = "the heads file"
        self._path = path
        self._origin = origin
        self._hub_log = hub_log
        self._is_new = is_new
        self._claimant = secrets.token_hex(8)
        self._held: bytes | None = None
        """Content that this process read or wrote last."""
        self._recorded = TreeHead(origin, 0, EMPTY_ROOT)
        self._running: asyncio.Future[None] | None = None
        self._files = Files()

    @property
    def is_open(self) -> bool:
        """Whether ``compare`` has read the file and found nothing against this hub."""
        return self._held is not None

    def is_recorded(self, head: TreeHead) -> bool:
        """Return whether the file holds this tree, so that it may be shown to others."""
        return self.is_open and (head.size, head.root) == (self._recorded.size, self._recorded.root)

    async def compare(self) -> None:
        """Read the file and compare it with the hub log; record the newest hub checkpoint, if it is newer."""
        await self._run(self._compare)

    async def claim(self) -> None:
        """Announce that this process makes the next hub checkpoint (step 1)."""
        await self._run(lambda: self._swap(self._recorded, claim=True))

    async def record(self, head: TreeHead) -> None:
        """Record a durable hub checkpoint before anybody sees it (step 3)."""
        await self._run(lambda: self._swap(head, claim=False))

    # --- in a thread

    def _compare(self) -> None:
        with self._locked():
            if self._is_new and self._held is None and not self._path.exists():
                self._files.replace(self._path, b"")
            content = self._read()
            if self._held is not None and content != self._held:
                raise self._swapped()
            recorded = self._parse(content)
            check_contained(self._hub_log, recorded.size, recorded.root, self.name)
            self._held, self._recorded = content, recorded
            newest = self._hub_log.checkpoint
            if newest is not None and newest.head.size > recorded.size:
                self._replace(newest.head, claim=False)

    def _swap(self, head: TreeHead, *, claim: bool) -> None:
        with self._locked():
            if self._held is None or self._read() != self._held:
                raise self._swapped()
            self._replace(head, claim=claim)

    def _replace(self, head: TreeHead, *, claim: bool) -> None:
        mark = (f"{_CLAIM}{self._claimant}",) if claim else ()
        content = TreeHead(self._origin, head.size, head.root, mark).text.encode()
        self._files.replace(self._path, content)
        self._held, self._recorded = content, TreeHead(self._origin, head.size, head.root)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._path.with_name(f"{self._path.name}.lock")
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(MAX_FILE_BYTES)
        except FileNotFoundError:
            raise SilentMemoryError(
                f"{self._path} does not exist",
                action=f"mount its volume; only if this hub never had the file, create it with "
                f"`touch {self._path}`",
            ) from None

    def _parse(self, content: bytes) -> TreeHead:
        if not content:
            return TreeHead(self._origin, 0, EMPTY_ROOT)
        try:
            head = parse_head(content.decode())
        except (DecodeError, UnicodeDecodeError):
            raise SilentMemoryError(
                f"{self._path} is damaged",
                action=f"if this directory is the newest copy, empty the file: `: > {self._path}`",
            ) from None
        if head.origin != self._origin:
            raise SilentMemoryError(
                f"{self._path} is the heads file of {head.origin[:100]!r}",
                action="set hub_log.memories.heads_file to a file of this hub's own",
            )
        return head

    def _swapped(self) -> ContradictedError:
        return ContradictedError(
            f"{self.name} was changed by another process: two processes run with the identity of this hub",
            action="stop both, and start the one that has the newest copy of the data directory",
        )

    # --- on the event loop

    async def _run(self, work: Callable[[], T]) -> None:
        """Run a step once the one before has ended; after a timeout it goes on, and its effect counts."""
        try:
            async with asyncio.timeout(TIMEOUT_SEC):
                if self._running is not None:
                    await asyncio.wait([self._running])
                self._running = in_own_thread(lambda: self._call(work), "veen-heads-file")
                self._running.add_done_callback(lambda done: done.exception())  # retrieved: not logged
                await asyncio.shield(self._running)
        except TimeoutError:
            raise SilentMemoryError(f"{self._path} does not answer for more than {TIMEOUT_SEC:g} s") from None
        except RuntimeError:
            raise SilentMemoryError("no thread is available for the heads file") from None

    def _call(self, work: Callable[[], T]) -> None:
        try:
            work()
        except OSError as exc:
            why = f"{self._path}: {exc.strerror or exc}"
            raise SilentMemoryError(why, action="check its volume") from exc
