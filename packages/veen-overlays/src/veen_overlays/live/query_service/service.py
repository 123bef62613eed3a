"""The Query API without HTTP: submit, status, result, descriptor, evidence (query-api-spec §7, §8).

A submission is accepted in this order. Each step is durable before the next begins:

1. the job is on disk, as PENDING, with the ends of its logs and the end of record/query/requests;
2. the descriptor is in record/query/requests, and the job has the receipt; the client gets its answer;
3. a worker runs the job (``execution``): rows and result file, then the digest in record/query/results, and
   last the state COMPLETED.

Every access of an authenticated principal is written to the audit stream before it is answered. If the hub
does not take that record, the access is refused.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, TypeVar

from veen_core.errors import VeenError
from veen_overlays.live.query_service.backend import QueryBackend
from veen_overlays.live.query_service.counters import ServiceCounters
from veen_overlays.live.query_service.execution import Executor
from veen_overlays.live.query_service.job import JobState, QueryJob
from veen_overlays.live.query_service.job_store import JobStore
from veen_overlays.live.query_service.principals import ServicePrincipal
from veen_overlays.live.query_service.recording import (
    REQUESTS,
    HubUnavailableError,
    QueryRecords,
    RecordedAccess,
    outcome_of,
)
from veen_overlays.live.query_service.result_files import ResultFiles, RowPage, is_result_id
from veen_overlays.live.query_service.source_end import write_ends
from veen_overlays.query import canonical_json
from veen_overlays.query.errors import QueryError, QueryErrorCode
from veen_overlays.query.request.descriptor import QueryDescriptor, parse_descriptor, query_id_of
from veen_overlays.query.result.digest import result_id

T = TypeVar("T")
MAX_WAIT_SECONDS: Final = 30
"""Longest time that a status request may wait for the end of a query."""
DEFAULT_PAGE_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPage:
    """A page of a completed result."""

    digest: str
    result: dict[str, Any]
    """The ``RecordedAt`` of the digest, as JSON."""
    page: RowPage
    offset: int
    limit: int


@dataclass(slots=True, kw_only=True)
class QueryService:
    """One service. ``executor`` runs the jobs; the methods answer one request each."""

    backend: QueryBackend
    jobs: JobStore
    files: ResultFiles
    records: QueryRecords
    executor: Executor
    now: Callable[[], int]
    """The time in milliseconds."""
    counters: ServiceCounters = field(default_factory=ServiceCounters)
    randomness: Callable[[int], bytes] = os.urandom

    # --- the five operations

    async def submit(self, principal: ServicePrincipal, body: bytes) -> QueryJob:
        """Accept a query (query-api-spec 7.2)."""
        named: list[str] = []
        try:
            job = await self._accept(principal, body, named)
        except QueryError as exc:
            await self._audit(principal, "submit", named[0] if named else "-", {}, error=exc)
            raise
        parameters = {"descriptor": job.descriptor, "result_id": job.result_id}
        await self._audit(principal, "submit", job.query_id, parameters)
        return job

    async def _accept(self, principal: ServicePrincipal, body: bytes, named: list[str]) -> QueryJob:
        descriptor = parse_descriptor(body, new_query_id=query_id_of(self.randomness(16)))
        named.append(descriptor.query_id)
        self._check_scope(principal, descriptor)
        if self.jobs.by_query(descriptor.query_id) is not None:  # early: ``add`` checks it again
            raise QueryError(
                QueryErrorCode.DUPLICATE_QUERY_ID,
                f"query_id {descriptor.query_id} was submitted before",
                action="leave query_id out, or choose another one",
            )
        ends = await self._hub(self.backend.ends(descriptor.scope))
        job = QueryJob(
            result_id=result_id(descriptor, [end.prefix for end in ends]),
            query_id=descriptor.query_id,
            principal=principal.name,
            descriptor=descriptor.canonical().decode(),
            ends=write_ends(ends),
            submitted_at=self.now(),
            request_mark=await self._hub(self.records.end(REQUESTS)),
        )
        await asyncio.to_thread(self.jobs.add, job, max_pending=principal.limits.max_pending)
        try:
            job = await self._hub(self.executor.record_request(job))
        finally:
            self.executor.enqueue(job.result_id)
        return job

    def _check_scope(self, principal: ServicePrincipal, descriptor: QueryDescriptor) -> None:
        """Refuse streams that are unknown or not the principal's, without revealing which."""
        for stream in descriptor.scope:
            if stream not in self.backend.streams or not principal.may_read(stream):
                raise QueryError(
                    QueryErrorCode.FORBIDDEN_SCOPE,
                    f"{principal.name} may not query the stream {stream!r}, or it does not exist",
                    action="ask the operator of the service for access",
                )

    async def status(self, principal: ServicePrincipal, name: str, wait: int) -> QueryJob:
        """Return a job, after at most ``wait`` seconds if it has not finished before (query-api-spec 7.3)."""
        async with self._audited(principal, "status", name, {}) as audited:
            job = self._job_of(principal, name)
            if wait and job.state not in (JobState.COMPLETED, JobState.FAILED):
                await self.executor.wait_finished(job.result_id, min(wait, MAX_WAIT_SECONDS))
                job = self._job_of(principal, name)
            audited.note(job)
            return job

    async def result(self, principal: ServicePrincipal, name: str, offset: int, limit: int) -> ResultPage:
        """Return a page of a completed result (query-api-spec 7.4)."""
        limit = min(limit, principal.limits.max_page_rows)
        async with self._audited(principal, "result", name, {"offset": offset, "limit": limit}) as audited:
            job = self._completed(principal, name)
            try:
                page = await asyncio.to_thread(self.files.page, job.result_id, offset, limit)
            except FileNotFoundError:  # the result expired after the state was read
                raise _expired(name) from None
            audited.note(job)
            assert job.digest is not None
            assert job.result is not None
            return ResultPage(
                digest=job.digest, result=job.result.as_json(), page=page, offset=offset, limit=limit
            )

    async def descriptor(self, principal: ServicePrincipal, query_id: str) -> QueryJob:
        """Return the job of a query_id, whose request is recorded (query-api-spec 7.5)."""
        async with self._audited(principal, "descriptor", query_id, {}) as audited:
            job = self.jobs.by_query(query_id)
            if job is None or job.request is None or not self._may_see(principal, job):
                raise not_found("query_id", query_id)
            audited.note(job)
            return job

    async def evidence(self, principal: ServicePrincipal, name: str) -> BinaryIO:
        """Open the result file of a completed job; the caller closes it."""
        async with self._audited(principal, "evidence", name, {}) as audited:
            job = self._completed(principal, name)
            audited.note(job)
            try:
                return self.files.path(job.result_id, ".veenq").open("rb")
            except FileNotFoundError:  # as above
                raise _expired(name) from None

    # --- what a principal may see

    def _may_see(self, principal: ServicePrincipal, job: QueryJob) -> bool:
        if principal.results != "all" and job.principal != principal.name:
            return False
        scope: Any = canonical_json.decode(job.descriptor)
        return all(map(principal.may_read, scope["scope"]))

    def _job_of(self, principal: ServicePrincipal, name: str) -> QueryJob:
        job = self.jobs.by_result(name) if is_result_id(name) else None
        if job is None or job.request is None or not self._may_see(principal, job):
            raise not_found("result_id", name)
        return job

    def _completed(self, principal: ServicePrincipal, name: str) -> QueryJob:
        job = self._job_of(principal, name)
        if job.state is JobState.FAILED:
            raise QueryError(
                QueryErrorCode.EXECUTION_FAILED,
                f"query {job.query_id} failed, {job.error_code}: {job.message}",
            )
        if job.state is not JobState.COMPLETED:
            raise QueryError(
                QueryErrorCode.RESULT_NOT_READY,
                f"result {name} is {job.state}",
                action=f"ask again, or wait with /api/query/status/{name}?wait=30",
            )
        if job.is_deleted:
            raise _expired(name)
        return job

    # --- audit (spec-3 §9)

    async def audit_refusal(
        self, principal: ServicePrincipal, operation: str, resource: str, error: QueryError
    ) -> None:
        """Record an access that was refused before it reached its operation."""
        await self._audit(principal, operation, resource, {}, error=error)

    def _audited(
        self, principal: ServicePrincipal, operation: str, resource: str, parameters: Mapping[str, Any]
    ) -> AuditedAccess:
        return AuditedAccess(self, principal, operation, resource, parameters)

    async def _audit(
        self,
        principal: ServicePrincipal,
        operation: str,
        resource: str,
        parameters: Mapping[str, Any],
        *,
        error: QueryError | None = None,
        rows_hash: str | None = None,
    ) -> None:
        access = RecordedAccess(
            principal=principal,
            operation=operation,
            resource=resource[:256],
            parameters=parameters,
            outcome=outcome_of(error),
            rows_hash=rows_hash,
        )
        await self._hub(self.records.access(access))

    async def _hub(self, work: Awaitable[T]) -> T:
        """Await a request to the hub; its failure becomes the answer 503, not an error of the client."""
        try:
            return await work
        except QueryError:
            raise
        except VeenError as exc:
            self.counters.record_failures += 1
            raise HubUnavailableError(
                f"the hub did not take a record of this access: {exc.message}", action="try again later"
            ) from exc


