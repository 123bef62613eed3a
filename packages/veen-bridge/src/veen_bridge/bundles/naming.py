"""The names of bundle files. A name is for people: the trailer inside a file says what the file is.

export_orders-1-500-9f86d081.veenb                 a bundle in one file
export_orders-1-500-9f86d081.part-0002-of-0003.veenb
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from veen_core.bundle import BundleHeader
from veen_core.ids import BundleId, Label, StreamSeq

SUFFIX: Final = ".veenb"
MAX_SLUG_CHARACTERS: Final = 80
_PART: Final = re.compile(r"\.part-([0-9]{4})-of-([0-9]{4})\.veenb\Z")


def slug(stream: str) -> str:
    """Return a stream's name with only letters, digits, ``.``, ``-`` and ``_``, cut to 80 characters."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", stream)[:MAX_SLUG_CHARACTERS].lstrip(".") or "stream"


def part_name(header: BundleHeader, bundle: BundleId, number: int) -> str:
    """Return the name of a finished part."""
    span = f"{header.from_seq}-{header.to_seq}" if not header.is_heartbeat else f"{header.to_seq}-heartbeat"
    epoch = f"-epoch-{header.epoch}" if header.profile.epoch_sec else ""
    stem = f"{slug(header.stream)}{epoch}-{span}-{bundle.hex()[:8]}"
    total = len(header.parts)
    return f"{stem}{SUFFIX}" if total == 1 else f"{stem}.part-{number:04}-of-{total:04}{SUFFIX}"


def staging_name(stream: str, label: Label, from_seq: StreamSeq) -> str:
    """Return the name of the folder in which a bundle is written before it is complete."""
    return f".{slug(stream)}-{label.hex()[:8]}-{from_seq}.exporting"


def number_in_name(path: Path) -> int | None:
    """Return the part number that a file's name states, if it states one."""
    found = _PART.search(path.name)
    return int(found.group(1)) if found else None
