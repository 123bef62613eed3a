"""The heads file: a memory on another volume, compared and swapped at each hub checkpoint (RESOLUTIONS P3).

The file holds the newest hub checkpoint that may have left the hub, as the text of a C2SP
checkpoint without signatures, and while a hub runs the process that owns it:

    veen.hub/5f0c…
    1207
    k3oA…=
    claimed by 8d2f41c09a7be315 on 0b6fb2d4-5f1c-4f0e-9d0a-6c3a1f0d9e77

Two processes with one identity must not both sign. Two things keep the second one from it:

- A process locks ``<file>.lock`` as long as it runs. The second one cannot, and waits.
- On a volume whose locks do not reach the other machine, the second process swaps in its own claim. The
  first one reads the file in every interval, finds another claim, and stops signing. A process that replaces
  the claim of another machine therefore waits before it signs. Within one machine the lock has decided,
  unless the volume has no locks.

Order at each hub checkpoint:

1. ``check``: the file is still as this process wrote it.
2. The sequencer signs the hub checkpoint and makes it durable.
3. ``record``: swap in the new size and root.
4. Only now is the hub checkpoint sent to witnesses and served.

A crash between 2 and 3 leaves the old size: the hub starts from its own newer hub checkpoint, which has not
left the hub, and records it. A hub whose log does not contain the recorded tree is behind.

A swap is a comparison of the whole content with what this process read or wrote last, and a replacement by
rename. File and folder are synced. The file is never created here: a missing file is a volume that is not
mounted, also for a hub without entries, which may have been restored from its first copy.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from veen_core.errors import DecodeError
from veen_core.tlog.tree import EMPTY_ROOT
from veen_core.tlog.tree_head import TreeHead, parse_head
from veen_hub.ops.hub_log.memories import ClaimedError, ContradictedError, SilentMemoryError, check_contained
from veen_hub.pipeline.threads import in_own_thread
from veen_storage import Files, StoredHubLog

T = TypeVar("T")

TIMEOUT_SEC: Final = 5.0
"""Longest time that the volume may take for one step."""
MAX_FILE_BYTES: Final = 4_096
_CLAIM: Final = "claimed by "


def machine() -> str:
    """Return the id of this machine's current boot, which all its processes share."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return secrets.token_hex(16)  # unknown: every other process counts as one of another machine


class HeadsFile:
    """The heads file of one process; its calls run one at a time, each in a thread of its own.

    A volume that hangs therefore delays hub checkpoints, and nothing else.
    """

    def __init__(self, path: Path, origin: str, hub_log: StoredHubLog, *, notice_sec: float) -> None:
        """``notice_sec``: how soon a process notices that another one has claimed its file."""
        self.name = "the heads file"
        self._path = path
        self._origin = origin
        self._hub_log = hub_log
        self._notice_sec = notice_sec
        self._machine = f" on {machine()}"
        self._claim = f"{_CLAIM}{secrets.token_hex(8)}{self._machine}"
        self._lock: int | None = None
        self._held: bytes | None = None
        """Content that this process wrote last; None until it owns the file."""
        self._tried: bytes | None = None
        """Content of the last write, which may have failed after it took effect."""
        self._must_wait = False
        """Whether this process replaced the claim of another process that may still run."""
        self._open_at = 0.0
        """When every other process has noticed the claim, by the monotonic clock."""
        self._recorded = TreeHead(origin, 0, EMPTY_ROOT)
        self._running: asyncio.Future[None] | None = None
        self._files = Files()

    @property
    def is_open(self) -> bool:
        """Whether this process owns the file, and its content does not contradict this hub."""
        return self._held is not None and time.monotonic() >= self._open_at

    def is_recorded(self, head: TreeHead) -> bool:
        """Return whether the file holds this tree, so that it may be shown to others."""
        return self.is_open and (head.size, head.root) == (self._recorded.size, self._recorded.root)

    async def compare(self) -> None:
        """Compare the file with the hub log, claim it, and record the newest hub checkpoint."""
        await self._run(self._compare)

    async def check(self) -> None:
        """Raise ``ContradictedError`` if another process has changed the file."""
        await self._run(self._check)

    async def record(self, head: TreeHead) -> None:
        """Record a durable hub checkpoint before it leaves the hub (step 3)."""
        await self._run(lambda: self._swap(head))

    async def release(self) -> None:
        """Remove the claim of a hub that stops, so that the next one need not wait."""
        if self._held is not None:
            await self._run(self._release)

    # --- in a thread

    def _compare(self) -> None:
        if self._held is None:
            self._read_head()  # report a hub that is behind even while another process owns the file
            self._take_lock()
            recorded, newest = self._read_head(), self._hub_log.checkpoint
            # Kept from here on: even a write that fails may have replaced the claim.
            self._must_wait = self._must_wait or any(map(self._may_run, recorded.extensions))
            self._write(newest.head if newest is not None and newest.head.size > recorded.size else recorded)
            if self._must_wait:
                self._open_at = time.monotonic() + self._notice_sec
        self._check()
        if not self.is_open:
            raise ClaimedError(
                f"{self._path} was claimed by another process, which no lock excludes; if it runs, "
                f"it stops signing within {self._notice_sec:g} s"
            )

    def _may_run(self, claim: str) -> bool:
        """Return whether the process with this claim may still run, although this one has the lock."""
        return claim != self._claim and (self._lock is None or not claim.endswith(self._machine))

    def _check(self) -> None:
        if self._read() not in (self._held, self._tried):
            raise ContradictedError(
                f"{self.name} was changed: another process runs with the identity of this hub",
                action="stop both, and start the one that has the newest copy of the data directory",
            )

    def _swap(self, head: TreeHead) -> None:
        self._check()
        self._write(head)

    def _release(self) -> None:
        self._check()
        self._write(self._recorded, claim=False)
        self._held = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _write(self, head: TreeHead, *, claim: bool = True) -> None:
        extensions = (self._claim,) if claim else ()
        content = TreeHead(self._origin, head.size, head.root, extensions).text.encode()
        self._tried = content
        self._files.replace(self._path, content)
        self._held, self._recorded = content, TreeHead(self._origin, head.size, head.root)

    def _take_lock(self) -> None:
        """Lock ``<file>.lock`` until the process ends."""
        if self._lock is not None:
            return
        lock = self._path.with_name(f"{self._path.name}.lock")
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise ClaimedError(
                f"{self._path} belongs to another process that runs with the identity of this hub",
                action="stop one of them",
            ) from None
        except OSError:
            os.close(fd)  # a volume without locks: the claim alone excludes other processes
            return
        self._lock = fd

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

    def _read_head(self) -> TreeHead:
        """Return the recorded tree, which this hub's log contains."""
        head = self._parse(self._read())
        check_contained(self._hub_log, head.size, head.root, self.name)
        return head

    def _parse(self, content: bytes) -> TreeHead:
        if not content:
            return TreeHead(self._origin, 0, EMPTY_ROOT)
        try:
            head = parse_head(content.decode())
        except (DecodeError, UnicodeDecodeError):
            raise SilentMemoryError(
                f"{self._path} is damaged",
                action=f"if this data directory is the newest copy, empty the file: `: > {self._path}`",
            ) from None
        if head.origin != self._origin:
            raise SilentMemoryError(
                f"{self._path} is the heads file of {head.origin[:100]!r}",
                action="set hub_log.memories.heads_file to a file of this hub's own",
            )
        return head

    # --- on the event loop

    async def _run(self, work: Callable[[], T]) -> None:
        """Run a step once the previous one has ended; a step that times out continues in its thread."""
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