class AuditedAccess:
    """A block whose outcome is written to the audit stream before its value reaches the client."""

    def __init__(
        self,
        service: QueryService,
        principal: ServicePrincipal,
        operation: str,
        resource: str,
        parameters: Mapping[str, Any],
    ) -> None:
        self._service, self._principal = service, principal
        self._operation, self._resource, self._parameters = operation, resource, parameters
        self._rows_hash: str | None = None

    def note(self, job: QueryJob) -> None:
        """Note the result that was read."""
        if job.digest is not None:
            digest: Any = canonical_json.decode(job.digest)
            self._rows_hash = digest["rows_hash"]

    async def __aenter__(self) -> AuditedAccess:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, QueryError):
            return
        await self._service._audit(
            self._principal,
            self._operation,
            self._resource,
            self._parameters,
            error=error,
            rows_hash=self._rows_hash,
        )


def _expired(name: str) -> QueryError:
    return QueryError(
        QueryErrorCode.QUERY_NOT_FOUND,
        f"the rows of result {name} have expired and were deleted",
        action="submit the query again",
    )


def not_found(what: str, name: str) -> QueryError:
    """Return the error of an id that does not exist, or that the principal may not see."""
    return QueryError(QueryErrorCode.QUERY_NOT_FOUND, f"there is no {what} {name[:80]!r} for this principal")
