"""A server of RPC0: reads requests from a stream, runs methods, writes replies (RPC0.1 to RPC0.4, P15).

    1. read the whole stream once: the calls that are open, and the answers of idempotency keys
    2. announce the server for a lease, and renew it
    3. run each call that the log assigns to this server, while its lease lasts        (``CallTable``)
    4. write the reply; it is durable before the call is closed                        ← commit point

A server that dies between 3 and 4 leaves the call open. It runs the call again after its restart, or another
server does once the lease has ended. Nothing else is kept: the log is the server's memory.

A request that arrives while ``max_running`` calls run and ``max_waiting`` wait stays in the log; reading goes
on when calls end. Nothing that a request contains stops the server; only the hub's refusal does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from veen_core.entry import Entry
from veen_core.errors import StateError, VeenError
from veen_core.ids import ClientId, LeafHash, StreamId, StreamSeq
from veen_core.keys import SigningKey
from veen_core.receipt import Receipt
from veen_overlays.live.rpc.call_stream import StreamAccess
from veen_overlays.live.rpc.counters import ServerCounters
from veen_overlays.live.rpc.followed_stream import FollowedStream
from veen_overlays.live.rpc.kept_requests import KeptRequests
from veen_overlays.live.rpc.service import LOGGER, Call, Service
from veen_overlays.live.rpc.stream_clock import StreamClock
from veen_overlays.rpc.call_table import Answers, CallTable, OpenCall, OpenRequest, ReplyPosition
from veen_overlays.rpc.exchange import BAD_REPLY_TO, BAD_REQUEST, DEADLINE, INTERRUPTED, RPC, binds, idem_of
from veen_overlays.rpc.records import Take, sign_lease
from veen_overlays.schema.record import Record, decode_record

LEASE_SEC: Final = 30
"""Seconds for which an announcement holds; a third of it passes between two announcements."""
LEASE_MARGIN_SEC: Final = 2
"""No call starts in the last seconds of a lease, because the hub's clock counts whole seconds."""
MAX_RUNNING_CALLS: Final = 64
MAX_WAITING_CALLS: Final = 1_024
TICK_SEC: Final = 1.0
"""Longest pause between two checks for calls that no live server holds."""
SEND_PAUSES_SEC: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Pauses between attempts to write a record, in addition to the retries of the hub's client."""
MAX_ANNOUNCEMENTS: Final = 3
"""Attempts to announce the server while its client_id changes."""


