"""Discovery over live logs: directories of followed streams, and ``disc.query.v1`` over RPC0 (spec-5 §6).

A directory is read at a position of a log: (stream_seq, mmr_root). Descriptors expire at the time of that
entry's RECEIPT, so two readers at one root list the same. ``DirectoryService`` answers queries, and a local
reader uses the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from veen_core.ids import MmrRoot
from veen_overlays.discovery.directory import Directory
from veen_overlays.discovery.query import BAD_KIND, answer
from veen_overlays.discovery.records import KINDS, Kind, Query, QueryError, QueryResult
from veen_overlays.discovery.state import DiscoveryState
from veen_overlays.live.epochs import EpochView
from veen_overlays.live.materializer import Materializer
from veen_overlays.live.rpc import Call, Service
from veen_overlays.rpc.exchange import Exchange

METHOD: Final = "disc.query"
"""The method under which servers announce the exchange."""


def _failed(code: str, detail: str | None) -> QueryResult:
    return QueryResult(ok=False, results=(), more=False, error=QueryError(code=code, detail=detail))


DISC_QUERY: Final = Exchange(
    request=Query,
    reply=QueryResult,
    method_of=lambda _request: METHOD,
    code_of=lambda reply: None if reply.error is None else reply.error.code,
    failed=_failed,
)
"""``disc.query.v1`` and its reply, under RPC0's correlation rules (RESOLUTIONS P16)."""


class Position(NamedTuple):
    """The position of a log that a directory was read at, and the time of its last entry."""

    upto_seq: int
    mmr_root: MmrRoot
    hub_ts: int
    """The hub_ts of the last entry's RECEIPT; 0 for an empty log."""


class LiveDirectory:
    """The directory of one stream; call ``refresh`` before each query, it reads the stream to its end."""

    def __init__(self, view: Materializer[DiscoveryState] | EpochView[DiscoveryState]) -> None:
        self._view = view
        self._position: Position | None = None
        self.directory = Directory()

    async def refresh(self) -> Position:
        """Read the stream to its end and return the position."""
        await self._view.catch_up()
        folded = await self._view.state()
        receipt = folded.receipt
        position = Position(
            folded.range.to_seq, folded.mmr_root, 0 if receipt is None else int(receipt.hub_ts)
        )
        if position != self._position:
            self.directory.update(folded.summary.inner)
            self._position = position
        return position


class DirectoryService:
    """Answers queries of other clients from followed streams (spec-5 6.2)."""

    def __init__(self, directories: Mapping[Kind, LiveDirectory]) -> None:
        self._directories = directories
        self.service = Service()
        self.service.serve(DISC_QUERY, METHOD, self._answer)

    async def _answer(self, query: Query, call: Call) -> QueryResult:
        del call
        kind = next((each for each in KINDS if each == query.kind), None)
        found = self._directories.get(kind) if kind is not None else None
        if found is None:
            if kind is None:
                return answer(Directory(), query, 0)
            return _failed(BAD_KIND, f"this server has no stream of the kind {kind}")
        position = await found.refresh()
        return answer(found.directory, query, position.hub_ts)
