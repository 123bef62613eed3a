"""Imported events: the original inside a message that a bridge has wrapped (RESOLUTIONS P4, P7).

The reader opens the original with the same keys as the message around it. MSG.sig of the original is
verified; the source hub's receipt is shown as the bridge reports it, since a reader does not pin that hub.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from veen_core.entry import Entry
from veen_core.errors import DecodeError, OpenError, SignatureError
from veen_core.hashing import H
from veen_core.keys import DhKey
from veen_core.msg import Msg, verify_signature
from veen_core.receipt import Receipt
from veen_hub.client import Message

if TYPE_CHECKING:
    from veen_overlays.bridge import ImportedEvent

IMPORTED: Final = H(b"bridge.import.v1")
"""The schema id of an imported event (B14); reading other messages does not load the overlays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessage:
    """An event of another hub, and the original message if the wrapper carries it."""

    event: ImportedEvent
    original: Message | None
    """None if the original travels as an attachment; not open if it is sealed to other readers."""

    @property
    def line(self) -> str:
        """The origin of the event, as a line for a person."""
        event = self.event
        return f"      imported: entry {event.source_stream_seq} of hub {event.source_hub_id.hex()}"

    @property
    def as_json(self) -> dict[str, Any]:
        """The origin of the event, as JSON; the original message has its own fields."""
        event = self.event
        return {
            "source_hub_id": event.source_hub_id.hex(),
            "source_label": event.source_label.hex(),
            "stream_seq": event.source_stream_seq,
            "id": Receipt.decode(event.origin_receipt).leaf_hash.hex(),
            "bundle_id": event.bundle_id.hex(),
            "bridge_id": event.bridge_id.hex(),
        }


def imported_event(message: Message, keys: Sequence[DhKey]) -> ImportedMessage | None:
    """Return the event that a message carries; None if it is no event of the parent that it names."""
    if not message.is_open or message.schema != IMPORTED:
        return None
    from veen_overlays.bridge import ImportedEvent  # noqa: PLC0415 - see IMPORTED

    try:
        event = ImportedEvent.decode(message.body)
        if message.header.parent_id != Receipt.decode(event.origin_receipt).leaf_hash:
            return None
        if event.origin_msg is None:
            return ImportedMessage(event=event, original=None)
        verify_signature(Msg.decode(event.origin_msg), event.origin_msg)
    except (DecodeError, SignatureError):
        return None
    entry = Entry(event.source_label, event.source_stream_seq, event.origin_msg, event.origin_receipt)
    return ImportedMessage(event=event, original=_opened(entry, keys))


def _opened(entry: Entry, keys: Sequence[DhKey]) -> Message:
    for key in keys:
        with contextlib.suppress(OpenError, DecodeError):
            return Message(entry, entry.msg.open(key), None)
    return Message(entry, None, None)
