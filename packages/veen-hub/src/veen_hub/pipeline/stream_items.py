"""Stream items (§10.4.2) around stored bytes: MSG and RECEIPT are sent as they are on disk.

On the control label ``msg`` is the cap token's map, because that is what the entry contains (H5).
"""

from __future__ import annotations

from collections.abc import Iterable

from veen_core import cbor
from veen_core.entry import Content
from veen_core.ids import StreamSeq


def encode_items(contents: Iterable[Content], start: StreamSeq, *, with_receipts: bool = True) -> list[bytes]:
    """Return the items of the entries from ``start`` on, in pieces that only have to be joined."""
    head = b"\xa3\x01" if with_receipts else b"\xa2\x01"
    pieces: list[bytes] = []
    for stream_seq, (msg_bytes, receipt_bytes, _flags) in enumerate(contents, start):
        pieces += (head, cbor.encode_items(stream_seq), b"\x02", msg_bytes)
        if with_receipts:
            pieces += (b"\x03", receipt_bytes)
    return pieces
