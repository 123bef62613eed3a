"""Anchors: publish checkpoint roots outside the hub (ANCHOR0).

The hub has two backends: an append-only file ledger, and a stream of another VEEN hub. Others are found by
entry point. ``publish`` returns an ``anchor_ref``, which the hub stores with the checkpoint and which
``verify`` accepts later. A backend that also has ``recall`` is a memory of the hub (RESOLUTIONS P3).
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from veen_core import cbor
from veen_core.errors import ConfigError, DecodeError, VeenError
from veen_core.hashing import H
from veen_core.ids import Epoch, FixedBytes, HubId, Label, MmrRoot, StreamSeq, UnixTime
from veen_core.wire import Wire, int_map
from veen_hub import extension
from veen_hub.ops.config import AnchorSettings


class AnchorError(VeenError):
    """A root could not be anchored; the hub tries again later."""


class AnchorHash(FixedBytes):
    """Hash of a ledger line; the next line contains it."""

    __slots__ = ()


@int_map("anchored root", section="ANCHOR0.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class AnchoredRoot(Wire):
    """The published record: a checkpoint's root, its hub and label, and the time."""

    ver: Literal[1] = 1
    hub_id: HubId
    label: Label
    upto_seq: StreamSeq
    mmr_root: MmrRoot
    epoch: Epoch
    ts: UnixTime


class AnchorPublisher(Protocol):
    """Publishes roots. ``publish`` returns once the root is durable, or raises ``AnchorError``."""

    async def publish(self, root: AnchoredRoot) -> bytes: ...


@runtime_checkable
class AnchorBackend(AnchorPublisher, Protocol):
    """An anchor backend: what it published, it also verifies."""

    async def verify(self, root: AnchoredRoot, anchor_ref: bytes) -> bool: ...


@runtime_checkable
class RecallingAnchor(AnchorBackend, Protocol):
    """A backend that returns what it holds, so that a hub can find out that it is behind (P3)."""

    async def recall(self, hub_id: HubId) -> list[AnchoredRoot] | None:
        """Return the newest root of each label of a hub among those that were not returned before.

        None if there is no ledger yet. Raise ``AnchorError`` if the ledger cannot be read.
        """
        ...


def load_anchor(settings: AnchorSettings) -> AnchorBackend | None:
    """Load the configured backend; raises ``ConfigError`` if its settings are not usable."""
    if settings.backend == "none":
        return None
    made = extension.make(extension.ANCHORS, settings.backend, "anchor.backend", settings)
    if not isinstance(made, AnchorBackend):
        raise ConfigError(f"anchor.backend: {settings.backend!r} is not an AnchorBackend")
    return made


