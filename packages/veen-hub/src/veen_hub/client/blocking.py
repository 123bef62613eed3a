"""The client for scripts: the same names without ``await`` (a private event loop in a thread).

with connect("https://hub.example", identity, trust="<hub_id>") as hub:
    for message in hub.stream("orders").read():
        print(message.text)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, TypeVar

from veen_core.cap import CapToken
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency
from veen_core.equivocation import Equivocation
from veen_core.errors import StateError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import AuthRef, ClientId, Coid, Epoch, HubId, Label, UnixTime
from veen_core.keys import DhKey, SigningKey
from veen_core.keystore import Secrets
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_core.status import CapStatus, Status
from veen_hub.client import hub as asynchronous
from veen_hub.client.admin import Admin
from veen_hub.client.identity import Identity
from veen_hub.client.reading.message import Message
from veen_hub.client.sending.body import AttachmentRef, Body, Composer
from veen_hub.client.sending.settling import Delivery
from veen_hub.client.stream import Recipient, Stream
from veen_hub.client.trust import Pin

T = TypeVar("T")
LOOK_AGAIN: Final = 0.25
"""Seconds."""


class _End:
    """After the last item."""


async def _next(items: AsyncGenerator[T, None]) -> T | _End:
    return await anext(items, _End())


def _await(event: threading.Event) -> None:
    """In slices: a signal that comes just before a thread begins to wait is noticed when it looks again."""
    while not event.wait(LOOK_AGAIN):
        pass


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="veen-blocking", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for it; an interrupt (Ctrl-C) cancels it there, and is raised here once it has ended."""
        if self.closed or threading.current_thread() is self._thread:
            work.close()
            raise StateError(
                "this connection is closed: connect again"
                if self.closed
                else "the blocking client is called from inside itself, which would wait for ever: "
                "use veen_hub.client there"
            )
        tasks: list[asyncio.Task[T]] = []
        ended = threading.Event()

        def start() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(lambda _: ended.set())

        def cancel() -> None:
            if not tasks:
                start()  # interrupted before it was asked for
            tasks[0].cancel()

        try:
            self._loop.call_soon_threadsafe(start)
            _await(ended)
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            _await(ended)
            if not tasks[0].cancelled():
                tasks[0].exception()  # seen; the interrupt goes first
            raise
        return tasks[0].result()

    def each(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """An async iterator, one item at a time."""
        try:
            while True:
                item = self.run(_next(items))
                if isinstance(item, _End):
                    return
                yield item
        finally:
            if not self.closed:  # then all of them were
                self.run(items.aclose())

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingStream:
    """See ``stream.Stream``."""

    def __init__(self, loop: Loop, stream: Stream) -> None:
        self._loop = loop
        self._stream = stream

    @property
    def name(self) -> str:
        return self._stream.name

    def label(self, epoch: Epoch | None = None) -> Label:
        return self._stream.label(epoch)

    def client_id(self) -> ClientId:
        return self._loop.run(self._stream.client_id())

    def rotate(self) -> ClientId:
        return self._loop.run(self._stream.rotate())

    def settle(self) -> Delivery:
        return self._loop.run(self._stream.settle())

    def send(self, body: Body | Composer, **options: Any) -> Receipt:
        return self._loop.run(self._stream.send(body, **options))

    def send_many(self, bodies: Iterable[Body], **options: Any) -> Iterator[Receipt]:
        """``bodies`` are drawn in the caller's thread: they may come from this hub too."""
        source, some = iter(bodies), 2 * self._stream.hub.connection.batch
        while chunk := list(islice(source, some)):
            yield from self._loop.each(self._stream.send_many(chunk, **options))

    def read(
        self, from_seq: int = 1, to_seq: int | None = None, *, epoch: Epoch | None = None
    ) -> Iterator[Message]:
        return self._loop.each(self._stream.read(from_seq, to_seq, epoch=epoch))

    def follow(self, from_seq: int = 1) -> Iterator[Message]:
        return self._loop.each(self._stream.follow(from_seq))

    def attachment(self, message: Message, which: AttachmentRef | int) -> bytes:
        return self._loop.run(self._stream.attachment(message, which))

    def receipt(self, stream_seq: int, *, epoch: Epoch | None = None) -> Receipt:
        return self._loop.run(self._stream.receipt(stream_seq, epoch=epoch))

    def proof(self, stream_seq: int, tree_size: int | None = None, *, epoch: Epoch | None = None) -> MmrProof:
        return self._loop.run(self._stream.proof(stream_seq, tree_size, epoch=epoch))

    def consistency(self, from_seq: int, to_seq: int, *, epoch: Epoch | None = None) -> MmrConsistency:
        return self._loop.run(self._stream.consistency(from_seq, to_seq, epoch=epoch))

    def checkpoint(self, upto_seq: int = 0, *, epoch: Epoch | None = None) -> Checkpoint | None:
        return self._loop.run(self._stream.checkpoint(upto_seq, epoch=epoch))

    def head(self, *, epoch: Epoch | None = None) -> Receipt | None:
        return self._loop.run(self._stream.head(epoch=epoch))


class BlockingAdmin:
    """See ``admin.Admin``."""

    def __init__(self, loop: Loop, admin: Admin) -> None:
        self._loop = loop
        self._admin = admin

    def checkpoint(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        return self._loop.run(self._admin.checkpoint(label))

    def anchor(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        return self._loop.run(self._admin.anchor(label))

    def retention(self) -> tuple[int, int]:
        return self._loop.run(self._admin.retention())


class BlockingHub:
    """See ``hub.Hub``."""

    def __init__(self, loop: Loop, hub: asynchronous.Hub) -> None:
        self._loop = loop
        self._hub = hub

    @property
    def hub_id(self) -> HubId:
        return self._hub.hub_id

    @property
    def identity(self) -> HubIdentity:
        return self._hub.identity

    @property
    def url(self) -> str:
        return self._hub.url

    def epoch_at(self, hub_ts: UnixTime) -> Epoch:
        return self._hub.epoch_at(hub_ts)

    def stream(
        self, name: str, *, to: Recipient | None = None, readers: Sequence[DhKey] = ()
    ) -> BlockingStream:
        return BlockingStream(self._loop, self._hub.stream(name, to=to, readers=readers))

    def status(self) -> Status:
        return self._loop.run(self._hub.status())

    def authorize(self, token: CapToken) -> Receipt:
        return self._loop.run(self._hub.authorize(token))

    def cap_status(self, auth_ref: AuthRef) -> CapStatus:
        return self._loop.run(self._hub.cap_status(auth_ref))

    def admin(self, key: SigningKey) -> BlockingAdmin:
        return BlockingAdmin(self._loop, self._hub.admin(key))

    def report_equivocation(self, evidence: Equivocation) -> None:
        self._loop.run(self._hub.report_equivocation(evidence))

    def fetch(self, coid: Coid) -> bytes:
        return self._loop.run(self._hub.fetch(coid))


@contextmanager
def connect(
    url: str, identity: Identity | Secrets | None = None, *, trust: Pin, **options: Any
) -> Iterator[BlockingHub]:
    """``client.connect``, with the same options."""
    loop = Loop()
    try:
        opening = asynchronous.connect(url, identity, trust=trust, **options)
        hub = loop.run(opening.__aenter__())
        try:
            yield BlockingHub(loop, hub)
        finally:
            loop.run(opening.__aexit__(None, None, None))
    finally:
        loop.close()
