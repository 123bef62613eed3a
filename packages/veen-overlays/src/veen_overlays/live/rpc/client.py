"""A client of RPC0: sends requests, follows the stream, returns the first reply of a server (RPC0.1, RPC0.4).

A call succeeds with the first reply in the log that a server has written. A call that gets no reply in time,
or the reply ``rpc.deadline``, may be sent again with the same idempotency key: servers run it once (RPC0.3).
The request is durable before the client waits, so a client that was killed finds its reply by calling again
with the same ``idem``.

Whether a server is alive is read from the announcements in the stream. Without a live server ``call`` fails
at once with ``rpc.no_server`` and sends nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from veen_core.entry import Entry
from veen_core.errors import StateError, VeenError
from veen_core.ids import StreamId, StreamSeq
from veen_core.receipt import Receipt
from veen_overlays.fold.event import Message
from veen_overlays.live.label import PAGE_ENTRIES
from veen_overlays.live.rpc.call_stream import StreamAccess
from veen_overlays.live.rpc.followed_stream import FollowedStream
from veen_overlays.live.rpc.stream_clock import StreamClock
from veen_overlays.rpc.exchange import DEADLINE, NO_REPLY, NO_SERVER, RPC, UNKNOWN_METHOD, Exchange
from veen_overlays.rpc.records import MAX_LEASE_SEC, Reply, Request, ServerLease
from veen_overlays.rpc.servers import AnnouncedServer, Servers
from veen_overlays.schema.record import Record, decode_record

CALL_SECONDS: Final = 10.0
FIRST_PAUSE_SEC: Final = 0.2
MAX_PAUSE_SEC: Final = 10.0
MAX_UNCLAIMED_REPLIES: Final = 4_096
"""Replies kept for requests whose receipt has not arrived yet."""
REPLY_GRACE_SEC: Final = 1.0
"""The hub's clock counts whole seconds: a server may answer a request this long after its deadline."""


class RpcError(VeenError):
    """A call that failed: ``code`` is the reply's, or ``rpc.no_server`` or ``rpc.no_reply``."""

    def __init__(self, code: str, detail: str | None = None, *, action: str | None = None) -> None:
        super().__init__(f"{code}: {detail}" if detail else code, action=action)
        self.code, self.detail = code, detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """A request and its reply, and the entries that carry them."""

    request: Receipt
    reply: Record
    reply_entry: Entry
    server: AnnouncedServer
    idem: int | None


