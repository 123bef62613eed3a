"""Log entries: a frame around a MSG and its RECEIPT, on disk and in transit (§4.8.1, B8, H5).

A control entry (flag bit 0) contains a cap token instead of a MSG. The leaf in its RECEIPT is
``Ht("veen/authorize", auth_ref || H(token bytes))``, so that the log alone shows when a token was authorized.

``unframe``, ``split_frames`` and ``contents_of_frames`` check the frame; ``log_rules`` checks whether the
RECEIPT is for the content.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias

from veen_core import cbor
from veen_core.cap import CapToken
from veen_core.errors import DecodeError, DecodeFault, EncodeError, VerificationError
from veen_core.hashing import H, Ht
from veen_core.ids import AuthRef, EntryHash, Label, LeafHash, StreamSeq
from veen_core.msg import Msg
from veen_core.receipt import Receipt, is_receipt_of

_FRAME: Final = struct.Struct(">BB32sQII32s")
_SIZES: Final = struct.Struct(">BB40xII32x")
"""The frame header, reduced to the fields that give the end of the entry."""
FRAME_SIZE: Final = _FRAME.size
ENTRY_VERSION: Final = 1
FLAG_AUTHORIZE: Final = 0x01
_KNOWN_FLAGS: Final = FLAG_AUTHORIZE


def entry_hash(msg_bytes: bytes, receipt_bytes: bytes) -> EntryHash:
    """Return ``H("veen/entry" || msg_bytes || receipt_bytes)``, with no separator (§4.8.1, B8)."""
    return bytes.__new__(EntryHash, H(b"".join((b"veen/entry", msg_bytes, receipt_bytes))))


def authorize_leaf(auth_ref: AuthRef, token_bytes: bytes) -> LeafHash:
    """Return the leaf hash of a control entry (H5)."""
    return LeafHash(Ht("veen/authorize", auth_ref + H(token_bytes)))


_keep: Final = object.__setattr__
"""Fills a cache field of a frozen ``Entry``."""


class FrameHeader(NamedTuple):
    """The decoded frame header of one entry."""

    flags: int
    label: Label
    stream_seq: StreamSeq
    msg_len: int
    receipt_len: int
    entry_hash: EntryHash

    @property
    def size(self) -> int:
        """Bytes of the whole entry, header included."""
        return FRAME_SIZE + self.msg_len + self.receipt_len


Content: TypeAlias = tuple[bytes, bytes, int]
"""An entry as it is stored: canonical bytes of its MSG (or cap token) and of its RECEIPT, and its flags."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One log entry: the canonical bytes of MSG (or cap token) and RECEIPT, each decoded at most once."""

    label: Label
    stream_seq: StreamSeq
    msg_bytes: bytes
    receipt_bytes: bytes
    flags: int = 0
    _content: Msg | CapToken | None = field(default=None, init=False, repr=False, compare=False)
    _receipt: Receipt | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def content(self) -> Content:
        return self.msg_bytes, self.receipt_bytes, self.flags

    @property
    def is_authorize(self) -> bool:
        return bool(self.flags & FLAG_AUTHORIZE)

    @property
    def entry_hash(self) -> EntryHash:
        return entry_hash(self.msg_bytes, self.receipt_bytes)

    @property
    def msg(self) -> Msg:
        """The decoded MSG; raises ``DecodeError``."""
        if isinstance(held := self._content, Msg):
            return held
        msg = Msg.decode(self.msg_bytes)
        _keep(self, "_content", msg)
        return msg

    @property
    def token(self) -> CapToken:
        """The decoded cap token of a control entry; raises ``DecodeError``."""
        if isinstance(held := self._content, CapToken):
            return held
        token = CapToken.decode(self.msg_bytes)
        _keep(self, "_content", token)
        return token

    @property
    def receipt(self) -> Receipt:
        """The decoded RECEIPT; raises ``DecodeError``."""
        if (held := self._receipt) is not None:
            return held
        receipt = Receipt.decode(self.receipt_bytes)
        _keep(self, "_receipt", receipt)
        return receipt

    def encode(self) -> bytes:
        """Return the framed entry (§4.8.1)."""
        return self.frame(self.entry_hash)

    def frame(self, digest: EntryHash) -> bytes:
        """Return the framed entry, for a caller that knows its entry hash."""
        lengths = (len(self.msg_bytes), len(self.receipt_bytes))
        try:
            header = _FRAME.pack(ENTRY_VERSION, self.flags, self.label, self.stream_seq, *lengths, digest)
        except struct.error as exc:
            raise EncodeError(f"entry (core §4.8.1): a field does not fit its frame ({exc})") from None
        return header + self.msg_bytes + self.receipt_bytes


