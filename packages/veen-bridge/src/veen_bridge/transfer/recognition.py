"""Recognition of copies: whether a message of the target is the copy of an origin entry (RESOLUTIONS P8, J1).

The content decides, not the writer: a bridge that has lost its disk has lost the client_ids it wrote with,
and a false claim of another writer must not suppress an event. So the record or the resealed payload is
compared with the origin entry, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence

from veen_bridge.transfer.copies import open_origin
from veen_bridge.transfer.origin import OriginEntry
from veen_core.errors import DecodeError
from veen_core.keys import DhKey
from veen_hub.client import Message
from veen_overlays.bridge import ImportedEvent
from veen_overlays.federation import Mirror


def is_copy(message: Message, origin: OriginEntry, readers: Sequence[DhKey] = ()) -> bool:
    """Return whether a message is a copy of an origin entry, in whichever mode it was made.

    A resealed copy can be recognised only with the source's reader keys.
    """
    if not message.is_open or message.header.parent_id != origin.msg_id:
        return False
    try:
        if message.schema == ImportedEvent.SCHEMA:
            return _wraps(ImportedEvent.decode(message.body), origin, attached=len(message.attachments))
        if message.schema == Mirror.SCHEMA:
            return Mirror.decode(message.body).agrees_with(origin.entry.receipt)
    except DecodeError:
        return False
    opened = open_origin(origin, readers)
    return opened is not None and (opened.header.schema, opened.body) == (message.schema, message.body)


def _wraps(record: ImportedEvent, origin: OriginEntry, *, attached: int) -> bool:
    """Return whether a record carries the entry: its MSG is in the record, or is its one attachment (P7)."""
    named = record.source_hub_id, record.source_label, record.source_stream_seq, record.origin_receipt
    if named != (origin.hub_id, origin.label, origin.seq, origin.entry.receipt_bytes):
        return False
    if record.origin_msg is None:
        return attached == 1
    return record.origin_msg == origin.entry.msg_bytes
