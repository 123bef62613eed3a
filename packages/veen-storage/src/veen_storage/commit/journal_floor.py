"""The journal floor: the batch and the segment below which journal and index must not fall (RESOLUTIONS H2).

The floor is the small file ``journal/applied``. It exists from the creation of a directory on, so that an
emptied journal is not mistaken for a new one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from veen_storage.disk.files import Files
from veen_storage.errors import JOURNAL_BACK, REPAIR, DamageError, read_file

FLOOR: Final = "applied"
_NAME: Final = f"journal/{FLOOR}"


class Floor(NamedTuple):
    """Minimum state of journal and index; written when a segment begins and before segments are removed."""

    applied: int = 0
    """The batch that every index of this directory must include: an older index is refused."""
    segment: int = 0
    """First batch of the newest segment, which must exist; 0 if no segment need exist."""

    @property
    def text(self) -> str:
        """The two numbers and their checksum, as the file contains them."""
        numbers = f"{self.applied} {self.segment}"
        return f"{numbers} {crc32(numbers.encode()):08x}\n"


def write_floor(files: Files, directory: Path, floor: Floor) -> None:
    files.replace(directory / FLOOR, floor.text.encode())


def read_floor(directory: Path) -> Floor:
    """Read the floor; raise ``DamageError`` if it is missing: acknowledged batches may be missing too."""
    content = read_file(directory / FLOOR, name=_NAME, missing=JOURNAL_BACK)
    match (text := content.decode("ascii", "replace")).split(" "):
        case [applied, segment, _checksum] if _is_number(applied) and _is_number(segment):
            if (floor := Floor(int(applied), int(segment))).text == text:
                return floor
    raise DamageError(_NAME, None, "does not contain two batch numbers and their checksum", REPAIR)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