def decode_frame(data: bytes, at: int = 0) -> FrameHeader:
    """Decode the frame header at byte ``at``; ``DecodeError`` names the wrong field."""
    if len(data) - at < FRAME_SIZE:
        raise _fail(
            f"want {FRAME_SIZE} bytes of frame header, found {len(data) - at}", fault=DecodeFault.SIZE
        )
    version, flags, label, stream_seq, msg_len, receipt_len, digest = _FRAME.unpack_from(data, at)
    if version != ENTRY_VERSION:
        raise _fail(f"want entry_ver {ENTRY_VERSION}, found {version}", "entry_ver", DecodeFault.VERSION)
    if flags & ~_KNOWN_FLAGS:
        raise _fail(f"unused bits are set, found {flags:#04x}", "flags")
    # The struct guarantees both sizes, so the checking constructors are skipped on this hot path.
    label, digest = bytes.__new__(Label, label), bytes.__new__(EntryHash, digest)
    return FrameHeader(flags, label, StreamSeq(stream_seq), msg_len, receipt_len, digest)


def frame_size(data: bytes, at: int = 0) -> int:
    """Return the size of the entry whose frame header is at byte ``at``; raises as ``decode_frame``."""
    if len(data) - at >= FRAME_SIZE:
        version, flags, msg_len, receipt_len = _SIZES.unpack_from(data, at)
        if version == ENTRY_VERSION and not flags & ~_KNOWN_FLAGS:
            return FRAME_SIZE + int(msg_len) + int(receipt_len)
    return decode_frame(data, at).size


def unframe(data: bytes) -> Entry:
    """Decode one framed entry: lengths, entry hash, and the RECEIPT's label and stream_seq agree (§4.8.1).

    Whether the RECEIPT is for the MSG is not checked here (``log_rules.verify_alone``).
    """
    return unframe_with_header(data)[1]


def unframe_with_header(data: bytes) -> tuple[FrameHeader, Entry]:
    """Decode one framed entry as ``unframe`` does; return its frame header as well."""
    header = decode_frame(data)
    if len(data) != header.size:
        raise _fail(
            f"msg_len and receipt_len announce {header.size} bytes, found {len(data)}", fault=DecodeFault.SIZE
        )
    msg_bytes, receipt_bytes = data[FRAME_SIZE : -header.receipt_len], data[-header.receipt_len :]
    if not header.receipt_len:
        raise _fail("is 0, but every entry has a RECEIPT", "receipt_len", DecodeFault.SIZE)
    if entry_hash(msg_bytes, receipt_bytes) != header.entry_hash:
        raise _fail("does not match the bytes of the entry", "entry_hash")
    entry = Entry(header.label, header.stream_seq, msg_bytes, receipt_bytes, header.flags)
    receipt = entry.receipt
    if (receipt.label, receipt.stream_seq) != (header.label, header.stream_seq):
        raise _fail("the RECEIPT and the header differ in label or stream_seq", "stream_seq")
    return header, entry


def split_frames(data: bytes) -> Iterator[Entry]:
    """Yield the entries of a chunk in order; a damaged entry raises and none is skipped (§4.8.2)."""
    offset = 0
    while offset < len(data):
        try:
            header = decode_frame(data, offset)
            entry = unframe(data[offset : offset + header.size])
        except DecodeError as exc:
            raise exc.within(f"entry at byte {offset}") from None
        yield entry
        offset += header.size


def contents_of_frames(
    data: bytes, label: Label, start: StreamSeq, at: int, limit: int
) -> tuple[list[Content], int] | None:
    """Return the contents of at most ``limit`` frames from byte ``at`` on, and where the next frame begins.

    They must be the entries of a label from ``start`` on. Checks all that ``unframe`` checks, but decodes
    nothing: 3 instead of 7 µs an entry. None: a frame is not as it must be; ``unframe`` names the error.
    """
    found: list[Content] = []
    size = len(data)
    for stream_seq in range(start, start + limit):
        if at == size:
            break
        if size - at < FRAME_SIZE:
            return None
        version, flags, of_label, of_seq, msg_len, receipt_len, digest = _FRAME.unpack_from(data, at)
        msg_at = at + FRAME_SIZE
        receipt_at = msg_at + msg_len
        end = receipt_at + receipt_len
        if (
            version != ENTRY_VERSION
            or flags & ~_KNOWN_FLAGS
            or of_label != label
            or of_seq != stream_seq
            or end > size
            or sha256(b"veen/entry" + data[msg_at:end]).digest() != digest
            or not is_receipt_of(data, receipt_at, end, label, cbor.encode_items(stream_seq))
        ):
            return None
        found.append((data[msg_at:receipt_at], data[receipt_at:end], flags))
        at = end
    return found, at


def verify_authorize(entry: Entry) -> CapToken:
    """Return the token of a control entry; raise unless its RECEIPT is for this token (H5).

    No hash covers the flags of the frame. This check keeps a flipped flag from hiding a MSG.
    """
    token = entry.token
    if entry.receipt.leaf_hash != authorize_leaf(token.auth_ref, entry.msg_bytes):
        raise VerificationError(
            "leaf_hash in the RECEIPT is not the leaf hash of the entry's token (RESOLUTIONS H5)"
        )
    return token


def _fail(found: str, field: str = "", fault: DecodeFault = DecodeFault.CBOR) -> DecodeError:
    return DecodeError(
        found, fault=fault, where=f"entry.{field} (core §4.8.1)" if field else "entry (core §4.8.1)"
    )