@dataclass(slots=True)
class _Waiting:
    exchange: Exchange
    reply: asyncio.Future[tuple[Record, Entry, AnnouncedServer]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class RpcClient:
    """A client of one stream. Made by ``connect_rpc``."""

    def __init__(
        self,
        access: StreamAccess,
        *,
        servers: Iterable[bytes] | None = None,
        exchanges: Iterable[Exchange] = (RPC,),
        replies: StreamAccess | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        randomness: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """``servers`` are the principals whose servers count; None counts every announced server.

        ``replies`` is the stream that replies go to, by default the stream of the requests.
        """
        self._access, self._replies, self._randomness = access, replies, randomness
        self._by_reply = {bytes(each.reply.SCHEMA): each for each in exchanges}
        self.servers = Servers(servers)
        self._clock = StreamClock(monotonic)
        self._waiting: dict[bytes, _Waiting] = {}
        self._unclaimed: OrderedDict[bytes, tuple[Entry, Message]] = OrderedDict()
        self._own: set[bytes] = set()
        """Client_ids of this client, as its requests show them."""
        self._failure: VeenError | None = None

    # --- reading

    async def _start(self) -> list[FollowedStream]:
        """Read the stream's end backwards until a live server is found, then follow from the end."""
        head = await self._access.reader.head(self._access.label)
        size = 0 if head is None else head.stream_seq
        self._clock.observe(self._access.stream.hub_time)  # nothing may have been sent since a server died
        if head is not None:
            self._clock.observe(head.hub_ts)
            await self._find_servers(head)
        followed = [FollowedStream(self._access, self._apply, size)]
        if self._replies is not None:
            end = await self._replies.reader.head(self._replies.label)
            followed.append(
                FollowedStream(
                    self._replies,
                    partial(self._apply_reply, self._replies),
                    0 if end is None else end.stream_seq,
                )
            )
        return followed

    async def _find_servers(self, head: Receipt) -> None:
        end: int = head.stream_seq
        while end > 0:
            start = max(1, end - PAGE_ENTRIES + 1)
            entries = await self._access.reader.page(self._access.label, StreamSeq(start), end - start + 1)
            for entry in entries:
                self._add_server(self._access.open(entry))
            now = self._clock.now
            if self.servers.live(now) or not entries or entries[0].receipt.hub_ts + MAX_LEASE_SEC < now:
                return
            end = start - 1

    def _add_server(self, message: Message) -> bool:
        """Apply an announcement; return False if the message is not one."""
        if message.schema != ServerLease.SCHEMA:
            return False
        lease = decode_record((ServerLease,), message.body)
        if isinstance(lease, ServerLease):
            known = self.servers.get(message.client_id)
            if known is None or known.seen_at <= message.seq:
                self.servers.add(lease, message.client_id, message.hub_ts, message.seq)
        return True

    def _apply(self, entry: Entry) -> None:
        self._clock.observe(entry.receipt.hub_ts)
        if bytes(entry.receipt.leaf_hash) in self._waiting:
            self._own.add(entry.msg.client_id)
        if entry.msg.client_id in self._own and self.servers.get(entry.msg.client_id) is None:
            return  # a request of this client: neither a reply nor an announcement
        message = self._access.open(entry)
        if not self._add_server(message):
            self._take_reply(entry, message)

    def _apply_reply(self, access: StreamAccess, entry: Entry) -> None:
        self._take_reply(entry, access.open(entry))

    def _take_reply(self, entry: Entry, message: Message) -> None:
        exchange = self._by_reply.get(message.schema)
        server = self.servers.get(message.client_id)
        if exchange is None or server is None or message.parent_id is None:
            return
        waiting = self._waiting.get(message.parent_id)
        if waiting is None:
            self._unclaimed.setdefault(message.parent_id, (entry, message))
            if len(self._unclaimed) > MAX_UNCLAIMED_REPLIES:
                self._unclaimed.popitem(last=False)
            return
        reply = decode_record((exchange.reply,), message.body)
        if isinstance(reply, Record) and waiting.exchange is exchange and not waiting.reply.done():
            waiting.reply.set_result((reply, entry, server))

    async def _follow(self, stream: FollowedStream) -> None:
        try:
            await stream.follow()
            raise StateError("the stream of replies ended", action="connect again")
        except VeenError as exc:
            self._failure = exc
            for waiting in self._waiting.values():
                if not waiting.reply.done():
                    waiting.reply.set_exception(exc)

    # --- calling

    def live_servers(self, method: str) -> list[AnnouncedServer]:
        """The live servers that offer a method."""
        return [each for each in self.servers.live(self._clock.now) if method in each.methods]

    def _check_served(self, method: str) -> None:
        """Raise unless a live server offers the method: no request is sent that no server will answer."""
        if self.live_servers(method):
            return
        live = self.servers.live(self._clock.now)
        if not live:
            raise RpcError(
                NO_SERVER,
                "no live server is announced on the stream; nothing was sent",
                action="start one with `veen rpc serve`",
            )
        offered = ", ".join(sorted({name for server in live for name in server.methods}))
        raise RpcError(UNKNOWN_METHOD, f"no live server offers {method}, only {offered}; nothing was sent")

    def new_idem(self) -> int:
        """A random idempotency key."""
        return int.from_bytes(self._randomness(8), "big")

    async def call(
        self,
        method: str,
        args: Any = None,
        *,
        timeout: float = CALL_SECONDS,
        idem: int | None = None,
        retries: int = 0,
    ) -> Any:
        """Call a method and return its result; raise ``RpcError`` if it fails.

        Without ``idem`` a random key is drawn. A call that is not answered within ``timeout`` seconds is sent
        again up to ``retries`` times, with the same key.
        """
        key = self.new_idem() if idem is None else idem

        def request(timeout_ms: int, reply_to: StreamId | None) -> Request:
            return Request(method=method, args=args, timeout_ms=timeout_ms, reply_to=reply_to, idem=key)

        done = await self.exchange(RPC, request, method, timeout=timeout, retries=retries)
        assert isinstance(done.reply, Reply)
        if done.reply.error is not None:
            raise RpcError(done.reply.error.code, done.reply.error.detail)
        return done.reply.result

    async def exchange(
        self,
        exchange: Exchange,
        request: Callable[[int, StreamId | None], Record],
        method: str,
        *,
        timeout: float = CALL_SECONDS,
        retries: int = 0,
    ) -> Exchanged:
        """Send a request and return the reply, whatever it reports; repeat it after a timeout.

        ``request`` makes the record from its timeout in milliseconds and the stream of replies.
        """
        pause = FIRST_PAUSE_SEC
        for attempt in range(retries + 1):
            last = attempt == retries
            try:
                done = await self._attempt(exchange, request, method, timeout)
                if last or exchange.code_of(done.reply) != DEADLINE:
                    return done
            except RpcError as exc:
                if last or exc.code == UNKNOWN_METHOD:
                    raise
            await asyncio.sleep(pause * (0.5 + int.from_bytes(self._randomness(2), "big") / 65_536))
            pause = min(2 * pause, MAX_PAUSE_SEC)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(
        self,
        exchange: Exchange,
        request: Callable[[int, StreamId | None], Record],
        method: str,
        timeout: float,
    ) -> Exchanged:
        if self._failure is not None:
            raise self._failure
        self._check_served(method)
        record = request(int(timeout * 1_000), None if self._replies is None else self._replies.id)
        waiting, origin = _Waiting(exchange), b""
        try:
            async with asyncio.timeout(timeout + REPLY_GRACE_SEC):
                receipt = await self._access.stream.send(record)
                origin = bytes(receipt.leaf_hash)
                self._waiting[origin] = waiting
                if (early := self._unclaimed.pop(origin, None)) is not None:
                    self._take_reply(*early)
                reply, entry, server = await waiting.reply
        except TimeoutError:
            raise RpcError(
                NO_REPLY,
                f"no reply to {method} within {timeout:g} s; the method may have run",
                action="call again with the same idempotency key: the method does not run twice",
            ) from None
        finally:
            self._waiting.pop(origin, None)
        return Exchanged(
            request=receipt, reply=reply, reply_entry=entry, server=server, idem=getattr(record, "idem", None)
        )


@asynccontextmanager
async def connect_rpc(
    access: StreamAccess,
    *,
    servers: Iterable[bytes] | None = None,
    exchanges: Iterable[Exchange] = (RPC,),
    replies: StreamAccess | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    randomness: Callable[[int], bytes] = os.urandom,
) -> AsyncIterator[RpcClient]:
    """Connect a client to the servers of a stream, and follow the stream while it is used.

    A server that writes with the same connection must be announced before the client makes its first call.
    """
    client = RpcClient(
        access,
        servers=servers,
        exchanges=exchanges,
        replies=replies,
        monotonic=monotonic,
        randomness=randomness,
    )
    tasks = [asyncio.create_task(client._follow(each)) for each in await client._start()]
    try:
        yield client
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
