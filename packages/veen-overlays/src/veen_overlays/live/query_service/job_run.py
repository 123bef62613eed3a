"""Run one accepted query: within limits, once, and again after an interruption (query-api-spec §8).

A run goes through these steps. A process that is killed between two of them is continued at the next start:

1. RUNNING, with one more attempt; after ``MAX_ATTEMPTS`` the job is FAILED: a query that crashes the process
   must not crash it again at every start;
2. the engine answers, and the evidence is verified; limits of the principal apply;
3. the end of record/query/results is noted; rows and result file are durable;
4. the digest is recorded: this commits the result (8.2). A later run finds the digest of an earlier one and
   executes nothing: its files are durable, and a committed result is never FAILED (8.1);
5. COMPLETED.

A hub that is unavailable is not a failure of the query: the job waits and is tried again. Every other error,
such as a damaged view, fails it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from veen_core.errors import VeenError
from veen_overlays.live.query_service.backend import ExecutedQuery, QueryBackend
from veen_overlays.live.query_service.counters import ServiceCounters
from veen_overlays.live.query_service.job import JobState, QueryJob, RecordedAt
from veen_overlays.live.query_service.job_store import JobStore
from veen_overlays.live.query_service.principals import PrincipalLimits
from veen_overlays.live.query_service.recording import (
    REQUESTS,
    RESULT,
    RESULTS,
    SUBMITTED,
    HubUnavailableError,
    QueryRecords,
)
from veen_overlays.live.query_service.result_files import ResultFiles, ResultTooLargeError
from veen_overlays.live.query_service.service_log import LOGGER, log
from veen_overlays.live.query_service.source_end import read_ends
from veen_overlays.query import canonical_json
from veen_overlays.query.engine import Budget
from veen_overlays.query.errors import QueryError, QueryErrorCode
from veen_overlays.query.request.descriptor import QueryDescriptor, parse_descriptor

MAX_ATTEMPTS: Final = 3
FIRST_PAUSE_SEC: Final = 0.2
MAX_PAUSE_SEC: Final = 10.0


class JobRunner:
    """Runs one job at a time per call. ``stopping`` ends running queries; they are run again later."""

    def __init__(
        self,
        backend: QueryBackend,
        jobs: JobStore,
        files: ResultFiles,
        records: QueryRecords,
        *,
        limits_of: Callable[[QueryJob], PrincipalLimits],
        now: Callable[[], int],
        counters: ServiceCounters,
    ) -> None:
        self._backend, self._jobs, self._files, self._records = backend, jobs, files, records
        self._limits_of, self._now, self._counters = limits_of, now, counters
        self.stopping = False

    async def record_request(self, job: QueryJob) -> QueryJob:
        """Record the request of a job and note its receipt; return the job with the receipt."""
        request = await self._records.request(job.descriptor, job.principal)
        await asyncio.to_thread(self._jobs.change, job.result_id, request=request)
        self._counters.records[REQUESTS] += 1
        return replace(job, request=request)

    async def run(self, job: QueryJob) -> None:
        """Run a job to its end; retry only while the hub is unavailable."""
        pause = FIRST_PAUSE_SEC
        while True:
            try:
                await self._run_once(job)
                return
            except QueryError as exc:
                await self._fail(job, exc)
                return
            except ResultTooLargeError as exc:
                await self._fail(
                    job, QueryError(QueryErrorCode.LIMIT_EXCEEDED, exc.message, action=exc.action)
                )
                return
            except HubUnavailableError as exc:
                self._counters.record_failures += 1
                log(logging.WARNING, "query_waits", result_id=job.result_id, error=str(exc), pause_sec=pause)
            except VeenError as exc:
                why = QueryError(QueryErrorCode.EXECUTION_FAILED, exc.message, action=exc.action)
                await self._fail(job, why)
                return
            except Exception:  # noqa: BLE001 - logged; a bug fails the query, not the service
                LOGGER.exception("query_crashed", extra={"fields": {"result_id": job.result_id}})
                bug = "this is a bug: see the service's log"
                await self._fail(job, QueryError(QueryErrorCode.INTERNAL_ERROR, bug))
                return
            await asyncio.sleep(pause)
            pause = min(MAX_PAUSE_SEC, pause * 2)
            fresh = self._jobs.by_result(job.result_id)
            assert fresh is not None
            job = fresh

    async def _run_once(self, job: QueryJob) -> None:
        if job.request is None:
            job = await self._continue_request(job)
        committed = await self._committed(job)
        if job.state is not JobState.RUNNING:
            if job.attempts >= MAX_ATTEMPTS and committed is None:
                raise QueryError(
                    QueryErrorCode.EXECUTION_FAILED, f"the query was interrupted {job.attempts} times"
                )
            await asyncio.to_thread(
                self._jobs.change, job.result_id, state=JobState.RUNNING, attempts=job.attempts + 1
            )
        started = time.monotonic()
        if committed is None:
            descriptor = parse_descriptor(job.descriptor.encode(), new_query_id=job.query_id)
            committed = await self._commit(job, await self._execute(job, descriptor))
        await self._complete(job, *committed)
        seconds = time.monotonic() - started
        self._counters.finished["completed"] += 1
        self._counters.seconds += seconds
        log(
            logging.INFO,
            "query_completed",
            result_id=job.result_id,
            query_id=job.query_id,
            principal=job.principal,
            seconds=round(seconds, 3),
        )

    async def _continue_request(self, job: QueryJob) -> QueryJob:
        """Find the request that a killed process may have recorded; otherwise record it."""
        found = await self._records.find(
            REQUESTS, job.request_mark, SUBMITTED, lambda payload: payload == job.descriptor
        )
        if found is None:
            return await self.record_request(job)
        await asyncio.to_thread(self._jobs.change, job.result_id, request=found[0])
        return replace(job, request=found[0])

    async def _execute(self, job: QueryJob, descriptor: QueryDescriptor) -> ExecutedQuery:
        limits = self._limits_of(job)
        deadline = time.monotonic() + limits.max_seconds
        budget = Budget(
            max_rows=limits.max_rows,
            max_bytes=limits.max_result_bytes,
            stop=lambda: self.stopping or time.monotonic() > deadline,
        )
        try:
            executed = await self._backend.execute(descriptor, read_ends(job.ends), self._now(), budget)
            await asyncio.to_thread(self._write, job, executed, limits)
        except QueryError:
            if self.stopping:
                raise asyncio.CancelledError from None
            if time.monotonic() > deadline:
                raise QueryError(
                    QueryErrorCode.LIMIT_EXCEEDED,
                    f"the query ran longer than {limits.max_seconds} s",
                    action="narrow the filter or the time",
                ) from None
            raise
        return executed

    def _write(self, job: QueryJob, executed: ExecutedQuery, limits: PrincipalLimits) -> None:
        with self._files.rows(
            job.result_id, max_rows=limits.max_rows, max_bytes=limits.max_result_bytes
        ) as writer:
            for row in executed.rows:
                writer.add(row)
            self._counters.rows += writer.count

    async def _committed(self, job: QueryJob) -> tuple[RecordedAt, str] | None:
        """Return the digest that an earlier run recorded, and its position in the log (8.2)."""
        if job.result_mark is None:
            return None
        return await self._records.find(
            RESULTS, job.result_mark, RESULT, lambda payload: _is_of(payload, job)
        )

    async def _commit(self, job: QueryJob, executed: ExecutedQuery) -> tuple[RecordedAt, str]:
        """Make the result file durable, then record the digest."""
        if job.result_mark is None:
            mark = await self._records.end(RESULTS)
            await asyncio.to_thread(self._jobs.change, job.result_id, result_mark=mark)
        file = await asyncio.to_thread(executed.file, executed.digest)
        await asyncio.to_thread(self._files.write_evidence, job.result_id, file)
        text = executed.digest.canonical().decode()
        recorded = await self._records.result(text)  # the commit point of a result (8.2)
        self._counters.records[RESULTS] += 1
        return recorded, text

    async def _complete(self, job: QueryJob, recorded: RecordedAt, digest: str) -> None:
        await asyncio.to_thread(
            self._jobs.change,
            job.result_id,
            state=JobState.COMPLETED,
            digest=digest,
            result=recorded,
            finished_at=self._now(),
        )

    async def _fail(self, job: QueryJob, error: QueryError) -> None:
        self._counters.finished[str(error.code)] += 1
        log(
            logging.INFO,
            "query_failed",
            result_id=job.result_id,
            query_id=job.query_id,
            principal=job.principal,
            error_code=str(error.code),
            error=error.message,
        )
        await asyncio.to_thread(self._files.delete, job.result_id)
        await asyncio.to_thread(
            self._jobs.change,
            job.result_id,
            state=JobState.FAILED,
            error_code=str(error.code),
            message=str(error),
            finished_at=self._now(),
        )


def _is_of(payload: str, job: QueryJob) -> bool:
    try:
        digest: Any = canonical_json.decode(payload)
    except QueryError:
        return False
    return isinstance(digest, dict) and digest.get("result_id") == job.result_id
