"""A message as a reader gets it: verified, and opened if one of the reader's keys opens it (§9 Decrypt)."""

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


class Message:
    """An entry of the log. What is sealed to somebody else is here too; asking for its content raises."""

    __slots__ = ("_attached", "_opened", "_why", "entry", "msg", "receipt")

    def __init__(self, entry: Entry, opened: Opened | None, why: OpenError | None) -> None:
        self.entry = entry
        self.msg: Msg = entry.msg
        self.receipt: Receipt = entry.receipt
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
        """MsgID, as in ``parent`` (§2)."""
        return self.receipt.leaf_hash

    @property
    def hub_ts(self) -> UnixTime:
        return self.receipt.hub_ts

    @property
    def client_id(self) -> ClientId:
        return self.msg.client_id

    @property
    def is_open(self) -> bool:
        """Whether it was for us."""
        return self._opened is not None

    @property
    def opened(self) -> Opened:
        if self._opened is None:
            raise self._why or OpenError("not opened")
        return self._opened

    @property
    def header(self) -> PayloadHeader:
        return self.opened.header

    @property
    def schema(self) -> SchemaId:
        """Of the body; the envelope around a body with attachments is taken off."""
        header = self.header
        return self._attached.schema if self._attached is not None else header.schema

    @property
    def body(self) -> bytes:
        opened = self.opened
        return self._attached.body if self._attached is not None else opened.body

    @property
    def text(self) -> str:
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            raise OpenError(f"message {self.stream_seq}: its body is not text") from None

    @property
    def attachments(self) -> tuple[AttachmentRef, ...]:
        """Fetch them with ``stream.attachment(message, ref)``; a composed body names its own."""
        return self._attached.attachments if self._attached is not None else ()

    def __repr__(self) -> str:
        return f"Message(stream_seq={self.stream_seq}, id={self.id.hex()}, is_open={self.is_open})"


def _attached(opened: Opened) -> Attached | None:
    """The list of attachments, which must lead to the header's att_root (§4.6, I5)."""
    if opened.header.schema != ATTACHED:
        return None
    try:
        attached = Attached.decode(opened.body)
    except DecodeError as exc:
        raise OpenError(f"the list of attachments is damaged: {exc}") from None
    if opened.header.att_root != att_root([ref.coid for ref in attached.attachments]):
        raise OpenError("payload_hdr.att_root §4.6: is not the root of the attachments that the body lists")
    return attached


def open_all(entries: Sequence[Entry], keys: Sequence[DhKey], limits: Limits) -> list[Message]:
    """Try every key on every entry, the last that worked first; about 130 µs a try."""
    order = list(keys)
    return [_open(entry, order, limits) for entry in entries]


def _open(entry: Entry, keys: list[DhKey], limits: Limits) -> Message:
    msg, why = entry.msg, OpenError("no key to open it with")
    for key in keys:
        try:
            message = Message(entry, msg.open(key, limits), None)
        except DecodeError as exc:
            why = OpenError(f"the payload header is damaged: {exc}")
        except OpenError as exc:
            why = exc
        else:
            keys.remove(key)
            keys.insert(0, key)
            return message
    return Message(entry, None, why)
