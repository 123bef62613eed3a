"""Queries over a view: kept up to date, executed by DuckDB, with evidence from the view's own trees.

``ViewBackend`` is the backend of the service, and of ``veen query run`` with one's own keys.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final, Protocol

import pyarrow.compute as pc
from pyarrow.dataset import dataset

from veen_core.errors import VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_core.receipt import Receipt
from veen_core.tlog.tree_head import parse_signed_head
from veen_overlays.live.query_service.backend import ExecutedQuery
from veen_overlays.live.query_service.service_log import log
from veen_overlays.live.query_service.source_end import SourceEnd
from veen_overlays.live.query_view import DuckDbEngine, QueryView, ViewFollower
from veen_overlays.live.query_view.files.manifest import REBUILD, DamagedViewError
from veen_overlays.live.query_view.snapshot import Snapshot, prefix_of
from veen_overlays.query import canonical_json
from veen_overlays.query.engine import Budget
from veen_overlays.query.errors import QueryError, QueryErrorCode, execution_failed
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.result.digest import ResultDigest
from veen_overlays.query.result.evidence import HubLogLink, build_evidence
from veen_overlays.query.result.result_file import MAX_RESULT_BYTES, Execution, make_result
from veen_overlays.query.scope_sources import is_empty_source
from veen_overlays.query.verify.source_rules import check_link

REFRESH_SEC: Final = 1.0
"""Time between two reads of the logs while no query needs new entries."""
MAX_PAUSE_SEC: Final = 10.0


class LinkSource(Protocol):
    """Provides the proofs from a label to a hub checkpoint."""

    async def link(self, prefix: Prefix) -> HubLogLink | None:
        """Return the proofs up to the newest checkpoint; None if the hub log does not have the label yet."""


class ViewBackend:
    """Implements ``QueryBackend``. ``refreshing`` keeps the view up to date while its block runs."""

    def __init__(
        self,
        view: QueryView,
        follower: ViewFollower,
        engine: DuckDbEngine,
        *,
        links: LinkSource,
        identities: Mapping[HubId, HubIdentity],
        executing: Execution,
    ) -> None:
        """``executing`` names the hub at which queries are executed; its time is set for each query."""
        self._view, self._follower, self._engine = view, follower, engine
        self._links, self._identities, self._executing = links, identities, executing
        self._lock = asyncio.Lock()
        self._wanted = 0
        self._done = 0
        self._problem: str | None = "the view is being read"

    @property
    def streams(self) -> frozenset[str]:
        return frozenset(self._follower.homes)

    @property
    def engine(self) -> DuckDbEngine:
        """The engine, to execute a query over prefixes that the caller chooses."""
        return self._engine

    def problem(self) -> str | None:
        return self._problem

    def ends_of(self, prefixes: Sequence[Prefix]) -> tuple[SourceEnd, ...]:
        """Return the ends of prefixes that another execution read, with receipts from this view."""
        with self._view.snapshot() as snapshot:
            return tuple(
                SourceEnd(prefix=replace(each, checkpoint=None), head=receipt_at(snapshot, each))
                for each in prefixes
            )

    def committed_at(self, prefix: Prefix, seq: int) -> int:
        """Return ``hub_ts`` of an entry of a prefix of this view, in milliseconds."""
        with self._view.snapshot() as snapshot:
            root = snapshot.nodes(prefix).root(seq)
            wire = receipt_at(snapshot, replace(prefix, to_seq=seq, mmr_root=root))
        assert wire is not None  # ``seq`` names an existing entry
        return Receipt.decode(wire).hub_ts * 1000

    # --- keeping up

    @property
    def is_incomplete(self) -> bool:
        """Whether some log was never read to its end: the view is new, or its rebuild was interrupted."""
        return not self.streams <= self._view.homes.keys()

    async def refresh(self) -> None:
        """Read the logs to their ends. Callers that wait at the same time share one read."""
        self._wanted += 1
        wanted = self._wanted
        async with self._lock:
            if self._done >= wanted:
                return
            covers = self._wanted  # one pass over the logs serves every caller that asked before it starts
            try:
                await self._follower.catch_up()
            except VeenError as exc:
                self._problem = f"the logs cannot be read: {exc}"
                raise
            self._done, self._problem = covers, None

    async def settle(self) -> None:
        """Merge the view's files. Queries do not wait for the merge; the next read of the logs does."""
        async with self._lock:
            await self._follower.settle()

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        """Keep the view up to date; a log that cannot be read makes the service unready until it can."""
        task = asyncio.create_task(self._refresh_for_ever())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _refresh_for_ever(self) -> None:
        pause = REFRESH_SEC
        while True:
            try:
                await self.refresh()
                await self.settle()
                pause = REFRESH_SEC
            except VeenError as exc:
                pause = min(MAX_PAUSE_SEC, 2 * pause)
                log(logging.WARNING, "view_not_refreshed", error=str(exc), pause_sec=pause)
            await asyncio.sleep(pause)

    # --- queries

    async def ends(self, scope: Sequence[str]) -> tuple[SourceEnd, ...]:
        await self.refresh()
        ends = await asyncio.to_thread(self._ends, scope)
        return tuple([await self._linked(end) for end in ends])

    def _ends(self, scope: Sequence[str]) -> list[SourceEnd]:
        prefixes = self._engine.prefixes(scope)
        with self._view.snapshot() as snapshot:
            found = []
            for prefix in prefixes:
                if is_empty_source(prefix):
                    found.append(SourceEnd(prefix=prefix, head=None))
                    continue
                source = snapshot.index.sources[prefix.stream, prefix.hub_id, prefix.label]
                found.append(SourceEnd(prefix=prefix_of(source), head=source.last_receipt))
        return found

    async def _linked(self, end: SourceEnd) -> SourceEnd:
        """Add the verified proofs up to the hub checkpoint; an empty or foreign source has none."""
        prefix = end.prefix
        if is_empty_source(prefix) or prefix.hub_id.hex() != self._executing.hub_id:
            return end
        if (link := await self._links.link(prefix)) is None:
            return end
        named = replace(prefix, checkpoint=checkpoint_text(link))
        check_link(named, link, self._identities[prefix.hub_id])
        return replace(end, prefix=named, link=link)

    async def execute(
        self, descriptor: QueryDescriptor, ends: Sequence[SourceEnd], executed_at: int, budget: Budget
    ) -> ExecutedQuery:
        return await asyncio.to_thread(self._execute, descriptor, ends, executed_at, budget)

    def _execute(
        self, descriptor: QueryDescriptor, ends: Sequence[SourceEnd], executed_at: int, budget: Budget
    ) -> ExecutedQuery:
        answer = self._engine.execute(descriptor, [end.prefix for end in ends], budget)
        budget.check()
        with self._view.snapshot() as snapshot:
            try:
                evidence = build_evidence(descriptor, answer, ViewEvidence(snapshot, ends), self._identities)
            except DamagedViewError as exc:
                raise execution_failed(exc.message, str(exc.action)) from exc
            except OSError as exc:
                raise execution_failed(f"the view cannot be read: {exc}", REBUILD) from exc
        budget.check()
        made = make_result(descriptor, answer, evidence, replace(self._executing, executed_at=executed_at))

        def encode(digest: ResultDigest) -> bytes:
            content = replace(made, digest_json=digest.canonical()).encode()
            if len(content) > MAX_RESULT_BYTES:
                raise QueryError(
                    QueryErrorCode.LIMIT_EXCEEDED,
                    f"the result file has {len(content)} bytes, at most {MAX_RESULT_BYTES} are allowed",
                    action="narrow the filter, or ask for less evidence",
                )
            return content

        rows = map(canonical_json.encode, answer.rows)
        return ExecutedQuery(rows=rows, digest=made.digest, file=encode)


