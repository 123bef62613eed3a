"""The calls of a stream in stream order: which are open, who holds each, which are answered (RPC0.3, P15).

The table is a pure function of the log, so all servers of a stream agree on it without talking to each other.

1. The first request of a call assigns the call to one of the servers that are alive and offer its method.
2. The server holds the call for as long as its own lease lasts. Its announcements renew the lease of all its
   calls, so that an ordinary call costs no message but request and reply. This is the lease of the queue
   overlay (core §11.4), kept per server and not per job.
3. When the lease has ended, any live server may take the call. Of several takes the first in the log counts.
4. The first reply of a server closes a request. A reply that shows that the method ran answers the call:
   later requests with the same idempotency key get the same answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from veen_core.ids import StreamId
from veen_overlays.fold.event import Message
from veen_overlays.rpc.exchange import Exchange, binds, idem_of, is_late, reply_to_of, timeout_of
from veen_overlays.rpc.records import CallKey, ServerLease, Take, call_key
from veen_overlays.rpc.servers import Servers
from veen_overlays.schema.record import Record, Undecodable, decode_record

MAX_EARLY_REPLIES: Final = 4_096
"""Replies kept whose request has not been read yet: they came through another stream (``reply_to``)."""

_LEASE, _TAKE = bytes(ServerLease.SCHEMA), bytes(Take.SCHEMA)


@dataclass(frozen=True, slots=True)
class ReplyPosition:
    """Where a reply is: the stream and its position there."""

    stream: bytes
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """A request without a reply."""

    origin: bytes
    """Its MsgID, which the reply names as its parent."""
    seq: int
    hub_ts: int
    client_id: bytes
    timeout_ms: int | None
    reply_to: StreamId | None
    malformed: str = ""
    """Why the body is not a record; empty for a valid request."""

    def is_late(self, now: int) -> bool:
        """Return whether its deadline has passed (P15)."""
        return is_late(self.hub_ts, self.timeout_ms, now)


@dataclass(slots=True)
class OpenCall:
    """A call with at least one open request."""

    key: CallKey
    method: str
    exchange: Exchange
    requests: list[OpenRequest] = field(default_factory=list)
    holder: bytes | None = None
    """The client_id of the server that holds it while that server lives."""
    takes: int = 0
    """Takes that counted."""
    answer: ReplyPosition | None = None
    """The earlier reply that answered the call; None if no reply has."""


class Answers:
    """The answers of idempotency keys, in memory; ``live.rpc`` has a durable one."""

    def __init__(self) -> None:
        self._found: dict[bytes, ReplyPosition] = {}

    def get(self, key: bytes) -> ReplyPosition | None:
        return self._found.get(key)

    def add(self, key: bytes, position: ReplyPosition) -> None:
        self._found.setdefault(key, position)


class CallTable:
    """The calls of one stream; ``apply`` takes its messages in order."""

    def __init__(
        self,
        exchanges: Sequence[Exchange],
        stream: bytes,
        *,
        trusted: Iterable[bytes] | None = None,
        answers: Answers | None = None,
    ) -> None:
        self._by_request = {bytes(each.request.SCHEMA): each for each in exchanges}
        self._by_reply = {bytes(each.reply.SCHEMA): each for each in exchanges}
        self._stream = stream
        self._open: dict[bytes, CallKey] = {}
        self._early: OrderedDict[bytes, tuple[ReplyPosition, str | None]] = OrderedDict()
        self.servers = Servers(trusted)
        self.answers = answers if answers is not None else Answers()
        self.calls: dict[bytes, OpenCall] = {}
        self.undecodable = 0
        self.now = 0
        """The hub_ts of the last message."""

    # --- the log

    def is_request(self, message: Message) -> bool:
        return message.schema in self._by_request

    def apply(self, message: Message, *, is_copy: bool = False) -> tuple[OpenCall, Record | None] | None:
        """Take in the next message of the stream; return the call whose request it is, with the request.

        ``is_copy`` says that the message is a verified copy of the request that its parent names. Any other
        request is answered under its own MsgID: a writer cannot have its own request answered as another's.
        """
        self.now = max(self.now, message.hub_ts)
        schema = message.schema
        if (exchange := self._by_request.get(schema)) is not None:
            return self._request(exchange, message, message.origin if is_copy else message.msg_id)
        if schema in self._by_reply:
            self.apply_reply(message, self._stream)
        elif schema in (_LEASE, _TAKE):
            self._server_record(message)
        return None

    def _decode(self, shape: type[Record], body: bytes) -> Record | Undecodable:
        found = decode_record((shape,), body)
        self.undecodable += isinstance(found, Undecodable)
        return found

    def _server_record(self, message: Message) -> None:
        shape: type[Record] = ServerLease if message.schema == _LEASE else Take
        found = self._decode(shape, message.body)
        if isinstance(found, ServerLease):
            self._announcement(found, message)
        elif isinstance(found, Take):
            self._take(bytes(found.call), message)

    def _announcement(self, lease: ServerLease, message: Message) -> None:
        server = self.servers.add(lease, message.client_id, message.hub_ts, message.seq)
        if server is None or lease.replaces is None:
            return
        if self.servers.withdraw(lease.replaces, server.principal):
            for call in self.calls.values():
                if call.holder == lease.replaces:
                    call.holder = server.client_id

    def _request(
        self, exchange: Exchange, message: Message, origin: bytes
    ) -> tuple[OpenCall, Record | None] | None:
        found, client = self._decode(exchange.request, message.body), message.client_id
        if client is None or origin in self._open:
            return None  # a copy of an open request
        record = None if isinstance(found, Undecodable) else found
        method = "" if record is None else exchange.method_of(record)
        key = call_key(method, client, None if record is None else idem_of(record), origin)
        request = OpenRequest(
            origin=origin,
            seq=message.seq,
            hub_ts=message.hub_ts,
            client_id=client,
            timeout_ms=None if record is None else timeout_of(record),
            reply_to=None if record is None else reply_to_of(record),
            malformed=found.why if isinstance(found, Undecodable) else "",
        )
        call = self.calls.get(key)
        if call is None:
            call = OpenCall(key, method, exchange, answer=self.answers.get(key))
            call.holder = self.assigned(call, message.hub_ts)
            self.calls[key] = call
        call.requests.append(request)
        self._open[origin] = key
        if (early := self._early.pop(origin, None)) is not None:
            self._close(origin, *early)
        return call, record

    def _take(self, key: bytes, message: Message) -> None:
        call, server = self.calls.get(key), self.servers.get(message.client_id)
        if call is None or server is None or not server.is_live(message.hub_ts):
            return
        if self.holder(call, message.hub_ts) in (None, server.client_id):
            call.holder, call.takes = server.client_id, call.takes + 1

    def apply_reply(self, message: Message, stream: bytes) -> None:
        """Take in a reply, of this stream or of one that ``reply_to`` named."""
        exchange = self._by_reply.get(message.schema)
        if exchange is None or message.parent_id is None or self.servers.get(message.client_id) is None:
            return  # replies of others than servers do not count (ADR 0026)
        found = self._decode(exchange.reply, message.body)
        if isinstance(found, Undecodable):
            return
        position, code = ReplyPosition(stream, message.seq), exchange.code_of(found)
        if message.parent_id in self._open:
            self._close(message.parent_id, position, code)
        elif stream != self._stream:
            self._early[message.parent_id] = position, code
            if len(self._early) > MAX_EARLY_REPLIES:
                self._early.popitem(last=False)

    def _close(self, origin: bytes, position: ReplyPosition, code: str | None) -> None:
        key = self._open.pop(origin)
        call = self.calls[key]
        call.requests = [each for each in call.requests if each.origin != origin]
        if binds(code) and call.answer is None:
            self.answers.add(key, position)
            call.answer = position
        if not call.requests:
            del self.calls[key]

    # --- questions

    def is_open(self, origin: bytes) -> bool:
        """Return whether a request has no reply yet."""
        return origin in self._open

    def assigned(self, call: OpenCall, now: int) -> bytes | None:
        """The live server that a call is assigned to at a time; None if no server is alive."""
        live = self.servers.offering(call.method, now)
        return live[int.from_bytes(call.key[:8], "big") % len(live)].client_id if live else None

    def holder(self, call: OpenCall, now: int) -> bytes | None:
        """The server that holds a call at a time, if it is alive."""
        server = self.servers.get(call.holder)
        return server.client_id if server is not None and server.is_live(now) else None

    def held_by(self, client_id: bytes, now: int) -> Iterator[OpenCall]:
        """The open calls that a server holds."""
        return (call for call in tuple(self.calls.values()) if self.holder(call, now) == client_id)

    def free(self, client_id: bytes, now: int) -> Iterator[OpenCall]:
        """The open calls that no live server holds and that this server should take."""
        for call in tuple(self.calls.values()):
            if self.holder(call, now) is None and self.assigned(call, now) == client_id:
                yield call
