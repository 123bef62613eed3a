r"""The layout of one part of a bundle: records, index, and the signed header as its trailer (P6).

    magic     "veen-bundle 1\n"
    records   event:       0x01 | u32be length of MSG | u16be length of RECEIPT | MSG | RECEIPT
              attachment:  0x02 | u32be length | ciphertext
    index     CBOR(PartIndex); the part's row has its size
    trailer   CBOR(PartTrailer): number of the part, header, the bridge's signature over bundle_id
    footer    u32be length of the trailer | "VEENPART"

The content of a part is everything before its trailer. The header has the hash of every content, so it
is known only when all parts are complete: that is why it comes last, and no content is ever copied. Events
are in order of stream_seq. Label and stream_seq of an event are those of its RECEIPT.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Literal

from veen_core.bundle.header import MAX_PARTS, SECTION, BundleHeader
from veen_core.errors import DecodeError, VerificationError
from veen_core.ids import Coid, NodeHash, Signature, UnixTime
from veen_core.wire import Wire, array, int_map

MAGIC: Final = b"veen-bundle 1\n"
END: Final = b"VEENPART"
FOOTER_SIZE: Final = 4 + len(END)
EVENT: Final = 1
ATTACHMENT: Final = 2
EVENT_HEAD: Final = struct.Struct(">BIH")
ATTACHMENT_HEAD: Final = struct.Struct(">BI")
INDEX_STEP: Final = 256
"""Events from one offset in the index to the next."""
MAX_INDEXED_ATTACHMENTS: Final = 16_384
"""Most attachments of one part: 1 MiB of its index."""
MAX_INDEX_BYTES: Final = 16 * 1_048_576
MAX_TRAILER_BYTES: Final = 1_048_576
"""Several times the largest trailer, which has 1,024 rows, the largest note and the proofs."""
MAX_ROW_BYTES: Final = 80
ROWS_RESERVE: Final = MAX_PARTS * MAX_ROW_BYTES


class BundleError(VerificationError):
    """A bundle, or one of its parts, does not verify; names the part and the entry, as far as they are known.

    ``clause`` is the rule that is broken, ``part`` counts from 1, ``seq`` is a stream_seq.
    """

    def __init__(
        self,
        found: str,
        clause: str = SECTION,
        *,
        part: int | None = None,
        seq: int | None = None,
        action: str | None = None,
    ) -> None:
        places = [f"part {part}"] if part is not None else []
        places += [f"stream_seq {seq}"] if seq is not None else []
        place = f"{', '.join(places)}: " if places else ""
        found = found.replace(f" ({clause})", "")  # errors of decoding cite it for every object they name
        super().__init__(f"{place}{found} ({clause})", action=action)
        self.found, self.clause, self.part, self.seq = found, clause, part, seq


@array("indexed attachment", section=SECTION)
@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedAttachment(Wire):
    """Where the ciphertext of an attachment is in the part's file."""

    coid: Coid
    offset: int
    size: int


@int_map("part index", section=SECTION)
@dataclass(frozen=True, slots=True, kw_only=True)
class PartIndex(Wire):
    """The index of a part: it lets a reader verify the part alone, and find its events and attachments."""

    ver: Literal[1] = 1
    peaks: tuple[NodeHash, ...]
    """Peaks of the label's tree before the part's first event; that event's RECEIPT commits to them."""
    hub_ts: UnixTime
    """hub_ts of the event before the part's first event in this bundle; 0 in the first part."""
    offsets: tuple[int, ...]
    """Offset in the file of the part's first event and of every ``INDEX_STEP``-th after it."""
    attachments: tuple[IndexedAttachment, ...]
    """The attachments of this part, in the order of their records."""
    unopened: int
    """Messages of this part that the bridge could not open."""


@int_map("part trailer", section=SECTION)
@dataclass(frozen=True, slots=True, kw_only=True)
class PartTrailer(Wire):
    """The end of every part: which part it is, of which bundle."""

    ver: Literal[1] = 1
    number: int
    """From 1."""
    header: BundleHeader
    signature: Signature
    """The bridge's, over bundle_id."""


def event_head(msg: bytes, receipt: bytes) -> bytes:
    """Return the bytes before MSG and RECEIPT of an event."""
    return EVENT_HEAD.pack(EVENT, len(msg), len(receipt))


def attachment_head(size: int) -> bytes:
    """Return the bytes before the ciphertext of an attachment."""
    return ATTACHMENT_HEAD.pack(ATTACHMENT, size)


def encode_ending(trailer: PartTrailer) -> bytes:
    """Return trailer and footer, to be appended to the content of a part."""
    encoded = trailer.encode()
    return encoded + len(encoded).to_bytes(4, "big") + END


def trailer_size(footer: bytes) -> int:
    """Return the size of the trailer before this footer; raise ``DecodeError`` if the file was truncated."""
    where = f"bundle footer ({SECTION})"
    if len(footer) != FOOTER_SIZE or footer[4:] != END:
        raise DecodeError("the file does not end like a part of a bundle: it was cut or altered", where=where)
    size = int.from_bytes(footer[:4], "big")
    if size > MAX_TRAILER_BYTES:
        raise DecodeError(
            f"announces a trailer of {size} bytes, at most {MAX_TRAILER_BYTES} are allowed", where=where
        )
    return size


def trailer_start(file_size: int, footer: bytes) -> int:
    """Return where the trailer begins in a file with this footer; raise ``DecodeError`` if it was cut."""
    length = trailer_size(footer)
    start = file_size - FOOTER_SIZE - length
    if start < 0:
        raise DecodeError(f"announces a trailer of {length} bytes in a file of {file_size}")
    return start