class ViewEvidence:
    """Implements ``EvidenceSource``: heads and links as they were at submission, proofs from the view."""

    def __init__(self, snapshot: Snapshot, ends: Sequence[SourceEnd]) -> None:
        self._snapshot = snapshot
        self._ends = {_key(end.prefix): end for end in ends}

    def head(self, prefix: Prefix) -> bytes | None:
        return self._ends[_key(prefix)].head

    def proof(self, prefix: Prefix, seqs: Sequence[int]) -> bytes:
        return self._snapshot.nodes(prefix).prove_many(seqs, prefix.to_seq)

    def link(self, prefix: Prefix) -> HubLogLink | None:
        return self._ends[_key(prefix)].link


def receipt_at(snapshot: Snapshot, prefix: Prefix) -> bytes | None:
    """Return the receipt of the last entry of a prefix, from the view; None if it has no entries."""
    if is_empty_source(prefix):
        return None
    source = snapshot.source(prefix)
    if source.size == prefix.to_seq:
        return source.last_receipt
    files = snapshot.files(prefix.stream)
    wanted = (pc.field("label") == bytes(prefix.label)) & (pc.field("seq") == prefix.to_seq)
    wanted &= pc.field("hub_id") == bytes(prefix.hub_id)
    rows = dataset(snapshot.paths(files), format="parquet", partitioning=None).to_table(
        ["receipt"], filter=wanted
    )
    if rows.num_rows != 1:
        raise QueryError(
            QueryErrorCode.EXECUTION_FAILED,
            f"stream {prefix.stream}: the view has no receipt of entry {prefix.to_seq}",
            action=REBUILD,
        )
    receipt: bytes = rows["receipt"][0].as_py()
    return receipt


def _key(prefix: Prefix) -> tuple[str, bytes, bytes]:
    return prefix.stream, bytes(prefix.hub_id), bytes(prefix.label)


def checkpoint_text(link: HubLogLink) -> str:
    """Return the text of the checkpoint that a link leads to, without its signatures."""
    return parse_signed_head(link.checkpoint).head.text
