"""The head of a log: the text that a log signs and witnesses cosign (C2SP tlog-checkpoint).

C2SP calls the signed text a checkpoint. Here it is a tree head, because VEEN's CHECKPOINT (core §4.4) is
another object. A hub's signed tree head is its hub checkpoint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from veen_core.errors import DecodeError, EncodeError
from veen_core.hashing import HASH_SIZE
from veen_core.tlog.note import Note, decode_hash, encode_hash, parse_note

_WHERE: Final = "checkpoint (C2SP tlog-checkpoint)"
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_LINE: Final = re.compile(r"[^\x00-\x1f\ud800-\udfff]+")
MAX_SIZE: Final = 2**63 - 1
"""Largest tree size; C2SP gives no bound."""


@dataclass(frozen=True, slots=True)
class TreeHead:
    """Name, size and root of a log's tree. Extension lines are kept as they are and mean nothing here.

    Raise ``EncodeError`` for values that no checkpoint can have.
    """

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(_LINE.fullmatch(line) for line in (self.origin, *self.extensions)):
            raise EncodeError(
                f"{_WHERE}: origin and extensions are lines of UTF-8, not empty, without control characters"
            )
        if not 0 <= self.size <= MAX_SIZE or len(self.root) != HASH_SIZE:
            raise EncodeError(f"{_WHERE}: want a size of 0 to 2^63 - 1 and a root of {HASH_SIZE} bytes")

    @property
    def text(self) -> str:
        lines = (self.origin, str(self.size), encode_hash(self.root), *self.extensions)
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class SignedHead:
    """A tree head in its note, with the signatures of log and witnesses."""

    head: TreeHead
    note: Note

    def __post_init__(self) -> None:
        if self.note.text != self.head.text:  # the signatures would be those of another head
            raise EncodeError(f"{_WHERE}: the text of the note is not that of the tree head")

    def encode(self) -> bytes:
        return self.note.encode()


def parse_head(text: str) -> TreeHead:
    """Parse the text of a checkpoint."""
    lines = text.split("\n")
    if len(lines) < 4 or lines[-1] or not all(lines[:-1]):
        raise DecodeError("want at least three lines, none of them empty", where=_WHERE)
    origin, size, root, *extensions = lines[:-1]
    try:
        return TreeHead(origin, parse_size(size, _WHERE), decode_hash(root, _WHERE), tuple(extensions))
    except EncodeError:
        raise DecodeError("contains a control character", where=_WHERE) from None


def parse_signed_head(data: bytes) -> SignedHead:
    """Parse a signed checkpoint; no signature is verified."""
    note = parse_note(data)
    return SignedHead(parse_head(note.text), note)


def parse_size(text: str, where: str) -> int:
    """Parse a tree size: decimal, without leading zeros."""
    if not _SIZE.fullmatch(text) or int(text) > MAX_SIZE:
        raise DecodeError(f"{text[:40]!r} is not a tree size", where=where)
    return int(text)
