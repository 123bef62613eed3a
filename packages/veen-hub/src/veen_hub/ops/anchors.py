"""Anchors: where a checkpoint's root is written down outside the hub (ANCHOR0).

Two backends come with the hub: an append-only file ledger, and a stream of another VEEN hub. Others are
found by entry point. Each returns an ``anchor_ref`` that ``verify`` accepts later; it is stored beside the
checkpoint.
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
    """A root could not be anchored now; the hub tries again."""


class AnchorHash(FixedBytes):
    """Chains the lines of a file ledger."""

    __slots__ = ()


@int_map("anchored root", section="ANCHOR0.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class AnchoredRoot(Wire):
    """What is written down: the root, whose it is, and when."""

    ver: Literal[1] = 1
    hub_id: HubId
    label: Label
    upto_seq: StreamSeq
    mmr_root: MmrRoot
    epoch: Epoch
    ts: UnixTime


@runtime_checkable
class Anchor(Protocol):
    """``publish`` raises ``AnchorError`` if it did not happen; what it returns is durable."""

    async def publish(self, root: AnchoredRoot) -> bytes: ...
    async def verify(self, root: AnchoredRoot, anchor_ref: bytes) -> bool: ...


def load_anchor(settings: AnchorSettings) -> Anchor | None:
    """The backend that is configured; it raises ``ConfigError`` for settings that it cannot work with."""
    if settings.backend == "none":
        return None
    made = extension.make(extension.ANCHORS, settings.backend, "anchor.backend", settings)
    if not isinstance(made, Anchor):
        raise ConfigError(f"anchor.backend: {settings.backend!r} is not an Anchor")
    return made


@int_map("ledger line", section="ANCHOR0.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine(Wire):
    """One line: its place, the hash of the line before, and the root."""

    offset: int
    previous: AnchorHash
    root: AnchoredRoot


GENESIS = AnchorHash(bytes(32))
SHORTEST = 153
"""No line is shorter than this: what is, was cut off while it was written."""


class FileLedger:
    """An append-only file of hash-chained lines; ``anchor_ref`` is offset and hash of a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = asyncio.Lock()
        self._end: tuple[int, AnchorHash] | None = None

    async def publish(self, root: AnchoredRoot) -> bytes:
        async with self._lock:
            return await asyncio.to_thread(self._append, root)

    def _append(self, root: AnchoredRoot) -> bytes:
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)  # another hub may keep its anchors here too
                if self._end is None or os.fstat(fd).st_size != self._end[0]:
                    self._end = self._read_end()
                offset, previous = self._end
                line = LedgerLine(offset=offset, previous=previous, root=root).encode()
                os.ftruncate(fd, offset)  # a last line that was cut off was never referred to
                _write(fd, line, offset)
                if offset == 0:
                    _sync_folder(self._path.parent)  # the file's name is as durable as its first line
            finally:
                os.close(fd)
        except OSError as exc:
            raise AnchorError(f"anchor ledger {self._path.name}: {exc.strerror}") from exc
        digest = AnchorHash(H(line))
        self._end = (offset + len(line), digest)
        return cbor.encode([offset, bytes(digest)])

    def _read_end(self) -> tuple[int, AnchorHash]:
        offset, previous = 0, GENESIS
        for item in self._lines():
            try:
                line = LedgerLine.decode(item)
            except DecodeError as exc:
                raise self._damaged(offset, str(exc)) from None
            if line.offset != offset or line.previous != previous:
                raise self._damaged(offset, "the chain breaks")
            offset, previous = offset + len(item), AnchorHash(H(item))
        return offset, previous

    def _lines(self) -> Iterator[bytes]:
        """Every line but a last one that was cut off; what else cannot be read is damage."""
        data, offset = self._path.read_bytes(), 0
        while offset < len(data):
            try:
                end = cbor.item_end(data, offset)
            except DecodeError as exc:
                if len(data) - offset < SHORTEST:
                    return
                raise self._damaged(offset, str(exc)) from None
            yield data[offset:end]
            offset = end

    def _damaged(self, offset: int, why: str) -> AnchorError:
        return AnchorError(
            f"anchor ledger {self._path.name}: damaged at byte {offset} ({why}): "
            "restore it, or name another file"
        )

    async def verify(self, root: AnchoredRoot, anchor_ref: bytes) -> bool:
        return await asyncio.to_thread(self._verify, root, anchor_ref)

    def _verify(self, root: AnchoredRoot, anchor_ref: bytes) -> bool:
        """The line is where the reference says, holds the root, and the chain up to it is whole."""
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


def _write(fd: int, line: bytes, offset: int) -> None:
    """All of it, durable; else none: a disk that is nearly full takes a part and calls that a success."""
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


def file_anchor(settings: AnchorSettings) -> Anchor:
    """The anchor that ``anchor.backend: file`` names."""
    if settings.path is None:
        raise ConfigError("anchor.path: a file ledger needs one")
    return FileLedger(settings.path)


Send = Callable[[bytes], Awaitable[bytes]]
"""Sends a body to the anchoring stream; returns the encoded RECEIPT."""
Check = Callable[[bytes, bytes], Awaitable[bool]]
"""Whether the stream holds this body under that encoded RECEIPT."""


class HubAnchor:
    """A stream of another hub, through ``veen_hub.client``; ``anchor_ref`` is its RECEIPT."""

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
