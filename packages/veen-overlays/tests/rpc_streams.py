"""Streams of calls over ``MemoryLog``: several writers of one log, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from memory_log import READER, MemoryLog

from veen_core import (
    DEFAULT_PROFILE,
    Binding,
    ClientId,
    DhKey,
    DhSecret,
    PayloadHeader,
    SigningKey,
    StreamSeq,
    seal_msg,
)
from veen_core.errors import StateError
from veen_core.hashing import H, u64be
from veen_core.ids import ClientSeq, Label, LeafHash, SchemaId, StreamId
from veen_core.keys import SigningSeed
from veen_core.receipt import Receipt
from veen_overlays.live.rpc import RpcServer, Service, StreamAccess, access
from veen_overlays.schema.record import Record

STREAM = StreamId(b"\x77" * 32)


def key(name: str) -> SigningKey:
    return SigningKey(SigningSeed(H(name.encode())))


class MemoryCallStream:
    """One writer of a log; ``fails`` is the number of sends that fail next."""

    def __init__(self, log: MemoryLog, name: str, stream_id: StreamId = STREAM) -> None:
        self.log, self.id, self.signer = log, stream_id, key(name)
        self.sent = 0
        self.fails = 0

    @property
    def keys(self) -> Sequence[DhKey]:
        return (READER,)

    def label(self) -> Label:
        return self.log.label

    async def client_id(self) -> ClientId:
        return ClientId(self.signer.public)

    async def send(self, body: Record, *, parent: LeafHash | None = None) -> Receipt:
        return await self.send_bytes(bytes(body.schema_id), body.encode(), parent)

    async def send_bytes(self, schema: bytes, body: bytes, parent: LeafHash | None = None) -> Receipt:
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise StateError("the hub is away")
        self.sent += 1
        size = self.log.mmr.size
        binding = Binding(
            profile_id=DEFAULT_PROFILE.profile_id,
            label=self.log.label,
            client_id=ClientId(self.signer.public),
            client_seq=ClientSeq(self.sent),
            prev_ack=StreamSeq(size),
        )
        sealed = seal_msg(
            self.signer,
            READER.public,
            binding,
            PayloadHeader(schema=SchemaId(schema), parent_id=parent),
            body,
            profile=DEFAULT_PROFILE,
            ephemeral=DhSecret(H(self.signer.public + u64be(size))),
        )
        return await self.log.submit(sealed.msg)

    has_epochs = False

    @property
    def hub_time(self) -> int:
        return self.log.now

    @property
    def access(self) -> StreamAccess:
        return access(self, self.log)


@asynccontextmanager
async def serving(server: RpcServer) -> AsyncIterator[asyncio.Task[None]]:
    """Run a server until the block ends; it drains then."""
    running = asyncio.create_task(server.run())
    announced = asyncio.create_task(server.announced.wait())
    await asyncio.wait((running, announced), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        announced.cancel()
        running.result()
    try:
        yield running
    finally:
        server.stop()
        await running


def make_server(
    service: Service, where: MemoryLog | MemoryCallStream, name: str = "server", **options: Any
) -> RpcServer:
    """A server whose operator is the one of all servers of a test."""
    stream = where if isinstance(where, MemoryCallStream) else MemoryCallStream(where, name)
    return RpcServer(service, stream.access, key("operator"), **options)
