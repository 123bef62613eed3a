"""Reading: verified pages and live streams, opened messages, attachments (§9, H15, H17)."""

from veen_hub.client.reading.attachments import check_attachment_size, fetch_attachment
from veen_hub.client.reading.follow import BULK_PAGE_ENTRIES, follow, follow_epochs, read
from veen_hub.client.reading.message import Message, open_all
from veen_hub.client.reading.one_ahead import one_ahead

__all__ = [
    "BULK_PAGE_ENTRIES",
    "Message",
    "check_attachment_size",
    "fetch_attachment",
    "follow",
    "follow_epochs",
    "one_ahead",
    "open_all",
    "read",
]
