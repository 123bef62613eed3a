"""Flip one bit of a message on disk, and let fsck find it."""

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
    """The flipped bit, and the reports of fsck on the original and on the copy."""

    file: str
    offset: int
    before: int
    after: int
    original: Report
    copy: Report


def flip_one_bit(world: World, ciphertext: bytes) -> Tampering:
    """Flip one bit in the middle of a message, in a copy of the stopped hub, and check both."""
    shutil.copytree(world.data_dir, world.copy)
    path, offset = _find(world, ciphertext)
    content = bytearray(path.read_bytes())
    before = content[offset]
    content[offset] ^= 0x01
    path.write_bytes(content)
    original, copy = fsck(world.data_dir, processes=1), fsck(world.copy, processes=1)
    if not original.ok or copy.ok:
        raise VerificationError("fsck does not find the flipped bit")
    return Tampering(path.name, offset, before, content[offset], original, copy)


def _find(world: World, ciphertext: bytes) -> tuple[Path, int]:
    for path in sorted(Layout(world.copy).log.iterdir()):
        at = path.read_bytes().find(ciphertext) if path.is_file() else -1
        if at >= 0:
            return path, at + len(ciphertext) // 2
    raise VerificationError("the message is not in the hub's log")
