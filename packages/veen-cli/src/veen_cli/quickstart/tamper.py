"""Somebody with the disk in hand changes one bit: can it be hidden?"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from veen_cli.quickstart.world import World
from veen_core.errors import VerificationError
from veen_storage import Layout
from veen_storage.fsck import Report, fsck


@dataclass(frozen=True, slots=True)
class Tampering:
    """Which bit was flipped, and what fsck says of the original and of the copy."""

    file: str
    offset: int
    before: int
    after: int
    original: Report
    copy: Report


def flip_one_bit(world: World, ciphertext: bytes) -> Tampering:
    """In a copy of the stopped hub, one bit in the middle of a message; then both are checked."""
    shutil.copytree(world.data_dir, world.copy)
    path, offset = _find(world, ciphertext)
    content = bytearray(path.read_bytes())
    before = content[offset]
    content[offset] ^= 0x01
    path.write_bytes(content)
    original, copy = fsck(world.data_dir, processes=1), fsck(world.copy, processes=1)
    if not original.ok or copy.ok:
        raise VerificationError("fsck does not tell the original from the copy with one bit flipped")
    return Tampering(path.name, offset, before, content[offset], original, copy)


def _find(world: World, ciphertext: bytes) -> tuple[Path, int]:
    for path in sorted(Layout(world.copy).log.iterdir()):
        at = path.read_bytes().find(ciphertext) if path.is_file() else -1
        if at >= 0:
            return path, at + len(ciphertext) // 2
    raise VerificationError("the message is not in the hub's log")
