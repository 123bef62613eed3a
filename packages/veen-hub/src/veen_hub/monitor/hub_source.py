"""A hub as the monitor asks it: status, hub checkpoint, tiles, consistency proofs and receipts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from veen_core import hub_fork
from veen_core.consistency import MmrConsistency
from veen_core.errors import DecodeError, ProofError, VeenError
from veen_core.hashing import HASH_SIZE
from veen_core.hub_fork import CutTree, LabelStatement
from veen_core.hub_log import hashes
from veen_core.ids import Label, StreamSeq
from veen_core.receipt import Receipt
from veen_core.status import Status
from veen_core.tlog import tree
from veen_core.tlog.tree import NodeLookup
from veen_core.tlog.tree_head import SignedHead, TreeHead
from veen_hub.client.errors import BadRequest, Misbehaved, NotFound
from veen_hub.client.hub_log import TileReader
from veen_hub.client.wire.endpoints import Endpoints
from veen_hub.client.wire.http_transport import HttpTransport
from veen_hub.client.wire.retry import Retry, retrying
from veen_hub.client.wire.transport import Timeouts, Tls
from veen_hub.monitor.rules import HeadPlace

T = TypeVar("T")
RETRY: Final = Retry(max_attempts=3, deadline=10.0)
TIMEOUTS: Final = Timeouts(connect=5.0, request=10.0)
DOES_NOT_FIT: Final = (NotFound, BadRequest, Misbehaved, ProofError, DecodeError)
"""Errors of an answer that proves nothing: none of them has a signature, so the question is asked twice."""


class HubSource(Protocol):
    """A monitor's requests to one hub; each raises ``Unreachable`` or ``Refused`` if it fails."""

    url: str

    async def status(self) -> Status: ...

    async def checkpoint(self) -> SignedHead | None:
        """Return the published hub checkpoint, not verified; None if the hub says that it has none."""

    async def log_file(self, path: str) -> bytes:
        """Return a tile or an entry bundle."""

    async def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency: ...

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt: ...

    async def close(self) -> None: ...


class HubOverHttp:
    """A hub at its address. Create it inside a running event loop."""

    def __init__(self, url: str, tls: Tls | None, retry: Retry = RETRY) -> None:
        self.url = url
        self._retry = retry
        self._transport = HttpTransport(url, tls=tls, timeouts=TIMEOUTS)
        self._api = Endpoints(self._transport)

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        return await retrying(self._retry, call, where=self.url)

    async def status(self) -> Status:
        return await self._ask(self._api.status)

    async def checkpoint(self) -> SignedHead | None:
        return await self._ask(self._api.hub_checkpoint)

    async def log_file(self, path: str) -> bytes:
        return await self._ask(lambda: self._api.log_file(path))

    async def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:
        return await self._ask(lambda: self._api.consistency(label, from_seq, to_seq))

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt:
        return await self._ask(lambda: self._api.receipt(label, stream_seq))

    async def close(self) -> None:
        await self._transport.close()


class Withheld(VeenError):  # noqa: N818 - what the hub does
    """The hub does not serve a part of its log, or serves it wrong, twice in a row."""


class LogTiles:
    """The tiles of one hub log, as far as they are under signed checkpoints."""

    def __init__(self, source: HubSource) -> None:
        self._source = source
        self._cached: TileReader | None = None

    def reader(self, head: TreeHead) -> TileReader:
        """Return a reader of the log under a checkpoint, with an empty cache."""
        return TileReader(self._source.log_file, head)

    def forget(self) -> None:
        """Ask the hub again for what it has served before."""
        self._cached = None

    async def cut(self, head: TreeHead, at: int) -> CutTree:
        """Return the tree under a checkpoint, cut after ``at`` entries; raise ``Withheld``."""
        return await self._computed(head, lambda lookup: hub_fork.cut(lookup, at, head.size))

    async def statement(self, signed: SignedHead, place: HeadPlace) -> LabelStatement:
        """Return a label's head with the proof that it is under a hub checkpoint; raise ``Withheld``."""
        proof = await self._computed(
            signed.head, lambda lookup: tree.prove_inclusion(lookup, place.index, signed.head.size)
        )
        return LabelStatement(
            head=place.head, index=place.index, proof=hashes(proof), checkpoint=signed.encode()
        )

    async def _computed(self, head: TreeHead, compute: Callable[[NodeLookup], T]) -> T:
        """Compute something from nodes under a checkpoint; fetch them once more if they do not fit."""
        if self._cached is None or self._cached.head != head:
            self._cached = self.reader(head)
        try:
            return await _computed(self._cached, compute)
        except DOES_NOT_FIT:
            self._cached = self.reader(head)
        try:
            return await _computed(self._cached, compute)
        except DOES_NOT_FIT as exc:
            self._cached = None
            raise Withheld(f"the hub does not serve its log of {head.size} entries: {exc.message}") from exc


async def _computed(reader: TileReader, compute: Callable[[NodeLookup], T]) -> T:
    """Compute something from nodes of the tree. Which nodes are needed does not depend on their hashes."""
    wanted: dict[tuple[int, int], bytes] = {}

    def note(height: int, index: int) -> bytes:
        return wanted.setdefault((height, index), bytes(HASH_SIZE))

    compute(note)
    found = await asyncio.gather(*(reader.node(height, index) for height, index in wanted))
    known = dict(zip(wanted, found, strict=True))
    return compute(lambda height, index: known[height, index])