@int_map("ledger line", section="ANCHOR0.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine(Wire):
    """One line of a file ledger: its offset, the hash of the line before, and the root."""

    offset: int
    previous: AnchorHash
    root: AnchoredRoot


GENESIS = AnchorHash(bytes(32))
MIN_LINE_BYTES = 153
"""Size of the shortest line; fewer bytes at the end of the file are an interrupted write."""


class FileLedger:
    """An append-only file of hash-chained lines; an ``anchor_ref`` is the offset and hash of a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = asyncio.Lock()
        self._end: tuple[int, AnchorHash] | None = None
        self._recalled = (0, GENESIS)
        """Offset and hash after the last line that ``recall`` has returned."""

    async def publish(self, root: AnchoredRoot) -> bytes:
        async with self._lock:
            return await asyncio.to_thread(self._append, root)

    def _append(self, root: AnchoredRoot) -> bytes:
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)  # several hubs may share a ledger
                if self._end is None or os.fstat(fd).st_size != self._end[0]:
                    self._end = self._read_end()
                offset, previous = self._end
                line = LedgerLine(offset=offset, previous=previous, root=root).encode()
                os.ftruncate(fd, offset)  # an interrupted last line was never acknowledged
                _write(fd, line, offset)
                if offset == 0:
                    _sync_folder(self._path.parent)  # make the file's name durable too
            finally:
                os.close(fd)
        except OSError as exc:
            raise AnchorError(f"anchor ledger {self._path.name}: {exc.strerror}") from exc
        digest = AnchorHash(H(line))
        self._end = (offset + len(line), digest)
        return cbor.encode([offset, bytes(digest)])

    def _read_end(self) -> tuple[int, AnchorHash]:
        end = 0, GENESIS
        for _line, after in self._verified_lines(*end):
            end = after
        return end

    def _verified_lines(
        self, offset: int, previous: AnchorHash
    ) -> Iterator[tuple[LedgerLine, tuple[int, AnchorHash]]]:
        """Yield the lines from ``offset`` on, each with the offset after it and its hash.

        Raise ``AnchorError`` where the hash chain is broken; ``previous`` is the hash of the line before.
        """
        for item in self._lines(offset):
            try:
                line = LedgerLine.decode(item)
            except DecodeError as exc:
                raise self._damaged(offset, str(exc)) from None
            if line.offset != offset or line.previous != previous:
                raise self._damaged(offset, "the hash chain is broken")
            offset, previous = offset + len(item), AnchorHash(H(item))
            yield line, (offset, previous)

    def _lines(self, start: int = 0) -> Iterator[bytes]:
        """Yield every line except an interrupted last one; anything else unreadable is damage."""
        with self._path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < start:
                raise self._damaged(start, "the file was truncated")
            file.seek(start)
            data = file.read()
        at = 0
        while at < len(data):
            try:
                end = cbor.item_end(data, at)
            except DecodeError as exc:
                if len(data) - at < MIN_LINE_BYTES:
                    return
                raise self._damaged(start + at, str(exc)) from None
            yield data[at:end]
            at = end

    def _damaged(self, offset: int, why: str) -> AnchorError:
        return AnchorError(
            f"anchor ledger {self._path.name}: damaged at byte {offset} ({why})",
            action="restore the file, or set anchor.path to another one",
        )

    async def recall(self, hub_id: HubId) -> list[AnchoredRoot] | None:
        return await asyncio.to_thread(self._recall, hub_id)

    def _recall(self, hub_id: HubId) -> list[AnchoredRoot] | None:
        try:
            newest, end = NewestRoots(hub_id), self._recalled
            for line, after in self._verified_lines(*end):
                newest.add(line.root)
                end = after
            self._recalled = end
            return newest.roots
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise AnchorError(f"anchor ledger {self._path.name}: {exc.strerror}") from exc

    async def verify(self, root: AnchoredRoot, anchor_ref: bytes) -> bool:
        return await asyncio.to_thread(self._verify, root, anchor_ref)

    def _verify(self, root: AnchoredRoot, anchor_ref: bytes) -> bool:
        """Check the line at the reference's offset, its root, and the hash chain up to it."""
        try:
            wanted_offset, wanted_hash = cbor.decode_items(anchor_ref)
        except (DecodeError, ValueError, TypeError):
            return False
        offset, previous = 0, GENESIS
        for item in self._lines():
            try:
                line = LedgerLine.decode(item)
            except DecodeError:
                return False
            if line.offset != offset or line.previous != previous:
                return False
            if offset == wanted_offset:
                return H(item) == wanted_hash and line.root == root
            offset, previous = offset + len(item), AnchorHash(H(item))
        return False


class NewestRoots:
    """For each label of a hub, the root with the largest ``upto_seq``."""

    def __init__(self, hub_id: HubId) -> None:
        self._hub_id = hub_id
        self._by_label: dict[Label, AnchoredRoot] = {}

    def add(self, root: AnchoredRoot) -> None:
        """Take in a root; those of other hubs are ignored."""
        known = self._by_label.get(root.label)
        if root.hub_id == self._hub_id and (known is None or root.upto_seq >= known.upto_seq):
            self._by_label[root.label] = root

    @property
    def roots(self) -> list[AnchoredRoot]:
        return list(self._by_label.values())


def _write(fd: int, line: bytes, offset: int) -> None:
    """Write and sync a whole line or nothing; a nearly full disk may accept only a part of it."""
    if (taken := os.pwrite(fd, line, offset)) != len(line):
        os.ftruncate(fd, offset)
        raise OSError(errno.ENOSPC, f"only {taken} of {len(line)} bytes could be written")
    os.fsync(fd)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def file_anchor(settings: AnchorSettings) -> AnchorBackend:
    """Make the anchor of ``anchor.backend: file``."""
    if settings.path is None:
        raise ConfigError("anchor.path: missing; backend file needs the path of its ledger")
    return FileLedger(settings.path)


Send = Callable[[bytes], Awaitable[bytes]]
"""Send a body to the anchoring stream and return the encoded RECEIPT."""
Check = Callable[[bytes, bytes], Awaitable[bool]]
"""Return whether the stream holds the body under the encoded RECEIPT."""
ReadBack = Callable[[], Awaitable[list[bytes]]]
"""Return the newest bodies that this hub has sent to the anchoring stream, without those of the last call."""


class HubAnchor:
    """Anchors in a stream of another hub; an ``anchor_ref`` is that hub's RECEIPT."""

    def __init__(self, send: Send, check: Check) -> None:
        self._send = send
        self._check = check

    async def publish(self, root: AnchoredRoot) -> bytes:
        try:
            return await self._send(root.encode())
        except VeenError as exc:
            raise AnchorError(f"anchoring hub: {exc}") from exc

    async def verify(self, root: AnchoredRoot, anchor_ref: bytes) -> bool:
        return await self._check(root.encode(), anchor_ref)


class RecallingHubAnchor(HubAnchor):
    """A stream of another hub to which this hub alone may write; what it holds can be read back."""

    def __init__(self, send: Send, check: Check, read_back: ReadBack) -> None:
        super().__init__(send, check)
        self._read_back = read_back

    async def recall(self, hub_id: HubId) -> list[AnchoredRoot]:
        newest = NewestRoots(hub_id)
        try:
            for body in await self._read_back():
                newest.add(AnchoredRoot.decode(body))
            return newest.roots
        except VeenError as exc:
            raise AnchorError(f"anchoring hub: {exc}") from exc