class RpcServer:
    """One server of a stream. ``run`` serves until ``stop`` is called, which drains."""

    def __init__(
        self,
        service: Service,
        access: StreamAccess,
        principal: SigningKey,
        *,
        peers: Iterable[bytes] = (),
        reply_streams: Mapping[StreamId, StreamAccess] | None = None,
        answers: Answers | None = None,
        lease_sec: int = LEASE_SEC,
        max_running: int = MAX_RUNNING_CALLS,
        max_waiting: int = MAX_WAITING_CALLS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``principal`` signs the announcements; ``peers`` are the principals of the service's other servers.

        ``reply_streams`` are the streams that ``reply_to`` may name, in addition to the server's own.
        """
        self._service, self._access, self._principal = service, access, principal
        exchanges = (*([RPC] if service.methods or not service.exchanges else []), *service.exchanges)
        trusted = (bytes(principal.public), *peers)
        self.table = CallTable(exchanges, bytes(access.id), trusted=trusted, answers=answers)
        self.counters = ServerCounters()
        self.announced = asyncio.Event()
        """Set once the server is announced and serves."""
        self._stream = FollowedStream(access, self._apply)
        self._reply_streams = {
            stream: FollowedStream(each, partial(self._apply_reply, each))
            for stream, each in (reply_streams or {}).items()
        }
        self._clock, self._monotonic = StreamClock(monotonic), monotonic
        self._lease_sec, self._leased_until, self._me = lease_sec, 0.0, b""
        self._announcement: Receipt | None = None
        self._slots, self._max_waiting = asyncio.Semaphore(max_running), max_waiting
        self._threads = ThreadPoolExecutor(max_running, thread_name_prefix="veen-rpc")
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        self._unwritten = 0
        """Calls that this server holds and has not replied to."""
        self._written = asyncio.Event()
        self._done: dict[bytes, Record] = {}
        """Replies of executed calls, until the log has them."""
        self._taken: set[bytes] = set()
        """Calls that this process has taken."""
        self._kept = KeptRequests()
        self._stopping = asyncio.Event()

    # --- running

    async def run(self) -> None:
        """Serve until ``stop``; raise if the hub refuses for good, or its log contradicts itself."""
        background: list[asyncio.Task[None]] = []
        try:
            await self._stream.catch_up()
            for each in self._reply_streams.values():
                await each.catch_up()
            background += [asyncio.create_task(self._stream.follow(self._has_room))]
            background += [asyncio.create_task(each.follow()) for each in self._reply_streams.values()]
            await self._while_reading(background, self._announce())
            self.announced.set()
            background.append(asyncio.create_task(self._heartbeat()))
            await self._while_reading(background, self._stopping.wait())
            while self._tasks:
                await self._while_reading(background, asyncio.wait(tuple(self._tasks.values())))
            background.pop().cancel()
            await self._send(self._access, self._lease(ClientId(self._me), 0))
        finally:
            for task in (*background, *self._tasks.values()):
                task.cancel()
            await asyncio.gather(*background, *self._tasks.values(), return_exceptions=True)
            self._threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Start no more calls, finish those that run, withdraw the announcement, and end ``run``."""
        self._stopping.set()
        self._written.set()

    @staticmethod
    async def _while_reading(background: Iterable[asyncio.Task[None]], work: Awaitable[object]) -> None:
        """Wait for ``work``; raise if a background task fails first."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((*background, task), return_when=asyncio.FIRST_COMPLETED)
            for each in background:
                if each.done():
                    each.result()
                    raise StateError("the stream of requests ended", action="start the server again")
            await task
        finally:
            task.cancel()

    # --- reading

    def _apply(self, entry: Entry) -> None:
        message = self._access.open(entry)
        self._clock.observe(message.hub_ts)
        is_copy = self.table.is_request(message) and self._access.is_copy(entry, message)
        found = self.table.apply(message, is_copy=is_copy)
        if found is not None and self._me:
            call, request = found
            if self.table.holder(call, message.hub_ts) == self._me:
                self._kept.add(message.seq, request, len(message.body))
                self._start(call)

    def _apply_reply(self, access: StreamAccess, entry: Entry) -> None:
        self.table.apply_reply(access.open(entry), bytes(access.id))

    async def _has_room(self) -> None:
        """Wait while too many calls wait: further requests stay in the log."""
        while self._unwritten >= self._max_waiting and not self._stopping.is_set():
            self._written.clear()
            await self._written.wait()

    # --- the lease

    async def _announce(self) -> None:
        """Announce the server. Its lease counts from before the record is sent.

        A server without a lease first reads all that the log has before the announcement: another server may
        have taken its calls. A lease that still holds is renewed without waiting.
        """
        client = ClientId(self._me) if self._me else await self._access.stream.client_id()
        for _ in range(MAX_ANNOUNCEMENTS):
            sent_at, holds = self._monotonic(), self._holds_lease
            receipt = await self._send(self._access, self._lease(client, self._lease_sec))
            if not (holds and client == self._me):
                await self._stream.reached(receipt.stream_seq)
                signer = await self._signer_of(receipt.stream_seq)
                if signer != client:  # set by a token, or renewed by the hub's client (KEX1+ 4.1)
                    client = signer
                    continue
            self._me, self._leased_until = bytes(client), sent_at + self._lease_sec - LEASE_MARGIN_SEC
            self._announcement = receipt
            return
        raise StateError(
            "the server's client_id changes with every message", action="check the server's token"
        )

    def _lease(self, client: ClientId, lease_sec: int) -> Record:
        replaces = ClientId(self._me) if self._me and client != self._me else None
        return sign_lease(self._principal, client, self._service.names, lease_sec, replaces)

    async def _signer_of(self, seq: int) -> ClientId:
        entry = (await self._access.reader.page(self._access.label, StreamSeq(seq), 1))[0]
        return entry.msg.client_id

    async def _follow_client_id(self) -> None:
        """Announce the server under its new client_id, if the last announcement has another signer."""
        receipt = self._announcement
        if receipt is not None and self._stream.size >= receipt.stream_seq:
            server = self.table.servers.get(self._me)
            if server is None or server.until < receipt.hub_ts + self._lease_sec:
                self._leased_until = 0.0
                await self._announce()

    @property
    def _holds_lease(self) -> bool:
        return self._monotonic() < self._leased_until

    async def _hold_lease(self) -> None:
        """Wait until the lease holds: without it, another server may have taken the call."""
        while not self._holds_lease:
            await asyncio.sleep(0.05)

    async def _heartbeat(self) -> None:
        """Renew the lease; start the calls that this server holds, and take those that no server holds."""
        while True:
            now = self._clock.now
            for call in (*self.table.held_by(self._me, now), *self.table.free(self._me, now)):
                if self._unwritten >= self._max_waiting:
                    break
                self._start(call)
            await asyncio.sleep(min(TICK_SEC, self._lease_sec / 6))
            await self._follow_client_id()
            if self._monotonic() >= self._leased_until + LEASE_MARGIN_SEC - self._lease_sec * 2 / 3:
                await self._announce()

    # --- calls

    def _start(self, call: OpenCall) -> None:
        if self._stopping.is_set() or call.key in self._tasks:
            return
        self._unwritten += 1
        task = asyncio.create_task(self._serve(bytes(call.key)))
        self._tasks[bytes(call.key)] = task
        task.add_done_callback(partial(self._ended, bytes(call.key)))

    def _ended(self, key: bytes, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            LOGGER.error("rpc_call_failed", extra={"fields": {"call": key.hex(), "reason": repr(error)}})
        elif (call := self.table.calls.get(key)) is not None and self._is_held(call):
            self._start(call)  # a request with the same key arrived meanwhile

    def _is_held(self, call: OpenCall) -> bool:
        return self.table.holder(call, self._clock.now) == self._me

    async def _serve(self, key: bytes) -> None:
        """Reply to every request of a call, and wait until the log shows the replies."""
        written: list[tuple[bytes, FollowedStream, int]] = []
        try:
            async with self._slots:
                call = self.table.calls.get(key)
                if call is not None and not self._stopping.is_set() and await self._obtain(call):
                    for request in tuple(call.requests):
                        written.append((request.origin, *await self._reply(call, request)))
                        self._kept.pop(request.seq)
        finally:
            self._unwritten -= 1
            self._written.set()
        for _, stream, seq in written:
            await stream.reached(seq)
        if any(self.table.is_open(origin) for origin, _, _ in written):
            self._leased_until = 0.0
            await self._announce()  # the server's client_id has changed, so the replies do not count yet
        else:
            self._done.pop(key, None)
            self._taken.discard(key)

    async def _obtain(self, call: OpenCall) -> bool:
        """Hold the call, or take it if no live server holds it; return False if another server was first."""
        await self._hold_lease()
        if self._is_held(call):
            return True
        if self.table.holder(call, self._clock.now) is not None:
            return False
        before = call.takes
        receipt = await self._send(self._access, Take(call=call.key))
        self._unwritten -= 1  # reading must go on until the take is read
        try:
            self._written.set()
            await self._stream.reached(receipt.stream_seq)
        finally:
            self._unwritten += 1
        if self.table.calls.get(call.key) is not call or not self._is_held(call):
            for request in call.requests:
                self._kept.pop(request.seq)
            return False
        self.counters.taken += 1
        if not before:
            self._taken.add(bytes(call.key))
        return True

    async def _reply(self, call: OpenCall, request: OpenRequest) -> tuple[FollowedStream, int]:
        """Write the reply to a request; return the stream and the position of the reply."""
        stream = self._stream
        if request.reply_to is not None and request.reply_to != self._access.id:
            stream = self._reply_streams.get(request.reply_to, stream)
        reply = (
            self._refuse(call, BAD_REPLY_TO, "the server does not write to this stream")
            if request.reply_to is not None and stream.access.id != request.reply_to
            else await self._reply_of(call, request)
        )
        receipt = await self._send(stream.access, reply, LeafHash(request.origin))  # the commit point
        return stream, receipt.stream_seq

    def _refuse(self, call: OpenCall, code: str, detail: str | None) -> Record:
        self.counters.refused += 1
        return call.exchange.failed(code, detail)

    async def _reply_of(self, call: OpenCall, request: OpenRequest) -> Record:
        if request.malformed:
            return self._refuse(call, BAD_REQUEST, request.malformed)
        if (done := self._done.get(call.key)) is not None:
            self.counters.repeated += 1
            return done
        if call.answer is not None:
            self.counters.repeated += 1
            return await self._recorded(call, call.answer)
        if request.is_late(self._clock.now):
            self.counters.late += 1
            return call.exchange.failed(DEADLINE, None)
        if self._service.runs_at_most_once(call.method) and not await self._may_run_once(call):
            self.counters.failed += 1
            return call.exchange.failed(INTERRUPTED, None)
        return await self._execute(call, request)

    async def _may_run_once(self, call: OpenCall) -> bool:
        """Note durably that the method is about to run; False if a server has noted that before."""
        if call.key in self._taken:
            return True
        if call.takes:
            return False
        self._taken.add(bytes(call.key))
        await self._send(self._access, Take(call=call.key))
        return True

    async def _execute(self, call: OpenCall, request: OpenRequest) -> Record:
        record = self._kept.pop(request.seq) or await self._read(
            self._access, request.seq, call.exchange.request
        )
        described = Call(
            key=call.key,
            method=call.method,
            client_id=ClientId(request.client_id),
            idem=idem_of(record),
            request=request.origin,
            stream_seq=request.seq,
            hub_ts=request.hub_ts,
            timeout_ms=request.timeout_ms,
        )
        reply = await self._service.answer(call.exchange, record, described, self._threads)
        ran = binds(code := call.exchange.code_of(reply))
        self.counters.executed += ran
        self.counters.failed += ran and code is not None
        self.counters.refused += not ran
        if ran:
            self._done[bytes(call.key)] = reply
        return reply

    async def _recorded(self, call: OpenCall, at: ReplyPosition) -> Record:
        """The reply that answered the call before, from the log (RPC0.3, P15)."""
        stream = self._reply_streams.get(StreamId(at.stream), self._stream)
        return await self._read(stream.access, at.seq, call.exchange.reply)

    @staticmethod
    async def _read(access: StreamAccess, seq: int, shape: type[Record]) -> Record:
        entry = (await access.reader.page(access.label, StreamSeq(seq), 1))[0]
        found = decode_record((shape,), access.open(entry).body)
        if not isinstance(found, Record):
            raise StateError(f"entry {seq} is not the {shape.NAME} record that was read before")
        return found

    async def _send(self, access: StreamAccess, record: Record, parent: LeafHash | None = None) -> Receipt:
        for pause in SEND_PAUSES_SEC:
            try:
                return await access.stream.send(record, parent=parent)
            except VeenError as exc:
                fields = {"record": record.NAME, "reason": str(exc)}
                LOGGER.warning("rpc_send_failed", extra={"fields": fields})
                await asyncio.sleep(pause)
        return await access.stream.send(record, parent=parent)
