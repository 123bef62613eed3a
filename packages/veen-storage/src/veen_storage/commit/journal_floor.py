"""The floor: what the journal's folder must agree with, in a file of its own beside the segments (H2)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from veen_storage.disk.files import Files
from veen_storage.errors import DamageError, unreadable

FLOOR: Final = "applied"


class Floor(NamedTuple):
    """What the journal's folder must agree with: noted when a segment begins, and before segments go.

    There from a directory's creation on: a journal that somebody emptied is not taken for a new one.
    """

    applied: int = 0
    """The batch that every index of this directory must have applied: an older index is noticed."""
    segment: int = 0
    """The first batch of the newest segment, which must be there; 0 if none need be."""

    @property
    def text(self) -> str:
        said = f"{self.applied} {self.segment}"
        return f"{said} {crc32(said.encode()):08x}\n"


def write_floor(files: Files, directory: Path, floor: Floor) -> None:
    files.replace(directory / FLOOR, floor.text.encode())


def read_floor(directory: Path) -> Floor:
    try:
        text = (directory / FLOOR).read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        raise DamageError(
            f"journal/{FLOOR}",
            None,
            "is missing: where it went, batches that were acknowledged may have gone too",
            "put journal/ back as it was; without that, `veen hub repair` goes on with what the log holds",
        ) from None
    except OSError as exc:
        raise unreadable(f"journal/{FLOOR}", exc) from exc
    match text.split(" "):
        case [applied, segment, _checksum] if _is_number(applied) and _is_number(segment):
            if (floor := Floor(int(applied), int(segment))).text == text:
                return floor
    raise DamageError(
        f"journal/{FLOOR}",
        None,
        "does not hold two batch numbers and their checksum",
        "run `veen hub repair`",
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
