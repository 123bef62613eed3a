"""A message as a reader gets it: verified, and opened if one of the reader's keys opens it (§9)."""

from __future__ import annotations

from collections.abc import Sequence

from veen_core.attachment import att_root
from veen_core.ciphertext import Opened
from veen_core.entry import Entry
from veen_core.errors import DecodeError, OpenError
from veen_core.ids import ClientId, Label, LeafHash, SchemaId, StreamSeq, UnixTime
from veen_core.keys import DhKey
from veen_core.limits import Limits
from veen_core.msg import Msg
from veen_core.payload import PayloadHeader
from veen_core.receipt import Receipt
from veen_hub.client.sending.body import ATTACHED, Attached, AttachmentRef
from veen_hub.client.wire.threads import GilPauses


class Message:
    """A verified entry of the log; reading its content raises ``OpenError`` if no key opened it."""

    __slots__ = ("_attached", "_opened", "_why", "confirmed", "entry", "msg", "receipt")

    def __init__(self, entry: Entry, opened: Opened | None, why: OpenError | None) -> None:
        self.entry = entry
        self.msg: Msg = entry.msg
        self.receipt: Receipt = entry.receipt
        self.confirmed: bool | None = None
        """Whether a quorum of witnesses covered the message when it was read (P2); None without a policy."""
        self._opened = opened
        self._why = why
        self._attached = _attached(opened) if opened is not None else None

    @property
    def label(self) -> Label:
        return self.entry.label

    @property
    def stream_seq(self) -> StreamSeq:
        return self.entry.stream_seq

    @property
    def id(self) -> LeafHash:
        """The MsgID: the ``parent`` of a message that answers this one (§2)."""
        return self.receipt.leaf_hash

    @property
    def hub_ts(self) -> UnixTime:
        return self.receipt.hub_ts

    @property
    def client_id(self) -> ClientId:
        return self.msg.client_id

    @property
    def is_open(self) -> bool:
        """Whether one of the reader's keys opened the message."""
        return self._opened is not None

    @property
    def opened(self) -> Opened:
        """The header and the body as sealed; raises ``OpenError`` if no key opened the message."""
        if self._opened is None:
            raise self._why or OpenError(f"message {self.stream_seq} was not opened")
        return self._opened

    @property
    def header(self) -> PayloadHeader:
        return self.opened.header

    @property
    def schema(self) -> SchemaId:
        """The schema of the body; with attachments, that of the body inside the envelope."""
        header = self.header
        return self._attached.schema if self._attached is not None else header.schema

    @property
    def body(self) -> bytes:
        """The body; with attachments, the body inside the envelope."""
        opened = self.opened
        return self._attached.body if self._attached is not None else opened.body

    @property
    def text(self) -> str:
        """The body as UTF-8 text."""
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            raise OpenError(f"the body of message {self.stream_seq} is not UTF-8 text") from None

    @property
    def attachments(self) -> tuple[AttachmentRef, ...]:
        """References of the attachments, to fetch with ``stream.attachment(message, ref)``.

        Empty for a composed body, which lists its attachments in its own way.
        """
        return self._attached.attachments if self._attached is not None else ()

    def __repr__(self) -> str:
        return f"Message(stream_seq={self.stream_seq}, id={self.id.hex()}, is_open={self.is_open})"


def _attached(opened: Opened) -> Attached | None:
    """Decode the envelope of a body with attachments; its list must have the header's att_root (§4.6, I5)."""
    if opened.header.schema != ATTACHED:
        return None
    try:
        attached = Attached.decode(opened.body)
    except DecodeError as exc:
        raise OpenError(f"the message's list of attachments is damaged: {exc}") from None
    if opened.header.att_root != att_root([ref.coid for ref in attached.attachments]):
        raise OpenError(
            "payload_hdr.att_root is not the root of the attachments that the body lists (core §4.6)"
        )
    return attached


def open_all(entries: Sequence[Entry], keys: Sequence[DhKey], limits: Limits) -> list[Message]:
    """Open each entry with the first key that fits, about 130 µs per key tried.

    The key that opened the entry before is tried first.
    """
    order, pauses, messages = list(keys), GilPauses(), list[Message]()
    for entry in entries:
        messages.append(_open(entry, order, limits))
        pauses.pause_if_due()
    return messages


def _open(entry: Entry, keys: list[DhKey], limits: Limits) -> Message:
    msg, why = entry.msg, OpenError(f"this client has no key to open message {entry.stream_seq}")
    for key in keys:
        try:
            message = Message(entry, msg.open(key, limits), None)
        except DecodeError as exc:
            why = OpenError(f"the payload header of message {entry.stream_seq} is damaged: {exc}")
        except OpenError as exc:
            why = exc
        else:
            keys.remove(key)
            keys.insert(0, key)
            return message
    return Message(entry, None, why)
