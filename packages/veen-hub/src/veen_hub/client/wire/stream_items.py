"""Entries from the items of a page or a live stream, each checked to be the one asked for (§10.4.2, H5, H15).

A canonical item is ``{1: stream_seq, 2: MSG, 3: RECEIPT}``. The patterns of MSG and RECEIPT find where both
end, and prove that they are canonical. They are cut out without decoding. The entry decodes each of them
once, when it is verified. Items of any other form, and all tokens, take the general decoder, after their CBOR
items were counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from veen_core import cbor
from veen_core.api import ControlItem, ControlResponse, StreamItem, StreamResponse
from veen_core.entry import FLAG_AUTHORIZE, Entry
from veen_core.errors import DecodeError
from veen_core.ids import Label, StreamId, StreamSeq
from veen_core.msg import Msg
from veen_core.receipt import Receipt
from veen_core.wire import Wire
from veen_hub.client.errors import Misbehaved
from veen_hub.client.wire.framing import MAX_CBOR_ITEMS, item_end

W = TypeVar("W", bound=Wire)
MAX_TAIL_BYTES: Final = 256
"""Bytes after the items of a page that is cut: next_cursor and server_version."""
_ANY_UINT: Final = rb"(?:[\x00-\x17]|\x18.|\x19.{2}|\x1a.{4}|\x1b.{8})"
_HEAD: Final = re.compile(
    rb"[\xa4-\xa8]\x01\x01\x02\x58\x20.{32}\x03%b(?:\x04%b)?\x05(?:([\x80-\x97])|\x98([\x18-\xff])|\x99(?!\x00)(.{2}))"
    % (_ANY_UINT, _ANY_UINT),
    re.DOTALL,
)
"""A page up to the length of its array of items, in canonical form."""
_ITEM: Final = b"\xa3\x01"
"""The head of an item with three fields, and the key of stream_seq."""
_ITEM_HEAD: Final = re.compile(rb"\xa3\x01%b\x02" % _ANY_UINT, re.DOTALL)
_MSG_KEY: Final = b"\x02"
_RECEIPT_KEY: Final = b"\x03"
_EMPTY: Final = b"\x80"


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive entries, not yet verified, and where the hub says that more follow."""

    entries: Sequence[Entry]
    next_cursor: StreamSeq | None


def decode_response(kind: type[W], body: bytes) -> W:
    """Decode a response; raises ``Misbehaved`` if the bytes are not a ``kind``."""
    try:
        return kind.decode(body)
    except DecodeError as exc:
        raise Misbehaved(f"the hub's answer is not a {kind.codec.name}: {exc}") from None


# --- cutting


def cut_item(data: bytes, at: int, label: Label, seq: int) -> tuple[Entry, int] | None:
    """Return entry ``seq`` and where its item ends; None: use the general decoder."""
    prefix = b"".join((_ITEM, cbor.encode_items(seq), _MSG_KEY))
    if not data.startswith(prefix, at):
        return None
    begin = at + len(prefix)
    middle = Msg.codec.end(data, begin)
    if middle is None or data[middle : middle + 1] != _RECEIPT_KEY:
        return None
    end = Receipt.codec.end(data, middle + 1)
    if end is None:
        return None
    return Entry(label, StreamSeq(seq), bytes(data[begin:middle]), bytes(data[middle + 1 : end])), end


def find_end(data: bytes | bytearray, at: int) -> int | None:
    """Return where the item at ``at`` ends; None: it is not complete, or has another form."""
    if (head := _ITEM_HEAD.match(data, at)) is None or (middle := Msg.codec.end(data, head.end())) is None:
        return None
    return Receipt.codec.end(data, middle + 1) if data[middle : middle + 1] == _RECEIPT_KEY else None


def cut_page(body: bytes, label: Label, start: StreamSeq, max_items: int) -> Page | None:
    """Return the page; None: use the general decoder, which names the fault if there is one."""
    if (head := _HEAD.match(body)) is None:
        return None
    count = _array_length(head)
    if count > max_items:
        return None
    entries, at = [], head.end()
    for seq in range(start, start + count):
        if (cut := cut_item(body, at, label, seq)) is None:
            return None
        entries.append(cut[0])
        at = cut[1]
    if len(body) - at > MAX_TAIL_BYTES:
        return None
    items_at = max(head.start(group) for group in (1, 2, 3))
    array_at = items_at if head[1] is not None else items_at - 1
    try:
        around = StreamResponse.decode(body[:array_at] + _EMPTY + body[at:])
    except DecodeError:
        return None
    return Page(entries, around.next_cursor) if around.label == label else None


def _array_length(head: re.Match[bytes]) -> int:
    short, one, two = head.groups()
    return short[0] & 0x1F if short is not None else int.from_bytes(one or two, "big")


# --- decoding


def decode_page(body: bytes, label: Label, start: StreamSeq, max_items: int, *, control: bool) -> Page:
    """Decode a page; raises ``Misbehaved`` unless it has consecutive entries of ``label`` from ``start``."""
    # Bounded before anything is decoded: a million empty arrays would cost a thousand pages.
    item_end(body, max_items=MAX_CBOR_ITEMS * (1 + max_items) + token_items(len(body), control=control))
    kind: type[StreamResponse | ControlResponse] = ControlResponse if control else StreamResponse
    page = decode_response(kind, body)
    if page.label != label:
        raise Misbehaved("the hub answered with a page of another label")
    items: Sequence[StreamItem | ControlItem] = page.items
    return Page([_entry(label, item, seq) for seq, item in enumerate(items, start)], page.next_cursor)


def decode_item(item: bytes, label: Label, seq: int, *, control: bool) -> Entry:
    """Decode an item of a live stream, whose CBOR items were counted; it must be entry ``seq``."""
    if not control and (cut := cut_item(item, 0, label, seq)) is not None and cut[1] == len(item):
        return cut[0]
    kind: type[StreamItem | ControlItem] = ControlItem if control else StreamItem
    return _entry(label, decode_response(kind, item), seq)


def token_items(size: int, *, control: bool) -> int:
    """Return how many more CBOR items ``size`` bytes may have if they are tokens, which name many streams."""
    return size // StreamId.SIZE if control else 0


def _entry(label: Label, item: StreamItem | ControlItem, seq: int) -> Entry:
    """Convert an item into its entry; the codec is canonical, so the bytes are those that the hub stored."""
    if item.stream_seq != seq:
        raise Misbehaved(f"the hub sent entry {item.stream_seq} where entry {seq} belongs")
    if item.receipt is None:
        raise Misbehaved(f"the hub sent entry {seq} without its receipt")
    flags = FLAG_AUTHORIZE if isinstance(item, ControlItem) else 0
    return Entry(label, item.stream_seq, item.msg.encode(), item.receipt.encode(), flags)
