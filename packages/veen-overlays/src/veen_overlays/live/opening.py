"""Open log entries: the part of an entry that a fold may see (core §4.5, §9)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from veen_core.ciphertext import Opened
from veen_core.entry import Entry
from veen_core.errors import VeenError
from veen_core.keys import DhKey
from veen_core.msg import Msg
from veen_core.receipt import Receipt
from veen_overlays.bridge.unwrapping import is_wrapped, unwrap
from veen_overlays.fold.event import UNOPENED, Message

__all__ = ["UNOPENED", "open_entry", "open_msg"]


def open_entry(
    entry: Entry, receipt: Receipt, key: DhKey | Sequence[DhKey], *, keep_wrappers: bool = False
) -> Message:
    """Open an entry with the first key that fits.

    An entry that no key opens, or that misuses its capability (core §6), becomes a message with the schema
    ``UNOPENED``, which every overlay ignores. A wrapped message becomes the event inside it, unless
    ``keep_wrappers`` (see ``bridge.unwrapping``).
    """
    seq, msg_id = entry.stream_seq, bytes(receipt.leaf_hash)
    if entry.is_authorize:
        return Message(seq, msg_id, UNOPENED, b"")
    keys = (key,) if isinstance(key, DhKey) else key
    opened = open_msg(entry.msg, keys)
    if opened is None:
        return Message(seq, msg_id, UNOPENED, b"")
    header = opened.header
    parent = None if header.parent_id is None else bytes(header.parent_id)
    message = Message(
        seq,
        msg_id,
        bytes(header.schema),
        opened.body,
        parent,
        bytes(entry.msg.client_id),
        receipt.hub_ts,
    )
    if keep_wrappers or not is_wrapped(message):
        return message
    return unwrap(message, lambda msg: open_msg(msg, keys))


def open_msg(msg: Msg, keys: Sequence[DhKey]) -> Opened | None:
    """Open a MSG with the first key that fits; None if none does or it misuses its capability (core §6)."""
    for key in keys:
        with suppress(VeenError):
            return msg.open(key)
    return None
