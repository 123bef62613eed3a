"""Sending: drafts are sealed, stored in the outbox, sent, and settled after a crash (§9, RESYNC0).

A message passes through ``body`` (draft), ``batching``, ``send_many``, ``epochs`` (choice of the label),
``outbox`` (the commit point), ``sealing`` and ``settling`` (delivery); ``searching`` finds it if its answer
was lost. ``attachments`` and ``proof_of_work`` are used where the message or the hub needs them.
"""

from veen_hub.client.sending.attachments import Source
from veen_hub.client.sending.body import (
    ATTACHED,
    BYTES,
    TEXT,
    AttachmentRef,
    Body,
    Composer,
    Outgoing,
    Record,
)
from veen_hub.client.sending.epochs import EpochLabels, EpochOutboxes
from veen_hub.client.sending.outbox import Outbox
from veen_hub.client.sending.send_many import Sending
from veen_hub.client.sending.settling import Delivery

__all__ = [
    "ATTACHED",
    "BYTES",
    "TEXT",
    "AttachmentRef",
    "Body",
    "Composer",
    "Delivery",
    "EpochLabels",
    "EpochOutboxes",
    "Outbox",
    "Outgoing",
    "Record",
    "Sending",
    "Source",
]
